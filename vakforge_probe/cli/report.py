"""``report``: a report from captures alone, any time later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, complain, human, print_json
from vakforge_probe.errors import ConfigError, ExitCode

__all__ = ["report"]


@command
def report(
    captures: Annotated[
        list[Path],
        typer.Argument(metavar="CAPTURES…", help="Captures, or folders that hold them."),
    ],
    baseline: Annotated[
        list[Path] | None, typer.Option(metavar="CAPTURES", help="Captures of the baseline.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write report.{json,md,html}.")
    ] = None,
    term: Annotated[
        bool,
        typer.Option("--term", help="Print the whole report as text (wide; pipe it into less -S)."),
    ] = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> ExitCode:
    """Make a report from captures; nothing is dialled.

    Without --baseline, captures whose own header says base and tuned are told apart by it. The
    exit code is that of the run.
    """
    from vakforge_eval.report.markdown_writer import to_markdown
    from vakforge_probe.cli.session import write_report
    from vakforge_probe.cli.table import print_call, print_summary
    from vakforge_probe.cli.verdict import judge, told

    found = _find(captures, "CAPTURES")
    base = _find(baseline, "--baseline") if baseline else []
    document = write_report(found, baseline=base, out=out)
    console = human(as_json=json, quiet=quiet)
    if term:
        console.print(to_markdown(document), markup=False)
        print_call([*base, *found], console)
    else:
        print_summary(document, console)
    complain(told(document))
    code, why = judge(document)
    if code is not ExitCode.OK:
        complain([f"{why} (exit code {int(code)})"])
    if json:
        print_json(document)
    return code


def _find(folders: Sequence[Path], key: str) -> list[Path]:
    from vakforge_eval.report.build import find_captures

    for folder in folders:
        if not os.path.isdir(folder):
            raise ConfigError("no such folder", key=key, value=str(folder))
    found = [path for folder in folders for path in find_captures(folder)]
    if not found:
        raise ConfigError("no complete capture in it", key=key, value=str(folders[0]))
    return found
