"""RTP read by the book, in whatever order it comes; no bytes are a bug."""

from __future__ import annotations

import contextlib
import struct

import av
import numpy as np
import pytest
from aiortc.rtp import RtpPacket
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.signal.opus import OpusDecoder, OpusEncoder
from vakforge_eval.timeline.events import AudioChunk, Event
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.protocol.rtp import CODEC, RATE_HZ, RtpReader, packet_samples
from vakforge_probe.protocol.strict import StrictError

AT = Instant.exact(5)
PAYLOAD = b"\x78sound"


def packet(
    number: int,
    *,
    time: int = 0,
    source: int = 7,
    payload: bytes = PAYLOAD,
    csrcs: tuple[int, ...] = (),
    extension: bytes | None = None,
    padding: int = 0,
) -> bytes:
    """Return a packet by the layout of RFC 3550, 5.1; `extension` in words of four bytes."""
    first = 0x80 | 0x20 * bool(padding) | 0x10 * (extension is not None) | len(csrcs)
    head = struct.pack("!BBHII", first, 111, number % 65536, time, source)
    head += b"".join(csrc.to_bytes(4) for csrc in csrcs)
    if extension is not None:
        head += struct.pack("!HH", 0xBEDE, len(extension) // 4) + extension
    tail = bytes(padding - 1) + bytes([padding]) if padding else b""
    return head + payload + tail


def told(events: list[Event]) -> list[bytes | str]:
    """Return payloads, and ``lost`` where something is missing."""
    found: list[bytes | str] = []
    for event in events:
        assert isinstance(event, AudioChunk)
        assert (event.codec, event.rate_hz, event.at) == (CODEC, RATE_HZ, AT)
        found.append("lost" if event.transfer == "lost" else event.data)
    return found


def numbered(*numbers: int) -> tuple[RtpReader, list[bytes | str]]:
    """Return who has read packets with these numbers as payload, and what it told."""
    reader, found = RtpReader(), list[bytes | str]()
    for n in numbers:
        found += told(reader.read(packet(n, payload=b"%d" % n), AT))
    return reader, found


@pytest.mark.parametrize("csrcs", [(), (1,), tuple(range(15))])
@pytest.mark.parametrize("extension", [None, b"", b"\x10\x01\0\0", bytes(60)])
@pytest.mark.parametrize("padding", [0, 1, 4, 255])
def test_the_payload_is_what_no_header_and_no_padding_is(
    csrcs: tuple[int, ...], extension: bytes | None, padding: int
) -> None:
    data = packet(9, csrcs=csrcs, extension=extension, padding=padding)
    (event,) = RtpReader().read(data, AT)
    assert isinstance(event, AudioChunk)
    assert (event.data, event.transfer) == (PAYLOAD, "binary")
    begin, end = map(int, str(event.locator).split(":"))
    assert data[begin:end] == PAYLOAD


def test_a_packet_of_nothing_but_padding_keeps_its_number_and_is_no_audio() -> None:
    reader = RtpReader()
    assert told(reader.read(packet(1), AT)) == [PAYLOAD]
    assert reader.read(packet(2, payload=b"", padding=8), AT) == []
    assert told(reader.read(packet(3), AT)) == [PAYLOAD]
    assert (reader.n_lost, reader.n_late) == (0, 0)


def test_numbers_wrap_around_without_a_gap() -> None:
    reader, found = numbered(65534, 65535, 0, 1)
    assert found == [b"65534", b"65535", b"0", b"1"]
    assert (reader.n_lost, reader.n_late) == (0, 0)


@pytest.mark.parametrize("first", [10, 65533, 65535])
def test_a_gap_is_told_once_before_what_follows_and_counted_whole(first: int) -> None:
    later = (first + 4) % 65536
    reader, found = numbered(first, later)
    assert found == [b"%d" % first, "lost", b"%d" % later]
    assert (reader.n_lost, reader.n_late) == (3, 0)


def test_what_comes_behind_its_successor_is_late_and_stays_lost() -> None:
    reader, found = numbered(1, 3, 2, 4)
    assert found == [b"1", "lost", b"3", b"4"]
    assert (reader.n_lost, reader.n_late) == (1, 1)


def test_what_comes_twice_is_heard_once() -> None:
    reader, found = numbered(1, 1, 2, 2, 1)
    assert found == [b"1", b"2"]
    assert (reader.n_lost, reader.n_late) == (0, 3)


def test_half_the_circle_ahead_is_late_and_less_is_a_gap() -> None:
    assert numbered(0, 1 + (1 << 15))[0].n_late == 1
    assert numbered(0, 1 << 15)[0].n_lost == (1 << 15) - 1


def test_another_source_begins_anew() -> None:
    reader = RtpReader()
    reader.read(packet(100, source=1), AT)
    assert told(reader.read(packet(7, source=2), AT)) == [PAYLOAD]
    assert told(reader.read(packet(9, source=2), AT)) == ["lost", PAYLOAD]
    assert (reader.n_lost, reader.n_late) == (1, 0)


def test_a_jump_of_the_clock_without_one_of_the_numbers_is_silence_and_no_loss() -> None:
    reader = RtpReader()
    reader.read(packet(1, time=0), AT)
    assert told(reader.read(packet(2, time=48_000), AT)) == [PAYLOAD]
    assert reader.n_lost == 0


@pytest.mark.parametrize("data", [
    b"", b"\x80", packet(1)[:11],
    b"\x40" + packet(1)[1:], b"\x00" + packet(1)[1:], b"\xc0" + packet(1)[1:],  # other versions
    packet(1, csrcs=(1, 2, 3), payload=b"")[:-1],
    packet(1, extension=b"", payload=b"")[:-1],
    packet(1, extension=bytes(8), payload=b"")[:-1],
    packet(1, payload=b"", padding=4)[:-1] + b"\x05",  # pads more than there is
    packet(1, padding=4)[:-1] + b"\x00",  # the count counts itself
])  # fmt: skip
def test_what_is_cut_short_or_no_rtp_is_refused(data: bytes) -> None:
    with pytest.raises(StrictError):
        RtpReader().read(data, AT)


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_read_as_aiortc_reads_them_or_refused(data: bytes, is_rtp: bool) -> None:
    if is_rtp and data:
        data = bytes([0x80 | data[0] & 0x3F]) + data[1:]
    try:
        known: bytes | None = RtpPacket.parse(data).payload
    except ValueError:
        known = None
    try:
        found = RtpReader().read(data, AT)
    except StrictError:
        assert known is None
    else:
        # Extensions that break their own form do not matter to who leaves them out.
        assert known is None or told(found) == ([known] if known else [])


@given(st.lists(st.integers(0, 65535), max_size=40))
def test_every_packet_is_heard_or_late_and_each_gap_counted(numbers: list[int]) -> None:
    reader, found = numbered(*numbers)
    heard = [part for part in found if part != "lost"]
    assert len(heard) + reader.n_late == len(numbers)
    assert reader.n_lost >= found.count("lost")


# -- how long a packet lasts ------------------------------------------------------------------

# RFC 6716, table 2: mode, bandwidth and frame sizes (ms) of each configuration.
TABLE = {
    **{n: (10, 20, 40, 60)[n % 4] for n in range(12)},  # SILK, narrow to wide band
    **{n: (10, 20)[n % 2] for n in range(12, 16)},  # hybrid
    **{n: (2.5, 5, 10, 20)[n % 4] for n in range(16, 32)},  # CELT
}


@pytest.mark.parametrize("configuration", range(32))
def test_a_packet_lasts_its_frames(configuration: int) -> None:
    first, frame = configuration << 3, round(TABLE[configuration] * 48)
    for stereo in (0, 4):
        assert packet_samples(bytes([first | stereo, 1])) == frame
        assert packet_samples(bytes([first | stereo | 1, 1, 1])) == 2 * frame
        assert packet_samples(bytes([first | stereo | 2, 1, 1, 1])) == 2 * frame
        for count in (1, 2, 3):
            flags = 0xC0  # of variable size, and padded: no part of the count
            assert packet_samples(bytes([first | stereo | 3, flags | count])) == count * frame


def test_a_packet_of_nothing_lasts_nothing() -> None:
    assert packet_samples(b"") == packet_samples(b"\x03") == packet_samples(b"\x03\x00") == 0


@pytest.mark.parametrize("frame_ms", [10, 20, 40, 60])
@pytest.mark.parametrize("rate_hz", [8000, 16000, 48000])
def test_a_packet_lasts_as_long_as_what_a_decoder_makes_of_it(frame_ms: int, rate_hz: int) -> None:
    encoder, decoder = OpusEncoder(rate_hz, frame_ms), OpusDecoder()
    noise = np.random.default_rng(1)
    for _ in range(3):
        pcm = noise.integers(-8000, 8000, rate_hz * frame_ms // 1000).astype(np.int16)
        data = encoder.encode(pcm)
        assert packet_samples(data) == len(decoder.feed(data)) == 48 * frame_ms


@given(st.binary(min_size=1, max_size=60))
def test_a_packet_that_libopus_takes_lasts_as_long_as_it_says(data: bytes) -> None:
    context = av.CodecContext.create("libopus", "r")
    with contextlib.suppress(av.error.FFmpegError):
        frames = context.decode(av.Packet(data))
        assert sum(frame.samples for frame in frames) in (0, packet_samples(data))
