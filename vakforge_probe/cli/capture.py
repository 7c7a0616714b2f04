"""``capture``: look after captures on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, complain, human, print_json
from vakforge_probe.errors import ExitCode

__all__ = ["app"]

app = typer.Typer(help="Verify or recover captures.", no_args_is_help=True)

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="CAPTURE…", help="Captures, or folders of runs that hold them."),
]


@app.command()
@command
def verify(captures: Paths, json: JsonFlag = False, quiet: QuietFlag = False) -> ExitCode:
    """Check each file's hash, each record's CRC and each journal line; exit 4 if one is damaged."""
    from vakforge_eval.capture.errors import CaptureError
    from vakforge_eval.capture.reader import Capture

    def problems_of(path: Path) -> dict[str, Any]:
        try:
            return {"problems": [str(problem) for problem in Capture.open(path).verify()]}
        except CaptureError as error:
            return {"problems": [str(error)]}

    console = human(as_json=json, quiet=quiet)
    rows = _each(captures, problems_of)
    for row in rows:
        if row["problems"]:
            complain([f"{row['path']}: damaged", *(f"  {each}" for each in row["problems"])])
        else:
            console.print(f"{row['path']}: ok", markup=False)
    if json:
        print_json({"captures": rows})
    return ExitCode.INVALID if any(row["problems"] for row in rows) else ExitCode.OK


@app.command()
@command
def recover(captures: Paths, json: JsonFlag = False, quiet: QuietFlag = False) -> ExitCode:
    """Finish captures that a crash left torn; a whole one is left as it is."""
    from dataclasses import asdict

    from vakforge_eval.capture.errors import CaptureError
    from vakforge_eval.capture.recover import recover as recover_capture

    def recovered(path: Path) -> dict[str, Any]:
        try:
            done = recover_capture(path)
        except CaptureError as error:
            return {"error": str(error)}
        return {**asdict(done), "path": str(done.path), "told": str(done)}

    console = human(as_json=json, quiet=quiet)
    rows = _each(captures, recovered)
    for row in rows:
        if "error" in row:
            complain([row["error"]])
        else:
            console.print(row.pop("told"), markup=False)
    if json:
        print_json({"captures": rows})
    return ExitCode.INVALID if any("error" in row for row in rows) else ExitCode.OK


def _each(folders: list[Path], look: Callable[[Path], dict[str, Any]]) -> list[dict[str, Any]]:
    """Look at all captures, the bad ones too: one must not hide the next."""
    paths = [path for folder in folders for path in _captures_in(folder)]
    return [{"path": str(path), **look(path)} for path in paths]


def _captures_in(folder: Path) -> list[Path]:
    """Return `folder` if it is a capture, else what lies in it or its ``calls`` folder."""
    from vakforge_eval.capture.format import HEADER

    if os.path.exists(folder / HEADER) or not os.path.isdir(folder):
        return [folder]
    inside = folder / "calls" if (folder / "calls").is_dir() else folder
    return sorted(path.parent for path in inside.glob(f"*/{HEADER}")) or [folder]
