"""The fixed 64-byte record: one for each frame sent and each message received.

Layout (little endian)::

    u8 direction   u8 flags   u16 kind   u32 seq
    i64 due        i64 before i64 after  i64 lo     i64 hi
    u64 offset     u32 length u32 crc

`seq` counts the messages of one direction from 0. For a **sent** message `due` is its planned
moment (0 with `Flags.NO_DUE`), `before`/`after` the clock around the write, ``[lo, hi]`` the same
as an interval. For a **received** one `due` holds the kernel's stamp on the monotonic clock
(0 with `Flags.NO_KERNEL`), `before` the entry of the previous select, `after` the clock right
after the read, ``[lo, hi]`` the proven interval of its arrival.

`offset` and `length` locate the payload in ``user.wire`` or ``agent.wire``; `crc` is the CRC-32 of
the record's first 60 bytes followed by the payload, so a record vouches for its message too.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["RECORD_DTYPE", "RECORD_SIZE", "Direction", "Flags", "Kind", "Record"]


class Direction(IntEnum):
    """Who sent the message."""

    USER = 0
    AGENT = 1


class Kind(IntEnum):
    """What a message is to the recorder."""

    CONTROL = 0
    """Anything that is not one frame of the user's audio (all received messages are this)."""
    AUDIO = 1
    """One frame of the user's stream; the n-th of them holds the stream's n-th frame."""


class Flags(IntFlag):
    """Facts about the stamp."""

    NONE = 0
    NO_DUE = 1
    NO_KERNEL = 2
    COALESCED = 4
    """The read held the end of more than one message, so the kernel stamp is not this one's own."""
    BACK_PRESSURE = 8
    """The transport still held bytes after the write."""
    BINARY = 16
    """The message was binary, not text."""
    REANCHORED = 32
    """The schedule was moved by whole frames right before this one."""


_STRUCT = struct.Struct("<BBHIqqqqqQI")
_CRC = struct.Struct("<I")
RECORD_SIZE = _STRUCT.size + _CRC.size

RECORD_DTYPE = np.dtype(
    [
        ("direction", "u1"),
        ("flags", "u1"),
        ("kind", "<u2"),
        ("seq", "<u4"),
        ("due", "<i8"),
        ("before", "<i8"),
        ("after", "<i8"),
        ("lo", "<i8"),
        ("hi", "<i8"),
        ("offset", "<u8"),
        ("length", "<u4"),
        ("crc", "<u4"),
    ]
)
assert RECORD_SIZE == RECORD_DTYPE.itemsize == 64  # noqa: S101 - the format's one invariant


class Record(NamedTuple):
    """One record; see the module's text for the meaning of each field."""

    direction: int
    flags: int
    kind: int
    seq: int
    due: int
    before: int
    after: int
    lo: int
    hi: int
    offset: int
    length: int

    def pack(self, payload: bytes) -> bytes:
        """Return the 64 bytes of this record, with the CRC over itself and `payload`."""
        head = _STRUCT.pack(*self)
        return head + _CRC.pack(zlib.crc32(payload, zlib.crc32(head)))


def unpack(data: bytes | memoryview) -> tuple[Record, int]:
    """Return the record in the first 64 bytes of `data`, and its stored CRC."""
    return Record(*_STRUCT.unpack_from(data)), _CRC.unpack_from(data, _STRUCT.size)[0]


def crc_of(record: bytes | memoryview, payload: bytes | memoryview) -> int:
    """Return the CRC-32 that a record's first 60 bytes and its payload must have."""
    return zlib.crc32(payload, zlib.crc32(record[: _STRUCT.size]))


def as_array(data: bytes) -> npt.NDArray[np.void]:
    """Return whole records as a structured array; a torn tail is left out."""
    return np.frombuffer(data[: len(data) // RECORD_SIZE * RECORD_SIZE], dtype=RECORD_DTYPE)
