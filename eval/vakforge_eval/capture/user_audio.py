"""What the user's stream held, decoded again from the recorded messages."""

from __future__ import annotations

import base64
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vakforge_eval.capture import strict_json
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.fields import Fields
from vakforge_eval.capture.format import HEADER
from vakforge_eval.capture.reader import Capture
from vakforge_eval.signal.pcm import CODECS, PcmDecoder

__all__ = ["SentAudio", "sent_payload"]

_KEPT_FRAMES = 512
"""Neighbours ask for the same second again."""

Pcm = npt.NDArray[np.int16]


def sent_payload(capture: Capture, form: Fields, record: np.void) -> bytes:
    """Return the coded audio of one frame that was sent; `form` is the header's user_audio.

    Raises
    ------
    CaptureError
        If the message is damaged, or its audio is not where the header says.
    """
    message, locator = capture.payload(record), form.text("locator")
    try:
        match form.text("transfer"):
            case "binary":
                return message[int(locator or 0) :]
            case "json_base64":
                text = strict_json.pointed(strict_json.loads(message), locator)
                return base64.b64decode(text, validate=True)
            case _:
                raise ValueError("unknown transfer")
    except (LookupError, TypeError, ValueError) as error:
        raise CaptureError("the user's audio is not where the header says") from error


class SentAudio:
    """The samples of the user's stream; a frame is read when it is first asked for.

    Parameters
    ----------
    frames
        Records of the user's audio frames; the k-th carries samples ``[k·L, (k+1)·L)``.
    frame_samples
        L.
    """

    def __init__(self, capture: Capture, frames: npt.NDArray[np.void], frame_samples: int) -> None:
        self._capture, self._frames, self._length = capture, frames, frame_samples
        self._form = Fields(capture.header.get("user_audio"), f"{HEADER}: user_audio")
        self._frame = lru_cache(_KEPT_FRAMES)(self._decoded)

    def samples(self, start: int, stop: int) -> Pcm:
        """Return samples ``[start, stop)``; zeros where none was sent or it cannot be read."""
        out = np.zeros(max(0, stop - start), np.int16)
        for k in self._frames_of(start, stop):
            at = k * self._length - start
            lo = max(at, 0)
            pcm = self._frame(k)[lo - at : len(out) - at]
            out[lo : lo + len(pcm)] = pcm
        return out

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return from where to where samples of ``[start, stop)`` were sent but cannot be read."""
        found = []
        for k in self._frames_of(start, stop):
            at, end = k * self._length, (k + 1) * self._length
            read = at + len(self._frame(k))
            if max(read, start) < min(end, stop):
                found.append((max(read, start), min(end, stop)))
        return found

    def _frames_of(self, start: int, stop: int) -> range:
        last = min(len(self._frames), -(-stop // self._length))
        return range(max(0, start // self._length), last)

    def _decoded(self, frame: int) -> Pcm:
        """Return what can be read of a frame, from its first sample on."""
        try:
            codec = self._form.text("codec")
            data = sent_payload(self._capture, self._form, self._frames[frame])
        except CaptureError:
            return np.zeros(0, np.int16)
        if codec not in CODECS:
            return np.zeros(0, np.int16)
        return PcmDecoder(codec).feed(data)[: self._length]
