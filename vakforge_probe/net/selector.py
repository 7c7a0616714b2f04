"""A selector that remembers when it last proved a stamped socket's queue empty (Linux only)."""

from __future__ import annotations

import select
import selectors
import time
from typing import Any

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.net.stamps import StampedSocket, stamped_by_fd

__all__ = ["StampSelector"]

_Ready = list[tuple[selectors.SelectorKey, int]]


class StampSelector(selectors.EpollSelector):
    """An epoll selector that never sleeps long at a stretch while a stamped socket is watched.

    A long sleep would leave the lower bound of the next arrival far behind it, so the sleep is
    cut into naps. Between two naps nothing else runs. A nap's end costs CPU, on virtual
    machines much of it; where naps that bring nothing cost more than a share of a core, as many of
    them are long as it takes to keep to that share. It is `CALL_SHARE` while anything is sent, as
    in a call, else `IDLE_SHARE`.
    """

    CALL_SHARE = 0.045
    IDLE_SHARE = 0.025
    SHORT_NAP_S = 0.001
    LONG_NAP_S = 0.002
    _QUIET_NS = NS_PER_S
    """Nothing sent for so long: there is no call."""
    _MAX_SAVED_NS = 1_000_000
    """CPU time that may be saved up: some 30 naps."""

    def __init__(self) -> None:
        super().__init__()
        self._watched: dict[int, StampedSocket] = {}
        self._round = 0
        self._entry = 0
        self._budget_ns = 0.0
        self._counted_at = time.monotonic_ns()
        # One readable descriptor for the whole set: to ask it is cheaper than to ask for a
        # list of what is ready, and a nap mostly ends with nothing.
        self._outer = select.epoll()
        self._outer.register(self.fileno(), select.EPOLLIN)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch, and keep bounds if it is a stamped socket watched for reading."""
        key = super().register(fileobj, events, data)
        self._watch(key)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch for other events."""
        key = super().modify(fileobj, events, data)
        self._watch(key)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Watch no more."""
        key = super().unregister(fileobj)
        self._watched.pop(key.fd, None)
        return key

    def close(self) -> None:
        """Close both epoll sets."""
        self._outer.close()
        super().close()

    def _watch(self, key: selectors.SelectorKey) -> None:
        stamped = stamped_by_fd(key.fd)
        if stamped is None or not key.events & selectors.EVENT_READ:
            self._watched.pop(key.fd, None)
        elif key.fd not in self._watched:
            self._watched[key.fd] = stamped
            stamped.watched_from(self._round + 1)

    def select(self, timeout: float | None = None) -> _Ready:
        """Return what is ready, after at most `timeout` seconds."""
        if not self._watched:
            return super().select(timeout)
        if timeout is not None and timeout <= 0:
            return self._collect(self._begin_round())
        return self._sleep(timeout)

    def _begin_round(self) -> int:
        """Enter the next poll; return when the one before was entered."""
        previous, self._entry = self._entry, time.monotonic_ns()
        self._round += 1
        return previous

    def _collect(self, previous: int) -> _Ready:
        """Return what is ready in this round, and tell the stamped sockets among it."""
        ready = super().select(0)
        for key, mask in ready:
            if mask & selectors.EVENT_READ and key.fd in self._watched:
                self._watched[key.fd].reported(self._round, previous)
        return ready

    def _sleep(self, timeout: float | None) -> _Ready:
        until = None if timeout is None else time.monotonic_ns() + int(timeout * NS_PER_S)
        cpu = time.thread_time_ns()
        while True:
            previous = self._begin_round()
            nap_s = self.LONG_NAP_S if self._budget_ns < 0 else self.SHORT_NAP_S
            if until is not None:
                nap_s = min(nap_s, max(0.0, (until - self._entry) / NS_PER_S))
            if self._outer.poll(nap_s, 1):
                ready = self._collect(previous)
                if ready:
                    return ready
            if nap_s == 0:
                return []
            before, cpu = cpu, time.thread_time_ns()
            self._pay(cpu - before)

    def _pay(self, spent_ns: int) -> None:
        """Take the cost of a nap that brought nothing from what time has earned since the last."""
        now = time.monotonic_ns()
        in_call = any(now - s.written_at < self._QUIET_NS for s in self._watched.values())
        share = self.CALL_SHARE if in_call else self.IDLE_SHARE
        earned = self._budget_ns + share * (now - self._counted_at)
        self._budget_ns = min(earned, self._MAX_SAVED_NS) - spent_ns
        self._counted_at = now
