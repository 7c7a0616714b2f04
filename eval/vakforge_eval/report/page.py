"""The laid-out report: sections of plain cells, still without any format's syntax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vakforge_eval.report.charts import Lanes, Strip

__all__ = [
    "Answer",
    "Block",
    "Cell",
    "Column",
    "Note",
    "Page",
    "Sample",
    "Section",
    "StripBlock",
    "Table",
]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: text, a quieter second part, badges."""

    text: str
    note: str = ""
    badges: tuple[tuple[str, str], ...] = ()
    """Pairs of kind and words."""
    tone: Literal["", "better", "worse"] = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column; a "number" is right-aligned and never wrapped, "wide" is room for words."""

    label: str
    kind: Literal["number", "name", "text", "wide"] = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns, each row as long as `columns`."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""
    block: str = "table"


@dataclass(frozen=True, slots=True)
class Note:
    """A plain sentence: what a section does not hold, and why."""

    text: str
    title: str = ""
    block: str = "note"


@dataclass(frozen=True, slots=True)
class Answer:
    """One system's answer in a sample."""

    system: str
    text: str
    audio: str | None
    facts: str
    lanes: Lanes | None


@dataclass(frozen=True, slots=True)
class Sample:
    """A turn with each system's answer."""

    title: str
    user_text: str
    user_audio: str | None
    reference: str
    answers: tuple[Answer, ...]
    block: str = "sample"


@dataclass(frozen=True, slots=True)
class StripBlock:
    """One metric's distribution: a picture where the format can draw, text where it cannot."""

    strip: Strip
    block: str = "strip"


Block = Table | Note | Sample | StripBlock


@dataclass(frozen=True, slots=True)
class Section:
    """One of the report's six sections."""

    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report."""

    title: str
    facts: tuple[tuple[str, str], ...]
    banners: Sequence[dict[str, Any]]
    sections: Sequence[Section]
