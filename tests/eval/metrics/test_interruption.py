"""Answers to interruptions, and stops for what is none; times in ms after ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vakforge_eval.metrics.interruption import (
    false_alarm,
    false_interruption,
    false_interruption_noise,
    false_interruption_side_talk,
    interruption_response,
    mentions,
    relevance,
    relevant_reply,
    stutter_gap,
    void_events,
)
from vakforge_eval.metrics.latency import ttfa_heard
from vakforge_eval.metrics.view import CallView, EventView, TurnView
from vakforge_eval.timeline.events import ResponseEnded, TextDelta, ToolCall
from vakforge_eval.timeline.script import ExpectedToolCall, StepKind
from vakforge_eval.timeline.values import Censored, Flag, Measured, Rate, Reason, Undefined

NOT_APPLICABLE = Undefined(Reason.NOT_APPLICABLE)
RATES = {
    StepKind.BACKCHANNEL: false_interruption,
    StepKind.NOISE: false_interruption_noise,
    StepKind.SIDE_TALK: false_interruption_side_talk,
    StepKind.SHAM: false_alarm,
}
NO_IDS = {"response_ids": False, "response_end": False}


def cancelled(call: Any, ms: float) -> None:
    call.event(ResponseEnded(at=call.at(ms), response_id="r1", status="cancelled"))


# -- answers --------------------------------------------------------------------------------------


def answered(
    new_call: Any,
    answer_ms: float | None = 6300,
    text: str = "it is tomorrow",
    *,
    begun_ms: float = 1740,
    capabilities: dict[str, bool] | None = None,
    **of_step: Any,
) -> Any:
    """Barge-in 4000-5500 into speech from 2500 on, cancelled when `begun_ms` of it are out."""
    call = new_call(**(capabilities or {}))
    call.say(1000, 2000)
    call.reply(2500, call.tone(begun_ms), status=None)
    call.say(4000, 5500, kind=StepKind.BARGE_IN, **of_step)
    cancelled(call, 2500 + begun_ms)
    if answer_ms is not None:
        call.reply(answer_ms, call.hush(100), call.tone(900), response_id="r2", text=text)
    return call


def turn_of(call: Any, ended: float = 20_000) -> TurnView:
    return CallView(call.build(ended)).turn_views[-1]


def test_the_answer_to_an_interruption_is_timed_from_its_end(new_call: Any) -> None:
    view = turn_of(answered(new_call))
    value = interruption_response(view)
    assert isinstance(value, Measured)
    assert value.value == pytest.approx(0.9, abs=0.0003)  # 6300 + 100 - 5500
    assert value == ttfa_heard(view)


def test_an_interruption_without_an_answer_is_censored_like_any_turn(new_call: Any) -> None:
    assert interruption_response(turn_of(answered(new_call, None))) == Censored(10.0)


def test_an_answer_to_what_met_nobody_is_none_to_an_interruption(new_call: Any) -> None:
    view = turn_of(answered(new_call, begun_ms=1000, relevant_words=["tomorrow"]))
    assert interruption_response(view) == Undefined(Reason.AGENT_SILENT)
    assert relevance(view) is None
    assert relevant_reply(view) == NOT_APPLICABLE


def test_another_turn_has_no_interruption_to_answer(new_call: Any) -> None:
    call = answered(new_call)
    call.say(9000, 9500)
    view = turn_of(call)
    assert interruption_response(view) == relevant_reply(view) == NOT_APPLICABLE
    assert relevance(view) is None


def test_without_ids_the_rest_of_the_interrupted_speech_is_no_answer(new_call: Any) -> None:
    call = new_call(**NO_IDS)
    call.say(1000, 2000)
    # 2500-4500, a pause, 5000-8000 while the user speaks to 5500; the answer 3 s after.
    parts = (call.tone(2000), call.hush(500), call.tone(3000))
    call.reply(2500, *parts, response_id=None)
    call.say(4000, 5500, kind=StepKind.BARGE_IN)
    call.reply(11_000, call.tone(900), response_id=None)
    value = interruption_response(turn_of(call))
    assert isinstance(value, Measured)
    assert value.value == pytest.approx(5.5, abs=0.0003)
    call.audio = [m for m in call.audio if m.arrival.at < call.at(10_000).at]
    assert interruption_response(turn_of(call)) == Censored(10.0)


def test_without_ids_an_ambiguous_stop_leaves_the_answer_ambiguous(new_call: Any) -> None:
    call = new_call(**NO_IDS)
    call.say(1000, 2000)
    call.reply(2500, call.tone(1740), call.hush(1400), call.tone(3000), response_id=None)
    call.say(4000, 5500, kind=StepKind.BARGE_IN)
    assert interruption_response(turn_of(call)) == Undefined(Reason.STOP_AMBIGUOUS)


# -- relevance ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("It arrives on Friday.", ["friday"], True),
        ("It arrives on FRIDAY!", ["Monday", "friday"], True),
        ("Fridays are fine", ["friday"], False),
        ("the ninth, of May", ["ninth of may"], True),
        ("the ninth of Mayfair", ["ninth of may"], False),
        ("Café at 7", ["café"], True),
        ("Cafe at 7", ["café"], False),
        ("ＦＲＩＤＡＹ", ["friday"], True),
        ("आपका ऑर्डर कल आएगा।", ["ऑर्डर"], True),
        ("आपका ऑर्डरों कल", ["ऑर्डर"], False),
        ("anything", ["", "?"], False),
        ("", ["friday"], False),
    ],
)
def test_a_text_mentions_whole_words_whatever_their_case_and_punctuation(
    text: str, words: list[str], found: bool
) -> None:
    assert mentions(text, words) is found


@pytest.mark.parametrize(("word", "hits"), [("tomorrow", 1), ("Friday", 0)])
def test_a_reply_is_relevant_if_it_holds_a_word_of_the_script(
    new_call: Any, word: str, hits: int
) -> None:
    view = turn_of(answered(new_call, relevant_words=[word]))
    assert relevance(view) == ("relevant" if hits else "irrelevant")
    assert relevant_reply(view) == Rate(hits, 1)


def test_text_of_the_interrupted_reply_does_not_make_the_answer_relevant(new_call: Any) -> None:
    call = answered(new_call, relevant_words=["Friday"])
    call.event(TextDelta(at=call.at(2600), response_id="r1", text="by Friday"))
    assert relevance(turn_of(call)) == "irrelevant"


@pytest.mark.parametrize(("name", "found"), [("cancel", "relevant"), ("other", "irrelevant")])
def test_the_expected_tool_makes_a_reply_relevant(new_call: Any, name: str, found: str) -> None:
    tool = ExpectedToolCall(name="cancel")
    call = answered(new_call, expect_tool=tool, capabilities={"tools": True})
    call.event(ToolCall(at=call.at(6000), call_id="c", name=name))
    assert relevance(turn_of(call)) == found


def test_a_tool_called_in_another_turn_is_not_the_expected_one(new_call: Any) -> None:
    tool = ExpectedToolCall(name="cancel")
    call = answered(new_call, expect_tool=tool, capabilities={"tools": True})
    call.event(ToolCall(at=call.at(3000), call_id="c", name="cancel"))
    assert relevance(turn_of(call)) == "irrelevant"


def test_a_script_that_names_nothing_leaves_the_reply_unchecked(new_call: Any) -> None:
    view = turn_of(answered(new_call))
    assert relevance(view) == "unchecked"
    assert relevant_reply(view) == NOT_APPLICABLE


def test_a_script_that_expects_no_tool_call_names_nothing_to_check_by(new_call: Any) -> None:
    tool = ExpectedToolCall(name="", tool_class="non_tool")
    call = answered(new_call, expect_tool=tool, capabilities={"tools": True})
    assert relevance(turn_of(call)) == "unchecked"


def test_a_reply_that_shows_no_text_is_unchecked(new_call: Any) -> None:
    view = turn_of(answered(new_call, text="", relevant_words=["Friday"]))
    assert relevance(view) == "unchecked"
    assert relevant_reply(view) == Undefined(Reason.NO_TEXT)


def test_no_reply_is_neither_relevant_nor_irrelevant(new_call: Any) -> None:
    view = turn_of(answered(new_call, None, relevant_words=["Friday"]))
    assert relevance(view) is None
    assert relevant_reply(view) == NOT_APPLICABLE


# -- false interruptions --------------------------------------------------------------------------


def disturbed(new_call: Any, *lengths: float, kind: StepKind, **how: Any) -> Any:
    """The agent speaks, pauses, speaks ... from 2500 on; the event comes at 4000."""
    names = ("barge_in", "response_ids", "response_end")
    call = new_call(**{name: how.pop(name) for name in names if name in how})
    call.say(1000, 2000)
    parts = [call.hush(n) if i % 2 else call.tone(n) for i, n in enumerate(lengths)]
    call.reply(2500, *parts, **how)
    call.say(4000, 4000 if kind is StepKind.SHAM else 4400, kind=kind)
    return call


def event_of(call: Any, ended: float = 20_000) -> EventView:
    (event,) = CallView(call.build(ended)).event_views
    return event


def rate_of(event: EventView) -> object:
    return RATES[event.kind](event)


KINDS = pytest.mark.parametrize("kind", RATES)


@KINDS
def test_talking_on_is_no_hit(new_call: Any, kind: StepKind) -> None:
    event = event_of(disturbed(new_call, 5000, kind=kind))
    assert rate_of(event) == Rate(0, 1)
    assert void_events(event) == Rate(0, 1)
    assert stutter_gap(event) == NOT_APPLICABLE


@KINDS
def test_a_stop_is_a_hit(new_call: Any, kind: StepKind) -> None:
    call = disturbed(new_call, 1800, kind=kind, status=None)
    cancelled(call, 4300)
    assert rate_of(event_of(call)) == Rate(1, 1)


@KINDS
def test_a_restart_is_a_hit(new_call: Any, kind: StepKind) -> None:
    call = disturbed(new_call, 1800, kind=kind, status=None)
    cancelled(call, 4300)
    call.reply(4700, call.tone(2000), response_id="r2")
    assert rate_of(event_of(call)) == Rate(1, 1)


@KINDS
def test_a_stutter_is_no_hit_but_visible(new_call: Any, kind: StepKind) -> None:
    event = event_of(disturbed(new_call, 1800, 500, 4000, kind=kind))
    assert rate_of(event) == Rate(0, 1)
    assert Flag.STUTTER in event.flags


def test_the_gap_of_a_stutter_runs_from_silence_to_sound(new_call: Any) -> None:
    event = event_of(disturbed(new_call, 1800, 500, 4000, kind=StepKind.BACKCHANNEL))
    value = stutter_gap(event)
    assert isinstance(value, Measured)
    assert value.value == pytest.approx(0.5, abs=0.0003)


def test_a_pause_after_a_sham_is_no_gap_that_a_disturbance_made(new_call: Any) -> None:
    event = event_of(disturbed(new_call, 1800, 500, 4000, kind=StepKind.SHAM))
    assert stutter_gap(event) == NOT_APPLICABLE


@KINDS
@pytest.mark.parametrize(
    ("length", "why"), [(1000, Reason.AGENT_SILENT), (2300, Reason.NATURAL_END)]
)
def test_what_met_no_speech_that_goes_on_is_void_and_counted(
    new_call: Any, kind: StepKind, length: float, why: Reason
) -> None:
    event = event_of(disturbed(new_call, length, kind=kind))
    assert rate_of(event) == Undefined(why)
    assert void_events(event) == Rate(1, 1)
    assert Flag.VOID in event.flags


@KINDS
def test_an_event_counts_in_the_rate_of_its_kind_only(new_call: Any, kind: StepKind) -> None:
    event = event_of(disturbed(new_call, 5000, kind=kind))
    assert [m(event) for k, m in RATES.items() if k is not kind] == [NOT_APPLICABLE] * 3


@pytest.mark.parametrize(
    ("how", "lengths", "ended", "why"),
    [
        ({"barge_in": False}, [5000], 20_000, Reason.HALF_DUPLEX),
        ({"width_ms": 30, "status": None}, [2510], 20_000, Reason.INDETERMINATE),
        ({"response_id": None, **NO_IDS}, [1800, 800, 4000], 20_000, Reason.STOP_AMBIGUOUS),
        ({"status": None}, [1800], 7200, Reason.CUT_OFF),
    ],
)
def test_what_is_not_known_is_not_counted(
    new_call: Any, how: dict[str, Any], lengths: list[float], ended: float, why: Reason
) -> None:
    event = event_of(disturbed(new_call, *lengths, kind=StepKind.BACKCHANNEL, **how), ended)
    assert false_interruption(event) == Undefined(why)
    assert void_events(event) == Rate(0, 1)


def test_noise_that_hides_speech_hides_false_interruptions(new_call: Any) -> None:
    call = disturbed(new_call, 5000, kind=StepKind.NOISE)
    call.audio_at(0, call.noise(1500, -30), response_id=None)
    event = event_of(call)
    for metric in (false_interruption_noise, void_events):
        assert metric(event) == Undefined(Reason.NOISE_TOO_HIGH)


@pytest.mark.parametrize("lengths", [[1800], [1800, 500, 4000]])
def test_audio_that_cannot_be_decoded_at_the_silence_hides_it(
    new_call: Any, lengths: list[float]
) -> None:
    call = disturbed(new_call, *lengths, kind=StepKind.BACKCHANNEL, status=None)
    k = next(k for k, m in enumerate(call.audio) if m.arrival.at == call.at(4280).at)
    call.audio[k] = replace(call.audio[k], is_corrupt=True)
    event = event_of(call)
    assert false_interruption(event) == Undefined(Reason.CORRUPT_AUDIO)
    is_stutter = len(lengths) > 1
    assert stutter_gap(event) == (Undefined(Reason.CORRUPT_AUDIO) if is_stutter else NOT_APPLICABLE)


def test_audio_that_cannot_be_decoded_where_a_stutter_ends_hides_its_gap(new_call: Any) -> None:
    call = disturbed(new_call, 1800, 500, 4000, kind=StepKind.BACKCHANNEL)
    k = next(k for k, m in enumerate(call.audio) if m.arrival.at == call.at(4800).at)
    call.audio[k] = replace(call.audio[k], is_corrupt=True)
    event = event_of(call)
    assert stutter_gap(event) == Undefined(Reason.CORRUPT_AUDIO)
    assert false_interruption(event) == Rate(0, 1)
