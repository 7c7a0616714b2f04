"""Exit codes as a table: nothing measured is never green, and blame is placed right."""

from __future__ import annotations

from typing import Any

import pytest

from vakforge_probe.cli.verdict import judge, told
from vakforge_probe.errors import ExitCode

CLOSED = {"kind": "closed", "phase": "call", "message": "m"}
REFUSED = {"kind": "refused", "phase": "connect", "message": "m"}
OURS = {"kind": "probe_fault", "phase": "call", "message": "m"}

SAID = {"system": "tuned", "scenario": "order", "step": 0, "kind": "say", "valid": True}
ANSWERED = SAID | {
    "flags": [],
    "metrics": {"ttfa": {"value": 0.5}, "tool_wait": {"undefined": "x"}},
}
UNANSWERED = SAID | {"flags": ["no_reply"], "metrics": {"ttfa": {"censored": 6.0}}}
INAUDIBLE = SAID | {"flags": ["not_audible"], "metrics": {"ttfa": {"undefined": "no_audio"}}}
FAILED = SAID | {"flags": ["call_failed"], "metrics": {"ttfa": {"undefined": "call_failed"}}}


def document(
    failures: list[Any],
    turns: list[Any],
    status: str = "valid",
    *,
    greeting: dict[str, Any] | None = None,
    truncated: int = 0,
) -> dict[str, Any]:
    metrics = {"setup": {"value": 0.1}, "greeting_latency": greeting or {"undefined": "x"}}
    return {
        "systems": ["tuned"],
        "calls": [{"failure": failure, "metrics": metrics} for failure in failures],
        "turns": turns,
        "verdict": {"status": status, "reasons": []},
        "provenance": {"truncated_captures": truncated},
    }


@pytest.mark.parametrize(
    ("measured", "code", "why"),
    [
        (document([None], [ANSWERED]), ExitCode.OK, ""),
        (document([None, None], [ANSWERED, UNANSWERED]), ExitCode.OK, ""),
        (document([None], [], greeting={"value": 0.4}), ExitCode.OK, ""),
        # The target's fault.
        (document([REFUSED], []), ExitCode.TARGET, "refused in phase connect"),
        (document([REFUSED, CLOSED], [FAILED]), ExitCode.TARGET, "all calls failed"),
        (document([CLOSED], [ANSWERED]), ExitCode.TARGET, "closed in phase call"),
        (document([CLOSED, OURS], [ANSWERED]), ExitCode.TARGET, "closed in phase call"),
        (document([None], [UNANSWERED] * 3), ExitCode.TARGET, "timeout in phase first_audio"),
        (document([None, CLOSED], [UNANSWERED]), ExitCode.TARGET, "any of 1 turns"),
        (
            document([None], [UNANSWERED], "nothing_measured"),
            ExitCode.TARGET,
            "timeout in phase first_audio",
        ),
        # Ours, or nobody's.
        (document([OURS], [ANSWERED]), ExitCode.INVALID, "by the probe's own fault"),
        (document([OURS, OURS], []), ExitCode.INVALID, "by the probe's own fault"),
        (document([], []), ExitCode.INVALID, "nothing was measured"),
        (document([None], []), ExitCode.INVALID, "nothing was measured"),
        (document([None], [INAUDIBLE]), ExitCode.INVALID, "nothing was measured"),
        (document([None], [UNANSWERED, INAUDIBLE]), ExitCode.INVALID, "nothing was measured"),
        (document([None], [ANSWERED], "nothing_measured"), ExitCode.INVALID, "nothing was"),
        (document([None], [ANSWERED], "invalid"), ExitCode.INVALID, "is invalid"),
        (document([None], [ANSWERED], "indeterminate"), ExitCode.INVALID, "is indeterminate"),
        (document([None], [ANSWERED], truncated=1), ExitCode.INVALID, "1 recordings stopped"),
        # What is not valid is not even partial.
        (document([None, CLOSED], [ANSWERED], "indeterminate"), ExitCode.INVALID, "indeterm"),
        (document([None, CLOSED], [ANSWERED], truncated=1), ExitCode.INVALID, "recordings"),
        (document([None, CLOSED], [ANSWERED]), ExitCode.PARTIAL, "1 of 2 calls failed"),
        (document([None, OURS, CLOSED], [ANSWERED]), ExitCode.PARTIAL, "2 of 3 calls failed"),
    ],
)
def test_the_exit_code_follows_from_what_was_measured(
    measured: dict[str, Any], code: ExitCode, why: str
) -> None:
    got, words = judge(measured)
    assert got is code
    assert why in words
    assert bool(words) == (code is not ExitCode.OK)


# -- expectations and events ----------------------------------------------------------------------


def met(**facts: Any) -> dict[str, Any]:
    """Return the row of a barge-in that the agent stopped for."""
    value = {"stop_heard": {"value": 0.4}}
    return (
        ANSWERED | {"kind": "barge_in", "step": 2, "outcome": "stopped", "metrics": value} | facts
    )


def void(outcome: str = "silent", **facts: Any) -> dict[str, Any]:
    return met(flags=["void"], outcome=outcome, metrics={"stop_heard": {"undefined": "x"}}, **facts)


def expecting(*statuses: str, **facts: Any) -> dict[str, Any]:
    verdicts = [{"expect": "stop within 0.7 s", "status": s, "why": "so"} for s in statuses]
    return met(expectations=verdicts, **facts)


@pytest.mark.parametrize(
    ("turns", "code", "why"),
    [
        ([expecting("pass")], ExitCode.OK, ""),
        (
            [expecting("pass", "fail")],
            ExitCode.MISSED,
            "1 of 2 expectations is missed: order, step",
        ),
        ([expecting("fail"), expecting("fail")], ExitCode.MISSED, "2 of 2 expectations are missed"),
        (
            [expecting("fail", "indeterminate")],
            ExitCode.MISSED,
            "(barge_in): stop within 0.7 s: so",
        ),
        (
            [expecting("pass", "indeterminate")],
            ExitCode.INVALID,
            "1 of 2 expectations is undecided",
        ),
        ([expecting("pass", "void")], ExitCode.OK, ""),
        ([expecting("pass", "not_measurable")], ExitCode.OK, ""),
        ([expecting("void", "not_measurable")], ExitCode.INVALID, "2 of 2 expectations are void"),
        # The baseline is only compared with.
        ([expecting("fail", system="base"), expecting("pass")], ExitCode.OK, ""),
        ([expecting("pass", system="base"), expecting("fail")], ExitCode.MISSED, "1 of 1"),
        # Events without expectations.
        ([ANSWERED, met(), void()], ExitCode.OK, ""),
        ([ANSWERED, void()], ExitCode.INVALID, "1 barge in met silence"),
        (
            [ANSWERED, void("ended", kind="noise"), void("anchor_missed", kind="noise")],
            ExitCode.INVALID,
            "1 noise came at another moment than meant, 1 noise met a reply that ended by itself",
        ),
        ([ANSWERED, void(), met(kind="sham")], ExitCode.INVALID, "1 barge in met silence"),
        ([ANSWERED, void(kind="sham")], ExitCode.OK, ""),
    ],
)
def test_expectations_and_events_decide_the_exit_code_of_a_valid_run(
    turns: list[Any], code: ExitCode, why: str
) -> None:
    got, words = judge(document([None], turns) | {"systems": ["base", "tuned"]})
    assert (got, why in words) == (code, True), words


def test_a_run_that_is_not_valid_or_failed_decides_nothing_on_expectations() -> None:
    assert judge(document([None], [expecting("fail")], "invalid"))[0] is ExitCode.INVALID
    assert judge(document([CLOSED], [expecting("fail")]))[0] is ExitCode.TARGET


def test_a_missed_expectation_weighs_more_than_calls_that_failed() -> None:
    assert judge(document([None, CLOSED], [expecting("fail")]))[0] is ExitCode.MISSED


@pytest.mark.parametrize("turn", [expecting("fail"), expecting("indeterminate"), void()])
def test_what_the_demo_expects_decides_no_exit_code(turn: dict[str, Any]) -> None:
    measured = document([None], [ANSWERED, turn])
    assert judge(measured)[0] is not ExitCode.OK
    assert judge(measured, is_demo=True) == (ExitCode.OK, "")


@pytest.mark.parametrize("status", ["invalid", "indeterminate", "nothing_measured"])
def test_a_demo_without_a_valid_measurement_is_not_green(status: str) -> None:
    measured = document([None], [ANSWERED], status)
    measured["verdict"]["reasons"] = ["tuned: the probe spoilt 2/9 of the turns"]
    code, why = judge(measured, is_demo=True)
    assert code is ExitCode.INVALID
    assert ("the probe spoilt 2/9" in why) == (status != "nothing_measured")


def test_the_demo_says_that_the_machine_was_too_busy_to_judge() -> None:
    busy = document([None], [expecting("pass", "fail", "indeterminate", "void")])
    assert "this machine was too busy to judge 2 of 4 expectations" in told(busy, is_demo=True)[-1]
    assert not any("too busy" in line for line in told(busy))
    missed = document([None], [expecting("pass", "fail")])
    assert not any("too busy" in line for line in told(missed, is_demo=True))


def test_a_background_utterance_is_no_turn_that_was_answered() -> None:
    noise = SAID | {"kind": "noise", "flags": ["void"], "metrics": {}, "outcome": "silent"}
    code, why = judge(document([None], [UNANSWERED, noise]))
    assert (code, why.endswith("no answer in any of 1 turns")) == (ExitCode.TARGET, True)


def test_a_share_of_nothing_is_no_measurement() -> None:
    empty = SAID | {"flags": [], "metrics": {"x": {"hits": 0, "total": 0, "value": None}}}
    assert judge(document([None], [empty]))[0] is ExitCode.INVALID


def test_what_was_left_out_for_want_of_speech_showed_nothing_either() -> None:
    left_out = [
        {"step": 1, "kind": "backchannel", "reason": "no_agent_speech"},
        {"step": 2, "kind": "sham", "reason": "no_agent_speech"},
        {"step": 3, "kind": "noise", "reason": "no_tool_call"},
    ]
    silent = document([None], [ANSWERED])
    silent["calls"][0] |= {"system": "tuned", "facts": {"skipped": left_out}}
    code, why = judge(silent)
    assert code is ExitCode.INVALID
    assert "1 backchannel was left out, since the agent did not speak so long" in why
    assert "1 noise was left out, since the agent did not call the tool" in why
    assert told(silent) == [f"void, not counted: {why.partition(': ')[2]}"]
    assert judge(silent | {"turns": [ANSWERED, met()]})[0] is ExitCode.OK
    left_out[0]["reason"] = "\x1b[2J"
    assert "\x1b" not in judge(silent)[1]


def test_what_was_expected_of_a_step_that_was_left_out_counts_as_void() -> None:
    void = [{"expect": "hold", "status": "void", "why": "was left out"}]
    step = {"step": 1, "kind": "sham", "reason": "no_agent_speech", "expectations": void}
    silent = document([None], [ANSWERED])
    silent["calls"][0] |= {"system": "tuned", "scenario": "order", "facts": {"skipped": [step]}}
    line = "order, step 1 (sham): hold: was left out"
    assert judge(silent) == (
        ExitCode.INVALID,
        f"1 of 1 expectations is void or not measurable: {line}",
    )
    assert told(silent) == [f"void: {line}"]
    silent["turns"] = [ANSWERED, expecting("pass")]
    assert judge(silent)[0] is ExitCode.OK


def test_all_that_did_not_pass_is_told_and_what_was_void_is_counted() -> None:
    turns = [expecting("pass", "fail"), expecting("void", flags=["void"], outcome="silent")]
    assert told(document([None], turns)) == [
        "fail: order, step 2 (barge_in): stop within 0.7 s: so",
        "void: order, step 2 (barge_in): stop within 0.7 s: so",
        "void, not counted: 1 barge in met silence",
    ]
    assert told(document([None], [expecting("pass"), met()])) == []


def test_with_a_baseline_it_is_told_whose_it_is() -> None:
    pair = document([None], [expecting("fail", system="base"), void()])
    assert told(pair | {"systems": ["base", "tuned"]}) == [
        "base: fail: order, step 2 (barge_in): stop within 0.7 s: so",
        "tuned: void, not counted: 1 barge in met silence",
    ]


def test_a_long_list_of_expectations_is_cut() -> None:
    lines = told(document([None], [expecting("fail", step=n) for n in range(50)]))
    assert (len(lines), lines[-1]) == (21, "… and 30 more")


def test_text_of_a_scenario_reaches_the_terminal_on_one_clean_line() -> None:
    lines = told(document([None], [expecting("fail", scenario="a\x1b[31m\nb")]))
    assert all(line.isprintable() for line in lines)
