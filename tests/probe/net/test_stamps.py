"""The rules behind the stamps, one by one, without waiting for the kernel to misbehave."""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_probe.net import stamps
from vakforge_probe.net.arrival import Ending
from vakforge_probe.net.stamps import (
    ArrivalStamp,
    ClockMap,
    ReadStamp,
    StampedSocket,
    read_of,
    stamped_by_fd,
    stamped_listener,
)
from vakforge_probe.net.virtual import VirtualLoop, run

needs_kernel_stamps = pytest.mark.skipif(sys.platform != "linux", reason="SO_TIMESTAMPNS")

READ = ReadStamp(
    lo=1_000_000,
    after=9_000_000,
    kernel=5_000_000,
    spread=1_000,
    emptied=True,
    in_order=True,
    sealed=True,
)
PATH_NS = 20_000


# --- from a read to the stamps of its messages -------------------------------------------------


def test_the_message_at_the_end_of_an_emptying_read_has_the_kernels_stamp() -> None:
    stamp = READ.at_end()
    assert (stamp.lo, stamp.hi) == (5_000_000 - 1_000, 5_000_000 + 1_000 + PATH_NS)
    assert not stamp.coalesced


def test_a_message_inside_the_read_came_no_later_than_its_last_byte() -> None:
    stamp = READ.inside()
    assert (stamp.lo, stamp.hi) == (1_000_000, 5_000_000 + 1_000 + PATH_NS)
    assert stamp.coalesced


@pytest.mark.parametrize(
    "doubt",
    [
        {"emptied": False},
        {"in_order": False},
        {"kernel": 1_000_000 - 1_000 - PATH_NS - 1},
        {"kernel": 9_000_000 + 1_000 + 1},
    ],
    ids=["more was waiting", "a segment had waited", "before the bound", "after the read"],
)
def test_a_doubtful_kernel_stamp_narrows_nothing(doubt: dict[str, Any]) -> None:
    read = replace(READ, **doubt)
    assert read.believed is None
    for stamp in (read.at_end(), read.inside()):
        assert (stamp.lo, stamp.hi) == (read.lo, read.after)
        assert stamp.coalesced


def test_inside_tls_the_stamp_is_the_messages_own_only_if_the_record_ends_the_read() -> None:
    assert replace(READ, sealed=False).at_end() == READ.inside()


def looked_at(*endings: Ending) -> ReadStamp:
    return replace(READ, endings=endings)


MARGIN = 1_000 + PATH_NS


@pytest.mark.parametrize(
    ("position", "lo", "hi", "coalesced"),
    [
        (100, 2_000_000 - 1_000, 2_000_000 + MARGIN, False),  # its segment's last byte
        (150, 2_000_000 - 1_000, 3_000_000 + MARGIN, True),  # merged with the next
        (200, 2_000_000 - 1_000, 3_000_000 + MARGIN, True),  # its head is in that segment
        (250, 3_000_000 - 1_000, 4_000_000 + MARGIN, True),  # a later segment, merged again
        (300, 1_000_000, 5_000_000 + MARGIN, True),  # never looked at
    ],
)
def test_a_message_is_bounded_by_what_was_seen_at_its_end_and_before(
    position: int, lo: int, hi: int, coalesced: bool
) -> None:
    read = looked_at(
        Ending(100, 2_000_000, is_own=True),
        Ending(150, 3_000_000, is_own=False),
        Ending(200, 3_000_000, is_own=False),
        Ending(250, 4_000_000, is_own=False),
    )
    stamp = read.at(position)
    assert (stamp.lo, stamp.hi, stamp.coalesced) == (lo, hi, coalesced)


def test_what_follows_a_read_came_after_the_last_message_that_ended_a_segment_in_it() -> None:
    own, shared = Ending(100, 2_000_000, is_own=True), Ending(150, 3_000_000, is_own=False)
    assert looked_at(own, shared).following == 2_000_000 - 1_000
    assert looked_at(shared).following == READ.lo
    assert replace(looked_at(own), in_order=False).following == READ.lo


def test_no_message_came_after_one_behind_it_however_late_the_look() -> None:
    # Looked at when more had been merged into the segment than the read was given.
    grown = replace(looked_at(Ending(100, 8_000_000, is_own=False)), kernel=5_000_000)
    assert (grown.at(100).lo, grown.at(100).hi) == (1_000_000, 5_000_000 + MARGIN)
    read = looked_at(Ending(100, 4_000_000, is_own=False), Ending(150, 3_000_000, is_own=True))
    assert read.at(100).hi == read.at(150).hi == 3_000_000 + MARGIN


@pytest.mark.parametrize("doubt", [{"in_order": False}, {"lo": 2_500_000}, {"after": 1_900_000}])
def test_a_doubtful_stamp_at_a_messages_end_narrows_nothing(doubt: dict[str, Any]) -> None:
    read = replace(looked_at(Ending(100, 2_000_000, is_own=True)), **doubt)
    assert read.at(100) == read.inside()


def test_before_segments_could_be_told_apart_an_end_has_no_stamp() -> None:
    assert looked_at(Ending(100, None, is_own=False)).at(100) == READ.inside()


def test_without_kernel_stamps_the_interval_ends_with_the_read() -> None:
    stamp = replace(READ, kernel=None).at_end()
    assert stamp == ArrivalStamp(1_000_000, 9_000_000, None, 1_000_000, 9_000_000, coalesced=False)


@settings(deadline=None)
@given(
    lo=st.integers(0, 10**6),
    took=st.integers(0, 10**6),
    kernel=st.integers(-(10**6), 3 * 10**6),
    spread=st.integers(0, 10**5),
)
def test_no_read_gives_an_interval_outside_its_own_proof(
    lo: int, took: int, kernel: int, spread: int
) -> None:
    read = replace(READ, lo=lo, after=lo + took, kernel=kernel, spread=spread)
    for stamp in (read.at_end(), read.inside()):
        assert lo <= stamp.lo <= stamp.hi <= lo + took


# --- the two clocks ----------------------------------------------------------------------------


class FakeClocks:
    """A monotonic and a wall clock whose readings cost time."""

    def __init__(self, offset: int, cost: int = 50) -> None:
        self.offset, self.cost, self.now, self.n_reads = offset, cost, 10**9, 0

    def monotonic(self) -> int:
        self.n_reads += 1
        # Now and then the reader is interrupted between two readings.
        self.now += 5_000_000 if self.n_reads % 7 == 0 else self.cost
        return self.now

    def realtime(self) -> int:
        self.now += self.cost
        return self.now + self.offset


def test_interrupted_readings_neither_shift_nor_widen_the_map() -> None:
    clocks = FakeClocks(1_700_000_000_000_000_000)
    clock_map = ClockMap(clocks.monotonic, clocks.realtime)
    now = clocks.now
    mapped = clock_map.to_monotonic(now + clocks.offset, now)
    assert abs(mapped - now) <= clock_map.spread_ns
    assert clock_map.spread_ns <= 2_000


def test_a_step_of_the_wall_clock_is_seen_at_the_next_comparison_and_followed() -> None:
    clocks = FakeClocks(10**18)
    clock_map = ClockMap(clocks.monotonic, clocks.realtime)
    clocks.offset += 3_000_000
    clocks.now += 2 * 10**9
    now = clocks.now
    assert abs(clock_map.to_monotonic(now + clocks.offset, now) - now) <= clock_map.spread_ns
    assert clock_map.n_steps == 1


def test_the_map_is_taken_again_only_when_it_is_old() -> None:
    clocks = FakeClocks(10**18)
    clock_map = ClockMap(clocks.monotonic, clocks.realtime)
    n_reads = clocks.n_reads
    clock_map.to_monotonic(clocks.now + clocks.offset, clocks.now)
    assert clocks.n_reads == n_reads


# --- sockets -----------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[StampedSocket, socket.socket]]:
    """Return a stamped socket and the plain one at its other end."""
    with stamped_listener("127.0.0.1", 0) as listener:
        listener.listen()
        listener.setblocking(True)
        plain = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(True)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with accepted, plain:
        yield accepted, plain


def facts(sock: StampedSocket) -> ReadStamp:
    assert sock.last_read is not None
    return sock.last_read


@needs_kernel_stamps
def test_a_read_that_leaves_nothing_behind_is_stamped_by_the_kernel(
    pair: tuple[StampedSocket, socket.socket],
) -> None:
    stamped, plain = pair
    before = time.monotonic_ns()
    plain.send(bytes(100))
    assert len(stamped.recv(4096)) == 100
    read = facts(stamped)
    assert stamped.has_kernel_stamps
    assert read.emptied
    assert read.in_order
    assert read.believed is not None
    assert before - read.spread <= read.believed <= read.after + read.spread


def test_a_read_that_fills_its_buffer_is_not_taken_for_an_emptying_one(
    pair: tuple[StampedSocket, socket.socket],
) -> None:
    stamped, plain = pair
    plain.send(bytes(100))
    buffer = bytearray(60)
    assert stamped.recv_into(buffer) == 60
    assert not facts(stamped).emptied
    assert stamped.recv_into(buffer, 50) == 40
    assert facts(stamped).emptied


def test_an_emptying_read_is_the_lower_bound_of_the_next(
    pair: tuple[StampedSocket, socket.socket],
) -> None:
    stamped, plain = pair
    plain.send(b"a")
    stamped.recv(10)
    between = time.monotonic_ns()
    plain.send(b"b")
    stamped.recv(10)
    assert facts(stamped).lo <= between
    plain.send(b"c")
    stamped.recv(10)
    assert facts(stamped).lo >= between


def test_the_end_of_the_stream_does_not_replace_the_last_read(
    pair: tuple[StampedSocket, socket.socket],
) -> None:
    stamped, plain = pair
    plain.send(b"a")
    stamped.recv(10)
    last = stamped.last_read
    plain.close()
    assert stamped.recv(10) == b""
    assert stamped.last_read is last


@needs_kernel_stamps
def test_a_wall_clock_set_behind_our_back_costs_tightness_not_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = 0
    clocks = ClockMap(realtime_ns=lambda: time.time_ns() + step)
    monkeypatch.setattr(stamps, "shared_clocks", lambda: clocks)
    step = -5_000_000_000
    clocks.refresh()  # now the map is as wrong as after a step of the kernel's clock
    with stamped_listener("127.0.0.1", 0) as listener:
        listener.listen()
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()) as plain:
            accepted, _ = listener.accept()
            with accepted:
                before = time.monotonic_ns()
                plain.send(b"a")
                accepted.setblocking(True)
                accepted.recv(10)
                stamp = facts(accepted).at_end()
                assert facts(accepted).believed is None
                assert stamp.lo <= time.monotonic_ns()
                assert stamp.hi >= before
                step = 0
                plain.send(b"b")
                accepted.recv(10)  # is doubted too, which makes the map be taken again
                plain.send(b"c")
                accepted.recv(10)
                assert facts(accepted).believed is not None
                assert accepted.clock_facts()["n_clock_steps"] == 2


def fill(sock: socket.socket) -> None:
    """Write until the kernel takes no more."""
    while True:
        sock.send(bytes(1_000_000))


def test_partial_writes_are_seen_as_blocked(pair: tuple[StampedSocket, socket.socket]) -> None:
    stamped, plain = pair
    stamped.setblocking(False)
    assert stamped.send(b"small") == 5
    assert not stamped.is_blocked
    assert stamped.send(bytes(50_000_000)) < 50_000_000
    assert stamped.is_blocked
    with pytest.raises(BlockingIOError):
        fill(stamped)
    assert stamped.is_blocked
    plain.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(stamped, selectors.EVENT_WRITE)
        while not selector.select(0):
            try:
                plain.recv(1 << 20)
            except BlockingIOError:
                continue
    assert stamped.sendmsg([b"a", memoryview(b"bc")]) == 3
    assert not stamped.is_blocked


def test_closed_and_detached_sockets_are_forgotten(
    pair: tuple[StampedSocket, socket.socket],
) -> None:
    stamped, _ = pair
    fd = stamped.fileno()
    assert stamped_by_fd(fd) is stamped
    other = socket.socket(fileno=stamped.detach())
    assert stamped_by_fd(fd) is None
    other.close()


def test_a_listener_that_cannot_bind_leaves_nothing_open() -> None:
    with stamped_listener("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            stamped_listener("127.0.0.1", taken.getsockname()[1])


def test_on_virtual_time_a_read_has_no_error() -> None:
    class Probe(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            reads.append(read_of(self.transport))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        listener = stamped_listener("127.0.0.1", 0)
        server = await loop.create_server(Probe, sock=listener)
        _, writer = await asyncio.open_connection(*listener.getsockname())
        await asyncio.sleep(1.25)
        writer.write(b"x")
        await asyncio.sleep(1)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    reads: list[ReadStamp | None] = []
    run(main())
    assert reads == [ReadStamp.virtual(1_250_000_000, 1_250_000_000)]
    assert reads[0] is not None
    assert reads[0].at_end() == ArrivalStamp.exact(1_250_000_000)


def test_on_virtual_time_what_came_in_a_stall_is_known_to_lie_within_it() -> None:
    class Probe(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            read = read_of(self.transport)
            assert read is not None
            bounds.append((read.inside().lo, read.inside().hi))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        listener = stamped_listener("127.0.0.1", 0)
        server = await loop.create_server(Probe, sock=listener)
        _, writer = await asyncio.open_connection(*listener.getsockname())

        def write_and_stall() -> None:
            writer.write(b"x")
            loop.advance(300)

        for at in (1_000, 2_000):
            loop.call_at_ns(at, write_and_stall)
        loop.call_at_ns(2_900, writer.write, b"y")
        await asyncio.sleep(1)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    bounds: list[tuple[int, int]] = []
    run(main())
    assert bounds == [(1_000, 1_300), (2_000, 2_300), (2_900, 2_900)]


def test_a_transport_without_stamps_has_no_read() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        theirs.send(b"x")
        await reader.read(1)
        assert read_of(writer.transport) is None
        writer.close()
        await writer.wait_closed()
        theirs.close()

    asyncio.run(main())


# --- TLS records -------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 5), st.integers(0, 700)), max_size=12),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=40),
)
def test_record_ends_are_found_at_any_split(sizes: list[int], cuts: list[int]) -> None:
    stream, ends = b"", []
    for size in sizes:
        stream += b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)
        ends.append(len(stream))
    records, position, turn = stamps._Records(), 0, 0
    while position < len(stream):
        upto = min(position + cuts[turn % len(cuts)], len(stream))
        ended = [end for end in ends if position < end <= upto]
        is_sealed = len(ended) == 1 and ended[0] == upto
        assert records.feed(memoryview(stream)[position:upto]) == is_sealed
        position, turn = upto, turn + 1
