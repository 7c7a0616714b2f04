"""The summary: each metric's statistics by system, and what changed from base to tuned.

A change is told three ways: `delta` of the two p50 (or shares), `delta_bound`, its worst-case
measurement error, and `delta_ci`, its 95 % interval over clusters that both systems share. A change
whose bound holds 0 is "below resolution". "better" needs all three, and that neither early nor
missing replies became more frequent: both shorten a p50 at the caller's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from vakforge_eval.metrics.registry import METRICS
from vakforge_eval.metrics.spec import MetricSpec
from vakforge_eval.scoring.cells import (
    MetricSample,
    ends_to_json,
    rate_cell,
    rates_by_cluster,
    sample_of,
    value_cell,
)
from vakforge_eval.scoring.clusters import clustered
from vakforge_eval.scoring.scores import CallScore, ScoreSet, TurnScore
from vakforge_eval.stats.intervals import Interval, delta_interval, rate_delta_interval
from vakforge_eval.stats.percentiles import Percentile, nearest_rank, percentile
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import Censored, Measured, Rate

__all__ = ["DIMENSIONS", "DefinitionMismatch", "breakdowns", "pairs", "summarise"]

DIMENSIONS = ("scenario", "locale", "condition", "language", "source")
"""What turns are sliced by, in the order in which it is printed."""

_BOUGHT = (("early_rate", "early replies rose"), ("no_reply_rate", "missing replies rose"))


class DefinitionMismatch(ValueError):
    """Two sets were scored by different versions of a metric; their numbers are not compared."""

    def __init__(self, differing: Mapping[str, tuple[str, str]]) -> None:
        self.differing = dict(differing)
        named = ", ".join(f"{a} and {b}" for a, b in self.differing.values())
        super().__init__(f"different definitions are not compared: {named}")


def summarise(base: ScoreSet | None, tuned: ScoreSet) -> list[dict[str, Any]]:
    """Return one row a metric: statistics by system, and the change if there is a base.

    Raises
    ------
    DefinitionMismatch
        If the sets were scored by different versions of a metric.
    ValueError
        If both systems carry the same name.
    """
    return _rows(base, tuned, METRICS)


def breakdowns(base: ScoreSet | None, tuned: ScoreSet) -> list[dict[str, Any]]:
    """Return the latency and turn rows of each slice: ``{"by", "value", "summary"}``.

    Slices are scenario, locale, condition, language and source; clusters stay those of the whole.
    """
    specs = [spec for spec in METRICS if spec.scope == "turn" or spec.group == "turns"]
    sets = [tuned] if base is None else [base, tuned]
    out = []
    for by in DIMENSIONS:
        for value in sorted({c.slices[by] for s in sets for c in s.calls if by in c.slices}):
            parts = [scores.where(_is_in(by, value)) for scores in sets]
            rows = _rows(parts[0] if base else None, parts[-1], specs)
            out.append({"by": by, "value": value, "summary": rows})
    return out


def _is_in(by: str, value: str) -> Callable[[TurnScore | CallScore], bool]:
    return lambda score: score.slices.get(by) == value


def pairs(base: ScoreSet, tuned: ScoreSet) -> list[tuple[TurnScore, TurnScore]]:
    """Return the turns that both systems had, matched by scenario, seed, repeat and step.

    Where a key occurs more than once in a set, its first turn counts.
    """
    first: dict[object, TurnScore] = {}
    for turn in base.turns:
        first.setdefault(turn.pair_key, turn)
    later: dict[object, TurnScore] = {}
    for turn in tuned.turns:
        later.setdefault(turn.pair_key, turn)
    return [(first[key], turn) for key, turn in later.items() if key in first]


def _rows(
    base: ScoreSet | None, tuned: ScoreSet, specs: Iterable[MetricSpec]
) -> list[dict[str, Any]]:
    if base is None:
        return [_row(spec, None, clustered(tuned)[0]) for spec in specs]
    _refuse_other_definitions(base, tuned)
    if base.system == tuned.system:
        raise ValueError(f"both systems are called {base.system!r}")
    base, tuned = clustered(base, tuned)
    rows = [_row(spec, base, tuned) for spec in specs]
    bought = _bought(base, tuned)
    scripts = _other_scripts(base, tuned)
    for row, spec in zip(rows, specs, strict=True):
        _point(row, spec, bought, scripts)
    return rows


def _refuse_other_definitions(base: ScoreSet, tuned: ScoreSet) -> None:
    shared = base.definitions.keys() & tuned.definitions.keys()
    differing = {
        name: (base.definitions[name], tuned.definitions[name])
        for name in sorted(shared)
        if base.definitions[name] != tuned.definitions[name]
    }
    if differing:
        raise DefinitionMismatch(differing)


def _row(spec: MetricSpec, base: ScoreSet | None, tuned: ScoreSet) -> dict[str, Any]:
    row: dict[str, Any] = {
        "metric": spec.name,
        "unit": spec.unit,
        "better": spec.better,
        "definition": tuned.definitions.get(spec.name, spec.definition),
        "start": spec.span[0],
        "stop": spec.span[1],
        "detector": spec.detector,
        "group": spec.group,
    }
    if spec.name == "ttfa":
        row["anchor"] = ", ".join(sorted({t.slices["anchor"] for t in tuned.turns}))
    if any(spec.name in c.rates for s in (base, tuned) if s is not None for c in s.calls):
        return {**row, **_rate_part(spec, base, tuned)}
    return {**row, **_value_part(spec, base, tuned)}


def _rate_part(spec: MetricSpec, base: ScoreSet | None, tuned: ScoreSet) -> dict[str, Any]:
    after = rates_by_cluster(tuned, spec.name)
    cells = {tuned.system: rate_cell(after)}
    if base is None:
        return {"systems": cells, **_no_change()}
    before = rates_by_cluster(base, spec.name)
    change = _no_change()
    old, new = (sum(r.values(), Rate(0, 0)).value for r in (before, after))
    if old is not None and new is not None:
        change |= {"delta": round(new - old, 9)}
        change |= _interval(rate_delta_interval(before, after))
    return {"systems": {base.system: rate_cell(before), **cells}, **change}


def _value_part(spec: MetricSpec, base: ScoreSet | None, tuned: ScoreSet) -> dict[str, Any]:
    after = sample_of(tuned, spec)
    cells = {tuned.system: value_cell(after)}
    if base is None:
        return {"systems": cells, **_no_change()}
    before = sample_of(base, spec)
    why = _why_not(spec, base, tuned)
    change = {**_no_change(), "not_compared": why} if why else _change(before, after)
    if spec.scope == "turn" and not why:
        change |= _paired(spec, base, tuned)
    return {"systems": {base.system: value_cell(before), **cells}, **change}


def _no_change() -> dict[str, Any]:
    return {"delta": None, "delta_bound": None, "delta_ci": None, "delta_ci_method": None}


def _interval(found: Interval) -> dict[str, Any]:
    return {
        "delta_ci": ends_to_json(found.ends),
        "delta_ci_bootstrap": ends_to_json(found.bootstrap),
        "delta_ci_method": found.method,
    }


def _change(before: MetricSample, after: MetricSample) -> dict[str, Any]:
    """Return the change of p50; a censored side leaves a bound of it (`delta_limits`)."""
    out = {**_no_change(), **_interval(delta_interval(before.values, after.values, 50))}
    old, new = percentile(before.values, 50), percentile(after.values, 50)
    if isinstance(old.value, Measured) and isinstance(new.value, Measured):
        bound = [round(new.bound[0] - old.bound[1], 9), round(new.bound[1] - old.bound[0], 9)]
        out["delta"] = round(new.value.value - old.value.value, 9)
        out["delta_bound"] = bound
        is_below = bound[0] <= 0 <= bound[1]
        out["resolution"] = "below resolution" if is_below else "above resolution"
        out["delta_p95"] = _tail_change(before.values, after.values)
    else:
        out["delta_limits"] = _limits(old, new)
    return out


def _tail_change(before: Values, after: Values) -> float | None:
    old, new = percentile(before, 95).value, percentile(after, 95).value
    if not isinstance(old, Measured) or not isinstance(new, Measured):
        return None
    return round(new.value - old.value, 9)


def _limits(old: Percentile, new: Percentile) -> list[float | None] | None:
    """Return between what the change lies if one p50 is only known to exceed a bound."""
    if isinstance(old.value, Censored) and isinstance(new.value, Measured):
        return [None, round(new.value.value - old.value.bound, 9)]
    if isinstance(old.value, Measured) and isinstance(new.value, Censored):
        return [round(new.value.bound - old.value.value, 9), None]
    return None


def _paired(spec: MetricSpec, base: ScoreSet, tuned: ScoreSet) -> dict[str, Any]:
    """Return how many turns pair up, and the p50 of their own changes."""
    both = [(a, b) for a, b in pairs(base, tuned) if a.valid and b.valid]
    found = [(a.metrics.get(spec.name), b.metrics.get(spec.name)) for a, b in both]
    known = [
        b.value - a.value for a, b in found if isinstance(a, Measured) and isinstance(b, Measured)
    ]
    middle = round(nearest_rank(np.array(known), 50), 9) if known else None
    return {"n_pairs": len(known), "paired_delta": middle}


def _why_not(spec: MetricSpec, base: ScoreSet, tuned: ScoreSet) -> str | None:
    """Return why the two systems' values of a turn metric must not be compared."""
    if spec.scope != "turn":
        return None
    checks = ["endpointing"] + ["anchor"] * (spec.name == "ttfa")
    for name in checks:
        old, new = ({t.slices.get(name, "") for t in s.turns if t.valid} for s in (base, tuned))
        if old and new and old != new:
            words = " against ".join(", ".join(sorted(side)) for side in (old, new))
            return f"{name}: {words}"
    return None


def _bought(base: ScoreSet, tuned: ScoreSet) -> str | None:
    """Return what rose that makes a shorter time no gain."""
    for name, words in _BOUGHT:
        old, new = (
            sum(rates_by_cluster(scores, name).values(), Rate(0, 0)).value
            for scores in (base, tuned)
        )
        if new is not None and new > (old or 0.0):
            return words
    return None


def _other_scripts(base: ScoreSet, tuned: ScoreSet) -> str | None:
    old = {(c.scenario, c.script_hash) for c in base.calls}
    new = {(c.scenario, c.script_hash) for c in tuned.calls}
    names = sorted({name for name, _ in old ^ new} & {n for n, _ in old} & {n for n, _ in new})
    return f"the script differs: {', '.join(names)}" if names else None


def _point(row: dict[str, Any], spec: MetricSpec, bought: str | None, scripts: str | None) -> None:
    """Set the row's `arrow`, or `arrow_withheld` with the reason."""
    why = _no_arrow(row) or scripts
    arrow = None
    if why is None:
        arrow = "better" if (row["delta"] < 0) == (row["better"] == "lower") else "worse"
        if arrow == "better" and bought is not None and spec.group in ("latency", "turns"):
            arrow, why = None, bought
    row["arrow"], row["arrow_withheld"] = arrow, why


def _no_arrow(row: dict[str, Any]) -> str | None:
    if row.get("not_compared"):
        return str(row["not_compared"])
    if row["better"] is None:
        return "neither direction is better"
    if row["delta"] is None:
        return "no change could be computed"
    if row.get("resolution") == "below resolution":
        return "below resolution"
    if row["delta_ci"] is None:
        return str(row["delta_ci_method"])
    low, high = row["delta_ci"]
    if (low is None or low <= 0) and (high is None or high >= 0):
        return "the interval contains 0"
    return None
