"""Layout of sections 5 and 6: samples and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from vakforge_eval.report import phrases
from vakforge_eval.report.charts import lanes
from vakforge_eval.report.page import Answer, Block, Cell, Column, Note, Sample, Section, Table
from vakforge_eval.report.settings import flat

__all__ = ["provenance_section", "sample_section"]

Row = Mapping[str, Any]


def _answer(name: str, answer: Row | None, duration: float, units: Mapping[str, str]) -> Answer:
    if answer is None:
        return Answer(name, "no answer for this turn", None, "", None)
    metrics = answer["metrics"]
    facts = [
        f"{name} {phrases.metric_value(metrics[name], unit)}"
        for name, unit in units.items()
        if "undefined" not in metrics.get(name, {"undefined": ""})
    ]
    flags = [phrases.reason(flag) for flag in answer["flags"]]
    text = answer["text"] or "no text"
    picture = lanes(answer["timeline"], duration)
    return Answer(name, text, answer["audio"], " · ".join([*facts, *flags]), picture)


def _sample(sample: Row, systems: Sequence[str], units: Mapping[str, str]) -> Sample:
    # One scale for both systems, so that their lanes can be compared by eye.
    timelines = [a["timeline"] for a in sample["answers"].values() if a["timeline"]]
    duration = max((t["duration"] for t in timelines), default=0.0)
    answers = [_answer(name, sample["answers"].get(name), duration, units) for name in systems]
    kind = f" ({phrases.reason(sample['kind'])})" if sample["kind"] else ""
    return Sample(
        title=f"{sample['scenario']}, turn {sample['turn']}{kind}",
        user_text=sample["user_text"] or "no text",
        user_audio=sample["user_audio"],
        reference=sample["reference"] or "no reference text in the scenario",
        answers=tuple(answers),
    )


def sample_section(document: Row) -> Section:
    """Return section 5."""
    samples, systems = document["samples"], document["systems"]
    if not samples:
        return Section("samples", "Samples", [Note("No turn with text or audio to show.")])
    has_audio = any(
        sample["user_audio"] or any(answer["audio"] for answer in sample["answers"].values())
        for sample in samples
    )
    notes: list[Block] = []
    if not has_audio:
        notes.append(
            Note("Audio: not rendered in this report; the captures hold every sent and heard byte.")
        )
    units = {row["metric"]: row["unit"] for row in document["summary"] if row.get("sliced")}
    shown = [_sample(sample, systems, units) for sample in samples]
    return Section("samples", "Samples", [*notes, *shown])


_PROVENANCE = (
    ("manifest_hash", "manifest hash", "not used"),
    ("config_hash", "config hash", "not stated"),
    ("scripts", "scripts", "none"),
    ("versions", "versions", "not stated"),
    ("judge", "judge", "none used"),
    ("seed", "seed", "not stated"),
    ("detector", "detector", "not stated"),
    ("playout", "playout model", "not stated"),
)


def _provenance_rows(provenance: Row) -> list[tuple[Cell, ...]]:
    known = {name for name, _, _ in _PROVENANCE} | {"definitions"}
    others = [
        (name, phrases.reason(name), phrases.NONE) for name in provenance if name not in known
    ]
    rows: list[tuple[Cell, ...]] = []
    for name, label, absent in (*_PROVENANCE, *others):
        value = provenance.get(name)
        if value is None or value == {} or value == []:
            rows.append((Cell(label), Cell(absent)))
            continue
        for i, (key, text) in enumerate(flat(value)):
            rows.append((Cell(label if i == 0 else ""), Cell(f"{key}: {text}" if key else text)))
    return rows


def _definition_table(document: Row) -> Block:
    given = {item["metric"]: item for item in document["provenance"].get("definitions", [])}
    items = [{**row, **given.get(row["metric"], {})} for row in document["summary"]]
    if not items:
        return Note("No metric was computed.", "Definitions")
    fields = ["definition", "start", "stop", "detector", "playout", "unit", "better"]
    if not any(item.get("playout") for item in items):
        fields.remove("playout")  # the detector's text names the model where there is one
    rows = [
        (Cell(item["metric"]), *(Cell(str(item.get(name) or phrases.NONE)) for name in fields))
        for item in items
    ]
    kinds: dict[str, Literal["wide"]] = {"detector": "wide", "stop": "wide"}
    columns = (Column("metric", "name"), *(Column(f, kinds.get(f, "text")) for f in fields))
    return Table("Definitions", columns, rows)


def provenance_section(document: Row) -> Section:
    """Return section 6."""
    columns = (Column("what", "name"), Column("value", "wide"))
    table = Table("", columns, _provenance_rows(document["provenance"]))
    return Section("provenance", "Provenance", [table, _definition_table(document)])
