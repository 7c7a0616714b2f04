"""One system's statistics of one metric, in the form of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from vakforge_eval.metrics.spec import MetricSpec
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.stats.intervals import Ends, percentile_interval
from vakforge_eval.stats.percentiles import (
    LOW_N,
    Percentile,
    percentile,
    percentile_method,
    tail_label,
)
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
    "pooled_rate",
    "rate_cell",
    "sample_of",
    "value_cell",
]


@dataclass(frozen=True, slots=True)
class MetricSample:
    """What one system gave for one metric.

    `rates` are the sums of a share over each cluster; `n_*` count turns or events that the metric
    has a meaning for and are 0 for a call's metric.
    """

    values: Values
    rates: dict[str, Rate]
    undefined: dict[str, int]
    n_early: int = 0
    n_no_reply: int = 0
    n_invalid: int = 0


def sample_of(scores: ScoreSet, spec: MetricSpec) -> MetricSample:
    """Return what `scores` hold of `spec`; spoilt turns and events are left out and counted."""
    if spec.scope == "call":
        return _sample(spec, ((c.cluster, c.values.get(spec.name), c.rates) for c in scores.calls))
    if spec.scope == "event":
        whole = [event for event in scores.events if event.valid]
        sample = _sample(spec, ((e.cluster, e.values.get(spec.name), e.rates) for e in whole))
        spoilt = (e.values.get(spec.name) for e in scores.events if not e.valid)
        return replace(sample, n_invalid=sum(map(_is_meant, spoilt)))
    valid = [turn for turn in scores.turns if turn.valid]
    values = [turn.metrics.get(spec.name) for turn in valid]
    early = [spec.is_early(value, turn.flags) for turn, value in zip(valid, values, strict=True)]
    sample = _sample(
        spec,
        (
            (turn.cluster, value, turn.rates)
            for turn, value, is_early in zip(valid, values, early, strict=True)
            if not is_early
        ),
    )
    meant = [
        (turn.flags, is_early)
        for turn, value, is_early in zip(valid, values, early, strict=True)
        if _is_meant(value)
    ]
    spoilt = (turn.metrics.get(spec.name) for turn in scores.turns if not turn.valid)
    return replace(
        sample,
        n_early=sum(Flag.EARLY in flags or is_early for flags, is_early in meant),
        n_no_reply=sum(Flag.NO_REPLY in flags for flags, _ in meant),
        n_invalid=sum(map(_is_meant, spoilt)),
    )


def _is_meant(value: MetricValue | None) -> bool:
    """Whether a metric has a meaning for a turn or event; a share's own value stands apart."""
    return not isinstance(value, Undefined) or value.reason is not Reason.NOT_APPLICABLE


def _sample(
    spec: MetricSpec, items: Iterable[tuple[str, MetricValue | None, Mapping[str, Rate]]]
) -> MetricSample:
    known: list[tuple[str, MetricValue]] = []
    rates: dict[str, Rate] = {}
    for cluster, value, shares in items:
        if value is not None:
            known.append((cluster, value))
        if spec.name in shares:
            rates[cluster] = rates.get(cluster, Rate(0, 0)) + shares[spec.name]
    reasons = Counter(v.reason.value for _, v in known if isinstance(v, Undefined))
    values = Values.of(known, has_competing_end=spec.has_competing_end)
    return MetricSample(values, rates, dict(sorted(reasons.items())))


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
        "n_censored": values.n_censored,
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
        "percentile_method": percentile_method(values),
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


def rate_cell(sample: MetricSample) -> dict[str, Any]:
    """Return hits, total and value of the pooled share, its interval, and what is in no share."""
    pooled = pooled_rate(sample)
    return {
        **pooled.to_json(),
        "clusters": sum(rate.total > 0 for rate in sample.rates.values()),
        "n_invalid": sample.n_invalid,
        "undefined": sample.undefined,
        "ci": ends_to_json(rate_interval(pooled)),
        "ci_method": rate_method(pooled),
        "low_n": pooled.total < LOW_N,
    }


def pooled_rate(sample: MetricSample) -> Rate:
    """Return a share over all clusters."""
    return sum(sample.rates.values(), Rate(0, 0))
