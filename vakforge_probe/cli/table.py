"""The summary of a report document on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vakforge_eval.report.terminal import banner_lines, summary_rows

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_summary"]


def print_summary(document: dict[str, Any], console: Console) -> None:
    """Print the document's banners and its summary table; its texts are shown without markup."""
    from rich.table import Table
    from rich.text import Text

    for line in banner_lines(document):
        console.print(Text(line, style="bold"))
    header, *rows = summary_rows(document)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, name in enumerate(header):
        table.add_column(Text(name), justify="left" if n == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
