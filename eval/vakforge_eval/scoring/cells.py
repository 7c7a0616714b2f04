"""One system's statistics of one metric, in the form of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from vakforge_eval.metrics.spec import MetricSpec
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.stats.intervals import Ends, percentile_interval
from vakforge_eval.stats.percentiles import LOW_N, Percentile, percentile, tail_label
from vakforge_eval.stats.rates import rate_interval, rate_method
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import (
    Censored,
    Flag,
    Measured,
    MetricValue,
    Rate,
    Reason,
    Undefined,
)

__all__ = [
    "MetricSample",
    "ends_to_json",
    "rate_cell",
    "rates_by_cluster",
    "sample_of",
    "value_cell",
]


@dataclass(frozen=True, slots=True)
class MetricSample:
    """What one system gave for one metric; `n_*` count turns and are 0 for a call's metric."""

    values: Values
    undefined: dict[str, int]
    n_early: int = 0
    n_no_reply: int = 0
    n_invalid: int = 0


def sample_of(scores: ScoreSet, spec: MetricSpec) -> MetricSample:
    """Return the values of `spec` in `scores`; spoilt turns are left out and counted."""
    if spec.scope == "call":
        return _sample((call.cluster, call.values.get(spec.name)) for call in scores.calls)
    valid = [turn for turn in scores.turns if turn.valid]
    values = [(turn, turn.metrics.get(spec.name)) for turn in valid]
    left_out = [spec.is_early(value, turn.flags) for turn, value in values]
    sample = _sample(
        (turn.cluster, value)
        for (turn, value), is_early in zip(values, left_out, strict=True)
        if not is_early
    )
    early = (
        Flag.EARLY in turn.flags or is_early for turn, is_early in zip(valid, left_out, strict=True)
    )
    return MetricSample(
        sample.values,
        sample.undefined,
        n_early=sum(early),
        n_no_reply=sum(Flag.NO_REPLY in turn.flags for turn in valid),
        n_invalid=len(scores.turns) - len(valid),
    )


def _sample(items: Iterable[tuple[str, MetricValue | None]]) -> MetricSample:
    known = [(cluster, value) for cluster, value in items if value is not None]
    reasons = Counter(v.reason.value for _, v in known if isinstance(v, Undefined))
    return MetricSample(Values.of(known), dict(sorted(reasons.items())))


def value_cell(sample: MetricSample) -> dict[str, Any]:
    """Return n, p50 and p95 with bounds and intervals, and what was left out and why."""
    values = sample.values
    median, tail = percentile(values, 50), percentile(values, 95)
    median_ci, tail_ci = percentile_interval(values, 50), percentile_interval(values, 95)
    return {
        "n": len(values),
        "clusters": len(set(values.clusters)),
        "n_early": sample.n_early,
        "n_no_reply": sample.n_no_reply,
        "n_invalid": sample.n_invalid,
        "undefined": sample.undefined,
        "p50": _statistic(median, sample.undefined),
        "p50_ci": ends_to_json(median_ci.ends),
        "p50_ci_bootstrap": ends_to_json(median_ci.bootstrap),
        "p95": _statistic(tail, sample.undefined),
        "p95_ci": ends_to_json(tail_ci.ends),
        "p95_ci_bootstrap": ends_to_json(tail_ci.bootstrap),
        "p95_ci_method": tail_ci.method,
        "p95_label": tail_label(len(values)),
        "bound": _bound(median),
        "p95_bound": _bound(tail),
        "ci_method": median_ci.method,
        "low_n": len(values) < LOW_N,
    }


def _statistic(found: Percentile, undefined: dict[str, int]) -> float | dict[str, Any]:
    """Return a number, ``{"censored": bound}``, or why there is nothing."""
    if isinstance(found.value, Measured):
        return round(found.value.value, 9)
    if isinstance(found.value, Censored):
        return {"censored": round(found.value.bound, 9)}
    return {"undefined": next(iter(undefined)) if len(undefined) == 1 else Reason.TOO_FEW.value}


def _bound(found: Percentile) -> list[float] | None:
    if not all(map(isfinite, found.bound)):
        return None
    return [round(end, 9) for end in found.bound]


def ends_to_json(ends: Ends | Sequence[float] | None) -> list[float | None] | None:
    """Return an interval for a report; an open end is null."""
    return None if ends is None else [None if e is None else round(e, 9) for e in ends]


def rates_by_cluster(scores: ScoreSet, name: str) -> dict[str, Rate]:
    """Return the sums of a share's rates over each cluster."""
    found: dict[str, Rate] = {}
    for call in scores.calls:
        if name in call.rates:
            found[call.cluster] = found.get(call.cluster, Rate(0, 0)) + call.rates[name]
    return found


def rate_cell(rates: dict[str, Rate]) -> dict[str, Any]:
    """Return hits, total and value of the pooled share, with its interval."""
    pooled = sum(rates.values(), Rate(0, 0))
    return {
        **pooled.to_json(),
        "clusters": sum(rate.total > 0 for rate in rates.values()),
        "ci": ends_to_json(rate_interval(pooled)),
        "ci_method": rate_method(pooled),
        "low_n": pooled.total < LOW_N,
    }
