"""Ogg pages (RFC 3533) and Opus in them (RFC 7845), as state machines without I/O.

It is a container and no analysis of sound, so the probe and the agent that it is held against share
it; other implementations check it in the tests.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

__all__ = ["MAX_PACKET_BYTES", "OggPacket", "OggReader", "OggWriter", "OpusHead", "is_header"]

MAX_PACKET_BYTES = 61_440
"""The largest packet of Opus: 120 ms, 48 frames of 1275 bytes, and what tells their lengths."""

_CAPTURE = b"OggS\0"
_HEAD = struct.Struct("<5sBqIIIB")
"""Capture pattern with the version, flags, granule, serial and sequence number, CRC, segments."""
_CONTINUED, _FIRST = 1, 2
_CRC_AT = 22
_MAX_SEGMENTS = 255
_LONG = 255
"""A segment of this length has the packet go on in the next one."""
_NO_GRANULE = -1
_HEAD_MAGIC, _TAGS_MAGIC = b"OpusHead", b"OpusTags"
_OPUS_HEAD = struct.Struct("<8sBBHIhB")
"""Magic, version, channels, pre-skip, rate, gain, mapping."""
_REVERSED = bytes(int(f"{n:08b}"[::-1], 2) for n in range(256))


class OggPacket(NamedTuple):
    """A packet; `granule` is that of its page if it is the last to end there, else None."""

    data: bytes
    granule: int | None


class OggReader:
    """Takes bytes as they come and gives the packets that they complete; never raises.

    Of several streams the one whose first page came last is followed.

    Attributes
    ----------
    n_corrupt
        How often something was no page, a page was damaged or missing, or a packet was longer than
        `MAX_PACKET_BYTES`. What it held is left out, and reading goes on at the next page.
    """

    def __init__(self) -> None:
        self.n_corrupt = 0
        self._data = bytearray()
        self._is_lost = self._has_failed = False
        self._serial: int | None = None
        self._sequence = 0
        self._part: bytearray | None = bytearray()
        """Of a packet that goes on in the next page; None: its beginning is missing."""

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their page or packet."""
        return len(self._data) + len(self._part or b"")

    def feed(self, data: bytes) -> list[OggPacket]:
        """Return the packets that `data` completes."""
        self._data += data
        packets: list[OggPacket] = []
        while (page := self._take_page()) is not None:
            packets += self._read(page)
        return packets

    def _take_page(self) -> bytes | None:
        while self._is_in_step():
            body = _HEAD.size + self._data[_HEAD.size - 1]
            if len(self._data) < body:
                return None
            end = body + sum(self._data[_HEAD.size : body])
            if len(self._data) < end:
                return None
            page = bytes(self._data[:end])
            if _checksum(page) == _HEAD.unpack_from(page)[5]:
                del self._data[:end]
                self._is_lost = self._has_failed = False
                return page
            # A true page may lie within what is none. Looked for only once, it costs no more
            # than twice the bytes, whatever they are made to look like.
            self._lose(end if self._has_failed else 1)
            self._has_failed = True
        return None

    def _is_in_step(self) -> bool:
        """Skip to what may be a page; return whether all of its fixed part is there."""
        at = self._data.find(_CAPTURE)
        if at < 0:
            ends = (n for n in (4, 3, 2, 1, 0) if self._data.endswith(_CAPTURE[:n]))
            at = len(self._data) - next(ends)
        if at:
            self._lose(at)
        return len(self._data) >= _HEAD.size

    def _lose(self, n_bytes: int) -> None:
        self.n_corrupt += not self._is_lost
        self._is_lost = True
        del self._data[:n_bytes]

    def _read(self, page: bytes) -> list[OggPacket]:
        _, flags, granule, serial, sequence, _, n_segments = _HEAD.unpack_from(page)
        if flags & _FIRST or self._serial is None:
            self._serial, self._part = serial, bytearray()
        elif serial != self._serial:
            return []
        elif sequence != self._sequence:
            self.n_corrupt += 1
            self._part = None
        self._sequence = (sequence + 1) % 2**32
        if not flags & _CONTINUED:
            self.n_corrupt += bool(self._part)
            self._part = bytearray()
        elif not self._part:
            self._part = None
        at = _HEAD.size + n_segments
        packets: list[OggPacket] = []
        for n in page[_HEAD.size : at]:
            self._extend(page[at : at + n])
            at += n
            if n < _LONG:
                if self._part is not None:
                    packets.append(OggPacket(bytes(self._part), None))
                self._part = bytearray()
        if packets and granule != _NO_GRANULE:
            packets[-1] = packets[-1]._replace(granule=granule)
        return packets

    def _extend(self, data: bytes) -> None:
        if self._part is None:
            return
        self._part += data
        if len(self._part) > MAX_PACKET_BYTES:
            self.n_corrupt += 1
            self._part = None


class OpusHead(NamedTuple):
    """The first packet of an Opus stream: what a decoder leaves out at its beginning, and more.

    `pre_skip` is in samples at 48 kHz; `rate_hz` says what was coded and means nothing to a
    decoder.
    """

    pre_skip: int
    rate_hz: int = 48_000
    channels: int = 1

    def packet(self) -> bytes:
        """Return it as bytes."""
        return _OPUS_HEAD.pack(_HEAD_MAGIC, 1, self.channels, self.pre_skip, self.rate_hz, 0, 0)

    @classmethod
    def of(cls, packet: bytes) -> OpusHead | None:
        """Return what a packet says if it is one, None if not."""
        if len(packet) < _OPUS_HEAD.size or not packet.startswith(_HEAD_MAGIC):
            return None
        _, version, channels, pre_skip, rate_hz, _, _ = _OPUS_HEAD.unpack_from(packet)
        return cls(pre_skip, rate_hz, channels) if version < 16 and channels else None


def is_header(packet: bytes) -> bool:
    """Return whether a packet of an Opus stream is one of its two headers, which are no audio."""
    return packet.startswith((_HEAD_MAGIC, _TAGS_MAGIC))


class OggWriter:
    """Writes an Opus stream, a page a packet, so that nothing waits for what comes after it.

    Parameters
    ----------
    head
        Of the stream; its pre-skip counts in the granules, as all that a decoder gives does.
    """

    def __init__(self, head: OpusHead, serial: int = 1, vendor: str = "vakforge") -> None:
        self._head, self._serial, self._vendor = head, serial, vendor.encode()
        self._sequence = self._granule = 0

    def headers(self) -> bytes:
        """Return the pages that come first, once."""
        tags = _TAGS_MAGIC + struct.pack("<I", len(self._vendor)) + self._vendor + bytes(4)
        return self._page(self._head.packet(), _FIRST) + self._page(tags)

    def page(self, packet: bytes, n_samples: int) -> bytes:
        """Return the page of a packet that holds `n_samples` at 48 kHz.

        Raises
        ------
        ValueError
            If the packet is longer than a page.
        """
        self._granule += n_samples
        return self._page(packet)

    def _page(self, packet: bytes, flags: int = 0) -> bytes:
        n_long, rest = divmod(len(packet), _LONG)
        if n_long >= _MAX_SEGMENTS:
            raise ValueError(f"a packet of {len(packet)} bytes does not fit into a page")
        lacing = bytes([_LONG]) * n_long + bytes([rest])
        fields = (_CAPTURE, flags, self._granule, self._serial, self._sequence)
        self._sequence += 1
        page = _HEAD.pack(*fields, 0, len(lacing)) + lacing + packet
        return _HEAD.pack(*fields, _checksum(page), len(lacing)) + lacing + packet


def _checksum(page: bytes) -> int:
    """Return the CRC-32 of a page with its own place taken for zeros: polynomial 04C11DB7.

    That of zlib is of the same polynomial, with the bits the other way round.
    """
    blank = page[:_CRC_AT] + bytes(4) + page[_CRC_AT + 4 :]
    turned = zlib.crc32(blank.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(turned.to_bytes(4, "little").translate(_REVERSED), "big")
