"""Intervals of a share: Wilson for the report, Clopper-Pearson for claims and for no events.

The change of two shares that are each 0 or 1 has Newcombe's: resamples of them never differ.
"""

from __future__ import annotations

from math import sqrt

from vakforge_eval.timeline.values import Rate

__all__ = [
    "clopper_pearson",
    "covers_at_least",
    "is_extreme",
    "newcombe",
    "rate_interval",
    "rate_method",
    "wilson",
]

_LEVEL = 0.95


def wilson(rate: Rate, level: float = _LEVEL) -> tuple[float, float] | None:
    """Return Wilson's score interval of a share, or None when nothing was counted.

    References
    ----------
    E. B. Wilson, 1927, Probable inference, the law of succession, and statistical inference.
    """
    from scipy.special import ndtri

    if rate.total == 0:
        return None
    z, n, p = float(ndtri((1 + level) / 2)), rate.total, rate.hits / rate.total
    centre = p + z * z / (2 * n)
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def clopper_pearson(rate: Rate, level: float = _LEVEL) -> tuple[float, float] | None:
    """Return the exact two-sided interval of a share, or None when nothing was counted.

    References
    ----------
    C. J. Clopper, E. S. Pearson, 1934, The use of confidence or fiducial limits.
    """
    from scipy.special import betaincinv

    if rate.total == 0:
        return None
    tail, k, n = (1 - level) / 2, rate.hits, rate.total
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - tail))
    return low, high


def covers_at_least(rate: Rate, level: float = _LEVEL) -> float | None:
    """Return the exact one-sided lower bound of a share: the least that a claim may state."""
    exact = clopper_pearson(rate, 2 * level - 1)
    return None if exact is None else exact[0]


def newcombe(base: Rate, tuned: Rate) -> tuple[float, float] | None:
    """Return the interval of the change tuned - base, or None when a side counted nothing.

    References
    ----------
    R. G. Newcombe, 1998, Interval estimation for the difference between independent proportions,
    method 10.
    """
    before, after = wilson(base), wilson(tuned)
    if before is None or after is None:
        return None
    old, new = base.hits / base.total, tuned.hits / tuned.total
    low = new - old - sqrt((new - after[0]) ** 2 + (before[1] - old) ** 2)
    high = new - old + sqrt((after[1] - new) ** 2 + (old - before[0]) ** 2)
    return max(-1.0, low), min(1.0, high)


def rate_interval(rate: Rate, level: float = _LEVEL) -> tuple[float, float] | None:
    """Return the reported interval: exact where no or every case is a hit, else Wilson's."""
    return clopper_pearson(rate, level) if is_extreme(rate) else wilson(rate, level)


def rate_method(rate: Rate) -> str:
    """Return the name of the method that `rate_interval` uses for this share."""
    if rate.total == 0:
        return "none: nothing was counted"
    return "Clopper-Pearson" if is_extreme(rate) else "Wilson"


def is_extreme(rate: Rate) -> bool:
    """Whether no or every case is a hit."""
    return rate.hits in (0, rate.total)
