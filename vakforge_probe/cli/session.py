"""Run a campaign from the command line: progress, signals, report, verdict."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vakforge_probe.cli.common import human, print_json
from vakforge_probe.errors import ConfigError, ExitCode, ProbeError
from vakforge_probe.text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from vakforge_probe.call import CallOutcome, CallPlan
    from vakforge_probe.campaign import Progress

__all__ = ["conclude", "dial_all", "fresh_folder"]


def fresh_folder(out: Path | None) -> Path:
    """Return the new, empty folder of a run; ``runs/<UTC time>`` by default."""
    folder = out or Path("runs") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError("the output folder must be new or empty", key="--out", value=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class _Stopper:
    """First signal: hang up and close captures. Second: leave at once (captures recoverable)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        self.code: ExitCode | None = None
        self._stop = stop
        for number, code in (
            (signal.SIGINT, ExitCode.INTERRUPTED),
            (signal.SIGTERM, ExitCode.TERMINATED),
        ):
            loop.add_signal_handler(number, self._on_signal, number, code)

    def _on_signal(self, number: signal.Signals, code: ExitCode) -> None:
        if self.code is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.code = code
        self._stop.set()


def dial_all(
    plans: Sequence[CallPlan], *, concurrency: int, console: Console, quiet: bool
) -> tuple[list[CallOutcome], ExitCode | None]:
    """Run the calls with live progress; returns the outcomes, and 130 or 143 if stopped."""
    from vakforge_probe.campaign import run_campaign
    from vakforge_probe.net.loop import new_event_loop

    async def go() -> tuple[list[CallOutcome], ExitCode | None]:
        stop = asyncio.Event()
        stopper = _Stopper(asyncio.get_running_loop(), stop)
        with _progress(console, len(plans), quiet=quiet) as show:
            outcomes = await run_campaign(
                plans, concurrency=concurrency, on_progress=show, stop=stop
            )
        return outcomes, stopper.code

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(go())


def _progress(console: Console, planned: int, *, quiet: bool) -> Any:
    if quiet:
        return nullcontext(lambda _: None)
    return _LiveProgress(console, planned) if console.is_terminal else _PlainProgress(console)


class _PlainProgress:
    """One line for each finished call: what a log wants."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0

    def __enter__(self) -> _PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, progress: Progress) -> None:
        if progress.done > self._told:
            self._told = progress.done
            failed = f", {progress.failed} failed" if progress.failed else ""
            self._console.print(f"calls {progress.done}/{progress.planned}{failed}", markup=False)


class _LiveProgress:
    """A bar that is redrawn on change only: a timer of its own would disturb the pacing."""

    def __init__(self, console: Console, planned: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("calls"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("", total=planned)

    def __enter__(self) -> _LiveProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        running = ", ".join(sorted(set(progress.running.values())))
        failed = f" {progress.failed} failed" if progress.failed else ""
        self._bar.update(
            self._task, completed=progress.done, description=clean(f"{running}{failed}", 60)
        )
        self._bar.refresh()


def conclude(
    outcomes: Sequence[CallOutcome],
    *,
    folder: Path,
    stopped: ExitCode | None,
    console: Console,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Write the report of a run's captures, print it, and return the run's exit code."""
    from vakforge_eval.report.build import make_report
    from vakforge_probe.cli.table import print_summary

    document = make_report([outcome.capture for outcome in outcomes], out=folder)
    if as_json:
        print_json(document)
    if not quiet:
        print_summary(document, console)
        for outcome in outcomes:
            _tell_failure(outcome, console)
        console.print(f"report: {folder / 'report.html'}", markup=False)
    return stopped or _verdict(outcomes, document)


def _tell_failure(outcome: CallOutcome, console: Console) -> None:
    for problem in (outcome.failure, outcome.recorder_problem):
        if problem is not None:
            line = f"call {outcome.plan.call_id}: {clean(str(problem), 500)}"
            console.print(line, style="red", markup=False)


def _verdict(outcomes: Sequence[CallOutcome], document: dict[str, Any]) -> ExitCode:
    """Return the exit code: nothing measured is never green, and blame goes where it belongs."""
    failed: list[ProbeError] = [o.failure for o in outcomes if o.failure is not None]
    if outcomes and len(failed) == len(outcomes):
        return ExitCode.TARGET
    status = document["verdict"]["status"]
    if status == "nothing_measured" or (outcomes and status == "mute"):
        return ExitCode.TARGET if _is_mute(document) else ExitCode.INVALID
    if failed:
        return ExitCode.PARTIAL
    if status != "valid" or any(o.recorder_problem for o in outcomes):
        return ExitCode.INVALID
    return ExitCode.OK


def _is_mute(document: dict[str, Any]) -> bool:
    """Whether the target was there and never answered: its fault, not the measurement's."""
    turns = [turn for turn in document["turns"] if turn["turn"] >= 0]
    return bool(turns) and all("no_reply" in turn["flags"] for turn in turns)
