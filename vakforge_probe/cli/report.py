"""``report``: a report from captures alone, any time later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, human, print_json
from vakforge_probe.errors import ConfigError, ExitCode

__all__ = ["report"]


@command
def report(
    captures: Annotated[list[Path], typer.Argument(help="Captures, or folders that hold them.")],
    baseline: Annotated[
        list[Path] | None, typer.Option(metavar="CAPTURES", help="Captures of the baseline.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write report.{json,md,html}.")
    ] = None,
    term: Annotated[bool, typer.Option("--term", help="Print the whole report as text.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> ExitCode:
    """Make a report from captures; nothing is dialled.

    Without --baseline, captures whose own header says base and tuned are told apart by it.
    """
    from vakforge_eval.report.build import find_captures, make_report
    from vakforge_eval.report.markdown_writer import to_markdown
    from vakforge_probe.cli.table import print_summary

    found = [path for each in captures for path in find_captures(each)]
    base = [path for each in baseline or () for path in find_captures(each)]
    if not found:
        raise ConfigError("no capture found", key="CAPTURES", value=str(captures[0]))
    if baseline and not base:
        raise ConfigError("no capture found", key="--baseline", value=str(baseline[0]))
    document = make_report(found, baseline=base, out=out)
    console = human(as_json=as_json)
    if as_json:
        print_json(document)
    if term and not quiet:
        console.print(to_markdown(document), markup=False)
    elif not quiet:
        print_summary(document, console)
    return ExitCode.OK if document["verdict"]["status"] == "valid" else ExitCode.INVALID
