"""Reading truth logs, and what counts for and against the probe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Censored, Flag, Measured, MetricValue, Reason, Undefined
from vakforge_probe.calibrate import Row, TruthValue, Verdict, read_truth, summarize
from vakforge_probe.errors import ConfigError


def truth(value: float, width: float = 0.0) -> TruthValue:
    return TruthValue(value=value, lo=value - width, hi=value + width)


def measured(value: float, u: float = 0.001) -> Measured:
    return Measured(value, u=(u, u))


def row(true: TruthValue | None, found: MetricValue, **facts: Any) -> Row:
    given: dict[str, Any] = {
        "metric": "ttfa", "condition": "c", "call": "a", "turn": 0, "step": 0, "is_matched": True,
        "valid": True, "flags": (), "agent_late_ns": 0,
    }  # fmt: skip
    return Row(**{**given, "truth": true, "measured": found, **facts})


@pytest.mark.parametrize(
    ("true", "found", "covered"),
    [
        (truth(0.5), measured(0.5005), True),
        (truth(0.5), measured(0.502), False),
        (truth(0.5, width=0.002), measured(0.502), True),
        (None, measured(0.5), False),
        (None, Censored(4.0), True),
        (truth(4.5), Censored(4.0), True),
        (truth(3.5), Censored(4.0), False),
        (truth(0.5), Undefined(Reason.NOISE_TOO_HIGH), None),
        (None, Undefined(Reason.NO_TEXT), None),
    ],
)
def test_a_statement_is_covered_when_it_can_be_true(
    true: TruthValue | None, found: MetricValue, covered: bool | None
) -> None:
    assert row(true, found).covered is covered


def test_what_is_not_measured_counts_against_the_share_and_not_for_the_error() -> None:
    found = summarize(
        [
            row(truth(0.5), measured(0.5002), turn=0),
            row(truth(0.5), Undefined(Reason.NOISE_TOO_HIGH), turn=1),
            row(truth(0.5), Censored(0.2), turn=2),
            row(None, Censored(4.0), turn=3),
        ]
    )
    assert (found.measured.hits, found.measured.total) == (1, 3)
    assert (found.covered.hits, found.covered.total) == (3, 3)
    assert found.error_p50 == found.error_max == pytest.approx(0.0002)
    assert found.width_p50 == pytest.approx(0.002)
    assert found.covered_at_least == pytest.approx(0.05 ** (1 / 3))


def test_spoilt_turns_are_counted_by_who_spoilt_them_and_never_used() -> None:
    bad = measured(9.0)
    good = row(truth(0.5), measured(0.5))
    found = summarize(
        [
            good,
            row(truth(0.5), bad, turn=1, valid=False, flags=(Flag.PROBE_STALLED,)),
            row(truth(0.5), bad, turn=2, agent_late_ns=2_000_001),
            row(truth(0.5), bad, turn=3, valid=False, agent_late_ns=9_000_000),
            row(None, bad, turn=4, is_matched=False),
            replace(good, metric="ttft"),
        ]
    )
    assert found.n_turns == 1
    assert found.n_invalid == 2
    assert found.n_agent_late == 1
    assert found.n_unmatched == 1
    assert found.error_max == 0.0


def test_an_empty_class_has_no_figures() -> None:
    found = summarize([])
    assert (found.n_turns, found.measured.total, found.covered.total) == (0, 0, 0)
    figures = (found.error_p50, found.error_p99, found.error_max, found.covered_at_least)
    assert figures == (None,) * 4


def turn_line(connection: str, end: int) -> dict[str, Any]:
    value = {"value": 0.5, "lo": 0.5, "hi": 0.5}
    return {"type": "turn", "connection": connection, "user_end_sample": end, "rule": "generic",
            "microphone": {"ttfa": value, "ttft": None}, "marks_late_ns": {"ttfa": 3}}  # fmt: skip


def connected(connection: str, **knobs: object) -> dict[str, Any]:
    return {"type": "connected", "connection": connection, "behaviour": knobs}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_turns_are_known_by_label_and_position(tmp_path: Path) -> None:
    log = write(
        tmp_path / "truth.jsonl",
        connected("1", label="one"),
        connected("2"),
        connected("3", label="three"),
        {"type": "sent", "connection": "1"},
        turn_line("3", 100),
        turn_line("2", 100),
        turn_line("1", 100),
        turn_line("1", 200),
    )
    assert sorted(read_truth(log).turns) == [("one", 100), ("one", 200), ("three", 100)]


def event_line(connection: str, start: int, **facts: Any) -> dict[str, Any]:
    value = {"value": 0.5, "lo": 0.5, "hi": 0.5}
    return {"type": "event", "connection": connection, "start_sample": start, "response": "r",
            "outcome": "held", "rule": None, "gap_s": None, "microphone": {"stop_heard": value},
            "marks_late_ns": {"stop_heard": 5}, **facts}  # fmt: skip


def heard_line(connection: str, *spans: list[int]) -> dict[str, Any]:
    return {"type": "heard", "connection": connection, "response": "r", "spans": spans,
            "width_ns": 0, "is_whole": True, "is_open": False}  # fmt: skip


def test_log_tells_what_was_uttered_heard_and_shared(tmp_path: Path) -> None:
    shared = {"type": "overlap", "connection": "1", "overlap_s": 1.0, "agent_overlap_s": 0.5,
              "speech_s": 3.0, "total_s": 9.0, "error_s": 0.0, "begin": [0, 0],
              "end": [9 * 10**9, 9 * 10**9]}  # fmt: skip
    log = write(
        tmp_path / "truth.jsonl",
        connected("1", label="one"),
        connected("2"),
        event_line("1", 100),
        event_line("1", 200, outcome=None),
        event_line("2", 100),
        heard_line("1", [0, 5], [7, 9]),
        heard_line("2", [0, 5]),
        shared,
    )
    found = read_truth(log)
    assert sorted(found.events) == [("one", 100), ("one", 200)]
    assert found.events["one", 200].outcome is None
    assert [voice.spans for voice in found.heard["one"]] == [((0, 5), (7, 9))]
    assert found.overlaps["one"].overlap_s == 1.0


def test_a_line_is_as_late_as_its_latest_mark_or_as_it_is_wide(tmp_path: Path) -> None:
    wide = {"value": 0.5, "lo": 0.5, "hi": 0.503}
    log = write(
        tmp_path / "truth.jsonl",
        connected("1", label="one"),
        event_line("1", 1),
        event_line("1", 2, gap_s=wide),
    )
    events = read_truth(log).events
    assert (events["one", 1].late_ns(), events["one", 2].late_ns()) == (5, 3_000_000)


@pytest.mark.parametrize(
    ("truth_", "found", "alarm"),
    [
        ("held", "held", False),
        ("held", "stuttered", False),
        ("held", "stopped", True),
        ("stuttered", "restarted", True),
        (None, "stopped", True),
        ("stopped", "restarted", False),
        ("restarted", "held", False),
    ],
)
def test_an_alarm_is_a_stop_that_was_none(truth_: str | None, found: str, alarm: bool) -> None:
    verdict = Verdict(
        "c", "a", 1, StepKind.SHAM, truth_, found, is_flagged=False, is_void=False, counts=True
    )
    assert verdict.is_alarm is alarm
    assert verdict.is_right is (truth_ == found)


@pytest.mark.parametrize(("bound", "covered"), [(0.9, True), (1.0, True), (1.0001, False)])
def test_a_bound_beyond_the_agents_own_end_is_no_truth(bound: float, covered: bool) -> None:
    assert row(None, Censored(bound), natural_end=truth(1.0)).covered is covered


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        json.dumps(event_line("1", 1, outcome="gone")),
        json.dumps(heard_line("1", [5])),
        "[]",
        '{"no": "type"}',
        '{"type": "turn", "connection": "1"}',
        json.dumps(turn_line("nobody", 1)),
        json.dumps(turn_line("1", 1)).replace("0.5", "NaN"),
    ],
)
def test_a_file_that_is_no_truth_log_is_named_with_its_line(tmp_path: Path, bad: str) -> None:
    log = write(tmp_path / "truth.jsonl", connected("1", label="one"))
    log.write_text(log.read_text("utf-8") + bad + "\n", "utf-8")
    with pytest.raises(ConfigError, match=r"truth\.jsonl:2: not a truth log"):
        read_truth(log)


def test_a_label_that_comes_twice_is_refused(tmp_path: Path) -> None:
    log = write(tmp_path / "truth.jsonl", connected("1", label="x"), connected("2", label="x"))
    with pytest.raises(ConfigError, match="one label"):
        read_truth(log)
