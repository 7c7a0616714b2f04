"""Where frames end in a stream, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from vakforge_probe.net.frames import FrameEnds, MessageParts

SIZES = st.one_of(st.integers(0, 130), st.sampled_from([125, 126, 65_535, 65_536, 70_000]))


@settings(deadline=None)
@given(
    sizes=st.lists(SIZES, max_size=6),
    cuts=st.lists(st.one_of(st.integers(1, 6), st.integers(1, 60_000)), min_size=1, max_size=30),
    is_masked=st.booleans(),
)
def test_ends_are_found_exactly_where_the_parser_finds_frames(
    sizes: list[int], cuts: list[int], is_masked: bool
) -> None:
    stream, ends = b"", []
    for size in sizes:
        stream += Frame(Opcode.BINARY, bytes(size)).serialize(mask=is_masked)
        ends.append(len(stream))
    protocol = Protocol(Side.SERVER if is_masked else Side.CLIENT, max_size=None)
    scan, found, position, turn = FrameEnds(), [], 0, 0
    while position < len(stream):
        part = stream[position : position + cuts[turn % len(cuts)]]
        protocol.receive_data(part)
        mine = scan.feed(part)
        assert len(mine) == len(protocol.events_received())
        found += [position + end for end in mine]
        position, turn = position + len(part), turn + 1
    assert found == ends


def test_a_wasteful_length_field_ends_where_it_says() -> None:
    scan = FrameEnds()
    wasteful = b"\x82\x7f" + (3).to_bytes(8) + b"abc"
    assert scan.feed(wasteful + wasteful[:-1]) == [len(wasteful)]
    assert scan.feed(b"c\x82\x00") == [1, 3]


@settings(deadline=None)
@given(data=st.text(max_size=50), n_empty=st.integers(0, 3), cut=st.integers(0, 200))
def test_fragments_make_the_message_that_was_cut(data: str, n_empty: int, cut: int) -> None:
    raw, parts = data.encode(), MessageParts()
    for _ in range(2):  # nothing of one message is left for the next
        assert parts.add(Frame(Opcode.TEXT, raw[:cut], fin=False)) is None
        for _ in range(n_empty):
            assert parts.add(Frame(Opcode.CONT, b"", fin=False)) is None
        assert parts.add(Frame(Opcode.CONT, raw[cut:])) == data


def test_binary_stays_binary_and_text_must_be_utf8() -> None:
    parts = MessageParts()
    assert parts.add(Frame(Opcode.BINARY, b"\xff")) == b"\xff"
    with pytest.raises(UnicodeDecodeError):
        parts.add(Frame(Opcode.TEXT, b"\xff"))
