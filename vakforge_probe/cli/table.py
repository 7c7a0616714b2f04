"""The summary of a report document on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vakforge_eval.report.terminal import (
    banner_lines,
    summary_notes,
    summary_rows,
    to_lines,
)

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_call", "print_summary"]

_DRAWN = 100
"""Width of a call drawn into what is no terminal."""
_UNBOUNDED = 1000
"""Width of what is no terminal: a pipe or a file folds nothing."""
_STYLES = {"better": "green", "worse": "red"}


def print_summary(document: dict[str, Any], console: Console) -> None:
    """Print the document's banners, its summary table and the notes to it, all without markup."""
    from rich.text import Text

    for line in banner_lines(document):
        console.print(Text(line, style="bold"))
    rows = summary_rows(document, console.width if console.is_terminal else _UNBOUNDED)
    if len(rows) == 1:
        return
    for i, (line, row) in enumerate(zip(to_lines(rows), rows, strict=True)):
        tone = next((cell.tone for cell in row if cell.tone), "")
        console.print(Text(line, style="bold" if i == 0 else _STYLES.get(tone, "")))
    for line in summary_notes(document):
        console.print(Text(line, style="dim"))


def print_call(captures: Sequence[Path], console: Console) -> None:
    """Draw the call in two lanes if there is one only: of several, a table tells more."""
    from rich.text import Text

    from vakforge_eval.capture.build import build_timeline
    from vakforge_eval.capture.reader import Capture
    from vakforge_eval.metrics.view import CallView
    from vakforge_eval.report.ascii import draw_call

    if len(captures) != 1 or console.quiet:
        return
    view = CallView(build_timeline(Capture.open(captures[0])))
    for line in ["", *draw_call(view, console.width if console.is_terminal else _DRAWN), ""]:
        console.print(Text(line))
