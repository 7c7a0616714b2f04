"""``capture``: look after captures on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vakforge_probe.cli.common import JsonFlag, command, human, print_json
from vakforge_probe.errors import ExitCode

__all__ = ["app"]

app = typer.Typer(help="Verify or recover captures.", no_args_is_help=True)

Paths = Annotated[list[Path], typer.Argument(metavar="CAPTURE…", help="Capture folders.")]


@app.command()
@command
def verify(captures: Paths, as_json: JsonFlag = False) -> ExitCode:
    """Check each file's hash, each record's CRC and each journal line."""
    from vakforge_eval.capture.reader import Capture

    console = human(as_json=as_json)
    found: dict[str, list[str]] = {}
    for path in captures:
        problems = [str(problem) for problem in Capture.open(path).verify()]
        found[str(path)] = problems
        console.print(f"{path}: {'ok' if not problems else 'damaged'}", markup=False)
        for problem in problems:
            console.print(f"  {problem}", markup=False)
    if as_json:
        print_json({"captures": [{"path": p, "problems": x} for p, x in found.items()]})
    return ExitCode.OK if not any(found.values()) else ExitCode.INVALID


@app.command()
@command
def recover(captures: Paths, as_json: JsonFlag = False) -> ExitCode:
    """Finish captures that a crash left torn; a whole capture is left as it is."""
    from dataclasses import asdict

    from vakforge_eval.capture.recover import recover as recover_capture

    console = human(as_json=as_json)
    results = [recover_capture(path) for path in captures]
    for result in results:
        console.print(str(result), markup=False)
    if as_json:
        print_json(
            {
                "captures": [
                    {k: str(v) if isinstance(v, Path) else v for k, v in asdict(r).items()}
                    for r in results
                ]
            }
        )
    return ExitCode.OK
