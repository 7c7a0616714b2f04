"""Verdicts on what a step was expected to lead to; times in ms after ready."""

from __future__ import annotations

from typing import Any

import pytest

from vakforge_eval.metrics.expectations import Status, Verdict, judge, judge_left_out
from vakforge_eval.metrics.view import CallView
from vakforge_eval.metrics.whys import why
from vakforge_eval.timeline.events import ResponseEnded
from vakforge_eval.timeline.script import Expectation, StepKind
from vakforge_eval.timeline.values import Reason

ONSET = 4000.0
"""When the user barges in or disturbs, into speech that runs from 2500 on."""


def stop(within_s: float | None = None) -> Expectation:
    return Expectation(text="stop", kind="stop", within_s=within_s)


def reply(within_s: float) -> Expectation:
    return Expectation(text="reply", kind="reply", within_s=within_s)


def mentioned(*words: str) -> Expectation:
    return Expectation(text="mentions", kind="mentions", words=list(words))


HOLD = Expectation(text="hold", kind="hold")


def interrupted(
    new_call: Any,
    *parts: Any,
    is_cut: bool = True,
    answer_ms: float | None = 6500,
    text: str = "it comes tomorrow",
    **capabilities: bool,
) -> Any:
    """Barge-in 4000-5500 into `parts` of speech; `is_cut` tells of it when they are out."""
    call = new_call(**capabilities)
    call.say(1000, 2000)
    call.reply(2500, *parts, status=None if is_cut else "completed")
    call.say(ONSET, 5500, kind=StepKind.BARGE_IN, reply_within_s=4)
    if is_cut:
        end = 2500 + 1000 * sum(map(len, parts)) / call.rate_hz
        call.event(ResponseEnded(at=call.at(end), response_id="r1", status="cancelled"))
    if answer_ms is not None:
        call.reply(answer_ms, call.tone(900), response_id="r2", text=text)
    return call


def on_turn(call: Any, expected: Expectation, ended: float = 20_000) -> Verdict:
    return judge(expected, CallView(call.build(ended)).turn_views[-1])


def on_event(call: Any, expected: Expectation = HOLD) -> Verdict:
    (event,) = CallView(call.build()).event_views
    return judge(expected, event)


@pytest.mark.parametrize(
    ("within_s", "status"), [(0.3, "pass"), (0.2, "fail"), (None, "pass"), (0.24, "indeterminate")]
)
def test_a_stop_is_held_against_its_limit(
    new_call: Any, within_s: float | None, status: Status
) -> None:
    # The tone ends at 4240, so 240 ms after the onset; the gate leaves some 0.1 ms open.
    call = interrupted(new_call, new_call().tone(1740))
    verdict = on_turn(call, stop(within_s))
    assert verdict.status == status
    assert verdict.why.startswith("stopped after 240 ms")


@pytest.mark.parametrize(("width_ms", "status"), [(0, "pass"), (60, "indeterminate")])
def test_an_error_that_holds_the_limit_decides_nothing(
    new_call: Any, width_ms: float, status: Status
) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(1740), status=None, width_ms=width_ms)
    call.event(ResponseEnded(at=call.at(4240), response_id="r1", status="cancelled"))
    call.say(ONSET, 5500, kind=StepKind.BARGE_IN, width_ms=width_ms)
    assert on_turn(call, stop(0.27)).status == status


def test_an_agent_that_talks_on_beyond_the_limit_failed(new_call: Any) -> None:
    call = interrupted(new_call, new_call().tone(12_000), is_cut=False, answer_ms=None)
    verdict = on_turn(call, stop(0.7))
    assert (verdict.status, verdict.why[:19]) == ("fail", "still talking after")
    assert on_turn(call, stop()).status == "fail"


@pytest.mark.parametrize(("within_s", "status"), [(0.7, "void"), (0.3, "fail"), (None, "void")])
def test_an_own_end_before_the_limit_shows_nothing(
    new_call: Any, within_s: float | None, status: Status
) -> None:
    # It ends by itself 500 ms after the onset: by then it had not stopped within 300 ms.
    call = interrupted(new_call, new_call().tone(2000), is_cut=False, answer_ms=None)
    assert on_turn(call, stop(within_s)).status == status


def test_a_barge_in_that_met_silence_is_void_for_all_that_was_expected(new_call: Any) -> None:
    call = interrupted(new_call, new_call().tone(500), is_cut=False)
    for expected in (stop(0.7), stop(), reply(2.0), mentioned("tomorrow")):
        assert on_turn(call, expected) == Verdict(expected.text, "void", "met silence")


def test_half_duplex_is_not_measurable(new_call: Any) -> None:
    call = interrupted(new_call, new_call().tone(1740), barge_in=False)
    assert on_turn(call, stop(0.7)).status == "not_measurable"


def test_without_ids_a_stop_that_nothing_confirms_is_indeterminate(new_call: Any) -> None:
    call = new_call(response_ids=False, response_end=False)
    call.say(1000, 2000)
    parts = (call.tone(1740), call.hush(1400), call.tone(3000))
    call.reply(2500, *parts, response_id=None)
    call.say(ONSET, 5500, kind=StepKind.BARGE_IN)
    verdict = on_turn(call, stop(0.7))
    assert (verdict.status, verdict.why) == (
        "indeterminate",
        "got words of which nothing tells whether they are new",
    )


@pytest.mark.parametrize(("limit", "status"), [(1.1, "pass"), (0.9, "fail")])
def test_the_answer_to_an_interruption_counts_from_its_end(
    new_call: Any, limit: float, status: Status
) -> None:
    verdict = on_turn(interrupted(new_call, new_call().tone(1740)), reply(limit))
    assert (verdict.status, verdict.why) == (status, "replied after 1000 ms")


def said(new_call: Any, reply_ms: float | None, text: str = "ok", **how: Any) -> Any:
    call = new_call()
    call.say(1000, 2000, reply_within_s=4, **how)
    if reply_ms is not None:
        call.reply(reply_ms, call.tone(1500), text=text)
    return call


@pytest.mark.parametrize(
    ("reply_ms", "limit", "status"),
    [(2500, 0.6, "pass"), (2500, 0.4, "fail"), (None, 3.0, "fail"), (None, 5.0, "indeterminate")],
)
def test_a_reply_is_held_against_its_limit(
    new_call: Any, reply_ms: float | None, limit: float, status: Status
) -> None:
    assert on_turn(said(new_call, reply_ms), reply(limit)).status == status


def test_the_rest_of_interrupted_speech_without_ids_is_no_reply_before_the_end(
    new_call: Any,
) -> None:
    call = new_call(response_ids=False, response_end=False)
    call.say(1000, 2000)
    # The rest is heard from 4840 to 6040: too long for a backchannel of the agent.
    rest = (call.tone(1740), call.hush(600), call.tone(1200))
    call.reply(2500, *rest, response_id=None)
    call.say(ONSET, 6500, kind=StepKind.BARGE_IN, reply_within_s=4)
    # 1760 ms after the last of it, so it is another response.
    call.reply(7800, call.tone(900), response_id=None)
    verdict = on_turn(call, reply(2))
    assert (verdict.status, verdict.why) == ("pass", "replied after 1300 ms")


def test_talking_over_the_user_is_no_reply_in_time(new_call: Any) -> None:
    verdict = on_turn(said(new_call, 1500), reply(2.0))
    assert (verdict.status, verdict.why) == ("fail", "replied 500 ms before the user had ended")


@pytest.mark.parametrize(
    ("text", "status"),
    [("On Friday.", "pass"), ("On Monday.", "fail"), ("", "not_measurable")],
)
def test_one_of_the_words_must_stand_in_the_reply(new_call: Any, text: str, status: Status) -> None:
    call = said(new_call, 2500, text)
    assert on_turn(call, mentioned("Thursday", "friday")).status == status


def test_a_reply_that_never_came_mentions_nothing(new_call: Any) -> None:
    assert on_turn(said(new_call, None), mentioned("x")) == Verdict("mentions", "fail", "no reply")


def test_a_reply_that_was_not_over_may_still_have_held_the_word(new_call: Any) -> None:
    call = said(new_call, 2500, "On")
    assert on_turn(call, mentioned("Friday"), ended=3000).status == "indeterminate"
    assert on_turn(call, mentioned("on"), ended=3000).status == "pass"


def disturbed(new_call: Any, *lengths: float, kind: StepKind, **how: Any) -> Any:
    """The agent speaks, pauses, speaks … from 2500 on; the event comes at 4000."""
    call = new_call()
    call.say(1000, 2000)
    parts = [call.hush(n) if i % 2 else call.tone(n) for i, n in enumerate(lengths)]
    call.reply(2500, *parts, **how)
    call.say(ONSET, ONSET if kind is StepKind.SHAM else 4400, kind=kind)
    return call


KINDS = pytest.mark.parametrize(
    "kind", [StepKind.BACKCHANNEL, StepKind.NOISE, StepKind.SIDE_TALK, StepKind.SHAM]
)


@KINDS
def test_talking_on_holds(new_call: Any, kind: StepKind) -> None:
    verdict = on_event(disturbed(new_call, 5000, kind=kind))
    assert verdict == Verdict("hold", "pass", "talked on")


@KINDS
def test_a_stop_does_not_hold(new_call: Any, kind: StepKind) -> None:
    call = disturbed(new_call, 1800, kind=kind, status=None)
    call.event(ResponseEnded(at=call.at(4300), response_id="r1", status="cancelled"))
    assert on_event(call) == Verdict("hold", "fail", "the agent stopped")


def test_a_stutter_holds_and_is_told(new_call: Any) -> None:
    verdict = on_event(disturbed(new_call, 1800, 500, 4000, kind=StepKind.BACKCHANNEL))
    assert verdict == Verdict("hold", "pass", "stuttered")


def test_a_disturbance_of_nobody_is_void(new_call: Any) -> None:
    assert on_event(disturbed(new_call, 1000, kind=StepKind.NOISE)).status == "void"


def test_what_a_step_cannot_show_is_not_measurable(new_call: Any) -> None:
    call = disturbed(new_call, 5000, kind=StepKind.NOISE)
    for expected in (stop(), reply(1.0), mentioned("x")):
        assert on_event(call, expected).status == "not_measurable"
    assert on_turn(said(new_call, 2500), HOLD).status == "not_measurable"
    assert on_turn(said(new_call, 2500), stop()).status == "not_measurable"


@pytest.mark.parametrize("name", [*Reason, "silent", "ended", "no_agent_speech", "no_tool_call"])
def test_every_reason_is_told_in_more_than_its_own_name(name: str) -> None:
    assert why(name) != name.replace("_", " ")
    assert len(why(name).split()) > 1


def test_what_was_left_out_is_void_for_its_reason() -> None:
    words = "was left out, since the agent did not speak so long"
    assert judge_left_out(HOLD, "no_agent_speech") == Verdict("hold", "void", words)
