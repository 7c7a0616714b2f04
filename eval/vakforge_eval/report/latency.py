"""Layout of section 4: latency, its spread, hardware, transport and the probe itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.charts import distribution
from vakforge_eval.report.page import (
    Block,
    Cell,
    Column,
    Note,
    Section,
    StripBlock,
    Table,
)
from vakforge_eval.report.sections import is_headline
from vakforge_eval.report.settings import flat, plain

__all__ = ["latency_section"]

Row = Mapping[str, Any]


def _is_time(row: Row) -> bool:
    return is_headline(row) and row["unit"] == "s"


def _statistic(cell: Row, name: str, unit: str) -> Cell:
    label = cell.get("p95_label", "p95")
    bound = cell.get("bound") if name == "p50" else cell.get("p95_bound")
    ends = phrases.interval(cell.get(f"{name}_ci"), unit)
    badges = (("max", "max"),) if name == "p95" and label == "max" else ()
    text = phrases.stat(cell.get(name), unit, bound)
    return Cell(text, "" if ends == phrases.NONE else ends, badges)


def _latency_rows(row: Row, systems: Sequence[str]) -> list[tuple[Cell, ...]]:
    rows = []
    for i, name in enumerate(systems):
        cell = row["systems"].get(name)
        if cell is None:
            continue
        counts = ("n", "clusters", "n_early", "n_no_reply", "n_invalid")
        rows.append(
            (
                Cell(row["metric"] if i == 0 else ""),
                Cell(name),
                _statistic(cell, "p50", row["unit"]),
                _statistic(cell, "p95", row["unit"]),
                *(Cell(str(cell.get(count, phrases.NONE))) for count in counts),
                Cell(str(cell.get("ci_method") or phrases.NONE)),
            )
        )
    return rows


def _latency_table(document: Row) -> Block:
    rows = [
        cells
        for row in document["summary"]
        if _is_time(row)
        for cells in _latency_rows(row, document["systems"])
    ]
    if not rows:
        return Note("No latency metric was computed.")
    columns = (
        Column("metric", "name"),
        Column("system", "name"),
        Column("p50", "number"),
        Column("p95", "number"),
        Column("n", "number"),
        Column("clusters", "number"),
        Column("early", "number"),
        Column("no reply", "number"),
        Column("invalid", "number"),
        Column("interval method"),
    )
    note = (
        "± is the worst-case error of the measurement; the 95 % interval stands in brackets. "
        "With fewer than 20 values p95 is the largest one, marked max. "
        "Early replies are counted but are in no percentile; a reply that never came stays in n."
    )
    return Table("Latency", columns, rows, note)


def _strips(document: Row) -> list[Block]:
    blocks: list[Block] = []
    for row in document["summary"]:
        if not _is_time(row):
            continue
        ends = (row.get("start"), row.get("stop"))
        caption = " → ".join(str(end) for end in ends if end)
        strip = distribution(
            row, document["turns"], document["calls"], document["systems"], caption
        )
        if strip:
            blocks.append(StripBlock(strip))
    return blocks


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


_SUFFIXES = (("_ns", 1e-9, "s"), ("_s", 1.0, "s"), ("_ppm", 1.0, "ppm"))


def _worded(name: str, value: float) -> tuple[str, str]:
    """Return a transport number's name without its unit, and its text with it."""
    for suffix, factor, unit in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix), phrases.quantity(value * factor, unit)
    return name, phrases.quantity(value, "share" if name.endswith("_share") else "1")


def _transport_text(name: str, values: Sequence[Any]) -> tuple[str, str]:
    """Return a name and the worst call's number, or how many calls have which text."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if numbers and len(numbers) == len(values):
        return _worded(name, max(numbers, key=abs))
    counts = sorted(Counter(plain(v) for v in values).items())
    if len(counts) == 1:
        return name, counts[0][0]
    return name, ", ".join(f"{text} ({n} call{'s' if n > 1 else ''})" for text, n in counts)


def _measured_only(value: Any) -> Any:
    """Return the number or the reason of a value in its report form, else the value itself."""
    if not isinstance(value, Mapping):
        return value
    for key in ("value", "censored"):
        if key in value:
            return value[key]
    return f"not measured: {phrases.reason(str(value.get('undefined', 'no reason given')))}"


def _transport_table(document: Row) -> Block:
    systems, title = document["systems"], "Transport and the probe itself"
    calls = [call for call in document["calls"] if call.get("transport")]
    if not calls:
        return Note("No call recorded its transport.", title)
    names = list(dict.fromkeys(name for call in calls for name in call["transport"]))
    rows = []
    for name in names:
        label, cells = name, []
        for system in systems:
            values = [
                _measured_only(call["transport"][name])
                for call in calls
                if call["system"] == system and name in call["transport"]
            ]
            text = phrases.NONE
            if values:
                label, text = _transport_text(name, values)
            cells.append(Cell(text))
        rows.append((Cell(phrases.reason(label)), *cells))
    columns = (Column("quantity", "name"), *(Column(name) for name in systems))
    note = "Numbers are those of the worst call. A late or busy probe measures itself."
    return Table(title, columns, rows, note)


def _summarised_transport(document: Row) -> list[Block]:
    """Return transport and self metrics that scoring summarised, where it did."""
    rows = []
    for row in document["summary"]:
        if is_headline(row):
            continue
        for name in document["systems"]:
            cell = row["systems"].get(name) or {}
            stats = (
                (phrases.rate(cell), phrases.NONE)
                if "hits" in cell
                else tuple(phrases.stat(cell.get(p), row["unit"]) for p in ("p50", "p95"))
            )
            count = str(cell.get("n", phrases.NONE))
            rows.append((Cell(row["metric"]), Cell(name), *map(Cell, stats), Cell(count)))
    if not rows:
        return []
    columns = (
        Column("quantity", "name"),
        Column("system", "name"),
        Column("p50", "number"),
        Column("p95", "number"),
        Column("n", "number"),
    )
    return [Table("Transport and self, over calls", columns, rows)]


def _excluded_block(document: Row) -> Block:
    title = "Excluded turns"
    if not document["turns"]:
        return Note("No turn was scored.", title)
    if not document["excluded"]:
        return Note("None: the probe spoilt no turn.", title)
    columns = (Column("system", "name"), Column("reason", "name"), Column("turns", "number"))
    rows = [
        (
            Cell(item["system"]),
            Cell(phrases.reason(item["flag"])),
            Cell(f"{item['n']} of {item['total']}"),
        )
        for item in document["excluded"]
    ]
    note = "Spoilt by the probe (late frames, a stall, back-pressure), so in no statistic."
    return Table(title, columns, rows, note)


def latency_section(document: Row) -> Section:
    """Return section 4."""
    return Section(
        "latency",
        "Latency",
        [
            _latency_table(document),
            *_strips(document),
            _hardware_table(document),
            *_summarised_transport(document),
            _transport_table(document),
            _excluded_block(document),
        ],
    )
