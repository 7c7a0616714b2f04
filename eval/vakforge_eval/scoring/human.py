"""Where each system's overlap and floor transfers stand among those of people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.stats.percentiles import percentile
from vakforge_eval.stats.reference import (
    FEW,
    MIN_SAMPLE,
    Distance,
    Histogram,
    distance,
    human_reference,
)
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import Measured, MetricValue, Undefined

__all__ = ["CAVEAT", "overlap_part"]

CAVEAT = (
    "The reference is English telephone conversation of two people with each other. Other "
    "languages and tasks differ, and so does talk to a machine: a place in it is no mark. Its "
    "overlap counts what either speaker began, the system's only what the agent began, so a "
    "system stands lower in it than a person who talks alike."
)

_SHARES = ("overlap_rate", "overlap_share_of_speech", "agent_overlap_rate", "talk_ratio")
_OFFSET = "floor_transfer_offset"
_PERCENTS = (10, 50, 90)
_QUANTILES = {
    "overlap_over_total": "per_call_overlap_over_total",
    "overlap_over_speech": "per_call_overlap_over_speech",
    "floor_transfer_offset": "floor_transfer_offset",
    "floor_transfer_offset_median": "per_call_fto_median",
}
"""What the systems are held against -> its name among the reference's quantiles."""


def overlap_part(sets: Sequence[ScoreSet]) -> dict[str, Any]:
    """Return the part of a report that holds overlap and floor transfers against people.

    Returns
    -------
    dict
        ``systems`` by name: ``n_calls``, the median call's shares of talk (``p50`` with its
        ``bound``), ``percentile`` (p10, p50, p90 over the calls of the percentile rank of
        `agent_overlap_rate` among people's calls) and ``fto`` (Kolmogorov-Smirnov and
        Wasserstein-1 distance (s) of the floor transfer offsets, and ``percentile`` of the calls'
        medians). ``reference`` says what the systems are held against, ``caveat`` how far that
        carries. What rests on fewer than 20 values is ``low_n``; with fewer than 5 there is no
        distance.
    """
    return {
        "systems": {scores.system: _system(scores) for scores in sets},
        "reference": _facts(),
        "caveat": CAVEAT,
    }


def _facts() -> dict[str, Any]:
    people = human_reference()
    return {
        "what": people.what,
        "calls": people.rules["calls"],
        "hours": people.rules["hours"],
        "joined_below_s": people.rules["words_joined_below_s"],
        "quantiles": {name: dict(people.quantiles[told]) for name, told in _QUANTILES.items()},
    }


def _system(scores: ScoreSet) -> dict[str, Any]:
    people = human_reference()
    shares = {name: [call.values.get(name) for call in scores.calls] for name in _SHARES}
    return {
        "n_calls": len(scores.calls),
        **{name: _median(values) for name, values in shares.items()},
        "percentile": _ranks(shares["agent_overlap_rate"], people.per_call["overlap_over_total"]),
        "fto": _transfers(scores),
    }


def _transfers(scores: ScoreSet) -> dict[str, Any]:
    """Return where the offsets of the turns that the probe did not spoil stand."""
    people = human_reference()
    by_call: dict[str, list[MetricValue | None]] = {}
    for turn in scores.turns:
        if turn.valid:
            by_call.setdefault(turn.call, []).append(turn.metrics.get(_OFFSET))
    offsets = [value for values in by_call.values() for value in values]
    # A median of a few is no property of a call.
    medians = [
        percentile(_values(values), 50).value
        for values in by_call.values()
        if len(_measured(values)) >= MIN_SAMPLE
    ]
    far = distance(_measured(offsets), people.pooled[_OFFSET])
    return {
        **_median(offsets),
        **_distances(far),
        "percentile": _ranks(medians, people.per_call["floor_transfer_offset_median"]),
    }


def _distances(far: Distance | Undefined) -> dict[str, Any]:
    if isinstance(far, Undefined):
        return {"ks": far.to_json(), "wasserstein": far.to_json()}
    return {
        "ks": _round(far.ks.value),
        "ks_bound": _bound(far.ks),
        "wasserstein": _round(far.wasserstein.value),
        "wasserstein_bound": _bound(far.wasserstein),
    }


def _median(values: Iterable[MetricValue | None]) -> dict[str, Any]:
    """Return n and the median of a sample, and why other values do not exist."""
    values = list(values)
    reasons = Counter(v.reason.value for v in values if isinstance(v, Undefined))
    return {**_percentiles(values, (50,)), "undefined": dict(sorted(reasons.items()))}


def _ranks(values: Iterable[MetricValue | None], people: Histogram) -> dict[str, Any]:
    """Return the percentiles, over calls, of each call's percentile rank among people's."""
    return _percentiles([people.percentile(value) for value in _measured(values)], _PERCENTS)


def _percentiles(values: Sequence[MetricValue | None], percents: Sequence[int]) -> dict[str, Any]:
    sample = _values(values)
    found: dict[str, Any] = {"n": len(sample), "low_n": len(sample) < FEW}
    for percent in percents:
        value = percentile(sample, percent).value
        found[f"p{percent}"] = (
            _round(value.value) if isinstance(value, Measured) else value.to_json()
        )
        if percent == 50:
            found["bound"] = _bound(value) if isinstance(value, Measured) else None
    return found


def _values(values: Iterable[MetricValue | None]) -> Values:
    return Values.of([("", value) for value in _measured(values)])


def _measured(values: Iterable[MetricValue | None]) -> list[Measured]:
    return [value for value in values if isinstance(value, Measured)]


def _bound(value: Measured) -> list[float]:
    return [_round(value.lo), _round(value.hi)]


def _round(value: float) -> float:
    return round(value, 9)
