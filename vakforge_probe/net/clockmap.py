"""From the kernel's wall-clock stamps to the monotonic clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from vakforge_eval.timeline.instant import NS_PER_S

__all__ = ["ClockMap", "shared_clocks"]


class ClockMap:
    """Maps the kernel's wall-clock stamps to the monotonic clock.

    The two differ by a constant until somebody sets the wall clock, so the difference is taken
    again every second.

    Attributes
    ----------
    spread_ns
        How far a mapped stamp may be off, either way.
    n_steps
        How often the wall clock was seen to have been set.
    """

    _PAIRS = 101
    _STALE_NS = NS_PER_S
    _CORES_NS = 1_000
    """Clocks of two cores differ by less than this; a stamp may come from another core."""

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        realtime_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns, self._realtime_ns = monotonic_ns, realtime_ns
        self.n_steps = 0
        self._offset_ns, self.spread_ns = self._measure()
        self._measured_at = monotonic_ns()

    def to_monotonic(self, real_ns: int, now_ns: int) -> int:
        """Return a wall-clock instant on the monotonic clock, which shows `now_ns`."""
        if now_ns - self._measured_at > self._STALE_NS:
            self.refresh()
        return real_ns - self._offset_ns

    def refresh(self) -> None:
        """Compare the two clocks now."""
        offset_ns, spread_ns = self._measure()
        if abs(offset_ns - self._offset_ns) > spread_ns + self.spread_ns:
            self.n_steps += 1
        self._offset_ns, self.spread_ns = offset_ns, spread_ns
        self._measured_at = self._monotonic_ns()

    def _measure(self) -> tuple[int, int]:
        doubled, brackets = [], []
        for _ in range(self._PAIRS):
            before = self._monotonic_ns()
            real = self._realtime_ns()
            after = self._monotonic_ns()
            doubled.append(2 * real - before - after)
            brackets.append(after - before)
        # Medians: an interrupted pair says little and must not widen the rest.
        return statistics.median_low(doubled) // 2, statistics.median_low(brackets) + self._CORES_NS


_SHARED: list[ClockMap] = []


def shared_clocks() -> ClockMap:
    """Return the map that all sockets of the process share, made at the first call."""
    if not _SHARED:
        _SHARED.append(ClockMap())
    return _SHARED[0]
