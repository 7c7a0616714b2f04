"""The caller's stream as the agent received it: samples, and when each was spoken.

Two models of "spoken" are kept. *Microphone*: a frame leaves when its last sample has been spoken,
so a sample at offset o of a frame of L samples that arrived at t was spoken at t - (L - o).
*Frame start*: the frame's first sample is spoken when it arrives, so that one is t + o.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.instant import Instant, samples_to_ns

__all__ = ["Tape"]

Pcm = npt.NDArray[np.int16]

KEPT_S = 60
"""Longer than any echo's delay and than any clip's part that is still to be compared."""


class _Frame(NamedTuple):
    start: int
    stop: int
    arrival: Instant


class Tape:
    """Append-only record of one caller's stream at `rate_hz`; positions count from its start.

    Parameters
    ----------
    behind
        By how many samples what has been heard is behind what has been sent: a coder looks ahead.
        A frame is then spoken `behind` samples before its last sample is on the tape.
    """

    def __init__(self, rate_hz: int, behind: int = 0) -> None:
        self.rate_hz, self._behind = rate_hz, behind
        self._frames: list[_Frame] = []
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._pcm = np.zeros(0, dtype=np.int16)
        self._held = 0
        self._base = 0

    @property
    def length(self) -> int:
        """Samples received so far."""
        return self._base + self._held

    @property
    def started(self) -> Instant | None:
        """Arrival of the first frame."""
        return self._frames[0].arrival if self._frames else None

    def latest(self, n: int) -> list[tuple[int, Instant]]:
        """Return the last `n` frames: the position at which each ends, and its arrival."""
        return [(frame.stop, frame.arrival) for frame in self._frames[-n:]]

    @property
    def widest(self) -> int:
        """How badly, at worst, the arrival of a frame is known (ns)."""
        return max((frame.arrival.width for frame in self._frames), default=0)

    def append(self, pcm: Pcm, arrival: Instant) -> None:
        """Add one frame that arrived at `arrival`; an empty one is nothing."""
        if not len(pcm):
            return
        start = self._stops[-1] if self._stops else 0
        stop = self.length + len(pcm) + self._behind
        self._frames.append(_Frame(start, stop, arrival))
        self._starts.append(start)
        self._stops.append(stop)
        self._make_room(len(pcm))
        self._pcm[self._held : self._held + len(pcm)] = pcm
        self._held += len(pcm)

    def _make_room(self, n: int) -> None:
        if self._held + n <= len(self._pcm):
            return
        drop = max(0, self._held - KEPT_S * self.rate_hz)
        kept = self._pcm[drop : self._held]
        grown = np.zeros(max(2 * (len(kept) + n), self.rate_hz), dtype=np.int16)
        grown[: len(kept)] = kept
        self._pcm, self._held, self._base = grown, len(kept), self._base + drop

    def slice(self, start: int, stop: int) -> Pcm:
        """Return samples [start, stop); what was never received or is forgotten reads as zero."""
        out = np.zeros(stop - start, dtype=np.int16)
        lo, hi = max(start, self._base), min(stop, self.length)
        if lo < hi:
            out[lo - start : hi - start] = self._pcm[lo - self._base : hi - self._base]
        return out

    def spoken_start(self, sample: int) -> tuple[Instant, Instant]:
        """Return when `sample` began, in the microphone and in the frame-start model.

        Raises
        ------
        IndexError
            If the sample has not been received.
        """
        return self._spoken(self._frames[bisect_right(self._starts, sample) - 1], sample)

    def spoken_end(self, end: int) -> tuple[Instant, Instant]:
        """Return when the span that ends before position `end` was over, in both models."""
        return self._spoken(self._frames[bisect_right(self._stops, end - 1)], end)

    def _spoken(self, frame: _Frame, position: int) -> tuple[Instant, Instant]:
        if not frame.start <= position <= frame.stop:
            raise IndexError(f"sample {position} has not been received")
        return (
            frame.arrival.shifted(-samples_to_ns(frame.stop - position, self.rate_hz)),
            frame.arrival.shifted(samples_to_ns(position - frame.start, self.rate_hz)),
        )

    def expected(self, position: int) -> int:
        """Return when `position` is or will have been spoken (ns, microphone model)."""
        last = self._frames[-1]
        if position <= last.stop:
            return self.spoken_end(max(position, 1))[0].at
        return last.arrival.at + samples_to_ns(position - last.stop, self.rate_hz)

    def heard_by(self, ns: int) -> int:
        """Return the position that was being spoken at `ns` (microphone model), >= 0."""
        last = self._frames[-1]
        return last.stop + (ns - last.arrival.at) * self.rate_hz // 1_000_000_000
