"""The document laid out once, in the specification's order of sections, for every writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.evidence import provenance_section, sample_section
from vakforge_eval.report.latency import latency_section
from vakforge_eval.report.outcomes import is_event
from vakforge_eval.report.page import Page
from vakforge_eval.report.sections import breakdown_section, change_section, summary_section

__all__ = ["lay_out"]

Row = Mapping[str, Any]


def _facts(document: Row) -> tuple[tuple[str, str], ...]:
    turns, calls = document["turns"], document["calls"]
    scenarios = {turn["scenario"] for turn in turns}
    events = [turn for turn in turns if is_event(turn)]
    told = ((name, text) for name, text in _duplex_facts(document, events) if text)
    return (
        ("systems", " → ".join(document["systems"])),
        ("verdict", document["verdict"]["status"].replace("_", " ")),
        ("calls", str(len(calls))),
        ("turns", _valid_text([turn for turn in turns if not is_event(turn)])),
        *told,
        ("scenarios", str(len(scenarios))),
    )


def _duplex_facts(document: Row, events: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Return facts that only some runs have; an empty text is none."""
    systems = document["systems"]
    counts = document["expectations"][systems[-1]]
    judged = [f"{n} {phrases.reason(name)}" for name, n in counts.items() if n]
    whose = f" of {systems[-1]}" if len(systems) > 1 else ""
    return (
        ("background utterances", _valid_text(events) if events else ""),
        (f"expectations{whose}", ", ".join(judged)),
    )


def _valid_text(rows: Sequence[Row]) -> str:
    return f"{sum(1 for row in rows if row['valid'])} valid of {len(rows)}"


def lay_out(document: Row) -> Page:
    """Return the six sections of a report document as plain cells."""
    return Page(
        title=f"Voice agent report: {' → '.join(document['systems'])}",
        facts=_facts(document),
        banners=document["banners"],
        sections=(
            summary_section(document),
            change_section(document),
            breakdown_section(document),
            latency_section(document),
            sample_section(document),
            provenance_section(document),
        ),
    )
