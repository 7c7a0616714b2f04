"""A sample of metric values with their errors, their censoring and their clusters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Undefined

__all__ = ["Floats", "Values"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Values:
    """Measured and censored values; what is Undefined is no member of a sample.

    Attributes
    ----------
    low, high
        What each value is known to lie between, shape ``(n,)``: equal for a measured one, the
        bound and infinity for a censored one.
    error_low, error_high
        The same with the worst-case measurement error added.
    clusters
        The name of each value's cluster.
    has_competing_end
        Whether what ended the wait for a censored value says nothing of the value.
    """

    low: Floats
    high: Floats
    error_low: Floats
    error_high: Floats
    clusters: tuple[str, ...]
    has_competing_end: bool = False

    @classmethod
    def of(
        cls, items: Iterable[tuple[str, MetricValue]], *, has_competing_end: bool = False
    ) -> Values:
        """Return the sample of ``(cluster, value)`` pairs; Undefined ones are left out."""
        rows = [(name, *_ends(value)) for name, value in items if not isinstance(value, Undefined)]
        columns = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 4)
        low, high, error_low, error_high = columns.T
        names = tuple(row[0] for row in rows)
        return cls(low, high, error_low, error_high, names, has_competing_end)

    def __len__(self) -> int:
        return len(self.clusters)

    @property
    def n_censored(self) -> int:
        """How many values are only known to exceed a bound."""
        return int(np.isinf(self.high).sum())

    @property
    def is_censored(self) -> bool:
        """Whether any value is only known to exceed a bound."""
        return self.n_censored > 0

    @property
    def is_product_limit(self) -> bool:
        """Whether percentiles are Kaplan-Meier's: competing ends at differing bounds.

        One bound beyond every measured value is not among them: the ranks below it are known.
        """
        if not self.has_competing_end or not self.is_censored:
            return False
        is_measured = np.isfinite(self.high)
        bounds = self.low[~is_measured]
        return bool(np.ptp(bounds) > 0 or (self.error_high[is_measured] > bounds[0]).any())


def _ends(value: Measured | Censored) -> tuple[float, float, float, float]:
    if isinstance(value, Censored):
        return value.bound, np.inf, value.bound, np.inf
    return value.value, value.value, value.lo, value.hi
