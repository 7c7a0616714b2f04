"""Audio by RTP (RFC 3550) with Opus in it (RFC 7587), for a caller that plays what comes.

Packets are taken in the order of their numbers. One that comes behind its successor is too late to
be played and counts as lost; where some are lost that is told, since nobody knows what was in them.
A pause in the numbers' clock without a gap in the numbers is silence that was not sent (DTX).
"""

from __future__ import annotations

from vakforge_eval.timeline.events import AudioChunk, Event
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.protocol.strict import StrictError

__all__ = ["CODEC", "RATE_HZ", "RtpReader", "packet_samples"]

CODEC = "opus"
RATE_HZ = 48_000
"""Of its clock, and of what a decoder gives."""

_FIXED_BYTES = 12
_HALF = 1 << 15
_WHOLE = 1 << 16


class RtpReader:
    """Reads one audio line.

    Attributes
    ----------
    n_lost, n_late
        Packets so far that never came, or came too late.
    """

    def __init__(self) -> None:
        self.n_lost = self.n_late = 0
        self._source: int | None = None
        self._next = 0

    def read(self, packet: bytes, at: Instant) -> list[Event]:
        """Return the audio in one packet, and before it what was lost.

        Raises
        ------
        StrictError
            If it is not RTP.
        """
        begin, end = _payload(packet)
        number, source = int.from_bytes(packet[2:4]), int.from_bytes(packet[8:12])
        if source != self._source:
            self._source, self._next = source, number
        ahead = (number - self._next) % _WHOLE
        if ahead >= _HALF:
            self.n_late += 1
            return []
        self._next = (number + 1) % _WHOLE
        events: list[Event] = []
        if ahead:
            self.n_lost += ahead
            events.append(AudioChunk(at=at, codec=CODEC, rate_hz=RATE_HZ, transfer="lost"))
        if begin < end:
            events.append(
                AudioChunk(
                    at=at,
                    codec=CODEC,
                    rate_hz=RATE_HZ,
                    transfer="binary",
                    locator=f"{begin}:{end}",
                    data=packet[begin:end],
                )
            )
        return events


def _payload(packet: bytes) -> tuple[int, int]:
    """Return where the payload begins and ends."""
    if len(packet) < _FIXED_BYTES or packet[0] >> 6 != 2:
        raise StrictError("not an RTP packet")
    begin = _FIXED_BYTES + 4 * (packet[0] & 0x0F)
    end = len(packet)
    if packet[0] & 0x10:
        if begin + 4 > end:
            raise StrictError("an RTP packet is cut short")
        begin += 4 + 4 * int.from_bytes(packet[begin + 2 : begin + 4])
    if packet[0] & 0x20:
        end -= packet[-1] or end  # the count counts itself
    if begin > end:
        raise StrictError("an RTP packet is cut short")
    return begin, end


_FRAME_SAMPLES = (480, 960, 1920, 2880) * 3 + (480, 960) * 2 + (120, 240, 480, 960) * 4
"""By the configuration in a packet's first byte (RFC 6716, table 2)."""


def packet_samples(data: bytes) -> int:
    """Return how many samples at 48 kHz a packet of Opus lasts; 0 for none (RFC 6716, 3.1)."""
    if not data:
        return 0
    code = data[0] & 3
    n_frames = 1 if code == 0 else 2 if code < 3 else (data[1] & 0x3F if len(data) > 1 else 0)
    return n_frames * _FRAME_SAMPLES[data[0] >> 3]
