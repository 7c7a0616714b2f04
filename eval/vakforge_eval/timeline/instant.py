"""Instants that carry their own error, in integer nanoseconds of one monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NS_PER_MS", "NS_PER_S", "Edge", "Instant", "ns_to_s", "samples_to_ns"]

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def ns_to_s(ns: int) -> float:
    """Return a duration in seconds; the only place where nanoseconds become a float."""
    return ns / NS_PER_S


def samples_to_ns(n_samples: int, rate_hz: int) -> int:
    """Return the duration of `n_samples` in ns, rounded to the nearest nanosecond."""
    return (2 * n_samples * NS_PER_S + rate_hz) // (2 * rate_hz)


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment known to lie in ``[lo, hi]``, with `at` the best single estimate.

    Raises
    ------
    ValueError
        If not ``lo <= at <= hi``: an instant outside its own bound is a bug, never a value.
    """

    lo: int
    hi: int
    at: int

    def __post_init__(self) -> None:
        if not self.lo <= self.at <= self.hi:
            raise ValueError(f"instant {self.at} lies outside [{self.lo}, {self.hi}]")

    @classmethod
    def exact(cls, ns: int) -> Instant:
        """Return an instant without error (virtual time, or a planned moment)."""
        return cls(ns, ns, ns)

    @classmethod
    def arrival(cls, lo: int, hi: int) -> Instant:
        """Return the instant of a read: the stamp `hi` is the estimate, `lo` what is proven."""
        return cls(lo, hi, hi)

    @classmethod
    def sending(cls, before: int, after: int) -> Instant:
        """Return the instant of a write that began at `before` and had returned by `after`."""
        return cls(before, after, (before + after) // 2)

    def shifted(self, ns: int) -> Instant:
        """Return the same instant `ns` later, its error unchanged."""
        return Instant(self.lo + ns, self.hi + ns, self.at + ns)

    @property
    def width(self) -> int:
        """Width of the bound in ns."""
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class Edge:
    """A moment found in audio: stamp error and detection error are kept apart.

    `detect_minus` and `detect_plus` (ns, both >= 0) say how far the edge moves to the early and
    the late side when the detector's gate moves by 6 dB either way.
    """

    when: Instant
    detect_minus: int = 0
    detect_plus: int = 0

    @classmethod
    def exact(cls, ns: int) -> Edge:
        """Return an edge without error."""
        return cls(Instant.exact(ns))
