"""A metric's statistics as rows of a table, one a system."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.charts import distribution
from vakforge_eval.report.page import Block, Cell, Column, StripBlock, Table
from vakforge_eval.timeline.values import Reason

__all__ = [
    "VALUE_COLUMNS",
    "statistic_cell",
    "strips",
    "value_rows",
    "without_empty",
    "without_text",
]

Row = Mapping[str, Any]

_NOT_MEANT = Reason.NOT_APPLICABLE.value

VALUE_COLUMNS = (
    Column("metric", "name"),
    Column("system"),
    Column("p50", "number"),
    Column("p95", "number"),
    Column("n", "number"),
    Column("clusters", "number"),
)


def statistic_cell(cell: Row, name: str, unit: str) -> Cell:
    """Return a "p50" or "p95" with its error bound and interval."""
    label = cell.get("p95_label", "p95")
    ends = phrases.interval(cell.get(f"{name}_ci"), unit)
    is_max = name == "p95" and label == "max" and cell.get("n")
    badges = (("max", "max"),) if is_max else ()
    text = phrases.percentile(cell, name, unit)
    return Cell(text, "" if ends == phrases.NONE else ends, badges)


def without_text(cell: Row) -> str:
    """Return how many turns, events or calls that it applies to have no number, by reason."""
    counts = {k: n for k, n in (cell.get("undefined") or {}).items() if k != _NOT_MEANT}
    return ", ".join(f"{phrases.reason(name)} {n}" for name, n in counts.items()) or phrases.NONE


def value_rows(
    row: Row, systems: Sequence[str], counts: Sequence[str], methods: Sequence[str]
) -> list[tuple[Cell, ...]]:
    """Return one row a system under `VALUE_COLUMNS`, more counts, "no number" and methods.

    Parameters
    ----------
    row
        The metric's row of the summary.
    counts
        Names of the cell's counts that stand after n and clusters.
    methods
        Names of the cell's texts that say how it was computed.
    """
    rows = []
    for i, name in enumerate(systems):
        cell = row["systems"].get(name)
        if cell is None:
            continue
        rows.append(
            (
                Cell(row["metric"] if i == 0 else ""),
                Cell(name),
                statistic_cell(cell, "p50", row["unit"]),
                statistic_cell(cell, "p95", row["unit"]),
                *(Cell(str(cell.get(c, phrases.NONE))) for c in ("n", "clusters", *counts)),
                Cell(without_text(cell)),
                *(Cell(str(cell.get(method) or phrases.NONE)) for method in methods),
            )
        )
    return rows


def without_empty(table: Table, labels: Collection[str]) -> Table:
    """Return a table without those of the named columns that count nothing in any row."""
    kept = [
        i
        for i, column in enumerate(table.columns)
        if column.label not in labels
        or any(row[i].text not in ("", "0", phrases.NONE) for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=[tuple(row[i] for i in kept) for row in table.rows],
    )


def strips(document: Row, rows: Iterable[Row]) -> list[Block]:
    """Return a picture of each time metric among `rows` that has any point."""
    blocks: list[Block] = []
    for row in rows:
        if row["unit"] != "s":
            continue
        ends = (row.get("start"), row.get("stop"))
        caption = " → ".join(str(end) for end in ends if end)
        strip = distribution(
            row, document["turns"], document["calls"], document["systems"], caption
        )
        if strip:
            blocks.append(StripBlock(strip))
    return blocks
