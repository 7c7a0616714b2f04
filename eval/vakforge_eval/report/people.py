"""Layout of section 4's comparisons: overlap against people, and claimed against heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.page import Block, Cell, Column, Note, Table
from vakforge_eval.stats.reference import MIN_SAMPLE

__all__ = ["claimed_block", "overlap_block"]

Row = Mapping[str, Any]

_LOW_N = (("low_n", "low-n"),)


def _median_cell(part: Row, unit: str) -> Cell:
    """Return a median over calls or turns with its error and how many they are."""
    text = phrases.stat(part["p50"], unit, part.get("bound"))
    if not part["n"]:
        return Cell(text)
    return Cell(text, f"n = {part['n']}", _LOW_N if part.get("low_n") else ())


def _rank_cell(part: Row) -> Cell:
    """Return above how many of 100 calls of people the median call stands, and most calls."""
    if not part["n"]:
        return Cell(phrases.NONE)
    spread = f"80 % in [{part['p10']:.0f}, {part['p90']:.0f}]" if part["n"] > 1 else ""
    return Cell(f"{part['p50']:.0f} of 100", spread)


def _distance_cell(fto: Row, name: str, unit: str) -> Cell:
    return Cell(phrases.stat(fto[name], unit, fto.get(f"{name}_bound")))


def _people_cell(quantiles: Row | None, unit: str) -> Cell:
    if quantiles is None:
        return Cell(phrases.NONE)
    band = phrases.interval([quantiles["p10"], quantiles["p90"]], unit)
    return Cell(phrases.quantity(quantiles["p50"], unit), f"80 % in {band}")


_LINES: tuple[tuple[str, str, Callable[[Row], Cell], str | None, str], ...] = (
    (
        "overlap",
        "of the time of a call, whoever began it",
        lambda s: _median_cell(s["overlap_rate"], "share"),
        "overlap_over_total",
        "share",
    ),
    (
        "overlap, of speech",
        "of the time in which anybody talks",
        lambda s: _median_cell(s["overlap_share_of_speech"], "share"),
        "overlap_over_speech",
        "share",
    ),
    (
        "overlap the agent began",
        "of the time of a call",
        lambda s: _median_cell(s["agent_overlap_rate"], "share"),
        None,
        "",
    ),
    (
        "its place among people's calls",
        "how many have less overlap, whoever began it",
        lambda s: _rank_cell(s["percentile"]),
        None,
        "",
    ),
    (
        "the agent's part of all talk",
        "",
        lambda s: _median_cell(s["talk_ratio"], "share"),
        None,
        "",
    ),
    (
        "floor transfer offset",
        "end of the user to begin of the agent, signed",
        lambda s: _median_cell(s["fto"], "s"),
        "floor_transfer_offset",
        "s",
    ),
    (
        "its place among people's calls",
        f"how many have an earlier median; of calls with {MIN_SAMPLE} offsets or more",
        lambda s: _rank_cell(s["fto"]["percentile"]),
        "floor_transfer_offset_median",
        "s",
    ),
    (
        "Kolmogorov-Smirnov distance",
        "of the offsets from people's: largest difference of shares",
        lambda s: _distance_cell(s["fto"], "ks", "ratio"),
        None,
        "",
    ),
    (
        "Wasserstein distance",
        "of the offsets from people's: how far apart on average",
        lambda s: _distance_cell(s["fto"], "wasserstein", "s"),
        None,
        "",
    ),
)
"""What is told: name, note, the system's cell, and which quantiles of people stand beside it."""


def overlap_block(document: Row) -> Block:
    """Return each system's overlap and floor transfers beside those of people."""
    title, part = "Overlap and floor transfers against people", document["overlap"]
    if part is None:
        return Note("No data yet: no call was held against people.", title)
    systems, reference = document["systems"], part["reference"]
    columns = (
        Column("what", "name"),
        *(Column(name, "number") for name in systems),
        Column("people", "number"),
    )
    rows = [
        (
            Cell(name, note),
            *(cell(part["systems"][system]) for system in systems),
            _people_cell(reference["quantiles"].get(told), unit) if told else Cell(phrases.NONE),
        )
        for name, note, cell, told, unit in _LINES
    ]
    note = (
        f"Medians; of people: {reference['calls']:,} calls, {reference['hours']:g} h, talk joined "
        f"below {phrases.quantity(reference['joined_below_s'], 's')} as here. {part['caveat']}"
    )
    return Table(title, columns, rows, note)


def _is_told(row: Row) -> bool:
    return bool(row["n"] or row["n_unheard"])


def _claim_cells(row: Row, *, is_first: bool) -> tuple[Cell, ...]:
    claim = phrases.reason(row["claim"])
    return (
        Cell(claim if is_first else "", f"against {row['against']}" if is_first else ""),
        Cell(row["system"]),
        Cell(phrases.stat(row["median_claimed"], "s")),
        Cell(phrases.stat(row["median_heard"], "s")),
        _difference_cell(row),
        Cell(_signed(row["max_difference"])),
        Cell(str(row["n"])),
        Cell(str(row["n_unheard"])),
    )


def _difference_cell(row: Row) -> Cell:
    bound, middle = row["difference_bound"], row["median_difference"]
    if bound is None:
        return Cell(_signed(middle))
    return Cell(_signed(middle), phrases.error(middle - bound[0], bound[1] - middle, "s"))


def _signed(value: Any) -> str:
    return phrases.stat(value, "s") if isinstance(value, Mapping) else phrases.signed(value, "s")


def claimed_block(document: Row) -> Block:
    """Return what the servers say of turns and of their latency beside what was heard."""
    title = "Claimed against heard"
    told = [row for row in document["claimed"] if _is_told(row)]
    if not told:
        return Note("No server of this run says anything of turns or of its own latency.", title)
    claims: Sequence[str] = list(dict.fromkeys(row["claim"] for row in told))
    columns = (
        Column("claim", "name"),
        Column("system"),
        Column("claimed", "number"),
        Column("heard", "number"),
        Column("claimed − heard", "number"),
        Column("furthest off", "number"),
        Column("n", "number"),
        Column("unheard", "number"),
    )
    rows = []
    for claim in claims:
        own = [row for row in told if row["claim"] == claim]
        rows += [_claim_cells(row, is_first=i == 0) for i, row in enumerate(own)]
    note = (
        "Medians. Each pair has one origin: the user's start for what is said of the user, the "
        "item or the response for what is said of it. A server that claims to be early is early "
        "only on its own clock."
    )
    return Table(title, columns, rows, note)
