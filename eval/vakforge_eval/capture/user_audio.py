"""What the user's stream held, decoded again from the recorded messages."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vakforge_eval.capture import strict_json
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.fields import Fields
from vakforge_eval.capture.format import HEADER
from vakforge_eval.capture.reader import Capture
from vakforge_eval.signal.codecs import STATEFUL, UNPARTED, CodecMissing, Decoder, make_decoder
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

    Where frames build on each other, all are then read, in their order.

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
        self._whole: list[Pcm] | None = None
        codec = capture.header["user_audio"].get("codec")
        is_stateful = isinstance(codec, str) and codec in STATEFUL
        self._frame: Callable[[int], Pcm] = (
            self._of_whole if is_stateful else lru_cache(_KEPT_FRAMES)(self._decoded)
        )

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

    def _of_whole(self, frame: int) -> Pcm:
        if self._whole is None:
            try:
                self._whole = self._all_decoded()
            except CodecMissing:
                self._whole = [np.zeros(0, np.int16)] * len(self._frames)
        return self._whole[frame]

    def _all_decoded(self) -> list[Pcm]:
        """Return all frames, each of which builds on those before it, as they were put in.

        What the coder looks ahead is cut away at the beginning, so that the last of it is never
        known. A frame that does not hold what it should counts as unread, and all others keep
        their place.
        """
        import soxr

        from vakforge_eval.signal.opus import LOOK_AHEAD, OPUS_RATE_HZ

        codec, rate_hz = self._form.text("codec"), self._form.integer("rate_hz")
        decoder, n_frames = make_decoder(codec), len(self._frames)
        resampler = soxr.ResampleStream(OPUS_RATE_HZ, rate_hz, 1, dtype="int16")
        parts, unread, n_decoded = [np.zeros(0, np.int16)], set(), 0
        for k in range(n_frames):
            pcm = self._fed(decoder, k)
            if k == 0 and codec not in UNPARTED:
                pcm = pcm[LOOK_AHEAD:]  # no header told the decoder to
            n_due = (k + 1) * self._length * OPUS_RATE_HZ // rate_hz - LOOK_AHEAD - n_decoded
            if len(pcm) != n_due:
                unread.add(k)
                pcm = np.resize(np.append(pcm, np.zeros(n_due, np.int16)), n_due)
            n_decoded += n_due
            parts.append(resampler.resample_chunk(pcm, last=k == n_frames - 1))
        whole = np.concatenate(parts)
        frames = np.split(whole, range(self._length, n_frames * self._length, self._length))
        return [f[: 0 if k in unread else self._length] for k, f in enumerate(frames)]

    def _fed(self, decoder: Decoder, frame: int) -> Pcm:
        try:
            return decoder.feed(sent_payload(self._capture, self._form, self._frames[frame]))
        except CaptureError:
            return np.zeros(0, np.int16)
