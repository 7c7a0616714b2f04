"""The summary: each metric's statistics by system, and what changed from base to tuned.

A change is told three ways: `delta` of the two p50 (or shares), `delta_bound`, its worst-case
measurement error, and `delta_ci`, its 95 % interval over clusters that both systems share. A change
whose bound holds 0 is "below resolution". "better" needs all three, and that nothing got worse that
it may have been bought with (`MetricSpec.bought_by`): early and missing replies shorten a p50
at the caller's cost, and so does an agent that stops for every sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from vakforge_eval.metrics.hearing import PLAYOUT
from vakforge_eval.metrics.registry import METRICS
from vakforge_eval.metrics.spec import MetricSpec
from vakforge_eval.scoring.cells import (
    MetricSample,
    ends_to_json,
    pooled_rate,
    rate_cell,
    sample_of,
    value_cell,
)
from vakforge_eval.scoring.clusters import clustered
from vakforge_eval.scoring.scores import CallScore, EventScore, ScoreSet, TurnScore, playout_text
from vakforge_eval.stats.intervals import Interval, delta_interval, rate_delta_interval
from vakforge_eval.stats.percentiles import Percentile, nearest_rank, percentile
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import Censored, Measured

__all__ = ["DIMENSIONS", "DefinitionMismatch", "breakdowns", "pairs", "summarise"]

DIMENSIONS = ("scenario", "locale", "condition", "language", "source")
"""What turns are sliced by, in the order in which it is printed."""


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
    """Return the latency, turn and duplex rows of each slice: ``{"by", "value", "summary"}``.

    Slices are scenario, locale, condition, language and source; clusters stay those of the whole.
    """
    groups = ("turns", "duplex")
    specs = [spec for spec in METRICS if spec.scope != "call" or spec.group in groups]
    sets = [tuned] if base is None else [base, tuned]
    out = []
    for by in DIMENSIONS:
        for value in sorted({c.slices[by] for s in sets for c in s.calls if by in c.slices}):
            parts = [scores.where(_is_in(by, value)) for scores in sets]
            rows = _rows(parts[0] if base else None, parts[-1], specs)
            out.append({"by": by, "value": value, "summary": rows})
    return out


def _is_in(by: str, value: str) -> Callable[[TurnScore | CallScore | EventScore], bool]:
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
    worse = _worsened(base, tuned)
    scripts = _other_scripts(base, tuned)
    for row, spec in zip(rows, specs, strict=True):
        row["bought"] = next((worse[name] for name in spec.bought_by if name in worse), None)
        _point(row, scripts)
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
    playout = playout_text(*(s for s in (base, tuned) if s is not None)) or "not told"
    row: dict[str, Any] = {
        "metric": spec.name,
        "unit": spec.unit,
        "better": spec.better,
        "definition": tuned.definitions.get(spec.name, spec.definition),
        "start": spec.span[0],
        "stop": spec.span[1],
        "detector": spec.detector.replace(PLAYOUT, playout),
        "group": spec.group,
        "headline": spec.is_headline,
        "sliced": spec.is_sliced,
        "of_probe": spec.is_of_probe,
        "competing_end": spec.has_competing_end,
        "table": spec.table,
        "control": spec.control,
    }
    if spec.has_anchor:
        row["anchor"] = ", ".join(sorted({t.slices["anchor"] for t in tuned.turns}))
    before = None if base is None else sample_of(base, spec)
    after = sample_of(tuned, spec)
    to_cell = rate_cell if spec.is_share else value_cell
    cells = {tuned.system: to_cell(after)}
    if base is None or before is None:
        return {**row, "systems": cells, **_no_change()}
    row["systems"] = {base.system: to_cell(before), **cells}
    if spec.is_share:
        return {**row, **_rate_change(before, after)}
    return {**row, **_value_change(spec, base, tuned, before, after)}


def _rate_change(before: MetricSample, after: MetricSample) -> dict[str, Any]:
    old, new = pooled_rate(before).value, pooled_rate(after).value
    if old is None or new is None:
        return _no_change()
    interval = _interval(rate_delta_interval(before.rates, after.rates))
    return {**_no_change(), "delta": round(new - old, 9), **interval}


def _value_change(
    spec: MetricSpec,
    base: ScoreSet,
    tuned: ScoreSet,
    before: MetricSample,
    after: MetricSample,
) -> dict[str, Any]:
    why = _why_not(spec, base, tuned)
    if why:
        return {**_no_change(), "not_compared": why}
    change = _change(before, after)
    return change if spec.scope != "turn" else change | _paired(spec, base, tuned)


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
    checks = ["endpointing"] + ["anchor"] * spec.has_anchor
    for name in checks:
        old, new = ({t.slices.get(name, "") for t in s.turns if t.valid} for s in (base, tuned))
        if old and new and old != new:
            words = " against ".join(", ".join(sorted(side)) for side in (old, new))
            return f"{name}: {words}"
    return None


def _worsened(base: ScoreSet, tuned: ScoreSet) -> dict[str, str]:
    """Return the shares that others hang on and that got worse, by whatever little, in words."""
    names = {name for spec in METRICS for name in spec.bought_by}
    found = {}
    for spec in METRICS:
        if spec.name not in names:
            continue
        old, new = (pooled_rate(sample_of(scores, spec)).value for scores in (base, tuned))
        if new is None:
            continue
        if spec.better == "lower" and new > (old or 0.0):
            found[spec.name] = f"{spec.name} rose"
        elif spec.better == "higher" and new < (1.0 if old is None else old):
            found[spec.name] = f"{spec.name} fell"
    return found


def _other_scripts(base: ScoreSet, tuned: ScoreSet) -> str | None:
    old = {(c.scenario, c.script_hash) for c in base.calls}
    new = {(c.scenario, c.script_hash) for c in tuned.calls}
    names = sorted({name for name, _ in old ^ new} & {n for n, _ in old} & {n for n, _ in new})
    return f"the script differs: {', '.join(names)}" if names else None


def _point(row: dict[str, Any], scripts: str | None) -> None:
    """Set the row's `arrow`, or `arrow_withheld` with the reason."""
    why = _no_arrow(row) or scripts
    arrow = None
    if why is None:
        arrow = "better" if (row["delta"] < 0) == (row["better"] == "lower") else "worse"
        if arrow == "better" and row["bought"] is not None:
            arrow, why = None, row["bought"]
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
