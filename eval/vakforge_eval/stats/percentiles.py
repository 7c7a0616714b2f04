"""Percentiles of values that may be censored, with their error bounds.

Nearest-rank, or by Kaplan-Meier where something else may have ended the wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vakforge_eval.stats.survival import KAPLAN_MEIER, Sample, quantile
from vakforge_eval.stats.values import Floats, Values
from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Reason, Undefined

__all__ = [
    "LOW_N",
    "TAIL_N",
    "Percentile",
    "nearest_rank",
    "percentile",
    "percentile_method",
    "rank_of",
    "tail_label",
]

LOW_N = 100
"""A headline number of fewer turns carries the low-n badge."""
TAIL_N = 20
"""Below this many values the nearest-rank p95 is the maximum, and is called so."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile, and the same percentile of all lower and of all upper ends.

    `bound[1]` is infinite where the rank may fall on a censored value.
    """

    value: MetricValue
    bound: tuple[float, float]


def rank_of(percent: int, n: int) -> int:
    """Return the 1-based rank ``ceil(percent / 100 * n)``, in integers so that no rank slips."""
    if not 0 < percent <= 100:
        raise ValueError(f"percent must lie in (0, 100], not {percent}")
    return -(-percent * n // 100)


def nearest_rank(values: Floats, percent: int) -> float:
    """Return the nearest-rank percentile of a non-empty array of shape ``(n,)``."""
    rank = rank_of(percent, len(values))
    return float(np.sort(values)[rank - 1])


def percentile(values: Values, percent: int) -> Percentile:
    """Percentile of a sample, in the sample's unit.

    Parameters
    ----------
    values
        The sample; censored values take part with their bound.
    percent
        Integer in (0, 100].

    Returns
    -------
    Percentile
        Measured where the rank's value is known whatever the censored ones would have been,
        ``Censored(bound)`` where it is only known to exceed a bound ("> bound"), and
        ``Undefined(too_few)`` for an empty sample. By Kaplan-Meier it is Censored at the last
        moment that anything was waited for where the curve does not reach it.

    Notes
    -----
    Under one common bound this is the usual rule: ranks beyond the bound print "> bound". Under
    different bounds it is the sharpest statement that holds for every possible outcome, or
    Kaplan-Meier's where these bounds say nothing of the value (`Values.is_product_limit`).
    """
    if not len(values):
        return Percentile(Undefined(Reason.TOO_FEW), (-np.inf, np.inf))
    if values.is_product_limit:
        return _product_limit(values, percent)
    low, high = nearest_rank(values.low, percent), nearest_rank(values.high, percent)
    bound = (nearest_rank(values.error_low, percent), nearest_rank(values.error_high, percent))
    if low != high:
        return Percentile(Censored(low), bound)
    return Percentile(Measured(low, u=(max(low - bound[0], 0.0), max(bound[1] - low, 0.0))), bound)


def _product_limit(values: Values, percent: int) -> Percentile:
    early, found, late = (
        quantile(Sample.of(values, error=end), percent / 100) for end in (-1, 0, 1)
    )
    # Later events may leave more of the weight to those before them: the curve need not follow.
    bound = min(early, found, late), max(early, found, late)
    if np.isinf(found):
        return Percentile(Censored(float(values.low.max())), bound)
    return Percentile(Measured(found, u=(found - bound[0], bound[1] - found)), bound)


def percentile_method(values: Values) -> str:
    """Return by which estimator `percentile` computes."""
    return KAPLAN_MEIER if values.is_product_limit else "nearest rank"


def tail_label(n: int) -> str:
    """Return what the p95 of `n` values is called."""
    return "max" if n < TAIL_N else "p95"
