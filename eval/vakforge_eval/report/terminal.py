"""The summary for a terminal: the report's numbers, as many of them as fit, to be read at a glance.

What a row needs beside its numbers in print (from → to, which direction is better, badges) would
fold every row here. Badges are told once below the table, the rest is in the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vakforge_eval.report import phrases
from vakforge_eval.report.safe import cut
from vakforge_eval.report.sections import (
    change_cell,
    clusters_text,
    interval_text,
    is_headline,
    is_shown,
    n_text,
    value_text,
)

__all__ = ["TextCell", "banner_lines", "summary_notes", "summary_rows", "to_lines"]

Row = Mapping[str, Any]

_CELL = 40
_GAP = 2
_HIDDEN = frozenset({"max"})
"""Badges about what is not shown here: the p95."""
_NAMED = 4
"""So many metrics are named in a note; beyond, they are counted."""


@dataclass(frozen=True, slots=True)
class TextCell:
    """A cell: clean text without markup, and whether it tells of a change for better or worse."""

    text: str
    tone: Literal["", "better", "worse"] = ""


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much of a row is shown."""

    has_sides: bool
    """Both sides of an error and the direction in words, or the larger side and an arrow."""
    has_clusters: bool
    has_interval: bool


_DETAILS = (
    _Detail(has_sides=True, has_clusters=True, has_interval=True),
    _Detail(has_sides=True, has_clusters=False, has_interval=True),
    _Detail(has_sides=False, has_clusters=False, has_interval=True),
    _Detail(has_sides=False, has_clusters=False, has_interval=False),
)


def summary_rows(document: Row, width: int) -> list[list[TextCell]]:
    """Return the summary table, header first, each row as long as the header.

    Parameters
    ----------
    document
        The report document.
    width
        Columns of the terminal; the fullest form that fits is chosen, else the shortest.
    """
    for detail in _DETAILS:
        rows = list(_rows(document, detail))
        if len(max(to_lines(rows), key=len)) <= width:
            break
    return rows


def to_lines(rows: Sequence[Sequence[TextCell]]) -> list[str]:
    """Return rows as aligned text: the first column to the left, the others to the right."""
    widths = [max(len(row[i].text) for row in rows) for i in range(len(rows[0]))]
    return [
        (" " * _GAP)
        .join(
            cell.text.ljust(width) if i == 0 else cell.text.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in rows
    ]


def summary_notes(document: Row) -> list[str]:
    """Return what must be read beside the table, one line each: a legend, and badges of rows."""
    rows = _shown(document)
    found: dict[str, list[str]] = {}
    for row in rows:
        for badge in row["badges"]:
            if badge["kind"] not in _HIDDEN:
                found.setdefault(badge["text"], []).append(row["metric"])
    if not rows:
        return []
    legend = "p50 ± its worst-case error"
    if any(row.get("arrow") for row in rows):
        legend += "; an arrow where the change is beyond error and chance"
    return [legend, *(f"{text}: {_which(names, len(rows))}" for text, names in found.items())]


def banner_lines(document: Row) -> list[str]:
    """Return what must be read before any number, one line each."""
    return [
        line
        for banner in document["banners"]
        for line in (banner["text"], *(f"  {reason}" for reason in banner["reasons"]))
    ]


def _which(names: Sequence[str], n_rows: int) -> str:
    if len(names) == n_rows:
        return "all rows" if n_rows > 1 else names[0]
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return ", ".join(names)


def _shown(document: Row) -> list[Row]:
    return [row for row in document["summary"] if is_headline(row) and is_shown(row)]


def _rows(document: Row, detail: _Detail) -> Iterator[list[TextCell]]:
    systems = document["systems"]
    is_pair = len(systems) > 1
    names = [f"{name} →" if is_pair and i == 0 else name for i, name in enumerate(systems)]
    change = ["change"] if is_pair else []
    interval = ["95 % interval"] if detail.has_interval else []
    yield [TextCell(cut(text, _CELL)) for text in ("metric", *names, *change, *interval, "n")]
    for row in _shown(document):
        cells = [TextCell(row["metric"])]
        cells += [TextCell(_value(row["systems"].get(s), row["unit"], detail)) for s in systems]
        if is_pair:
            cells.append(_change(row, detail))
        if detail.has_interval:
            cells.append(TextCell(interval_text(row, systems)))
        clusters = f" {clusters_text(row, systems)}" if detail.has_clusters else ""
        cells.append(TextCell(f"{n_text(row, systems)}{clusters}"))
        yield [TextCell(cut(cell.text, _CELL), cell.tone) for cell in cells]


def _value(cell: Row | None, unit: str, detail: _Detail) -> str:
    if detail.has_sides or cell is None or "hits" in cell:
        return value_text(cell, unit)
    value, bound = cell.get("p50"), cell.get("bound")
    if isinstance(value, int | float) and bound is not None and None not in bound:
        worst = max(value - bound[0], bound[1] - value, 0.0)
        bound = [value - worst, value + worst]
    return phrases.stat(value, unit, bound)


def _change(row: Row, detail: _Detail) -> TextCell:
    cell = change_cell(row)
    text = cell.text
    if not detail.has_sides and cell.tone:
        text = text.removesuffix(f" {cell.tone}")
    return TextCell(text, cell.tone)
