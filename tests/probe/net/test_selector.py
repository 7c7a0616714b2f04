"""Which polls prove what about a stamped socket."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.stamps import StampedSocket, stamped_listener

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux")
if sys.platform == "linux":
    from vakforge_probe.net.selector import StampSelector

READ, WRITE = 1, 2


@pytest.fixture
def selector() -> Iterator[StampSelector]:
    with StampSelector() as made:
        yield made


@pytest.fixture
def pair() -> Iterator[tuple[StampedSocket, socket.socket]]:
    with stamped_listener("127.0.0.1", 0) as listener:
        listener.listen()
        listener.setblocking(True)
        plain = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    with accepted, plain:
        yield accepted, plain


def poll(selector: StampSelector) -> int:
    """Poll without waiting; return how many sockets were ready."""
    return len(selector.select(0))


def bound_of_next_read(stamped: StampedSocket) -> int:
    stamped.recv(1 << 16)
    assert stamped.last_read is not None
    return stamped.last_read.lo


def arrive(selector: StampSelector, plain: socket.socket) -> None:
    """Send a byte and wait until the selector reports it."""
    plain.send(b"x")
    while not selector.select(5):
        pass


def test_a_poll_without_waiting_that_saw_nothing_is_the_lower_bound(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    stamped, plain = pair
    selector.register(stamped, READ)
    poll(selector)
    before = time.monotonic_ns()
    assert poll(selector) == 0
    plain.send(b"x")
    while not poll(selector):
        pass
    assert bound_of_next_read(stamped) >= before


def test_the_poll_that_reports_proves_nothing(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    stamped, plain = pair
    selector.register(stamped, READ)
    poll(selector)
    arrive(selector, plain)
    reported = time.monotonic_ns()
    for _ in range(5):  # reported again and again, without a read in between
        assert poll(selector) == 1
    assert bound_of_next_read(stamped) <= reported


def test_a_poll_entered_after_the_arrival_is_no_bound(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    stamped, plain = pair
    selector.register(stamped, READ)
    n_immediate = 0
    for _ in range(50):
        poll(selector)
        plain.send(b"x")
        sent = time.monotonic_ns()
        is_immediate = poll(selector) == 1
        while not is_immediate and not poll(selector):
            pass
        bound = bound_of_next_read(stamped)
        if is_immediate:  # else the kernel was slow, and the poll has proven just that
            n_immediate += 1
            assert bound <= sent
    assert n_immediate > 0


def test_what_was_there_before_the_watch_began_has_only_the_sockets_birth_as_bound(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    stamped, plain = pair
    with stamped_listener("127.0.0.1", 0) as other:
        other.listen()
        selector.register(other, READ)  # the selector is busy with rounds already
        plain.send(b"x")
        sent = time.monotonic_ns()
        for _ in range(5):
            poll(selector)
        selector.register(stamped, READ)
        while not poll(selector):
            pass
        assert bound_of_next_read(stamped) <= sent


def test_rounds_during_a_pause_of_reading_prove_nothing(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    stamped, plain = pair
    with stamped_listener("127.0.0.1", 0) as other:
        other.listen()
        selector.register(other, READ)
        selector.register(stamped, READ)
        poll(selector)
        selector.modify(stamped, WRITE)
        plain.send(b"x")
        sent = time.monotonic_ns()
        for _ in range(5):
            poll(selector)
        selector.modify(stamped, READ)
        while not poll(selector):
            pass
        assert bound_of_next_read(stamped) <= sent


def test_the_bound_follows_the_clock_while_the_selector_sleeps(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    stamped, plain = pair
    selector.register(stamped, READ)
    entries: list[int] = []

    def send_after_some_naps() -> None:
        while len(entries) < 5:
            entries.append(selector._entry)
            while selector._entry == entries[-1]:
                time.sleep(0.0001)
        plain.send(b"x")

    thread = threading.Thread(target=send_after_some_naps)
    thread.start()
    while not selector.select(None):
        pass
    thread.join()
    assert bound_of_next_read(stamped) >= entries[-1]


def test_the_time_out_is_kept(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    selector.register(pair[0], READ)
    begun = time.monotonic_ns()
    assert selector.select(0.03) == []
    assert time.monotonic_ns() - begun >= 30_000_000


class FakeClock:
    """Stands for the clock and for the outer epoll set; naps end when they were asked to."""

    def __init__(self) -> None:
        self.now = 10**12
        self.naps: list[float] = []
        self.nap_cost_ns = 1_000
        self.worked_ns = 0

    def monotonic_ns(self) -> int:
        self.now += 1_000
        return self.now

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        self.naps.append(timeout)
        self.now += int(timeout * 1e9)
        return []

    def close(self) -> None: ...


@pytest.fixture
def clock(selector: StampSelector, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    selector._outer.close()
    selector._counted_at = fake.now
    monkeypatch.setattr(selector, "_outer", fake)
    monkeypatch.setattr("vakforge_probe.net.selector.time.monotonic_ns", fake.monotonic_ns)
    monkeypatch.setattr(
        "vakforge_probe.net.selector.time.thread_time_ns",
        lambda: fake.worked_ns + len(fake.naps) * fake.nap_cost_ns,
    )
    return fake


@pytest.mark.parametrize("timeout", [0.0004, 0.001, 0.0137, 0.2])
@pytest.mark.parametrize("nap_cost_ns", [1_000, 100_000])
def test_naps_add_up_to_the_time_out_and_none_is_long(
    selector: StampSelector,
    pair: tuple[StampedSocket, socket.socket],
    clock: FakeClock,
    timeout: float,
    nap_cost_ns: int,
) -> None:
    clock.nap_cost_ns = nap_cost_ns
    selector.register(pair[0], READ)
    begun = clock.now
    assert selector.select(timeout) == []
    slept = clock.now - begun
    assert timeout * 1e9 <= slept <= timeout * 1e9 + 4_000 * (2 + len(clock.naps))
    assert max(clock.naps) <= selector.LONG_NAP_S


@pytest.mark.parametrize("in_call", [False, True])
@pytest.mark.parametrize("nap_cost_ns", [1_000, 35_000, 100_000])
def test_naps_are_short_as_far_as_the_share_of_cpu_allows(
    selector: StampSelector,
    pair: tuple[StampedSocket, socket.socket],
    clock: FakeClock,
    nap_cost_ns: int,
    in_call: bool,
) -> None:
    clock.nap_cost_ns = nap_cost_ns
    stamped = pair[0]
    selector.register(stamped, READ)
    begun = clock.now
    while clock.now < begun + 3 * 10**9:
        if in_call:
            stamped.written_at = clock.now
        selector.select(0.02)
    full = [nap for nap in clock.naps if nap >= selector.SHORT_NAP_S]
    n_long = full.count(selector.LONG_NAP_S)
    share = selector.CALL_SHARE if in_call else selector.IDLE_SHARE
    spent = len(clock.naps) * nap_cost_ns / (clock.now - begun)
    if nap_cost_ns / 1e6 < share:
        assert n_long <= len(full) / 100
    else:
        assert spent <= max(1.1 * share, 0.6 * nap_cost_ns / 1e6)
        assert n_long > 0


def test_work_between_naps_is_not_taken_for_their_cost(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket], clock: FakeClock
) -> None:
    selector.register(pair[0], READ)
    for _ in range(500):
        selector.select(0.003)
        clock.now += 3_000_000
        clock.worked_ns += 3_000_000
    assert selector.LONG_NAP_S not in clock.naps


def test_other_descriptors_wake_the_sleep(
    selector: StampSelector, pair: tuple[StampedSocket, socket.socket]
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        selector.register(pair[0], READ)
        selector.register(ours, READ)
        theirs.send(b"x")
        (ready,) = selector.select(30)
        assert ready[0].fileobj is ours


def test_without_stamped_sockets_it_is_a_plain_selector(selector: StampSelector) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        selector.register(ours, READ)
        assert selector.select(0.001) == []
        theirs.send(b"x")
        assert len(selector.select(None)) == 1


def test_the_loop_for_real_calls_stamps() -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        return isinstance(loop._selector, StampSelector)  # type: ignore[attr-defined]

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(main())
