"""The agent's audio, decoded again from the recorded messages."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from vakforge_eval.capture import strict_json
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.reader import Capture
from vakforge_eval.signal.codecs import DECODABLE, UNPARTED, CodecMissing, Decoder, make_decoder
from vakforge_eval.signal.gate import MIN_RATE_HZ
from vakforge_eval.timeline.call import AgentAudio
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.records import Direction

__all__ = ["MAX_RATE_HZ", "decode_audio"]

MAX_RATE_HZ = 96_000

_NO_SAMPLES = np.zeros(0, np.int16)
_Sized = TypeVar("_Sized", str, bytes)
_StreamKey = tuple[str | None, str, int]


def decode_audio(
    capture: Capture, chunks: Iterable[tuple[AudioChunk, int | None]]
) -> tuple[AgentAudio, ...]:
    """Return the audio of `chunks`, each with the seq of its message, in their order.

    A sample that is split over two chunks of a response is put together. A chunk is marked corrupt
    when its message is missing, its payload is not where the event says or not in the stated form,
    its codec or rate is unknown, it holds floats that are no numbers, or its response ends inside
    a sample (which may have shifted all before).

    Raises
    ------
    CaptureError
        If a message is damaged, the audio is longer than the bound, or the library of its codec is
        not installed.
    """
    decoder = _Decoder(capture)
    try:
        for chunk, seq in chunks:
            decoder.add(chunk, seq)
    except CodecMissing as error:
        raise CaptureError(str(error)) from None
    return decoder.finish()


@dataclass(slots=True)
class _Stream:
    decoder: Decoder
    last: int = -1
    """Place of its latest chunk."""


class _Decoder:
    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        frames = capture.frames
        self._records = frames[frames["direction"] == Direction.AGENT]
        self._streams: dict[_StreamKey, _Stream] = {}
        self._seq, self._message = -1, b""
        self._json: Any = None
        self._is_parsed = False
        # Each message is read once, and its parts are decoded once.
        self._left_bytes = 2 * int(np.sum(self._records["length"], dtype=np.int64))
        self._left_s = capture.bounds.audio_s
        self._audio: list[AgentAudio] = []

    def add(self, chunk: AudioChunk, seq: int | None) -> None:
        rate = chunk.rate_hz
        is_known = chunk.codec in DECODABLE and MIN_RATE_HZ <= rate <= MAX_RATE_HZ
        data = self._payload(chunk, seq) if is_known else None
        pcm, is_corrupt = _NO_SAMPLES, True
        if data is not None:
            parted = None if chunk.codec in UNPARTED else chunk.response_id
            key = (parted, chunk.codec, rate)
            if key not in self._streams:
                self._streams[key] = _Stream(make_decoder(chunk.codec))
            stream = self._streams[key]
            n_corrupt = stream.decoder.n_corrupt
            pcm = stream.decoder.feed(data)
            is_corrupt = stream.decoder.n_corrupt > n_corrupt
            stream.last = len(self._audio)
            self._left_s -= len(pcm) / rate
        if self._left_s < 0:
            raise CaptureError(f"more than {self._capture.bounds.audio_s:g} s of agent audio")
        self._audio.append(
            AgentAudio(
                arrival=chunk.at,
                pcm=pcm,
                rate_hz=rate if is_known else MAX_RATE_HZ,
                response_id=chunk.response_id,
                item_id=chunk.item_id,
                seq=-1 if seq is None else seq,
                is_corrupt=is_corrupt,
                codec=chunk.codec,
            )
        )

    def finish(self) -> tuple[AgentAudio, ...]:
        for stream in self._streams.values():
            if stream.decoder.pending:
                self._audio[stream.last] = replace(self._audio[stream.last], is_corrupt=True)
        return tuple(self._audio)

    def _payload(self, chunk: AudioChunk, seq: int | None) -> bytes | None:
        if seq is None or not 0 <= seq < len(self._records):
            return None
        self._read(seq)
        try:
            if chunk.transfer == "binary":
                begin, _, end = chunk.locator.partition(":")
                place = slice(int(begin or 0), int(end) if end else None)
                is_sound = place.start >= 0 and (place.stop is None or place.stop >= 0)
                return self._paid(self._message[place]) if is_sound else None
            if chunk.transfer == "json_base64":
                text = strict_json.pointed(self._parsed(), chunk.locator)
                return base64.b64decode(self._paid(text), validate=True)
        except (ValueError, LookupError, TypeError):
            return None
        return None

    def _read(self, seq: int) -> None:
        """Make message `seq` the current one; one with several chunks is read and parsed once."""
        if seq == self._seq:
            return
        self._seq, self._json = seq, None
        self._message = self._paid(self._capture.payload(self._records[seq]))
        self._is_parsed = False

    def _parsed(self) -> Any:
        """Return the current message as JSON; some targets send it in binary messages."""
        if not self._is_parsed:
            self._is_parsed = True
            with suppress(ValueError):
                self._json = strict_json.loads(self._message)
        return self._json

    def _paid(self, data: _Sized) -> _Sized:
        """Return `data`; a journal that points at the same bytes over and over is refused."""
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise CaptureError("audio events point at more audio than there is")
        return data
