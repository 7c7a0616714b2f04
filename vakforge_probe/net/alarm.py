"""An alarm clock for the loop: absolute deadlines to some tens of microseconds.

asyncio rounds its timers up to the next millisecond. One timerfd for all deadlines of a loop,
read by the loop like a socket, does not. On virtual time the loop's timers are exact already; on
systems without timerfd its own timers have to do.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.net.clock import is_virtual, now_ns_of
from vakforge_probe.net.timerfd import TimerFd
from vakforge_probe.net.virtual import VirtualLoop

__all__ = ["Alarm", "Handle"]


class Handle(Protocol):
    """A deadline that can be called off."""

    def cancel(self) -> None:
        """Call it off; harmless after it has fired and when repeated."""
        ...


class Alarm(ABC):
    """Calls back at absolute instants of its loop's clock; one per loop, by `Alarm.of`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Alarm:
        """Return the alarm of `loop`, made at the first call."""
        known = _ALARMS.get(loop)
        alarm = known() if known is not None else None
        if alarm is None:
            alarm = _make(loop)
            _ALARMS[loop] = weakref.ref(alarm)
        return alarm

    @abstractmethod
    def call_at(self, ns: int, callback: Callable[[], object]) -> Handle:
        """Call `callback` in the loop at the instant `ns`, or as soon as possible if past."""

    async def sleep_until(self, ns: int) -> None:
        """Return at the instant `ns`, or after one turn of the loop if that is past."""
        woken: asyncio.Future[None] = self._loop.create_future()
        handle = self.call_at(ns, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            handle.cancel()


# Weak on both sides: the loop's selector keeps a timerfd alarm alive until the loop is closed.
_ALARMS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Alarm]] = (
    weakref.WeakKeyDictionary()
)


def _make(loop: asyncio.AbstractEventLoop) -> Alarm:
    if is_virtual(loop):
        return _VirtualAlarm(loop)
    if sys.platform.startswith("linux"):
        return _TimerFdAlarm(loop)
    return _LoopAlarm(loop)


class _VirtualAlarm(Alarm):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self._virtual = loop

    def call_at(self, ns: int, callback: Callable[[], object]) -> Handle:
        return self._virtual.call_at_ns(ns, callback)


class _LoopAlarm(Alarm):
    def call_at(self, ns: int, callback: Callable[[], object]) -> Handle:
        return self._loop.call_at(ns / NS_PER_S, callback)


class _Entry:
    __slots__ = ("_alarm", "callback", "ns")

    def __init__(self, alarm: _TimerFdAlarm, ns: int, callback: Callable[[], object]) -> None:
        self._alarm = alarm
        self.ns = ns
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._alarm.forget()


class _TimerFdAlarm(Alarm):
    """Rings a little ahead and waits the rest out.

    Between the timer and the first callback lie the waking of the process and of the interpreter,
    tens of microseconds on a virtual machine. The timer is set earlier by what that took lately,
    so that little is left to wait for; a callback is never early.
    """

    _TIDY_FROM = 64
    _MAX_LEAD_NS = 100_000

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._now_ns = now_ns_of(loop)
        self._heap: list[tuple[int, int, _Entry]] = []
        self._order = itertools.count()
        self._armed: int | None = None
        self._n_cancelled = 0
        self._is_ringing = False
        self._lead_ns = 0
        timer = TimerFd()
        self._timer = weakref.ref(timer)
        # The reader is the only owner: when the loop is closed the descriptor goes with it.
        loop.add_reader(timer.fd, self._ring, timer)

    def call_at(self, ns: int, callback: Callable[[], object]) -> Handle:
        entry = _Entry(self, ns, callback)
        heapq.heappush(self._heap, (ns, next(self._order), entry))
        if not self._is_ringing and (self._armed is None or ns < self._armed):
            self._arm(ns)
        return entry

    def forget(self) -> None:
        """Note that an entry was called off; it stays in the heap until most of them have been."""
        self._n_cancelled += 1
        if len(self._heap) > self._TIDY_FROM and 2 * self._n_cancelled > len(self._heap):
            self._heap = [item for item in self._heap if item[2].callback is not None]
            heapq.heapify(self._heap)
            self._n_cancelled = 0

    def _arm(self, ns: int) -> None:
        timer = self._timer()
        if timer is None:
            raise RuntimeError("the alarm's loop is closed")
        self._armed = ns
        timer.set(ns - self._lead_ns)

    def _ring(self, timer: TimerFd) -> None:
        if not timer.expired() or self._armed is None:
            return  # re-armed for later since the loop saw it ready
        now = self._now_ns()
        took = min(max(0, now - (self._armed - self._lead_ns)), self._MAX_LEAD_NS)
        self._armed = None
        self._lead_ns += (took - self._lead_ns) // 16
        self._drop_cancelled()
        while self._heap and now < self._heap[0][0] <= now + self._MAX_LEAD_NS:
            now = self._now_ns()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        # Callbacks mostly set their next alarm; the timer is armed once, after all of them.
        self._is_ringing = True
        try:
            for entry in due:
                self._call(entry)
        finally:
            self._is_ringing = False
            if self._heap:
                self._arm(self._heap[0][0])

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
            self._n_cancelled = max(0, self._n_cancelled - 1)

    def _call(self, entry: _Entry) -> None:
        callback, entry.callback = entry.callback, None
        if callback is None:
            self._n_cancelled = max(0, self._n_cancelled - 1)
            return
        try:
            callback()
        except Exception as error:
            # One caller's bug must not cost the other calls of this loop their deadlines.
            self._loop.call_exception_handler(
                {"message": "exception in an alarm callback", "exception": error}
            )
