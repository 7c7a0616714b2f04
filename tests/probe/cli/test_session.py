"""Progress on a terminal and in a log, and a run that left nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vakforge_probe.call import CallOutcome
from vakforge_probe.campaign import Progress
from vakforge_probe.cli.session import _progress, conclude
from vakforge_probe.errors import ExitCode


def shown(steps: list[Progress], **terminal: Any) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None, **terminal)
    with _progress(console, steps[0].planned) as show:
        for step in steps:
            show(step)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


STEPS = [
    Progress(planned=3, running={"a": "booking"}),
    Progress(planned=3, done=1, running={"b": "order\x1b[31m"}),
    Progress(planned=3, done=1, running={"b": "order\x1b[31m", "c": "booking"}),
    Progress(planned=3, done=3, failed=1),
]


def test_a_log_gets_a_line_for_each_finished_call() -> None:
    assert shown(STEPS).splitlines() == ["calls 1/3", "calls 3/3, 1 failed"]


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    text = shown(STEPS, force_terminal=True)
    assert "1/3" in text
    assert "booking, order" in text
    assert "(1 failed)" in text
    assert "\x1b[31m" not in text
    assert text.endswith(("\x1b[?25h", "\x1b[2K")), "the cursor is back and the line is gone"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = shown(STEPS, force_terminal=True)
    assert "\x1b" not in text
    assert text.splitlines()[-1] == "calls 3/3, 1 failed"


def test_quiet_is_quiet() -> None:
    assert shown(STEPS, force_terminal=True, quiet=True) == ""
    assert shown(STEPS, quiet=True) == ""


@pytest.mark.parametrize(
    ("stopped", "code"), [(ExitCode.INTERRUPTED, 130), (ExitCode.TERMINATED, 143), (None, 4)]
)
def test_a_run_without_a_call_is_never_green(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stopped: ExitCode | None, code: int
) -> None:
    got = conclude([], folder=tmp_path, stopped=stopped, console=Console(quiet=True), as_json=True)
    said = capsys.readouterr()
    assert got == code
    assert json.loads(said.out)["error"]["exit_code"] == code
    assert f"(exit code {code})" in said.err
    assert not (tmp_path / "report.json").exists()


def test_a_recording_that_could_not_be_completed_makes_the_run_invalid(
    record: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record("")
    whole = tmp_path / "run" / "calls" / "0-tuned"
    torn = tmp_path / "run" / "calls" / "1-tuned.partial"
    plan: Any = None
    outcomes = [
        CallOutcome(plan, whole, "hang_up", None, None),
        CallOutcome(plan, torn, "hang_up", None, "capture stopped: cannot complete"),
    ]
    code = conclude(
        outcomes, folder=tmp_path, stopped=None, console=Console(quiet=True), as_json=False
    )
    assert code is ExitCode.INVALID
    assert capsys.readouterr().err.splitlines() == [
        "capture stopped: cannot complete",
        "1 recordings are not complete (exit code 4)",
    ]
