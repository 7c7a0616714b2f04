"""What all commands share: options, consoles, and errors turned into exit codes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from vakforge_probe.errors import ExitCode, exit_code
from vakforge_probe.text import clean

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["JsonFlag", "QuietFlag", "command", "human", "print_json"]

P = ParamSpec("P")

JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; everything else on stderr.")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no tables.")]


def human(*, as_json: bool = False) -> Console:
    """Return the console for people: stdout, or stderr when stdout carries JSON."""
    from rich.console import Console

    return Console(stderr=as_json, highlight=False, emoji=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """Write one JSON document to stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def command(function: Callable[P, ExitCode | None]) -> Callable[P, None]:
    """Wrap a command: typed errors become one line on stderr and their exit code.

    A bug keeps its traceback: it must not pass for a fault of the target.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = function(*args, **kwargs) or ExitCode.OK
        except Exception as error:
            mapped = exit_code(error)
            if mapped is None:
                raise
            typer.echo(f"error: {clean(str(error), 4000)}", err=True)
            code = mapped
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        raise typer.Exit(int(code))

    return wrapper
