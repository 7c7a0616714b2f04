"""95 % intervals of percentiles and of their differences, with clusters as the unit of chance.

Which interval is the headline:

* no or one cluster: none, and the reason;
* each cluster holds one value: order statistics, exact for any distribution;
* fewer than 20 clusters: a t interval (percentile bootstraps cover too little there), with the
  bootstrap beside it;
* else the cluster bootstrap.

Kaplan-Meier's percentiles have the t interval of their share or the bootstrap in the same way, and
no order statistics: these need values that are all known or all beyond one bound.

An end that the sample cannot give (p95 of 50 values has no upper one) is None: open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from vakforge_eval.stats.bootstrap import (
    BOOTSTRAP_SEED,
    N_RESAMPLES,
    Weights,
    draw_weights,
    percentile_replicates,
)
from vakforge_eval.stats.percentiles import nearest_rank
from vakforge_eval.stats.rates import is_extreme, newcombe
from vakforge_eval.stats.survival import (
    KAPLAN_MEIER,
    Sample,
    greenwood,
    quantile,
    survival_replicates,
)
from vakforge_eval.stats.values import Floats, Values
from vakforge_eval.timeline.values import Rate

__all__ = [
    "MANY_CLUSTERS",
    "Ends",
    "Interval",
    "delta_interval",
    "percentile_interval",
    "rate_delta_interval",
]

MANY_CLUSTERS = 20
_TAIL = 0.025
_BOOTSTRAP = f"cluster bootstrap ({N_RESAMPLES} resamples, seed {BOOTSTRAP_SEED})"

Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Interval:
    """The headline interval (None: there is none, `method` says why) and the one beside it."""

    ends: Ends | None
    method: str
    bootstrap: Ends | None = None


def _none(n_clusters: int) -> Interval:
    return Interval(None, "none: no values" if n_clusters == 0 else "none: one cluster")


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _t_quantile(n_clusters: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(n_clusters - 1, 1 - _TAIL))


def _order_statistics(values: Values, percent: int) -> Interval:
    """Return ``[x(l), x(u)]`` with ``P(B < l)`` and ``P(B >= u)`` both at most 2.5 %."""
    from scipy.special import bdtr

    n = len(values)
    below = bdtr(np.arange(n + 1), n, percent / 100)
    lower = int(np.count_nonzero(below[:n] <= _TAIL))
    upper = int(np.argmax(1 - below <= _TAIL)) + 1
    low = float(np.sort(values.low)[lower - 1]) if lower >= 1 else None
    high = _finite(np.sort(values.high)[upper - 1]) if upper <= n else None
    if low is None and high is None:
        return Interval(None, f"none: order statistics need more than {n} values")
    return Interval((low, high), "order statistics")


def _at_share(values: Floats, share: float) -> float | None:
    """Return the value at a share of the sample, None outside of it."""
    if not 0 < share <= 1:
        return None
    return _finite(np.sort(values)[int(np.ceil(share * len(values))) - 1])


def _woodruff(values: Values, percent: int, n_clusters: int) -> Ends | None:
    """Return the t interval of a percentile: an interval of its share, read off the sample.

    The share of values up to the percentile is a ratio over clusters; its linearised error is
    never taken as smaller than that of independent turns, which it would be by chance when each
    cluster happens to hold the same share (R. S. Woodruff, 1952, Confidence intervals for
    medians and other position measures).
    """
    share, n = percent / 100, len(values)
    is_below = values.low <= nearest_rank(values.low, percent)
    _, index = np.unique(np.array(values.clusters), return_inverse=True)
    hits, totals = np.bincount(index, weights=is_below), np.bincount(index)
    residual = hits - hits.sum() / n * totals
    spread = n_clusters / (n_clusters - 1) * float(np.sum(residual**2)) / n**2
    half = _t_quantile(n_clusters) * sqrt(max(spread, share * (1 - share) / n))
    low, high = _at_share(values.low, share - half), _at_share(values.high, share + half)
    return None if low is None and high is None else (low, high)


def _replicates(
    values: Values, names: Sequence[str], weights: Weights, percent: int
) -> tuple[Floats, Floats]:
    """Return the lower and the upper end of the percentile of each resample."""
    if values.is_product_limit:
        found, _ = survival_replicates(
            Sample.of(values), values.clusters, names, weights, percent / 100, 0.0
        )
        return np.where(np.isinf(found), values.low.max(), found), found
    low = percentile_replicates(values.low, values.clusters, names, weights, percent)
    if not values.is_censored:
        return low, low
    return low, percentile_replicates(values.high, values.clusters, names, weights, percent)


def _product_limit(
    values: Values, names: Sequence[str], weights: Weights, percent: int
) -> Ends | None:
    """Return the t interval of the share that had the event, read off Kaplan-Meier's curve.

    The error of the share at the percentile is that of resampled clusters, and never taken as
    smaller than Greenwood's or that of as many independent values without censoring.
    """
    sample, share = Sample.of(values), percent / 100
    at = min(quantile(sample, share), float(values.low.max()))
    _, left = survival_replicates(sample, values.clusters, names, weights, share, at)
    n_clusters = len(names)
    spread = float(np.nanvar(left)) * n_clusters / (n_clusters - 1)
    variance = max(spread, greenwood(sample, at), share * (1 - share) / len(values))
    half = _t_quantile(n_clusters) * sqrt(variance)
    low, high = (
        _finite(quantile(sample, end)) if 0 < end <= 1 else None
        for end in (share - half, share + half)
    )
    return None if low is None and high is None else (low, high)


def _bootstrap_ends(low: Floats, high: Floats) -> Ends | None:
    """Return the 2.5 % and 97.5 % points of the replicates; NaN replicates drew no value."""
    low, high = np.sort(low[~np.isnan(low)]), np.sort(high[~np.isnan(high)])
    if not len(low) or not len(high):
        return None
    first = low[int(np.ceil(_TAIL * len(low))) - 1]
    last = high[int(np.ceil((1 - _TAIL) * len(high))) - 1]
    return _finite(first), _finite(last)


def percentile_interval(values: Values, percent: int) -> Interval:
    """95 % interval of a nearest-rank percentile, in the sample's unit.

    Parameters
    ----------
    values
        The sample; a censored value counts as its bound for the lower end, as infinite for the
        upper one, which is then open.
    percent
        Integer in (0, 100].

    Returns
    -------
    Interval
        See the module's text for the choice of method.
    """
    names = sorted(set(values.clusters))
    if len(names) < 2:
        return _none(len(names))
    if len(names) == len(values) and not values.is_product_limit:
        return _order_statistics(values, percent)
    weights = draw_weights(len(names))
    beside = _bootstrap_ends(*_replicates(values, names, weights, percent))
    estimator = f"{KAPLAN_MEIER}, " if values.is_product_limit else ""
    if len(names) >= MANY_CLUSTERS:
        return Interval(beside, f"{estimator}{_BOOTSTRAP}")
    if values.is_product_limit:
        ends = _product_limit(values, names, weights, percent)
        method = f"{estimator}t interval of the share, standard error by {_BOOTSTRAP}"
    else:
        ends = _woodruff(values, percent, len(names))
        method = "t interval of the share (Woodruff)"
    return Interval(ends, method if ends else f"none: {len(names)} clusters are too few", beside)


def _lower(values: Values, percent: int) -> float:
    """Return the percentile, or what it is known to exceed."""
    if values.is_product_limit:
        return min(quantile(Sample.of(values), percent / 100), float(values.low.max()))
    return nearest_rank(values.low, percent)


def _difference_interval(
    estimate: float | None, low: Floats, high: Floats, n_clusters: int
) -> Interval:
    """Return the interval of a difference from its replicates' lower and upper ends."""
    beside = _bootstrap_ends(low, high)
    drawn = low[~np.isnan(low)]
    is_exact = np.array_equal(low, high, equal_nan=True) and bool(np.isfinite(drawn).all())
    if beside == (None, None):
        return Interval(None, "none: too many resamples hold a censored value")
    if n_clusters >= MANY_CLUSTERS or estimate is None or not is_exact or len(drawn) < 2:
        return Interval(beside, f"paired {_BOOTSTRAP}")
    # The bootstrap draws from G clusters with the spread of G - 1 degrees of freedom.
    error = float(np.std(drawn)) * sqrt(n_clusters / (n_clusters - 1))
    half = _t_quantile(n_clusters) * error
    method = f"paired t interval, standard error by {_BOOTSTRAP}"
    return Interval((estimate - half, estimate + half), method, beside)


def delta_interval(base: Values, tuned: Values, percent: int) -> Interval:
    """95 % interval of the percentile's change tuned - base, both from the same resamples.

    Clusters carry the same name in both samples; one that only a single side has stays in the
    draw. A side that is censored makes an end open.
    """
    names = sorted(set(base.clusters) | set(tuned.clusters))
    if len(names) < 2 or not len(base) or not len(tuned):
        return _none(min(len(names), len(base), len(tuned), 1))
    weights = draw_weights(len(names))
    base_low, base_high = _replicates(base, names, weights, percent)
    tuned_low, tuned_high = _replicates(tuned, names, weights, percent)
    estimate = _lower(tuned, percent) - _lower(base, percent)
    return _difference_interval(estimate, tuned_low - base_high, tuned_high - base_low, len(names))


def rate_delta_interval(base: Mapping[str, Rate], tuned: Mapping[str, Rate]) -> Interval:
    """95 % interval of a share's change tuned - base, from rates by cluster.

    Where both shares are 0 or 1 no resample differs, which is no certainty: Newcombe's then.
    """
    names = sorted(set(base) | set(tuned))
    if len(names) < 2:
        return _none(len(names))
    pooled = [sum(side.values(), Rate(0, 0)) for side in (base, tuned)]
    if all(rate.total and is_extreme(rate) for rate in pooled):
        return Interval(newcombe(*pooled), "Newcombe")
    weights = draw_weights(len(names))

    def share(rates: Mapping[str, Rate], draws: Floats) -> Floats:
        counts = [rates.get(name, Rate(0, 0)) for name in names]
        hits = draws @ np.array([rate.hits for rate in counts], dtype=np.float64)
        totals = draws @ np.array([rate.total for rate in counts], dtype=np.float64)
        out: Floats = np.full(len(draws), np.nan)
        np.divide(hits, totals, out=out, where=totals > 0)
        return out

    whole = np.ones((1, len(names)))
    estimate = _finite((share(tuned, whole) - share(base, whole))[0])
    if estimate is None:
        return _none(0)
    replicates = share(tuned, weights.astype(np.float64)) - share(base, weights.astype(np.float64))
    found = _difference_interval(estimate, replicates, replicates, len(names))
    # A t interval knows no borders; a change of a share does.
    return replace(found, ends=None if found.ends is None else _clipped(found.ends))


def _clipped(ends: Ends) -> Ends:
    low, high = ends
    return (
        None if low is None else max(-1.0, low),
        None if high is None else min(1.0, high),
    )
