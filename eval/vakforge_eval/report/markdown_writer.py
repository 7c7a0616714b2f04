"""report.md: the page as markdown that can also be read as plain text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vakforge_eval.report.charts import Strip, StripRow, text_strip
from vakforge_eval.report.layout import lay_out
from vakforge_eval.report.page import Block, Cell, Column, Sample, StripBlock, Table
from vakforge_eval.report.phrases import quantity
from vakforge_eval.report.safe import cut

__all__ = ["escape", "to_markdown"]

_CELL = 60
_SENTENCE = 240
_BADGES = 120
_TEXT = 600
# An underscore inside a word (every metric name has one) is plain text in markdown.
_SPECIAL = re.compile(r"[\\`*\[\]{}|~$]|(?<![^\W_])_|_(?![^\W_])|(?<=:)/(?=/)|(?<=\bwww)\.")
# Where a text opens a list item or a paragraph, these would open a block in it.
_OPENING = re.compile(r"^(?:(?=[#>]|[+=-]+(?:\s|$)|--)|(\d{1,9})(?=[.)](?:\s|$)))")
_TAGS = re.compile(r"<|(?<=.)>(?![ =])|&(?=#?\w+;)")
# An interval is no link text unless a target follows, and reads better unescaped.
_INTERVAL = re.compile(r"(\[[−\d.,… ]+\](?![\[(:]))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape(text: str, limit: int = _TEXT) -> str:
    """Return `text` cut to `limit` and made literal: no tag, table edge, link or emphasis in it."""
    parts = _INTERVAL.split(cut(text.strip(), limit))
    literal = "".join(
        part if i % 2 else _SPECIAL.sub(lambda match: f"\\{match.group()}", part)
        for i, part in enumerate(parts)
    )
    inert = _OPENING.sub(lambda match: f"{match.group(1) or ''}\\", literal)
    return _TAGS.sub(lambda match: _ENTITIES[match.group()], inert)


def _width(text: str) -> int:
    """Return the columns a text takes in a terminal (wide and combining characters counted)."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    flat = sum(unicodedata.category(c) in ("Mn", "Me", "Cf") for c in text)
    return len(text) + wide - flat


def _cell(cell: Cell, column: Column) -> str:
    note = cell.note if column.kind == "number" or not cell.note else f"({cell.note})"
    badges = "; ".join(words for _, words in cell.badges)
    room = _SENTENCE if column.kind == "wide" else _CELL
    parts = (escape(cell.text, room), escape(note, _CELL), escape(badges, _BADGES))
    return " ".join(part for part in parts if part)


def _pad(text: str, width: int, column: Column) -> str:
    room = " " * (width - _width(text))
    return f"{room}{text}" if column.kind == "number" else f"{text}{room}"


def _table(table: Table) -> Iterator[str]:
    heads = [escape(column.label, _CELL) for column in table.columns]
    rows = [list(map(_cell, row, table.columns)) for row in table.rows]
    widths = [max(3, *(_width(row[i]) for row in [heads, *rows])) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        padded = (_pad(*item) for item in zip(cells, widths, table.columns, strict=True))
        return f"| {' | '.join(padded)} |"

    rules = (
        f"{'-' * (width - 1)}:" if column.kind == "number" else "-" * width
        for width, column in zip(widths, table.columns, strict=True)
    )
    yield line(heads)
    yield f"| {' | '.join(rules)} |"
    yield from (line(row) for row in rows)


def _strip_name(row: StripRow) -> str:
    return escape(row.system, 20)


def _strip_line(row: StripRow, strip: Strip, name_width: int) -> str:
    name = _strip_name(row)
    room = " " * (name_width - _width(name))
    return f"    {name}{room}  {text_strip(row.values, strip.top_s, strip.bottom_s)}  {row.counts}"


def _strip(block: StripBlock) -> Iterator[str]:
    strip = block.strip
    bottom = quantity(strip.bottom_s, "s") if strip.bottom_s else "0"
    yield f"{escape(strip.metric)}, from {bottom} to {quantity(strip.top_s, 's')} in equal steps:"
    yield ""
    width = max(_width(_strip_name(row)) for row in strip.rows)
    # Indented lines keep their spaces; a text viewer that ignores that still gets no tag.
    yield from (_strip_line(row, strip, width) for row in strip.rows)


def _audio(link: str | None) -> str:
    return f" ([audio]({link}))" if link else ""


def _sample(sample: Sample) -> Iterator[str]:
    yield f"### {escape(sample.title, _CELL)}"
    yield ""
    yield f"- user: {escape(sample.user_text)}{_audio(sample.user_audio)}"
    for answer in sample.answers:
        name = escape(answer.system, _CELL)
        yield f"- {name}: {escape(answer.text)}{_audio(answer.audio)}"
        if answer.facts:
            yield f"  - {escape(answer.facts)}"
    yield f"- reference: {escape(sample.reference)}"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Sample):
        yield from _sample(block)
    elif isinstance(block, StripBlock):
        yield from _strip(block)
    else:
        if block.title:
            yield f"### {escape(block.title, _CELL)}"
            yield ""
        if isinstance(block, Table):
            yield from _table(block)
            if block.note:
                yield from ("", escape(block.note))
        else:
            yield escape(block.text)


def _banner(banner: Mapping[str, Any]) -> Iterator[str]:
    yield f"> **{escape(banner['text'])}**"
    for reason in banner["reasons"]:
        yield f"> - {escape(reason)}"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    page = lay_out(document)
    yield f"# {escape(page.title, 120)}"
    for banner in page.banners:
        yield ""
        yield from _banner(banner)
    yield ""
    yield " · ".join(f"{name}: {escape(value, _CELL)}" for name, value in page.facts)
    for number, section in enumerate(page.sections, 1):
        yield from ("", f"## {number}. {section.title}")
        for block in section.blocks:
            yield ""
            yield from _block(block)


def to_markdown(document: Mapping[str, Any]) -> str:
    """Return the report as markdown; tables are aligned, foreign text is literal and cut."""
    return "\n".join(line.rstrip() for line in _lines(document)) + "\n"
