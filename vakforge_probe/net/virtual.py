"""Virtual time: an event loop whose clock jumps to the next timer, exact to the nanosecond.

The clock moves only in `VirtualLoop.advance` and when nothing is left to do at this instant:
no callback is ready, no socket is readable or writable, and no byte is under way between two
sockets of this process. So whatever runs in the loop takes no time at all, and a run gives the
same times each time. What arrives during an `advance` is known to lie within it, as on a real
clock: see `VirtualLoop.empty_at`. A thread would take real time which the clock cannot see;
therefore threads, executors, subprocesses and name look-ups are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Container, Coroutine
from contextvars import Context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.net.tcpinfo import tcp_info

__all__ = ["VirtualLoop", "VirtualTimeError", "run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_DELIVERY_GRACE_S = 5.0
"""Real time that loopback may take to deliver; it takes microseconds unless a core is starved."""
_DEADLOCK_GRACE_S = 0.2
"""Real time before a run with nothing to wait for is called deadlocked."""
_STEP_S = 0.002


class VirtualTimeError(RuntimeError):
    """Something was tried that has no meaning on virtual time, or the run cannot go on."""


class _Flow:
    """A TCP socket by its two ends, by which its peer in the same selector is found."""

    __slots__ = ("family", "local", "remote")

    def __init__(self, family: int, local: Any, remote: Any) -> None:
        self.family, self.local, self.remote = family, local, remote


def _borrow(fd: int, family: int) -> socket.socket:
    """Return a socket object on `fd` that its caller must detach."""
    return socket.socket(family, socket.SOCK_STREAM, 0, fileno=fd)


def _flow_of(fd: int) -> _Flow | None:
    """Return the flow of `fd` (its remote end None until connected), or None if it is not TCP."""
    try:
        probe = socket.socket(fileno=fd)
    except OSError:
        return None
    try:
        internet = probe.family in (socket.AF_INET, socket.AF_INET6)
        if not internet or probe.type != socket.SOCK_STREAM:
            return None
        local = probe.getsockname()
        try:
            return _Flow(probe.family, local, probe.getpeername())
        except OSError:
            return _Flow(probe.family, local, None)
    finally:
        probe.detach()


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class _Wire(selectors.DefaultSelector):
    """A selector that knows whether bytes are still under way between its own sockets."""

    def __init__(self) -> None:
        super().__init__()
        self._flows: dict[int, _Flow] = {}
        self._by_ends: dict[tuple[Any, Any], int] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        flow = _flow_of(key.fd)
        if flow is not None:
            self._flows[key.fd] = flow
            self._by_ends[flow.local, flow.remote] = key.fd
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        flow = self._flows.pop(key.fd, None)
        if flow is not None and self._by_ends.get((flow.local, flow.remote)) == key.fd:
            del self._by_ends[flow.local, flow.remote]
        return key

    def under_way(self, ready: Container[int] = ()) -> bool:
        """Whether the kernel still has something to deliver to a socket that is not in `ready`.

        Loopback usually delivers inside the write call, but a busy kernel defers it, and a window
        update or acknowledgement can be late as well.
        """
        return any(fd not in ready and self._expects(fd, flow) for fd, flow in self._flows.items())

    def _expects(self, fd: int, flow: _Flow) -> bool:
        events = self.get_key(fd).events
        if flow.remote is None:
            return bool(events & selectors.EVENT_WRITE)  # a connect that has not been answered
        peer = self._by_ends.get((flow.remote, flow.local))
        if peer is None:
            return False
        # Not writable although the peer reads and has nothing to read: its acknowledgement is on
        # the way. A peer that does not read makes this writer wait for virtual time.
        if events & selectors.EVENT_WRITE and self._reads(peer):
            return True
        return bool(events & selectors.EVENT_READ) and self._missing(fd, peer, flow.family)

    def _reads(self, fd: int) -> bool:
        return bool(self.get_key(fd).events & selectors.EVENT_READ)

    @staticmethod
    def _missing(fd: int, peer: int, family: int) -> bool:
        reader, writer = _borrow(fd, family), _borrow(peer, family)
        try:
            got, given = tcp_info(reader), tcp_info(writer)
        finally:
            reader.detach()
            writer.detach()
        return got is not None and given is not None and given.bytes_written > got.bytes_received


class _JumpingSelector(_Wire):
    """A selector that, instead of waiting, moves the clock by the time it should have waited.

    It knows of each socket when its queue was last seen to be empty.
    """

    def __init__(self, now: Callable[[], int], jump: Callable[[int], None]) -> None:
        super().__init__()
        self._now, self._jump = now, jump
        self._returned_at = now()
        self._reported: set[int] = set()
        self._empty_at: dict[int, int] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        # What the socket holds already is of unknown age.
        self._empty_at[key.fd] = 0 if _is_readable(key.fd) else self._returned_at
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._empty_at.pop(key.fd, None)
        self._reported.discard(key.fd)
        return key

    def empty_at(self, fd: int) -> int:
        """Return the latest instant at which nothing waited to be read from `fd`, 0 if unknown."""
        return self._empty_at.get(fd, 0)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._now() != self._returned_at:
            self._settle()
        events = self._select(timeout)
        reported = {key.fd for key, mask in events if mask & selectors.EVENT_READ}
        for fd in reported - self._reported:
            # The select before watched it and found nothing; the clock stood still in between,
            # or what advanced it may have delayed this.
            self._empty_at[fd] = max(self._empty_at[fd], self._returned_at)
        self._reported, self._returned_at = reported, self._now()
        return events

    def _settle(self) -> None:
        """Wait for what was written before the clock was advanced, lest it look newer than that."""
        give_up = time.monotonic() + _DELIVERY_GRACE_S
        while self.under_way({key.fd for key, _ in super().select(0)}):
            if time.monotonic() > give_up:
                raise VirtualTimeError("loopback did not deliver what was written to it")
            time.sleep(_STEP_S)

    def _select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if self.under_way():
            return self._deliver()
        # What was delivered between that look and this question is not under way any more.
        events = super().select(0)
        if events:
            return events
        if timeout is None:
            return self._last_chance()
        self._jump(round(timeout * NS_PER_S))
        return []

    def _deliver(self) -> list[tuple[selectors.SelectorKey, int]]:
        give_up = time.monotonic() + _DELIVERY_GRACE_S
        while time.monotonic() < give_up:
            events = super().select(_STEP_S)
            if events:
                return events
            if not self.under_way():
                # The loop asks again; nothing has been jumped yet.
                return super().select(0)
        raise VirtualTimeError("loopback did not deliver what was written to it")

    def _last_chance(self) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(_DEADLOCK_GRACE_S)
        if events:
            return events
        raise VirtualTimeError(
            "deadlock: no timer is set and no socket of this loop has anything to deliver"
        )


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of its own, in integer nanoseconds from 0.

    Attributes
    ----------
    now_ns
        The instant (ns). It stays the same while anything can still run at this instant.

    Raises
    ------
    VirtualTimeError
        From whatever needs real time (threads, executors, subprocesses, name look-ups), and from
        the run itself when it would wait for ever.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._wire = _JumpingSelector(lambda: self.now_ns, self._jump)
        super().__init__(self._wire)
        # Timers sit on whole nanoseconds (see call_at), so half of one tells "due" from "not yet".
        self._clock_resolution = 0.5 / NS_PER_S
        self._home = threading.get_ident()

    def _jump(self, ns: int) -> None:
        self.now_ns += ns

    def time(self) -> float:
        """Return the instant in seconds: `now_ns`, exact up to about 50 days."""
        return self.now_ns / NS_PER_S

    def advance(self, ns: int) -> None:
        """Let `ns` pass at once, as if everything that runs in this loop had stalled.

        Raises
        ------
        ValueError
            If `ns` is negative.
        """
        if ns < 0:
            raise ValueError("time does not run backwards")
        self._jump(ns)

    def empty_at(self, fd: int) -> int:
        """Return since when (ns) what a socket now gives to read can have come, 0 if unknown.

        That is this very instant, unless `advance` moved the clock since the loop last asked.
        """
        return self._wire.empty_at(fd)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule like any loop, at the whole nanosecond nearest to `when` (s)."""
        return self.call_at_ns(round(when * NS_PER_S), callback, *args, context=context)

    def call_at_ns(
        self,
        when_ns: int,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule `callback` for the instant `when_ns`, or at once if that is past."""
        return super().call_at(when_ns / NS_PER_S, callback, *args, context=context)

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Refuse: a thread takes real time, which this clock cannot see."""
        raise VirtualTimeError("virtual time has no threads: run_in_executor is refused")

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedule from this loop's own thread; refuse from any other."""
        if threading.get_ident() != self._home:
            raise VirtualTimeError("virtual time has no threads: called from another thread")
        return super().call_soon_threadsafe(callback, *args, context=context)

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """Answer for addresses given in numbers; refuse names, which need a real resolver."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise VirtualTimeError(
                f"virtual time has no name look-up: give {host!r} as an address"
            ) from None
        flags |= socket.AI_NUMERICHOST
        return socket.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> NoReturn:
        """Refuse: needs a real resolver."""
        raise VirtualTimeError("virtual time has no name look-up")

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: another process lives in real time."""
        raise VirtualTimeError("virtual time has no subprocesses")

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: another process lives in real time."""
        raise VirtualTimeError("virtual time has no subprocesses")


async def _without_leaks(main: Coroutine[Any, Any, T]) -> T:
    result = await main
    leaked = asyncio.all_tasks() - {asyncio.current_task()}
    if leaked:
        names = sorted(str(task.get_coro()) for task in leaked)
        raise VirtualTimeError(f"{len(leaked)} tasks were left running: {'; '.join(names)}")
    return result


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a new `VirtualLoop` and return its result.

    Raises
    ------
    VirtualTimeError
        If `main` leaves tasks behind, deadlocks, or tries what needs real time.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_without_leaks(main))
