"""How people take turns, as histograms, and where an agent stands in them.

The reference is known by bins only, so each statement about it carries what the bins leave open
beside the error of what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from vakforge_eval.shipped import shipped_text
from vakforge_eval.stats.values import Floats
from vakforge_eval.timeline.values import Measured, Reason, Undefined

__all__ = [
    "FEW",
    "MIN_SAMPLE",
    "Distance",
    "Histogram",
    "HumanReference",
    "distance",
    "human_reference",
]

MIN_SAMPLE = 5
"""Fewer values have no distance from a distribution worth a number."""
FEW = 20
"""Distances of fewer values are shown, and called low n: chance alone puts them far."""


@dataclass(frozen=True)
class Histogram:
    """Counts of values in bins ``[lo + k·step, lo + (k + 1)·step)``, and of those outside.

    Raises
    ------
    ValueError
        If the counts do not make up a histogram.
    """

    lo: float
    step: float
    counts: tuple[int, ...]
    below: int = 0
    above: int = 0

    def __post_init__(self) -> None:
        if self.step <= 0 or not self.counts or min(self.below, self.above, *self.counts) < 0:
            raise ValueError("not a histogram: no bins, or a negative count or width")
        if not self.n:
            raise ValueError("not a histogram: nothing was counted")

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> Histogram:
        """Return a histogram; ``n``, which tells how many values there are, must agree."""
        found = cls(obj["lo"], obj["step"], tuple(obj["counts"]), obj["below"], obj["above"])
        if found.n != obj["n"]:
            raise ValueError(f"not a histogram: {found.n} values counted, {obj['n']} named")
        return found

    @cached_property
    def n(self) -> int:
        """How many values were counted."""
        return self.below + sum(self.counts) + self.above

    @cached_property
    def edges(self) -> Floats:
        """Borders of the bins, shape ``(bins + 1,)``; rounded so that none is off by one bit."""
        return np.round(self.lo + self.step * np.arange(len(self.counts) + 1), 9)

    @cached_property
    def cumulative(self) -> Floats:
        """Share of the values below each border, shape ``(bins + 1,)``."""
        passed: Floats = (self.below + np.cumsum([0, *self.counts])) / self.n
        return passed

    def percentile(self, value: Measured) -> Measured:
        """Return the percentile rank of a value, in percent.

        It is the mid-rank: those below count whole, those in the same bin half. Its interval goes
        from the lower border of the bin that holds `value.lo` to the upper one of that of
        `value.hi`.
        """
        passed = 100 * np.concatenate([[0.0], self.cumulative, [1.0]])
        bins = np.searchsorted(self.edges, [value.lo, value.value, value.hi], side="right")
        first, own, last = (int(k) for k in bins)
        rank = float(passed[own] + passed[own + 1]) / 2
        return Measured(rank, u=(rank - float(passed[first]), float(passed[last + 1]) - rank))


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a sample lies from a reference.

    Attributes
    ----------
    n
        Size of the sample.
    ks
        Kolmogorov-Smirnov distance: the largest difference of the cumulative shares, in [0, 1].
    wasserstein
        Wasserstein-1 distance: by how much values must move on average to become the reference,
        in their own unit. What lies outside of the bins counts as lying at their outer border.
    """

    n: int
    ks: Measured
    wasserstein: Measured


def distance(sample: Sequence[Measured], reference: Histogram) -> Distance | Undefined:
    """Return the distances of a sample from a binned reference.

    Between two borders the reference is taken as even. The intervals hold what any other course
    inside of the bins, and any values inside of the sample's error intervals, would give.

    Returns
    -------
    Distance | Undefined
        Undefined: too_few below 5 values.
    """
    if len(sample) < MIN_SAMPLE:
        return Undefined(Reason.TOO_FEW)
    low, at, high = (
        np.sort(np.array(ends, dtype=np.float64))
        for ends in zip(*((v.lo, v.value, v.hi) for v in sample), strict=True)
    )
    ks = _ks(at, reference)
    least, most = _ks_bounds(low, high, reference)
    moved = _wasserstein(at, reference)
    error = float(np.mean([max(v.value - v.lo, v.hi - v.value) for v in sample]))
    # A bin's values lie half a bin away from even, on average, if all are at its border.
    inside = float(reference.cumulative[-1] - reference.cumulative[0])
    open_ = inside * reference.step / 2 + error
    return Distance(
        n=len(sample),
        ks=Measured(ks, u=(max(0.0, ks - least), max(0.0, most - ks))),
        wasserstein=Measured(moved, u=(min(moved, open_), open_)),
    )


def _ks(sample: Floats, reference: Histogram) -> float:
    """Return the distance of a sorted sample; both curves are compared before and after each jump.

    What lies below the bins is taken to lie right below, what lies above right at the last border.
    """
    edges, passed = reference.edges, reference.cumulative
    inside = np.interp(sample, edges, passed)
    before = np.where(sample < edges[0], 0.0, np.where(sample > edges[-1], 1.0, inside))
    after = np.where(sample < edges[0], 0.0, np.where(sample >= edges[-1], 1.0, inside))
    rank = np.arange(len(sample)) / len(sample)
    return float(max(np.abs(rank - before).max(), np.abs(rank + 1 / len(sample) - after).max()))


def _ks_bounds(low: Floats, high: Floats, reference: Histogram) -> tuple[float, float]:
    """Return the least and the largest distance that bins and errors allow.

    At the borders the reference is exact. Between two of them its share may rise at either one.
    """
    edges, passed = reference.edges, reference.cumulative
    most = np.searchsorted(low, edges, side="left") / len(low)
    least = np.searchsorted(high, edges, side="left") / len(high)
    apart = np.maximum(least - passed, passed - most).max()
    zero, one = [0.0], [1.0]
    rises = np.concatenate([most, one]) - np.concatenate([zero, passed])
    falls = np.concatenate([passed, one]) - np.concatenate([zero, least])
    return max(0.0, float(apart)), min(1.0, float(max(rises.max(), falls.max())))


def _wasserstein(sample: Floats, reference: Histogram) -> float:
    """Return the area between the two cumulative curves, exact for the even reference."""
    edges = reference.edges
    inside = np.clip(sample, edges[0], edges[-1])
    places = np.unique(np.concatenate([edges, inside]))
    share = np.searchsorted(inside, places[:-1], side="right") / len(inside)
    course = np.interp(places, edges, reference.cumulative)
    begin, end = share - course[:-1], share - course[1:]
    sizes = np.abs(begin) + np.abs(end)
    crossed = (begin**2 + end**2) / np.where(sizes > 0, 2 * sizes, 1.0)
    heights = np.where(begin * end < 0, crossed, sizes / 2)
    return float(np.sum(heights * np.diff(places)))


@dataclass(frozen=True, slots=True)
class HumanReference:
    """Turn-taking of people.

    Attributes
    ----------
    what
        Where it is from, in words.
    rules
        How it was counted, and how much of it.
    per_call
        Histograms with one value a call: overlap_over_total, overlap_over_speech (shares) and
        floor_transfer_offset_median (s).
    pooled
        Histograms of all calls together: floor_transfer_offset (s), …
    quantiles
        p5 … p95, mean and n by name.
    """

    what: str
    rules: Mapping[str, Any]
    per_call: Mapping[str, Histogram]
    pooled: Mapping[str, Histogram]
    quantiles: Mapping[str, Mapping[str, float]]


@cache
def human_reference() -> HumanReference:
    """Return the human reference that is shipped with the project.

    Raises
    ------
    FileNotFoundError
        If the installation is incomplete.
    """
    data = json.loads(shipped_text("reference/human_turn_taking.json"))
    return HumanReference(
        what=data["what"],
        rules=data["rules"],
        per_call=_histograms(data["per_call"]),
        pooled=_histograms(data["pooled_histograms"]),
        quantiles=data["quantiles"],
    )


def _histograms(obj: Mapping[str, Any]) -> dict[str, Histogram]:
    return {name: Histogram.from_json(histogram) for name, histogram in obj.items()}
