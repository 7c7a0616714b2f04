"""When messages that were handed over have really left: a client that does not read holds them up.

Nothing tells of each message, but how many bytes have not left can be asked. A message has left
once no more wait than were handed over behind it; framing counts as waiting, so that this is never
told too early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from vakforge_eval.timeline.instant import NS_PER_MS, Instant
from vakforge_probe.net.alarm import Alarm, Handle

__all__ = ["Backlog"]

LOOK_NS = NS_PER_MS // 4
"""So often is asked while messages wait."""

Told = Callable[[Instant], None]


class Backlog:
    """Tells of each message, in their order, when it left.

    Parameters
    ----------
    n_unsent
        Returns how many bytes of what was handed over have not left.
    """

    def __init__(
        self, alarm: Alarm, now_ns: Callable[[], int], n_unsent: Callable[[], int]
    ) -> None:
        self._alarm, self._now_ns, self._n_unsent = alarm, now_ns, n_unsent
        self._n_bytes = 0
        self._waiting: deque[tuple[int, Instant, Told]] = deque()
        self._looked = (0, 0)
        """When it was asked last (ns), and how many bytes had been handed over by then."""
        self._handle: Handle | None = None

    def add(self, n_bytes: int, at: Instant, told: Told) -> None:
        """Take a message that was handed over at an instant; `told` gets when it left."""
        self._n_bytes += n_bytes
        self._waiting.append((self._n_bytes, at, told))
        self._look()

    def close(self) -> None:
        """Tell of nothing more: what waits never left."""
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        before = self._now_ns()
        n_gone = self._n_bytes - self._n_unsent()
        after = self._now_ns()
        looked, n_known = self._looked
        while self._waiting and self._waiting[0][0] <= n_gone:
            end, at, told = self._waiting.popleft()
            # One that was still here when it was asked last left since then.
            told(at if end > n_known else Instant.sending(max(at.lo, looked), max(at.hi, after)))
        self._looked = before, self._n_bytes
        if self._waiting and self._handle is None:
            self._handle = self._alarm.call_at(after + LOOK_NS, self._ring)

    def _ring(self) -> None:
        self._handle = None
        self._look()
