"""The summary for a terminal: plain rows of the same cells that the other writers print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vakforge_eval.report.page import Cell, Column
from vakforge_eval.report.safe import cut
from vakforge_eval.report.sections import summary_table

__all__ = ["banner_lines", "summary_rows"]

_CELL = 64


def _text(cell: Cell, column: Column) -> str:
    note = cell.note if column.kind == "number" or not cell.note else f"({cell.note})"
    parts = (cell.text, note, ", ".join(words for _, words in cell.badges))
    return cut(" ".join(part for part in parts if part), _CELL)


def summary_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the summary table, header first; each row as long as the header.

    The texts are clean but not escaped: print them without markup.
    """
    table = summary_table(document)
    header = [cut(column.label, _CELL) for column in table.columns]
    return [header, *(list(map(_text, row, table.columns)) for row in table.rows)]


def banner_lines(document: Mapping[str, Any]) -> list[str]:
    """Return what must be read before any number, one line each."""
    return [
        line
        for banner in document["banners"]
        for line in (banner["text"], *(f"  {reason}" for reason in banner["reasons"]))
    ]
