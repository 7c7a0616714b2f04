"""Layout of section 4: latency and its spread, duplex, hardware, transport, the probe itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.duplex import duplex_blocks
from vakforge_eval.report.page import Block, Cell, Column, Note, Section, Table
from vakforge_eval.report.sections import is_apart, is_shown
from vakforge_eval.report.settings import flat
from vakforge_eval.report.statistics import VALUE_COLUMNS, statistic_cell, strips, value_rows

__all__ = ["latency_section"]

Row = Mapping[str, Any]

_COUNTS = ("n_early", "n_no_reply", "n_invalid")
_N_TOLD = 3
"""So many different facts fit into a cell: an echo's delay is another one in each call."""


def _is_latency(row: Row) -> bool:
    """Whether a row is a latency metric with a number; those without are named in section 1."""
    return row.get("group", "latency") == "latency" and is_shown(row)


def _latency_table(document: Row) -> Block:
    rows = [
        cells
        for row in document["summary"]
        if _is_latency(row)
        for cells in value_rows(row, document["systems"], _COUNTS, ["ci_method"])
    ]
    if not rows:
        return Note("No latency metric has a number.")
    columns = (
        *VALUE_COLUMNS,
        Column("early", "number"),
        Column("no reply", "number"),
        Column("invalid", "number"),
        Column("no number"),
        Column("interval method", "wide"),
    )
    note = (
        "± is the worst-case error of the measurement; the 95 % interval stands in brackets, with "
        "… where there are too few values for that bound. "
        "With fewer than 20 values p95 is the largest one, marked max. "
        "Early replies are counted but are in no percentile; a reply that never came stays in n."
    )
    return Table("Latency", columns, rows, note)


def _hardware_table(document: Row) -> Table:
    rows = []
    for name, stated in document["hardware"].items():
        if not stated:
            rows.append((Cell(name), Cell("serving path"), Cell("not stated")))
            continue
        for i, (key, value) in enumerate(flat(stated)):
            rows.append((Cell(name if i == 0 else ""), Cell(phrases.reason(key)), Cell(value)))
    columns = (Column("system", "name"), Column("part", "name"), Column("as its owner states it"))
    note = "GPU or CPU, quantization and batch size of the serving path; the probe cannot see them."
    return Table("Hardware", columns, rows, note)


def _apart_rows(row: Row, systems: Sequence[str]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for i, name in enumerate(systems):
        cell, unit = row["systems"].get(name) or {}, row["unit"]
        middle, tail = Cell(phrases.stat(cell.get("p50"), unit)), statistic_cell(cell, "p95", unit)
        if "hits" in cell:
            middle, tail = Cell(phrases.rate(cell)), Cell(phrases.NONE)
        n = str(cell.get("total", cell.get("n", phrases.NONE)))
        rows.append((Cell(row["metric"] if i == 0 else ""), Cell(name), middle, tail, Cell(n)))
    return rows


def _transport_table(document: Row) -> Block:
    """Return the metrics of the transport and of the probe itself, over calls."""
    title = "Transport and the probe itself"
    apart = [row for row in document["summary"] if is_apart(row)]
    rows = [cells for row in apart for cells in _apart_rows(row, document["systems"])]
    if not rows:
        return Note("No transport metric was computed.", title)
    columns = (
        Column("metric", "name"),
        Column("system", "name"),
        Column("p50", "number"),
        Column("p95", "number"),
        Column("n", "number"),
    )
    note = (
        "Over calls; frames late over frames. A probe that is late, or busy for more than 70 % of "
        "its core, measures itself."
    )
    return Table(title, columns, rows, note)


def _told(calls: Sequence[Row], system: str, name: str) -> str:
    """Return what the calls of a system say under `name`, with counts where they differ."""
    told = [dict(flat(call.get("facts") or {})) for call in calls if call["system"] == system]
    counts = Counter(facts[name] for facts in told if name in facts)
    if len(counts) == 1:
        return next(iter(counts))
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_N_TOLD]
    words = [f"{text} ({n} call{'s' if n > 1 else ''})" for text, n in sorted(shown)]
    if len(counts) > len(shown):
        words.append(f"and {len(counts) - len(shown)} more")
    return ", ".join(words) or phrases.NONE


def _facts_table(document: Row) -> Block:
    """Return how the calls were measured: stamp source, scheduling, protocol."""
    title, systems, calls = "How it was measured", document["systems"], document["calls"]
    names = dict.fromkeys(name for call in calls for name, _ in flat(call.get("facts") or {}))
    if not names:
        return Note("No call says how it was measured.", title)
    rows = [
        (Cell(phrases.reason(name)), *(Cell(_told(calls, system, name)) for system in systems))
        for name in names
    ]
    return Table(title, (Column("what", "name"), *(Column(name) for name in systems)), rows)


def _excluded_block(document: Row) -> Block:
    title = "Excluded turns"
    if not document["turns"]:
        return Note("No turn was scored.", title)
    if not document["excluded"]:
        return Note("None: the probe spoilt no turn.", title)
    columns = (Column("system", "name"), Column("reason", "name"), Column("how many", "number"))
    rows = [
        (
            Cell(item["system"]),
            Cell(phrases.reason(item["flag"])),
            Cell(f"{item['n']} of {item['total']}"),
        )
        for item in document["excluded"]
    ]
    note = (
        "Turns and background utterances spoilt by the probe (late frames, a stall, "
        "back-pressure), so in no statistic."
    )
    return Table(title, columns, rows, note)


def latency_section(document: Row) -> Section:
    """Return section 4."""
    return Section(
        "latency",
        "Latency and duplex",
        [
            _latency_table(document),
            *strips(document, filter(_is_latency, document["summary"])),
            *duplex_blocks(document),
            _hardware_table(document),
            _transport_table(document),
            _facts_table(document),
            _excluded_block(document),
        ],
    )
