"""``report``: from captures alone, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vakforge_probe.cli.table import print_summary


def test_a_run_is_told_as_a_table(cli: Any, record: Any) -> None:
    record("", "?reply_delay=0.7")
    said = cli("report", "run")
    assert said.code == 0
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0] == "no baseline: not a comparison"
    assert lines[1].split() == ["metric", "tuned", "95", "%", "interval", "n"]
    (ttfa,) = [line for line in lines if line.startswith("ttfa ")]
    assert "500 ms" in ttfa
    assert not any("\x1b" in line for line in lines)


def test_json_is_one_document_on_stdout_and_all_else_is_on_stderr(
    cli: Any, record: Any, tmp_path: Path
) -> None:
    record("", "?close_at=1")
    said = cli("report", "run", "--json", "--out", "out")
    assert said.code == 5
    assert said.document == json.loads((tmp_path / "out" / "report.json").read_text())
    assert "1 of 2 calls failed (exit code 5)" in said.err
    assert "metric" in said.err


def test_quiet_says_nothing_but_what_is_wrong(cli: Any, record: Any) -> None:
    record("", folder="good")
    record("?close_at=1", folder="bad")
    good, bad = cli("report", "good", "-q"), cli("report", "bad", "-q")
    assert (good.code, good.out, good.err) == (0, "", "")
    assert bad.code == 3
    assert bad.out == ""
    assert bad.err == "all calls failed: closed in phase call (exit code 3)\n"


def test_the_whole_report_is_printed_as_text(cli: Any, record: Any) -> None:
    record("")
    said = cli("report", "run", "--term")
    assert said.code == 0
    for section in ("Summary", "Where it got better and worse", "Breakdowns", "Provenance"):
        assert section in said.out
    assert "And when will it be delivered?" in said.out


def test_base_and_tuned_are_told_apart_by_the_captures_or_by_option(cli: Any, record: Any) -> None:
    record("?reply_delay=0.9", system="base", folder="both")
    record("", folder="both")
    record("?reply_delay=0.9", system="other", folder="old")
    by_header = cli("report", "both", "--json").document
    by_option = cli("report", "both/calls/0-tuned", "--baseline", "old", "--json").document
    for document in (by_header, by_option):
        assert document["systems"] == ["base", "tuned"]
        row = next(r for r in document["summary"] if r["metric"] == "ttfa")
        assert row["delta"] == pytest.approx(-0.4, abs=1e-6)


def test_two_systems_are_not_taken_for_one_baseline(cli: Any, record: Any) -> None:
    record("?reply_delay=0.9", system="base", folder="both")
    record("", folder="both")
    record("", folder="new")
    said = cli("report", "new", "--baseline", "both")
    assert said.code == 4
    assert "the baseline is of several systems (base, tuned)" in said.err


@pytest.mark.parametrize(
    ("query", "code", "why"),
    [
        ("", 0, ""),
        ("?refuse=503", 3, "refused in phase handshake"),
        ("?mute=true", 3, "timeout in phase ready"),
        ("?no_reply=1", 3, "first_audio"),
        ("?fault=malformed_json&fault_at=1", 3, "protocol_error in phase call"),
        ("?abort_at=1", 3, "closed in phase call"),
    ],
)
def test_the_exit_code_is_that_of_the_run(
    cli: Any, record: Any, query: str, code: int, why: str
) -> None:
    record(query)
    said = cli("report", "run")
    assert said.code == code
    assert why in said.err


def test_what_holds_no_capture_is_exit_2(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, why in (("nowhere", "no such folder"), ("empty", "no complete capture")):
        said = cli("report", folder, "--json")
        assert said.code == 2
        assert why in said.document["error"]["message"]
        assert said.document["error"]["value"] == folder
    said = cli("report", "empty", "--baseline", "nowhere")
    assert said.code == 2


def test_a_torn_capture_says_how_it_is_finished(cli: Any, record: Any, tmp_path: Path) -> None:
    record("")
    capture = tmp_path / "run" / "calls" / "0-tuned"
    (capture / "index.json").unlink()
    said = cli("report", capture)
    assert said.code == 4
    assert "capture recover" in said.err


def test_a_place_that_cannot_be_written_is_exit_2(cli: Any, record: Any, tmp_path: Path) -> None:
    record("")
    (tmp_path / "file").touch()
    said = cli("report", "run", "--out", "file")
    assert said.code == 2
    assert "cannot be written" in said.err


# -- the terminal -----------------------------------------------------------------------------


@pytest.fixture
def document(cli: Any, record: Any) -> Any:
    record("?reply_delay=0.9", "?reply_delay=0.9", system="base")
    record("", "")
    return cli("report", "run", "--json").document


def test_no_line_folds_on_a_terminal(document: Any) -> None:
    for width in (80, 120, 200):
        console = Console(force_terminal=True, width=width, color_system=None, soft_wrap=True)
        with console.capture() as capture:
            print_summary(document, console)
        lines = capture.get().splitlines()
        assert max(map(len, lines)) <= width
        assert sum(line.startswith("ttfa") for line in lines) == 3


def test_colours_are_left_out_when_nobody_wants_them(
    document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> str:
        console = Console(force_terminal=True, width=100, color_system="standard", soft_wrap=True)
        with console.capture() as capture:
            document["summary"][1] |= {"arrow": "better"}
            print_summary(document, console)
        return capture.get()

    assert "\x1b[32m" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in shown()


def test_a_report_without_a_number_has_no_table(cli: Any, record: Any) -> None:
    record("?refuse=503")
    said = cli("report", "run")
    assert said.code == 3
    assert "Nothing was measured" in said.out
    assert "refused in phase handshake" in said.out


def test_a_single_call_is_drawn_where_the_whole_report_is_shown(cli: Any, record: Any) -> None:
    record("?reply_delay=0.3")
    whole = cli("report", "run", "--term").out
    assert "\nuser   " in whole
    assert "agent answers, 0.30 s after turn 0" in whole
    assert "agent answers" not in cli("report", "run").out
    assert "agent answers" not in cli("report", "run", "--term", "--quiet").out


def test_of_several_calls_none_is_drawn(cli: Any, record: Any) -> None:
    record("?reply_delay=0.3", "?reply_delay=0.3")
    assert "agent answers" not in cli("report", "run", "--term").out
