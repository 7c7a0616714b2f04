"""Kaplan-Meier: percentiles of times whose waiting something else may have ended.

A reply that ends by itself 0.3 s after the user began says nothing of when it would have been
stopped. It counts as "not stopped yet" up to that moment and as nothing afterwards: the share that
is left is a product over the moments of the events, each with those who were still waited for (E.
L. Kaplan, P. Meier, 1958, Nonparametric estimation from incomplete observations). This needs the
other end to come independently of the event.

The curves are weighted, so that resamples of clusters are computed without drawing values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vakforge_eval.stats.bootstrap import Weights
from vakforge_eval.stats.values import Floats, Values

__all__ = ["KAPLAN_MEIER", "Sample", "greenwood", "quantile", "survival", "survival_replicates"]

KAPLAN_MEIER = "Kaplan-Meier"

_MAX_CELLS = 1_000_000
"""Cells of one block of the resample matrix: a few arrays of 8 MB, whatever the sample."""
_SLACK = 1e-9
"""A product of shares that ends on the percentile by arithmetic may miss it by float error."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Times (n,) with whether each was the event (True) or the end of waiting for it (False)."""

    times: Floats
    is_event: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, values: Values, *, error: int = 0) -> Sample:
        """Return the sample of `values`, or of their lower (-1) or upper (1) error ends."""
        ends = {-1: values.error_low, 0: values.low, 1: values.error_high}[error]
        is_event = np.isfinite(values.high)
        return cls(np.where(is_event, ends, values.low), is_event)


@dataclass(frozen=True, slots=True)
class _Curves:
    """Shares left after each of the times (g,), a row a resample, with who was waited for."""

    times: Floats
    share: Floats
    events: Floats
    at_risk: Floats


def _curves(sample: Sample, weights: Weights) -> _Curves:
    """Return the curves of a sample whose values count `weights` (r, n) times.

    An end of waiting at the very moment of an event counts as waited for then, as is usual.
    """
    times, group = np.unique(sample.times, return_inverse=True)
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], np.arange(len(times)))
    ordered = weights[:, order].astype(np.float64)
    counts = np.add.reduceat(ordered, first, axis=1)
    events: Floats = np.add.reduceat(ordered * sample.is_event[order], first, axis=1)
    at_risk: Floats = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    kept: Floats = np.ones_like(events)
    np.divide(at_risk - events, at_risk, out=kept, where=at_risk > 0)
    return _Curves(times, np.multiply.accumulate(kept, axis=1), events, at_risk)


def _reach(curves: _Curves, share: float) -> Floats:
    """Return when at most ``1 - share`` are left, infinity where it never came to that."""
    is_reached = curves.share <= 1 - share + _SLACK
    place = np.argmax(is_reached, axis=1)
    return np.where(is_reached.any(axis=1), curves.times[place], np.inf)


def _once(sample: Sample) -> _Curves:
    return _curves(sample, np.ones((1, len(sample.times)), dtype=np.int64))


def quantile(sample: Sample, share: float) -> float:
    """Return the first time by which at least `share` (in (0, 1]) had the event.

    Infinity: not reached. The sample must not be empty.
    """
    return float(_reach(_once(sample), share)[0])


def survival(sample: Sample) -> tuple[Floats, Floats]:
    """Return the times (g,) and the share that is left after each of them."""
    curves = _once(sample)
    return curves.times, curves.share[0]


def greenwood(sample: Sample, at: float) -> float:
    """Return Greenwood's variance of the share that is left at a time.

    Notes
    -----
    The moment that takes all who are left has no finite term and is left out: the share is 0 then.
    """
    curves = _once(sample)
    counts = (curves.times <= at) & (curves.at_risk[0] > curves.events[0])
    events, at_risk = curves.events[0][counts], curves.at_risk[0][counts]
    left = float(curves.share[0][counts][-1]) if counts.any() else 1.0
    return left**2 * float(np.sum(events / (at_risk * (at_risk - events))))


def survival_replicates(
    sample: Sample,
    clusters: Sequence[str],
    names: Sequence[str],
    weights: Weights,
    share: float,
    at: float,
) -> tuple[Floats, Floats]:
    """Return each resample's `quantile` of `share`, and the share that is left at the time `at`.

    Parameters
    ----------
    sample, clusters
        The values and the cluster of each, ``(n,)``.
    names
        The cluster of each column of `weights`; all of `clusters` are in it.
    weights
        How often each cluster was drawn, ``(n_resamples, len(names))``.

    Returns
    -------
    tuple
        Two arrays ``(n_resamples,)``: infinite quantiles were not reached; where a resample drew no
        value both are NaN.
    """
    column = {name: i for i, name in enumerate(names)}
    index = np.array([column[name] for name in clusters], dtype=np.int64)
    reached, left = np.full(len(weights), np.nan), np.full(len(weights), np.nan)
    for block in _blocks(len(weights), len(index)):
        drawn = weights[block][:, index]
        curves = _curves(sample, drawn)
        place = int(np.searchsorted(curves.times, at, side="right")) - 1
        is_any = drawn.sum(axis=1) > 0
        share_left = curves.share[:, place] if place >= 0 else np.ones(len(drawn))
        reached[block] = np.where(is_any, _reach(curves, share), np.nan)
        left[block] = np.where(is_any, share_left, np.nan)
    return reached, left


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    step = max(1, _MAX_CELLS // max(1, n_columns))
    for first in range(0, n_rows, step):
        yield slice(first, first + step)
