"""The document laid out once, in the specification's order of sections, for every writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vakforge_eval.report.evidence import provenance_section, sample_section
from vakforge_eval.report.latency import latency_section
from vakforge_eval.report.page import Page
from vakforge_eval.report.sections import breakdown_section, change_section, summary_section

__all__ = ["lay_out"]

Row = Mapping[str, Any]


def _facts(document: Row) -> tuple[tuple[str, str], ...]:
    turns, calls = document["turns"], document["calls"]
    n_valid = sum(1 for turn in turns if turn["valid"])
    scenarios = {turn["scenario"] for turn in turns}
    return (
        ("systems", " → ".join(document["systems"])),
        ("verdict", document["verdict"]["status"].replace("_", " ")),
        ("calls", str(len(calls))),
        ("turns", f"{n_valid} valid of {len(turns)}"),
        ("scenarios", str(len(scenarios))),
    )


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
