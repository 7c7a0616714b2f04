"""The `vakforge-probe` command: names its commands and nothing more, so that --help is quick."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import typer

from vakforge_probe import __version__
from vakforge_probe.cli import agent, capture, demo, doctor, report, run, schema, validate

__all__ = ["app", "main"]

app = typer.Typer(
    name="vakforge-probe",
    help="Real-time duplex probe for voice agents: every latency comes with its measured error.",
    epilog=(
        "Exit codes: 0 ok, 1 an expectation was missed, 2 usage or configuration, 3 target failed, "
        "4 measurement invalid or indeterminate, 5 partial, 130/143 stopped (captures closed). "
        "Every option may also be set as VAKFORGE_PROBE_<COMMAND>_<OPTION>."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: the decorated one takes as long to load as all the rest.
    rich_markup_mode=None,
    context_settings={
        "auto_envvar_prefix": "VAKFORGE_PROBE",
        "help_option_names": ["-h", "--help"],
    },
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vakforge-probe {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("report")(report.report)
app.command("agent")(agent.agent)
app.add_typer(capture.app, name="capture")
app.command("validate")(validate.validate)
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Run the command line; the console script's entry point."""
    # Read when numpy loads, which only a command does. An echo is taken out by products so small
    # that the threads of linear algebra wait for each other many times longer than they work.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    sys.stdout = _printable(sys.stdout)
    sys.stderr = _printable(sys.stderr)
    app()


def _printable(stream: TextIO | None) -> TextIO:
    """Return a stream that takes every text, also in an ASCII locale or with the file closed."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream
