"""Pipecat's frames on a WebSocket: the few Protocol Buffers messages of its serializer, both ways.

A message is one ``Frame``, a choice of text (1), audio (2), transcription (3), message (4) and
interruption (5). Encoding is that of Protocol Buffers: a key of field number and kind, then a
number of 7-bit groups or a length and as many bytes. What is not known is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vakforge_probe.protocol.strict import StrictError

__all__ = ["Audio", "Frame", "Interruption", "Message", "Other", "read_frame", "write_frame"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_N_FIXED = {_FIXED64: 8, _FIXED32: 4}
_AUDIO, _MESSAGE, _INTERRUPTION = 2, 4, 5
MAX_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class Audio:
    """16-bit PCM; `begin` is where its bytes lie in the message that it was read from."""

    data: bytes
    rate_hz: int
    channels: int = 1
    begin: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON text of the application."""

    text: str


@dataclass(frozen=True, slots=True)
class Interruption:
    """Drop what is queued."""


@dataclass(frozen=True, slots=True)
class Other:
    """A frame of another kind, by its field number."""

    number: int


Frame = Audio | Message | Interruption | Other


def write_frame(frame: Audio | Message | Interruption) -> bytes:
    """Return a frame as one message; the bytes of audio stand at its end."""
    match frame:
        case Audio(data, rate_hz, channels):
            inside = _number(4, rate_hz) + _number(5, channels) + _bytes(3, data)
            return _bytes(_AUDIO, inside)
        case Message(text):
            return _bytes(_MESSAGE, _bytes(1, text.encode("utf-8")))
        case Interruption():
            return _bytes(_INTERRUPTION, b"")


def read_frame(data: bytes) -> Frame:
    """Return the frame in a message; of several the last counts, as the format has it.

    Raises
    ------
    StrictError
        If it is not whole, or not a frame.
    """
    frame: Frame | None = None
    for number, begin, end, _ in _fields(data, 0, len(data)):
        if end is None:
            continue
        match number:
            case 2:  # audio
                frame = _audio(data, begin, end)
            case 4:  # message
                frame = _message(data, begin, end)
            case 5:  # interruption
                frame = Interruption()
            case _:
                frame = Other(number)
    if frame is None:
        raise StrictError("not a frame of pipecat's serializer")
    return frame


def _audio(data: bytes, begin: int, end: int) -> Audio:
    rate_hz, channels, place = 0, 1, (begin, begin)
    for number, start, stop, value in _fields(data, begin, end):
        if number == 3 and stop is not None:
            place = (start, stop)
        elif number == 4 and stop is None:
            rate_hz = value
        elif number == 5 and stop is None:
            channels = value
    return Audio(data[place[0] : place[1]], rate_hz, channels, place[0])


def _message(data: bytes, begin: int, end: int) -> Message:
    text = b""
    for number, start, stop, _ in _fields(data, begin, end):
        if number == 1 and stop is not None:
            text = data[start:stop]
    try:
        return Message(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise StrictError("not UTF-8") from None


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int | None, int]]:
    """Yield (number, begin, end, value) of each field; end is None for a number."""
    while at < end:
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at, end)
            yield number, at, None, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at, end)
        elif kind in _N_FIXED:
            length = _N_FIXED[kind]
        else:
            raise StrictError("a field of an unknown kind")
        if length > end - at:
            raise StrictError("a frame that is not whole")
        if kind == _BYTES:
            yield number, at, at + length, 0
        at += length


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for i in range(MAX_VARINT_BYTES):
        if at + i >= end:
            break
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise StrictError("a number that is not whole")


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(number: int, value: int) -> bytes:
    return _as_varint(number << 3 | _VARINT) + _as_varint(value)


def _bytes(number: int, data: bytes) -> bytes:
    return _as_varint(number << 3 | _BYTES) + _as_varint(len(data)) + data
