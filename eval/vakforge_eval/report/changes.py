"""Where it got better and where worse: the slices whose numbers moved most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_eval.report.judgement import central
from vakforge_eval.scoring.compare import DIMENSIONS

__all__ = ["NOT_YET", "breakdown_sections", "find_changes"]

Row = Mapping[str, Any]

NOT_YET = {
    "entity_type": "not measured yet in this report: no recognition metric was scored",
    "tool_class": "not measured yet in this report: no tool-call metric was scored",
}
"""Dimensions of the specification that need metrics other than times, and why they are empty."""

_TOP = 5
_SMALL_S = 0.1
"""A share of less than this says nothing: 0.5 ms on 1 ms is no change of 50 % to a caller."""


def breakdown_sections(breakdowns: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one section a dimension: ``{"by", "slices": [{"value", "summary"}], "reason"}``.

    A dimension without slices stays in the report, with the reason.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in breakdowns:
        found.setdefault(row["by"], []).append({"value": row["value"], "summary": row["summary"]})
    names = [*DIMENSIONS, *NOT_YET, *sorted(set(found) - set(DIMENSIONS) - set(NOT_YET))]
    return [
        {
            "by": name,
            "slices": sorted(found.get(name, []), key=lambda item: str(item["value"])),
            "reason": None if name in found else NOT_YET.get(name, "no slice was scored"),
        }
        for name in names
    ]


def _movement(row: Row, by: str, value: str, systems: Sequence[str]) -> dict[str, Any] | None:
    """Return a slice's change in one metric with its size, or None if it proves nothing."""
    delta, cells = row.get("delta"), [row["systems"].get(name) for name in systems]
    if row["better"] is None or row.get("resolution") == "below resolution":
        return None
    if row.get("of_probe") or not row.get("headline", True):
        return None
    before = central(cells[0])
    if not delta or not isinstance(before, int | float):
        return None
    is_gain = (delta < 0) == (row["better"] == "lower")
    is_rate = "hits" in (cells[0] or {})
    if is_gain and row.get("bought"):
        return None
    return {
        "by": by,
        "value": value,
        "row": dict(row),
        "relative": None if is_rate or before == 0 else round(delta / abs(before), 9),
        "kind": "improvement" if is_gain else "regression",
        "is_proven": _excludes_zero(row.get("delta_ci")),
        "size": _size(delta, before, is_rate=is_rate, is_time=row["unit"] == "s"),
    }


def _size(delta: float, before: float, *, is_rate: bool, is_time: bool) -> float:
    """Return how large a change is: shares by points, the rest relative to where it started."""
    start = max(abs(before), _SMALL_S) if is_time else abs(before)
    return abs(delta) if is_rate or start == 0 else abs(delta) / start


def _excludes_zero(interval: Sequence[float | None] | None) -> bool:
    if interval is None:
        return False
    low, high = interval
    return (low is not None and low > 0) or (high is not None and high < 0)


def _rank(movement: Row) -> tuple[Any, ...]:
    names = [*DIMENSIONS, *NOT_YET]
    place = names.index(movement["by"]) if movement["by"] in names else len(names)
    return (
        not movement["is_proven"],
        -movement["size"],
        place,
        str(movement["value"]),
        movement["row"]["metric"],
    )


def _largest(movements: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the top movements, each slice once: near-equal metrics would crowd out the rest.

    Slices with equal numbers hold the same turns (a locale with one scenario, say) and share a
    place.
    """
    top: list[dict[str, Any]] = []
    seen: set[tuple[str, Any]] = set()
    for movement in sorted((m for m in movements if m["kind"] == kind), key=_rank):
        key = {"by": movement["by"], "value": movement["value"]}
        if tuple(key.values()) in seen:
            continue
        twin = next((t for t in top if t["row"] == movement["row"]), None)
        if twin is None and len(top) == _TOP:
            continue
        seen.add((movement["by"], movement["value"]))
        if twin is not None:
            twin["same_turns"].append(key)
        else:
            kept = {k: v for k, v in movement.items() if k not in ("size", "kind", "is_proven")}
            top.append({**kept, "same_turns": []})
    return top


def find_changes(sections: Sequence[Row], systems: Sequence[str]) -> dict[str, Any]:
    """Return ``{"improvements", "regressions", "reason"}``, five slices each at most.

    Left out are slices that hold every turn (their dimension has one value), changes below the
    resolution of the measurement, gains that were bought (with early or missing replies, say),
    and metrics without a better direction or of the probe itself.
    """
    if len(systems) < 2:
        return {"improvements": [], "regressions": [], "reason": "no baseline: not a comparison"}
    parts = [section for section in sections if len(section["slices"]) > 1]
    movements = [
        movement
        for section in parts
        for part in section["slices"]
        for row in part["summary"]
        if (movement := _movement(row, section["by"], part["value"], systems))
    ]
    reason = None
    if not any(section["slices"] for section in sections):
        reason = "no slice was scored"
    elif not parts:
        reason = "every slice holds all turns, so there is nothing to compare between slices"
    elif not movements:
        reason = "no slice changed by more than the measurement can resolve"
    return {
        "improvements": _largest(movements, "improvement"),
        "regressions": _largest(movements, "regression"),
        "reason": reason,
    }
