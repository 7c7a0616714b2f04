"""Layout of sections 1 to 3: summary, where it got better or worse, breakdowns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.judgement import is_measured
from vakforge_eval.report.page import Block, Cell, Column, Note, Section, Table
from vakforge_eval.stats.survival import KAPLAN_MEIER

__all__ = [
    "breakdown_section",
    "change_cell",
    "change_section",
    "clusters_text",
    "interval_text",
    "is_apart",
    "is_headline",
    "is_shown",
    "n_text",
    "summary_section",
    "summary_table",
    "value_text",
]

Row = Mapping[str, Any]

_ARROWS = {"lower": {"better": "▼", "worse": "▲"}, "higher": {"better": "▲", "worse": "▼"}}
_APART = frozenset({"transport", "self"})
_N_SLICED = 4
"""So many metrics a slice shows where none of those meant for it has a number."""


def is_apart(row: Row) -> bool:
    """Whether a row describes the transport or the probe, which have their own table."""
    return row.get("group") in _APART


def is_headline(row: Row) -> bool:
    """Whether a row belongs into the summary; parts and other forms of one are in section 4."""
    return row.get("headline", True) and not is_apart(row)


def is_shown(row: Row) -> bool:
    """Whether at least one system has a number; a table of reasons would hide the numbers."""
    return any(is_measured(cell) for cell in row["systems"].values())


def value_text(cell: Row | None, unit: str) -> str:
    """Return a cell's headline statistic in words, with its error bound."""
    if cell is None:
        return phrases.NONE
    if "hits" in cell:
        return phrases.rate(cell)
    return phrases.percentile(cell, "p50", unit)


def change_cell(row: Row) -> Cell:
    """Return the signed change, with an arrow and a word only where a direction may be shown."""
    if row.get("delta") is None:
        known = row.get("delta_limits")
        return Cell(phrases.limits(known, row["unit"]) if known else phrases.NONE)
    text, arrow = phrases.signed(row["delta"], row["unit"]), row["arrow"]
    if arrow is None:
        return Cell(text)
    return Cell(f"{text} {_ARROWS[row['better']][arrow]} {arrow}", tone=arrow)


def n_text(row: Row, systems: Sequence[str]) -> str:
    """Return how many values each system's cell holds, once if they agree."""
    cells = [row["systems"].get(name) or {} for name in systems]
    numbers = [str(cell.get("total", cell.get("n", 0))) for cell in cells]
    return numbers[0] if len(set(numbers)) == 1 else " → ".join(numbers)


def clusters_text(row: Row, systems: Sequence[str]) -> str:
    """Return in how many clusters they are; nothing where that is not counted."""
    cells = [row["systems"].get(name) or {} for name in systems]
    numbers = [str(k) for cell in cells if (k := cell.get("clusters")) is not None]
    if not numbers:
        return ""
    unique = numbers[:1] if len(set(numbers)) == 1 else numbers
    return f"in {' → '.join(unique)} clusters" if unique != ["1"] else "in 1 cluster"


def _span_text(row: Row) -> str:
    """Return what a metric runs from and to."""
    if not row.get("start"):
        return phrases.NONE
    return f"{row['start']} → {row['stop']}" if row.get("stop") else str(row["start"])


def interval_text(row: Row, systems: Sequence[str]) -> str:
    """Return the interval of the change, or of the only system's value."""
    if len(systems) > 1:
        return phrases.interval(row.get("delta_ci"), row["unit"], of_change=True)
    cell = row["systems"].get(systems[0]) or {}
    ends = cell.get("ci") if "hits" in cell else cell.get("p50_ci")
    return phrases.interval(ends, row["unit"])


def _badges(row: Row, *, hidden: str = "") -> tuple[tuple[str, str], ...]:
    return tuple((b["kind"], b["text"]) for b in row["badges"] if b["kind"] != hidden)


def _summary_cells(row: Row, systems: Sequence[str]) -> tuple[Cell, ...]:
    better = f"{row['better']} is better" if row["better"] in _ARROWS else ""
    return (
        Cell(row["metric"], better),
        Cell(_span_text(row), f"anchor: {row['anchor']}" if row.get("anchor") else ""),
        *(Cell(value_text(row["systems"].get(name), row["unit"])) for name in systems),
        *((change_cell(row),) if len(systems) > 1 else ()),
        Cell(interval_text(row, systems)),
        Cell(n_text(row, systems), clusters_text(row, systems)),
        Cell("", badges=_badges(row)),
    )


def summary_table(document: Row) -> Table:
    """Return the summary as a table."""
    systems = document["systems"]
    rows = [row for row in document["summary"] if is_headline(row) and is_shown(row)]
    is_pair = len(systems) > 1
    columns = (
        Column("metric", "name"),
        Column("from → to", "wide"),
        *(
            Column(f"{name}{' →' if is_pair and i == 0 else ''}", "number")
            for i, name in enumerate(systems)
        ),
        *((Column("change", "number"),) if is_pair else ()),
        Column("95 % interval", "number"),
        Column("n", "number"),
        Column("notes", "wide"),
    )
    is_curve = any(_is_product_limit(row) for row in rows)
    curve = "; by Kaplan-Meier where something else ended the wait for some" if is_curve else ""
    note = (
        f"Times are medians (p50, nearest rank{curve}) with ± their worst-case measurement error; "
        + ("the interval is that of the change. " if is_pair else "")
        + "p95 and the spread are in section 4, definitions in section 6."
    )
    return Table("", columns, [_summary_cells(row, systems) for row in rows], note)


def _is_product_limit(row: Row) -> bool:
    cells = [cell for cell in row["systems"].values() if cell]
    return any(cell.get("percentile_method") == KAPLAN_MEIER for cell in cells)


def _withheld_note(document: Row) -> list[Block]:
    """Say why rows with two numbers show no direction."""
    reasons: dict[str, list[str]] = {}
    for row in document["summary"]:
        is_pair = len(document["systems"]) > 1 and all(map(is_measured, row["systems"].values()))
        if is_headline(row) and row["arrow_withheld"] and is_pair:
            reasons.setdefault(row["arrow_withheld"], []).append(row["metric"])
    if not reasons:
        return []
    if "the measurement is not valid" in reasons:  # then it withholds every row's
        return [Note("No direction is shown: the measurement is not valid.")]
    words = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return [Note(f"No direction is shown where it would not be sound: {words}.")]


def _reasons(row: Row) -> str:
    """Return why a metric has no number, most frequent reason first."""
    counts: Counter[str] = Counter()
    for cell in row["systems"].values():
        counts.update((cell or {}).get("undefined", {}))
    return ", ".join(phrases.reason(name) for name, _ in counts.most_common()) or "nothing counted"


def _missing_note(document: Row) -> list[Block]:
    missing = [r for r in document["summary"] if is_headline(r) and not is_shown(r)]
    if not missing:
        return []
    words = "; ".join(f"{row['metric']} ({_reasons(row)})" for row in missing)
    return [Note(f"Without a number: {words}.")]


def summary_section(document: Row) -> Section:
    """Return section 1."""
    table = summary_table(document)
    shown: Block = table if table.rows else Note("No metric has a number.")
    notes = [*_withheld_note(document), *_missing_note(document)]
    return Section("summary", "Summary", [shown, *notes])


def _slice_name(part: Row) -> str:
    return f"{phrases.reason(part['by'])}: {part['value']}"


def _change_row(change: Row, systems: Sequence[str]) -> tuple[Cell, ...]:
    row = change["row"]
    part = "" if change["relative"] is None else f"({phrases.relative(change['relative'])})"
    same = ", ".join(f"{phrases.reason(o['by'])} {o['value']}" for o in change["same_turns"])
    return (
        Cell(_slice_name(change), f"same turns: {same}" if same else ""),
        Cell(row["metric"]),
        *(Cell(value_text(row["systems"].get(name), row["unit"])) for name in systems),
        replace(change_cell(row), note=part),
        Cell(interval_text(row, systems)),
        Cell(n_text(row, systems)),
        Cell("", badges=_badges(row, hidden="max")),
    )


def change_section(document: Row) -> Section:
    """Return section 2."""
    changes, systems = document["changes"], document["systems"]
    title = "Where it got better and worse"
    if changes["reason"]:
        return Section("changes", title, [Note(_sentence(changes["reason"]))])
    columns = (
        Column("slice", "name"),
        Column("metric", "name"),
        *(Column(name, "number") for name in systems),
        Column("change", "number"),
        Column("95 % interval", "number"),
        Column("n", "number"),
        Column("notes", "wide"),
    )
    blocks: list[Block] = []
    for key, name in (("improvements", "Top improvements"), ("regressions", "Top regressions")):
        rows = [_change_row(change, systems) for change in changes[key]]
        blocks.append(Table(name, columns, rows) if rows else Note("None.", name))
    note = (
        "Each slice is listed once, with the metric that moved most. A slice without an arrow "
        "moved by less than can be told from chance."
    )
    return Section("changes", title, [*blocks, Note(note)])


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _shown(summary: Sequence[Row]) -> list[Row]:
    """Return the rows that a breakdown shows: those declared for it, else the first four."""
    rows = [row for row in summary if is_headline(row) and is_shown(row)]
    return [row for row in rows if row.get("sliced")] or rows[:_N_SLICED]


def _breakdown_table(part: Row, systems: Sequence[str]) -> Table:
    columns = (
        Column(phrases.reason(part["by"]), "name"),
        Column("metric", "name"),
        *(Column(name, "number") for name in systems),
        *((Column("change", "number"),) if len(systems) > 1 else ()),
        Column("95 % interval", "number"),
        Column("n", "number"),
        Column("notes", "wide"),
    )
    rows = []
    for piece in part["slices"]:
        for i, row in enumerate(_shown(piece["summary"])):
            rows.append(
                (
                    Cell(str(piece["value"]) if i == 0 else ""),
                    Cell(row["metric"]),
                    *(Cell(value_text(row["systems"].get(n), row["unit"])) for n in systems),
                    *((change_cell(row),) if len(systems) > 1 else ()),
                    Cell(interval_text(row, systems)),
                    Cell(n_text(row, systems)),
                    # No p95 is shown here, so its label would only confuse.
                    Cell("", badges=_badges(row, hidden="max")),
                )
            )
    return Table(f"By {phrases.reason(part['by'])}", columns, rows)


def breakdown_section(document: Row) -> Section:
    """Return section 3; a dimension with one value is a sentence, not the summary again."""
    blocks: list[Block] = []
    for part in document["breakdowns"]:
        title = f"By {phrases.reason(part['by'])}"
        if part["reason"]:
            blocks.append(Note(_sentence(part["reason"]), title))
        elif len(part["slices"]) == 1:
            value = part["slices"][0]["value"]
            blocks.append(Note(f"All turns: {value}. The summary is this slice.", title))
        else:
            blocks.append(_breakdown_table(part, document["systems"]))
    return Section("breakdowns", "Breakdowns", blocks)
