"""Layout of section 4's duplex part: stops, interruptions, what led to them, expectations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.outcomes import Expected, expected_of
from vakforge_eval.report.page import Block, Cell, Column, Note, Table
from vakforge_eval.report.people import claimed_block, overlap_block
from vakforge_eval.report.sections import change_cell, is_shown
from vakforge_eval.report.statistics import (
    VALUE_COLUMNS,
    strips,
    value_rows,
    without_empty,
    without_text,
)

__all__ = ["duplex_blocks"]

Row = Mapping[str, Any]

_COUNTS = ("n_censored", "n_invalid")
_METHODS = ("percentile_method", "ci_method")
_MAY_BE_EMPTY = frozenset({"censored", "invalid", "no number", "not counted"})
"""Columns that are left out where they would say nothing."""
_VALUE_NOTES = (
    "± is the worst-case error of the measurement; the 95 % interval stands in brackets, with … "
    "where there are too few values for that bound.",
    "Censored: the reply's own end, the user's next words or the end of watching came first. Where "
    "these bounds differ the percentiles are Kaplan-Meier's: a reply that ended by itself is "
    "neither a stop nor a slow one.",
)
_FATES = {
    "silent": "it did not speak at that moment",
    "held": "it talked on",
    "stuttered": "it paused and went on with the same reply",
    "stopped": "it fell silent for good",
    "restarted": "it stopped and began another reply",
    "ended": "its reply came to its own end",
    "ambiguous": "nothing tells whether it went on or began anew",
    "never_stopped": "it talked on as long as it was watched",
    "unconfirmed": "watching ended too early to tell",
    "anchor_missed": "the step came at another moment than meant",
    "indeterminate": "the error of the measurement leaves both possible",
}
_STATUSES = (
    ("pass", "passed"),
    ("fail", "failed"),
    ("indeterminate", "indeterminate"),
    ("void", "void"),
    ("not_measurable", "not measurable"),
)
_N_REASONS = 2
"""So many reasons are told of a step's expectation; beyond, they are counted."""


def _is_duplex(row: Row) -> bool:
    return row.get("group") == "duplex"


def _value_table(title: str, rows: Sequence[Row], systems: Sequence[str]) -> Table:
    columns = (
        *VALUE_COLUMNS,
        Column("censored", "number"),
        Column("invalid", "number"),
        Column("no number"),
        Column("percentiles by"),
        Column("interval method", "wide"),
    )
    cells = [line for row in rows for line in value_rows(row, systems, _COUNTS, _METHODS)]
    is_cut_short = any(
        (cell or {}).get("n_censored") for row in rows for cell in row["systems"].values()
    )
    note = " ".join(_VALUE_NOTES[: 1 + is_cut_short])
    return without_empty(Table(title, columns, cells, note), _MAY_BE_EMPTY)


def _rate_table(title: str, rows: Sequence[Row], document: Row) -> Table:
    systems = document["systems"]
    has_control, is_pair = any(row.get("control") for row in rows), len(systems) > 1
    columns = (
        Column("metric", "name"),
        Column("system"),
        Column("share", "number"),
        Column("95 % interval", "number"),
        *((Column("change", "number"),) if is_pair else ()),
        *((Column("control (nothing played)", "number"),) if has_control else ()),
        Column("invalid", "number"),
        Column("not counted"),
        Column("what is counted", "wide"),
    )
    by_name = {row["metric"]: row for row in document["summary"]}
    lines = []
    for row in rows:
        for i, name in enumerate(systems):
            cell = row["systems"].get(name) or {"hits": 0, "total": 0}
            control = by_name.get(row.get("control") or "")
            lines.append(
                (
                    Cell(row["metric"] if i == 0 else ""),
                    Cell(name),
                    Cell(phrases.rate(cell)),
                    Cell(phrases.interval(cell.get("ci"), row["unit"])),
                    *((change_cell(row) if i else Cell(""),) if is_pair else ()),
                    *((Cell(_control_text(row, control, name)),) if has_control else ()),
                    Cell(str(cell.get("n_invalid", phrases.NONE))),
                    Cell(without_text(cell)),
                    Cell(str(row.get("start") or "") if i == 0 else ""),
                )
            )
    return without_empty(Table(title, columns, lines), _MAY_BE_EMPTY)


def _control_text(row: Row, control: Row | None, system: str) -> str:
    """Return the share that is counted where nothing was played, or that it was not tried."""
    if not row.get("control"):
        return phrases.NONE
    cell = (control or {"systems": {}})["systems"].get(system) or {"total": 0}
    return phrases.rate(cell) if cell["total"] else "control: none"


def _metric_blocks(document: Row) -> list[Block]:
    """Return the tables and pictures of the duplex metrics, in the order of the registry."""
    titled: dict[str, list[Row]] = {}
    for row in filter(_is_duplex, document["summary"]):
        titled.setdefault(row.get("table") or "Duplex", []).append(row)
    blocks: list[Block] = []
    for title, rows in titled.items():
        shown = [row for row in rows if is_shown(row)]
        values = [row for row in shown if row["unit"] != "rate"]
        shares = [row for row in shown if row["unit"] == "rate"]
        if values:
            blocks.append(_value_table(title, values, document["systems"]))
        if shares:
            blocks.append(_rate_table(f"{title}: shares" if values else title, shares, document))
        blocks.extend(strips(document, values))
        if not shown:
            blocks.append(Note(f"No data yet: {_missing_text(rows)}.", title))
    return blocks


def _missing_text(rows: Sequence[Row]) -> str:
    """Return in words why none of some metrics has a number."""
    counts: Counter[str] = Counter()
    for row in rows:
        for cell in row["systems"].values():
            counts.update((cell or {}).get("undefined") or {})
    reasons = ", ".join(phrases.reason(name) for name, _ in counts.most_common())
    return reasons or "nothing of the kind was counted"


def _outcome_block(document: Row) -> Block:
    title, found = "What became of the agent's speech", document["outcomes"]
    if not found:
        text = "No data yet: no call has a barge-in, backchannel, noise, side talk or sham."
        return Note(text, title)
    names = dict.fromkeys(name for item in found for name in item["outcomes"])
    columns = (
        Column("step", "name"),
        Column("system"),
        Column("n", "number"),
        *(Column(phrases.reason(name), "number") for name in names),
        Column("void of these", "number"),
        Column("spoilt by the probe", "number"),
    )
    rows = []
    for i, item in enumerate(found):
        is_first = i == 0 or found[i - 1]["kind"] != item["kind"]
        rows.append(
            (
                Cell(phrases.reason(item["kind"]) if is_first else ""),
                Cell(item["system"]),
                Cell(str(item["n"])),
                *(Cell(str(item["outcomes"].get(name, 0))) for name in names),
                Cell(str(item["n_void"])),
                Cell(str(item["n_invalid"])),
            )
        )
    words = "; ".join(f"{phrases.reason(name)}: {_FATES[name]}" for name in names if name in _FATES)
    note = (
        "What the agent did after the user spoke, or nothing was played (sham), into its speech. "
        f"{words[:1].upper()}{words[1:]}{'.' if words else ''} "
        "Void: there was nothing to interrupt; counted here and in no share."
    )
    return Table(title, columns, rows, note)


def _whys(found: Iterable[Expected]) -> str:
    """Return why expectations did not pass, most frequent reason first."""
    counts = Counter(one.why for one in found if one.status != "pass" and one.why)
    told = [f"{why} ({n} ×)" if n > 1 else why for why, n in counts.most_common(_N_REASONS)]
    rest = len(counts) - len(told)
    return "; ".join([*told, *([f"and {rest} more"] if rest else [])])


def _expectation_block(document: Row) -> Block:
    """Return each step's expectations with how often they came to which status."""
    title, systems = "Expectations", document["systems"]
    judged: dict[tuple[Any, ...], dict[str, list[Expected]]] = {}
    for one in expected_of(document["turns"], document["calls"]):
        key = one.scenario, one.step, one.kind, one.text
        judged.setdefault(key, {}).setdefault(one.system, []).append(one)
    if not judged:
        return Note("No step of these scenarios states one.", title)
    columns = (
        Column("scenario", "name"),
        Column("step"),
        Column("expected"),
        *(Column(name) for name in systems),
        Column("why not passed", "wide"),
    )
    lines = []
    before = None
    for key in sorted(judged):
        scenario, step, kind, text = key
        lines.append(
            (
                Cell(scenario if scenario != before else ""),
                Cell(f"{step} {phrases.reason(kind)}"),
                Cell(text),
                *(_status_cell(judged[key].get(name, [])) for name in systems),
                Cell("; ".join(_why_lines(judged[key], systems))),
            )
        )
        before = scenario
    note = (
        "Judged with the error of the measurement: indeterminate means that it leaves both "
        "answers possible, void that what was to be tested did not happen."
    )
    return Table(title, columns, lines, note)


def _why_lines(judged: Mapping[str, Sequence[Expected]], systems: Sequence[str]) -> list[str]:
    told = {name: words for name in systems if (words := _whys(judged.get(name, ())))}
    if len(systems) == 1:
        return list(told.values())
    return [f"{name}: {words}" for name, words in told.items()]


def _status_cell(found: Sequence[Expected]) -> Cell:
    counts = Counter(one.status for one in found)
    words = [f"{counts[name]} {word}" for name, word in _STATUSES if counts[name]]
    is_failed, is_passed = counts["fail"] > 0, counts["pass"] == len(found) > 0
    return Cell(
        ", ".join(words) or phrases.NONE,
        tone="worse" if is_failed else "better" if is_passed else "",
    )


def duplex_blocks(document: Row) -> list[Block]:
    """Return the blocks about who speaks while the other does."""
    return [
        _outcome_block(document),
        *_metric_blocks(document),
        overlap_block(document),
        claimed_block(document),
        _expectation_block(document),
    ]
