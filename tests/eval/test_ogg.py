"""Ogg pages, held against two other implementations and against damage."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval import ogg
from vakforge_eval.ogg import (
    MAX_PACKET_BYTES,
    OggPacket,
    OggReader,
    OggWriter,
    OpusHead,
    is_header,
)

HEAD = OpusHead(312, 24_000)
PACKETS = st.lists(st.binary(max_size=1400), max_size=12)


def stream(packets: Sequence[bytes]) -> bytes:
    writer = OggWriter(HEAD)
    return writer.headers() + b"".join(writer.page(packet, 960) for packet in packets)


def read(data: bytes, splits: Sequence[int] = ()) -> tuple[list[bytes], OggReader]:
    reader = OggReader()
    cuts = [0, *sorted(splits), len(data)]
    parts = [data[a:b] for a, b in itertools.pairwise(cuts)]
    return [packet.data for part in parts for packet in reader.feed(part)], reader


def tone(seconds: float, rate_hz: int) -> npt.NDArray[np.int16]:
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    return (8000 * np.sin(2 * np.pi * 440 * t)).astype(np.int16)


@given(PACKETS, st.data())
@settings(deadline=None, max_examples=60)
def test_what_is_written_is_read_however_it_is_split(packets: list[bytes], data: Any) -> None:
    coded = stream(packets)
    splits = data.draw(st.lists(st.integers(0, len(coded)), max_size=6))
    got, reader = read(coded, splits)
    assert OpusHead.of(got[0]) == HEAD
    assert all(map(is_header, got[:2]))
    assert got[2:] == packets
    assert (reader.n_corrupt, reader.pending) == (0, 0)


def test_bytes_may_come_one_by_one() -> None:
    coded = stream([b"a" * 600, b"", b"b" * 255])
    assert read(coded, range(len(coded)))[0][2:] == [b"a" * 600, b"", b"b" * 255]


def test_page_goes_out_with_its_packet_and_counts_all_that_is_decoded() -> None:
    writer, reader = OggWriter(HEAD), OggReader()
    reader.feed(writer.headers())
    assert reader.feed(writer.page(b"x", 960)) == [OggPacket(b"x", 960)]
    assert reader.feed(writer.page(b"y", 480)) == [OggPacket(b"y", 1440)]
    with pytest.raises(ValueError, match="page"):
        writer.page(bytes(255 * 255), 960)


def test_other_readers_take_our_stream_for_what_it_is() -> None:
    av = pytest.importorskip("av")
    from vakforge_eval.signal.opus import OpusEncoder

    pcm, encoder = tone(1, 24_000), OpusEncoder(24_000)
    coded = stream([encoder.encode(frame) for frame in pcm.reshape(-1, 480)])
    decoded, rate_hz = soundfile.read(io.BytesIO(coded), dtype="int16")
    assert (rate_hz, len(decoded)) == (24_000, 24_000 - 312 // 2)
    with av.open(io.BytesIO(coded), format="ogg") as container:
        demuxed = [bytes(p) for p in container.demux() if p.size]
        (track,) = container.streams
        assert (track.codec_context.name, track.codec_context.channels) == ("opus", 1)
    assert demuxed == read(coded)[0][2:]


def test_streams_of_other_writers_are_read() -> None:
    av = pytest.importorskip("av")
    made, by_soundfile = io.BytesIO(), io.BytesIO()
    with av.open(made, "w", format="ogg") as container:
        track = container.add_stream("libopus", rate=24_000, layout="mono")
        pcm = tone(3, 24_000)
        for at in range(0, len(pcm), 480):
            frame = av.AudioFrame.from_ndarray(
                pcm[at : at + 480].reshape(1, -1), format="s16", layout="mono"
            )
            frame.sample_rate, frame.pts, frame.time_base = 24_000, at, Fraction(1, 24_000)
            container.mux(track.encode(frame))
        container.mux(track.encode(None))
    soundfile.write(by_soundfile, tone(3, 48_000), 48_000, format="OGG", subtype="OPUS")
    for data in (made.getvalue(), by_soundfile.getvalue()):
        packets, reader = read(data, range(0, len(data), 100))
        with av.open(io.BytesIO(data), format="ogg") as container:
            assert packets[2:] == [bytes(p) for p in container.demux() if p.size]
        assert OpusHead.of(packets[0]) is not None
        assert (reader.n_corrupt, reader.pending) == (0, 0)


def long_pages(data: bytes) -> list[bytes]:
    """Return one packet laid over pages of 100 segments, as other writers do."""
    pages: list[bytes] = []
    parts = [data[at : at + 25_500] for at in range(0, len(data) + 1, 25_500)]
    for k, part in enumerate(parts):
        lacing = bytes([255]) * (len(part) // 255)
        if k == len(parts) - 1:
            lacing += bytes([len(part) % 255])
        fields = (b"OggS\0", 2 if k == 0 else 1, 0, 1, k)
        blank = ogg._HEAD.pack(*fields, 0, len(lacing)) + lacing + part
        head = ogg._HEAD.pack(*fields, ogg._checksum(blank), len(lacing))
        pages.append(head + lacing + part)
    return pages


@pytest.mark.parametrize("length", [25_500, 25_501, 51_000, MAX_PACKET_BYTES])
def test_packet_over_several_pages_is_put_together(length: int) -> None:
    data = random.Random(1).randbytes(length)
    assert read(b"".join(long_pages(data)))[0] == [data]


def test_packet_of_which_a_page_is_missing_is_left_out() -> None:
    first, middle, last = long_pages(bytes(60_000))
    for coded in (first + last, middle + last, first + middle + stream([])):
        packets, reader = read(coded)
        assert [p for p in packets if not is_header(p)] == []
        assert reader.n_corrupt <= 1


def test_packet_that_opus_cannot_have_is_left_out() -> None:
    packets, reader = read(b"".join(long_pages(bytes(MAX_PACKET_BYTES + 1))))
    assert (packets, reader.n_corrupt) == ([], 1)


@given(PACKETS.filter(len), st.data())
@settings(deadline=None, max_examples=60)
def test_after_damage_reading_goes_on_at_the_next_page(packets: list[bytes], data: Any) -> None:
    after = [b"next", b"one more"]
    whole = stream([*packets, *after])
    begin, end = len(stream([])), len(stream(packets))
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(begin, end - 1))] ^= data.draw(st.integers(1, 255))
    # A damaged length may reach beyond what has come; then it waits for that.
    got, reader = read(bytes(damaged) + bytes(70_000))
    assert got[-2:] == after
    assert len(got) == 2 + len(packets) - 1 + 2
    assert reader.n_corrupt >= 1


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=4))
@settings(deadline=None, max_examples=100)
def test_anything_may_come(data: bytes, splits: list[int]) -> None:
    for junk in (data, b"OggS\0" + data, stream([b"a"]) + data, data.replace(b"\0", b"OggS\0")):
        packets, reader = read(junk, [s for s in splits if s <= len(junk)])
        assert reader.n_corrupt >= 0
        assert reader.pending <= len(junk)
        assert all(len(p) <= MAX_PACKET_BYTES for p in packets)


def test_what_looks_like_pages_all_over_costs_no_more_than_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = 0
    checksum = ogg._checksum

    def counted(page: bytes) -> int:
        nonlocal seen
        seen += len(page)
        return checksum(page)

    monkeypatch.setattr(ogg, "_checksum", counted)
    junk = (b"OggS" + bytes(22) + b"\xff" * 30) * 20_000
    packets, reader = read(junk)
    assert packets == []
    assert seen <= 2 * len(junk) + 200_000
    assert reader.pending <= 65_307


@pytest.mark.parametrize("packet", [b"", b"OpusHead", b"OpusTags" + bytes(20),
                                    b"OpusHead\x10\x01" + bytes(9)])  # fmt: skip
def test_what_is_no_head_says_nothing(packet: bytes) -> None:
    assert OpusHead.of(packet) is None


def test_new_stream_in_the_same_bytes_is_followed() -> None:
    again = OggWriter(OpusHead(0), serial=7)
    other = OggWriter(OpusHead(0), serial=9)
    other.headers()
    coded = stream([b"a"]) + again.headers() + other.page(b"no", 960) + again.page(b"b", 960)
    packets, reader = read(coded)
    assert [p for p in packets if not is_header(p)] == [b"a", b"b"]
    assert reader.n_corrupt == 0


@given(PACKETS, st.booleans())
@settings(deadline=None, max_examples=60)
def test_whatever_the_packets_hold_a_decoder_gives_samples_or_counts_it(
    packets: list[bytes], is_split: bool
) -> None:
    pytest.importorskip("av")
    from vakforge_eval.signal.codecs import make_decoder

    coded, decoder = stream(packets), make_decoder("ogg_opus")
    parts = [coded[k : k + 1] for k in range(len(coded))] if is_split else [coded]
    pcm = np.concatenate([decoder.feed(part) for part in parts])
    assert pcm.dtype == np.int16
    assert len(pcm) <= len(packets) * 5760
    assert decoder.n_corrupt <= len(packets)
    assert decoder.pending == 0


def test_stream_within_one_message_is_bounded_in_what_it_decodes_to() -> None:
    pytest.importorskip("av")
    from vakforge_eval.signal.codecs import make_decoder
    from vakforge_eval.signal.opus import OpusEncoder

    longest = OpusEncoder(24_000, 60).encode(np.zeros(1440, np.int16))
    decoder = make_decoder("ogg_opus")
    assert len(decoder.feed(stream([longest] * 6000))) == 300 * 48_000 - 312
    assert decoder.n_corrupt == 1


def test_new_head_begins_a_new_stream_with_its_own_pre_skip() -> None:
    pytest.importorskip("av")
    from vakforge_eval.signal.codecs import make_decoder
    from vakforge_eval.signal.opus import OpusEncoder

    decoder = make_decoder("ogg_opus")
    for pre_skip, begins in ((312, 648), (0, 960), (1200, 0)):
        writer, encoder = OggWriter(OpusHead(pre_skip), serial=pre_skip), OpusEncoder(24_000)
        headers = writer.headers()
        pages = [writer.page(encoder.encode(np.zeros(480, np.int16)), 960) for _ in range(2)]
        assert len(decoder.feed(headers + pages[0])) == begins
        assert len(decoder.feed(pages[1])) == (720 if pre_skip == 1200 else 960)
    assert decoder.n_corrupt == 0
