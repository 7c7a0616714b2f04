"""``capture verify|recover``: whole, damaged and torn captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.reader import Capture


@pytest.fixture
def two(record: Any, tmp_path: Path) -> tuple[Path, Path]:
    """Two whole captures of one run."""
    record("", "")
    first, second = sorted((tmp_path / "run" / "calls").iterdir())
    return first, second


def damage(capture: Path) -> None:
    wire = capture / "user.wire"
    data = bytearray(wire.read_bytes())
    data[len(data) // 2] ^= 1
    wire.write_bytes(data)


def tear(capture: Path) -> Path:
    """Undo what completes a capture, and cut its last record in two."""
    (capture / "index.json").unlink()
    frames = capture / "frames.bin"
    frames.write_bytes(frames.read_bytes()[:-40])
    partial = capture.with_name(capture.name + ".partial")
    capture.rename(partial)
    return partial


def test_whole_captures_are_ok(cli: Any, two: Any) -> None:
    said = cli("capture", "verify", *two, "--json")
    assert said.code == 0
    assert said.document == {"captures": [{"path": str(p), "problems": []} for p in two]}
    assert [line.rpartition(": ")[2] for line in said.err.splitlines()] == ["ok", "ok"]


def test_a_run_stands_for_all_its_captures(cli: Any, two: Any) -> None:
    said = cli("capture", "verify", "run", "--json")
    assert [row["path"] for row in said.document["captures"]] == [
        f"run/calls/{path.name}" for path in two
    ]


def test_a_damaged_capture_is_exit_4_and_does_not_hide_the_next(cli: Any, two: Any) -> None:
    damage(two[0])
    said = cli("capture", "verify", *two)
    assert said.code == 4
    assert f"{two[0]}: damaged" in said.err
    assert "user.wire: SHA-256 differs" in said.err
    assert f"{two[1]}: ok" in said.out


def test_a_torn_capture_is_damaged_until_it_is_recovered(cli: Any, two: Any) -> None:
    partial = tear(two[0])
    said = cli("capture", "verify", "run", "--json")
    assert said.code == 4
    assert "capture recover" in said.document["captures"][0]["problems"][0]
    said = cli("capture", "recover", "run", "--json")
    assert said.code == 0
    torn, whole = said.document["captures"]
    assert torn["was_torn"]
    assert torn["cut_bytes"]["frames.bin"] == 24
    assert torn["path"] == f"run/calls/{two[0].name}"
    assert not whole["was_torn"]
    assert "nothing to recover" in said.err
    assert not partial.exists()
    assert Capture.open(two[0]).is_recovered
    assert cli("capture", "verify", "run").code == 0


def test_recovering_what_is_whole_changes_nothing(cli: Any, two: Any) -> None:
    before = {path.name: path.read_bytes() for path in two[0].iterdir()}
    assert cli("capture", "recover", two[0]).code == 0
    assert {path.name: path.read_bytes() for path in two[0].iterdir()} == before


def test_what_cannot_be_recovered_is_exit_4_and_does_not_hide_the_next(cli: Any, two: Any) -> None:
    partial = tear(two[0])
    (partial / "scenario.json").write_text("{")
    said = cli("capture", "recover", partial, two[1], "--json")
    assert said.code == 4
    assert "torn before the call began" in said.document["captures"][0]["error"]
    assert "was_torn" in said.document["captures"][1]


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_no_capture_is_exit_4_and_said(cli: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        said = cli("capture", command, name)
        assert said.code == 4
        assert "no capture" in said.err


def test_quiet_says_only_what_is_wrong(cli: Any, two: Any) -> None:
    damage(two[0])
    said = cli("capture", "verify", "run", "--quiet")
    assert (said.code, said.out) == (4, "")
    assert "damaged" in said.err
    assert "ok" not in said.err
