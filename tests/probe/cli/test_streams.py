"""What a shell may do to a command's streams and words ends in no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TRY = [sys.executable, "-m", "vakforge_probe"]


def test_what_the_terminal_cannot_encode_is_escaped() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*TRY, "validate", "\u2212\u2603"], capture_output=True, env=ascii_only)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"\\u2603" in done.stdout + done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_a_closed_stream_changes_no_exit_code(closed: str) -> None:
    line = f'"$@" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", *TRY, "schema", "report"], capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + "#one", "a" * 300 + ".yaml"])
def test_a_name_too_long_for_any_file_is_no_such_file(command: str, name: str) -> None:
    more = ["--target", "ws://127.0.0.1:1"] if command == "run" else []
    done = subprocess.run([*TRY, command, name, *more], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no such file or suite" in done.stdout + done.stderr
    assert len(done.stdout + done.stderr) < 1000


@pytest.mark.parametrize(
    ("command", "code"), [("report", 2), ("capture verify", 4), ("capture recover", 4)]
)
def test_a_folder_with_a_name_too_long_is_no_capture(command: str, code: int) -> None:
    done = subprocess.run([*TRY, *command.split(), "x" * 5000], capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
