"""What is said beside a summary row: its badges, and whether its direction may be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["central", "is_measured", "judge"]

Row = Mapping[str, Any]


def central(cell: Row | None) -> Any:
    """Return a cell's headline statistic: its p50, or a rate's value; None if there is none."""
    if cell is None:
        return None
    return cell["value"] if "hits" in cell else cell.get("p50")


def is_measured(cell: Row | None) -> bool:
    """Whether a cell holds a number or at least a censoring bound."""
    value = central(cell)
    return value is not None and not (isinstance(value, Mapping) and "undefined" in value)


def _count_badge(row: Row, systems: Sequence[str], name: str, words: str) -> dict[str, str] | None:
    counts = [int((row["systems"].get(system) or {}).get(name, 0)) for system in systems]
    if not any(counts):
        return None
    return {"kind": name, "text": f"{words} {' → '.join(str(k) for k in counts)}"}


def _badges(row: Row, systems: Sequence[str]) -> list[dict[str, str]]:
    cells = [cell for name in systems if (cell := row["systems"].get(name))]
    badges: list[dict[str, str] | None] = []
    if any(cell.get("low_n") for cell in cells):
        badges.append({"kind": "low_n", "text": "low-n"})
    if any(cell.get("p95_label") == "max" for cell in cells):
        badges.append({"kind": "max", "text": "p95 = max"})
    if row.get("resolution") == "below resolution":
        badges.append({"kind": "below_resolution", "text": "below resolution"})
    badges.append(_count_badge(row, systems, "n_early", "early"))
    badges.append(_count_badge(row, systems, "n_no_reply", "no reply"))
    badges.append(_count_badge(row, systems, "n_invalid", "invalid"))
    return [badge for badge in badges if badge]


def judge(row: Row, systems: Sequence[str], *, is_valid: bool) -> dict[str, Any]:
    """Return the row with its ``badges``, and ``arrow`` and ``arrow_withheld`` always present.

    Scoring decides on the arrow; a measurement that is not valid shows none at all.
    """
    arrow, why = row.get("arrow"), row.get("arrow_withheld")
    if len(systems) < 2:
        arrow, why = None, "no baseline"
    elif not is_valid:
        arrow, why = None, "the measurement is not valid"
    return {**row, "badges": _badges(row, systems), "arrow": arrow, "arrow_withheld": why}
