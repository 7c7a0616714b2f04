"""What may be said about a summary row: its change's error bound, its badges, its direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["BOUGHT", "central", "delta_bound", "is_measured", "judge"]

Row = Mapping[str, Any]

_EARLY_ROSE = "early replies rose"
_MISSING_ROSE = "missing replies rose"
BOUGHT = frozenset({_EARLY_ROSE, _MISSING_ROSE})
"""Reasons that make a lower time no gain: it was bought with replies too early or missing."""


def central(cell: Row | None) -> Any:
    """Return a cell's headline statistic: its p50, or a rate's value; None if there is none."""
    if cell is None:
        return None
    return cell["value"] if "hits" in cell else cell.get("p50")


def is_measured(cell: Row | None) -> bool:
    """Whether a cell holds a number or at least a censoring bound."""
    value = central(cell)
    return value is not None and not (isinstance(value, Mapping) and "undefined" in value)


def delta_bound(row: Row, systems: Sequence[str]) -> list[float | None] | None:
    """Return the worst-case bound of tuned - base from the bounds of both medians, or None.

    An end is None (open) where one of the ends it comes from is.
    """
    if len(systems) < 2:
        return None
    base, tuned = ((row["systems"].get(name) or {}).get("bound") for name in systems)
    if base is None or tuned is None:
        return None
    return [_difference(tuned[0], base[1]), _difference(tuned[1], base[0])]


def _difference(end: float | None, other: float | None) -> float | None:
    return None if end is None or other is None else round(end - other, 9)


def _contains_zero(ends: Sequence[float | None] | None) -> bool:
    if ends is None:
        return False
    low, high = ends
    return (low is None or low <= 0) and (high is None or high >= 0)


def _counts(row: Row, systems: Sequence[str], name: str) -> list[int]:
    return [int((row["systems"].get(system) or {}).get(name, 0)) for system in systems]


def _rose(row: Row, systems: Sequence[str], name: str) -> bool:
    """Whether the share of turns counted under `name` is higher in tuned than in base."""
    base_k, tuned_k = _counts(row, systems, name)
    base_n, tuned_n = (
        sum(counts)
        for counts in zip(_counts(row, systems, "n"), _counts(row, systems, "n_early"), strict=True)
    )
    return tuned_k * max(base_n, 1) > base_k * max(tuned_n, 1)


def _count_badge(row: Row, systems: Sequence[str], name: str, words: str) -> dict[str, str] | None:
    counts = _counts(row, systems, name)
    if not any(counts):
        return None
    return {"kind": name, "text": f"{words} {' → '.join(str(k) for k in counts)}"}


def _badges(row: Row, systems: Sequence[str], bound: Sequence[float | None] | None) -> list[Any]:
    cells = [cell for name in systems if (cell := row["systems"].get(name))]
    badges: list[dict[str, str] | None] = []
    if any(cell.get("low_n") for cell in cells):
        badges.append({"kind": "low_n", "text": "low-n"})
    if any(cell.get("p95_label") == "max" for cell in cells):
        badges.append({"kind": "max", "text": "p95 = max"})
    if _contains_zero(bound):
        badges.append({"kind": "below_resolution", "text": "below resolution"})
    badges.append(_count_badge(row, systems, "n_early", "early"))
    badges.append(_count_badge(row, systems, "n_no_reply", "no reply"))
    badges.append(_count_badge(row, systems, "n_invalid", "invalid"))
    return [badge for badge in badges if badge]


def _withheld(
    row: Row, systems: Sequence[str], bound: Sequence[float | None] | None, *, is_valid: bool
) -> str | None:
    """Return why no direction may be shown, or None if one may."""
    if len(systems) < 2:
        return "no baseline"
    if not is_valid:
        return "the measurement is not valid"
    if row["better"] not in ("lower", "higher"):
        return "neither direction is better"
    if not isinstance(row.get("delta"), int | float):
        return "no change could be computed"
    if row.get("delta_ci") is None:
        return "no interval"
    if _contains_zero(row["delta_ci"]):
        return "the interval contains 0"
    if _contains_zero(bound):
        return "below resolution"
    if _rose(row, systems, "n_early"):
        return _EARLY_ROSE
    if _rose(row, systems, "n_no_reply"):
        return _MISSING_ROSE
    return None


def judge(row: Row, systems: Sequence[str], *, is_valid: bool) -> dict[str, Any]:
    """Return the row with ``delta_bound``, ``badges``, ``direction`` and ``direction_withheld``.

    `direction` is "better", "worse" or None. It is None, with the reason beside it, when the
    interval or the error bound of the change contains 0, and when more replies came early or
    not at all: a p50 that improved by talking over the user, or by not answering, is no gain.
    """
    bound = delta_bound(row, systems)
    withheld = _withheld(row, systems, bound, is_valid=is_valid)
    direction = None
    if withheld is None:
        direction = "better" if (row["delta"] < 0) == (row["better"] == "lower") else "worse"
    return {
        **row,
        "delta_bound": bound,
        "badges": _badges(row, systems, bound),
        "direction": direction,
        "direction_withheld": withheld,
    }
