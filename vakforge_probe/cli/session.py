"""Run a campaign from the command line: progress, signals, report, verdict."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vakforge_probe.cli.common import complain, print_json
from vakforge_probe.errors import ConfigError, ExitCode
from vakforge_probe.text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from vakforge_probe.call import CallOutcome, CallPlan
    from vakforge_probe.campaign import Progress

__all__ = ["conclude", "dial_all", "write_report"]

_SIGNALS = ((signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED))


class _Stopper:
    """First signal: hang up and close captures. Second: leave at once (captures recoverable)."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, console: Console
    ) -> None:
        self.code: ExitCode | None = None
        self._stop, self._console = stop, console
        for number, code in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, code)

    def _on_signal(self, code: ExitCode) -> None:
        if self.code is not None:
            self._console.show_cursor()  # a live display may have hidden it
            os._exit(code)
        self.code = code
        self._stop.set()


def dial_all(
    plans: Sequence[CallPlan], *, concurrency: int, console: Console
) -> tuple[list[CallOutcome], ExitCode | None]:
    """Run the calls with live progress; return the outcomes, and 130 or 143 if stopped."""
    from vakforge_probe.campaign import run_campaign
    from vakforge_probe.net.loop import new_event_loop

    async def go() -> tuple[list[CallOutcome], ExitCode | None]:
        stop = asyncio.Event()
        stopper = _Stopper(asyncio.get_running_loop(), stop, console)
        with _progress(console, len(plans)) as show:
            outcomes = await run_campaign(
                plans, concurrency=concurrency, on_progress=show, stop=stop
            )
        return outcomes, stopper.code

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(go())


def _progress(console: Console, planned: int) -> AbstractContextManager[Callable[[Progress], None]]:
    if console.is_terminal and not console.is_dumb_terminal and not console.quiet:
        return _LiveProgress(console, planned)
    return nullcontext(_PlainProgress(console))


class _PlainProgress:
    """One line for each finished call: what a log wants."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0

    def __call__(self, progress: Progress) -> None:
        if progress.done > self._told:
            self._told = progress.done
            failed = f", {progress.failed} failed" if progress.failed else ""
            self._console.print(f"calls {progress.done}/{progress.planned}{failed}", markup=False)


class _LiveProgress(AbstractContextManager[Any]):
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
        failed = f" ({progress.failed} failed)" if progress.failed else ""
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
    is_demo: bool = False,
) -> ExitCode:
    """Write the report of a run's captures, print it, and return the run's exit code.

    What the demo's agent missed, or this machine could not judge of it, is told and no error.
    """
    from vakforge_eval.capture.format import INDEX
    from vakforge_probe.cli.table import print_call, print_summary
    from vakforge_probe.cli.verdict import judge, told

    problems = [str(o.recorder_problem) for o in outcomes if o.recorder_problem is not None]
    captures = [o.capture for o in outcomes if (o.capture / INDEX).is_file()]
    if not captures:
        why = "nothing was recorded" if outcomes else "stopped before a call was made"
        code = stopped or ExitCode.INVALID
        complain([*problems, f"{why} (exit code {int(code)})"])
        if as_json:
            print_json({"error": {"message": why, "exit_code": int(code)}})
        return code
    document = write_report(captures, out=folder)
    print_summary(document, console)
    print_call(captures, console)
    console.print(f"report: {folder / 'report.html'}", markup=False)
    complain(told(document, is_demo=is_demo))
    code, why = judge(document, is_demo=is_demo)
    if stopped is not None:
        code, why = stopped, f"stopped after {len(captures)} call{'s' * (len(captures) != 1)}"
    elif problems and code in (ExitCode.OK, ExitCode.PARTIAL):
        code, why = ExitCode.INVALID, f"{len(problems)} recordings are not complete"
    if code is not ExitCode.OK:
        complain([*problems, f"{why} (exit code {int(code)})"])
    if as_json:
        print_json(document)
    return code


def write_report(
    captures: Sequence[Path], *, baseline: Sequence[Path] = (), out: Path | None = None
) -> dict[str, Any]:
    """Return the report document of captures, written to `out` if that is given.

    Raises
    ------
    ConfigError
        If it cannot be written there.
    """
    from vakforge_eval.report.build import make_report

    try:
        return make_report(captures, baseline=baseline, out=out)
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written: {error.strerror}", key="--out", value=str(out)
        ) from None
