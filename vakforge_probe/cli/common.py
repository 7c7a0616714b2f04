"""What all commands share: options, consoles, and errors turned into exit codes.

Every command module keeps its heavy imports inside its function, so that ``--help`` is quick.
"""

from __future__ import annotations

import functools
import json as json_text
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from vakforge_probe.errors import ConfigError, ExitCode, TargetError, exit_code
from vakforge_probe.text import clean

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "JsonFlag",
    "QuietFlag",
    "command",
    "complain",
    "facts_of",
    "human",
    "print_json",
]

P = ParamSpec("P")

JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; everything else on stderr.")
]
QuietFlag = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, no tables; errors only.")
]


def human(*, as_json: bool, quiet: bool = False) -> Console:
    """Return the console for people: stdout, or stderr when stdout carries JSON."""
    from rich.console import Console

    return Console(stderr=as_json, quiet=quiet, highlight=False, emoji=False, soft_wrap=True)


def complain(lines: Iterable[str]) -> None:
    """Tell what went wrong, on stderr and also when all else is quiet; equal lines once."""
    console = human(as_json=True)
    for line, n in Counter(lines).items():
        times = f" ({n} ×)" if n > 1 else ""
        console.print(f"{clean(line, 4000)}{times}", style="red", markup=False)


def print_json(document: Any) -> None:
    """Write one JSON document to stdout."""
    text = json_text.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def command(function: Callable[P, ExitCode | None]) -> Callable[P, None]:
    """Wrap a command: typed errors become one line on stderr and their exit code.

    With ``--json`` they are a document, too. A bug keeps its traceback: it must not pass for a
    fault of the target.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = function(*args, **kwargs) or ExitCode.OK
        except (Exception, KeyboardInterrupt) as error:
            mapped = exit_code(error)
            if mapped is None:
                raise
            code = mapped
            facts = facts_of(error)
            complain([f"error: {facts['message']}"])
            if kwargs.get("json"):
                print_json({"error": {**facts, "exit_code": int(code)}})
        raise typer.Exit(int(code))

    return wrapper


def facts_of(error: BaseException) -> dict[str, Any]:
    """Return what an error tells, as a JSON object: its message, and where and what is wrong."""
    facts: dict[str, Any] = {"message": clean(str(error) or "interrupted", 4000)}
    if isinstance(error, ConfigError):
        value = None if error.value is None else clean(str(error.value), 200)
        facts |= {"file": error.file, "line": error.line, "key": error.key, "value": value}
        facts |= {"nearest": error.nearest}
    if isinstance(error, TargetError):
        facts |= {"kind": error.kind, "phase": error.phase}
    return facts
