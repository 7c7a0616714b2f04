"""Agents that name no responses, or name them oddly; times in ms after ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vakforge_eval.metrics.latency import (
    dead_air_max,
    leading_silence,
    rtf,
    total_response,
    ttfa,
    ttfa_heard,
    ttft,
)
from vakforge_eval.metrics.overlap import agent_interruptions
from vakforge_eval.metrics.reaction import Fate
from vakforge_eval.metrics.turns import GREETING, Role
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.events import Interrupt, ResponseEnded
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Flag, Measured, Reason, Undefined

BARGE_IN, SAY = StepKind.BARGE_IN, StepKind.SAY
CARRY, REPLY = Role.CARRY_OVER, Role.REPLY
RAW = {"response_ids": False, "response_end": False, "server_vad_events": False}
AMBIGUOUS = Undefined(Reason.STOP_AMBIGUOUS)


def spoken(call: Any, *spans: tuple[float, float], stream: bool, name: str | None = None) -> None:
    """Let the agent be audible on `spans`, silent in between; a stream sends its silence too."""
    last = 0.0
    for start, end in spans:
        if stream:
            call.reply(last, call.hush(start - last), response_id=name, status=None)
        call.reply(start, call.tone(end - start), response_id=name, status=None)
        last = end
    if stream:
        call.reply(last, call.hush(15_000 - last), response_id=name, status=None)


def interrupted(
    new_call: Any,
    *spans: tuple[float, float],
    stream: bool = True,
    user: tuple[float, float] = (4000, 6000),
    kind: StepKind = BARGE_IN,
    pause: tuple[float, float] | None = None,
) -> Any:
    """User 1000-2000, then from 4000 into the reply that began at 2500."""
    call = new_call(**RAW, continuous_stream=stream)
    call.say(1000, 2000)
    call.say(*user, kind=kind, pause=pause)
    spoken(call, *spans, stream=stream)
    return call


def views(call: Any) -> tuple[CallView, TurnView, TurnView]:
    view = CallView(call.build(15_000))
    first, second = view.turn_views
    return view, first, second


def roles(view: TurnView) -> list[Role]:
    return [heard.role for heard in view.turn.segments]


def ms(value: Any) -> float:
    assert isinstance(value, Measured), value
    return value.value * 1000


# -- speech without ids ---------------------------------------------------------------------------

both = pytest.mark.parametrize("stream", [True, False], ids=["stream", "turns"])


@both
@pytest.mark.parametrize("kind", [BARGE_IN, SAY])
@pytest.mark.parametrize("gap", [400, 700, 1450])
@pytest.mark.parametrize("silent", [3800, 4300])
def test_what_goes_on_under_the_users_words_is_no_early_reply(
    new_call: Any, stream: bool, kind: StepKind, gap: int, silent: int
) -> None:
    """Whether the agent drew breath as the user began, or just before."""
    spans = (2500, silent), (silent + gap, 7000), (10_000, 11_000)
    view, first, second = views(interrupted(new_call, *spans, stream=stream, kind=kind))
    assert roles(first) == [REPLY, CARRY]
    assert ms(total_response(first)) == pytest.approx(5000, abs=1)
    assert roles(second) == [REPLY]
    assert ms(ttfa_heard(second)) == pytest.approx(4000, abs=1)
    assert Flag.EARLY not in second.flags
    assert agent_interruptions(view) == Measured(0.0)


@both
def test_speech_with_many_pauses_goes_on_through_all_of_them(new_call: Any, stream: bool) -> None:
    spans = (2500, 3900), (4500, 4900), (5400, 5800), (8000, 9000)
    _, first, second = views(interrupted(new_call, *spans, stream=stream))
    assert roles(first) == [REPLY, CARRY, CARRY]
    assert roles(second) == [REPLY]
    assert ms(ttfa_heard(second)) == pytest.approx(2000, abs=1)


@both
def test_an_agent_that_holds_has_no_reply_in_what_it_holds(new_call: Any, stream: bool) -> None:
    spans = (2500, 8000), (9600, 10_500)
    _, first, second = views(interrupted(new_call, *spans, stream=stream))
    assert roles(first) == [REPLY]
    assert ms(ttfa_heard(second)) == pytest.approx(3600, abs=1)


@both
@pytest.mark.parametrize("answer", [6100, 6300, 7500])
def test_an_answer_1_5_s_after_the_stop_is_one(new_call: Any, stream: bool, answer: int) -> None:
    spans = (2500, 4200), (answer, 8500)
    _, first, second = views(interrupted(new_call, *spans, stream=stream))
    assert roles(first) == roles(second) == [REPLY]
    assert ms(ttfa_heard(second)) == pytest.approx(answer - 6000, abs=1)
    assert second.reaction is not None
    assert second.reaction.fate is Fate.STOPPED


@both
@pytest.mark.parametrize("silent", [5000, 6400])
@pytest.mark.parametrize("kind", [BARGE_IN, SAY])
def test_what_may_be_the_rest_or_the_reply_has_no_latency(
    new_call: Any, stream: bool, silent: int, kind: StepKind
) -> None:
    spans = (2500, silent), (silent + 1400, 9000)
    _, first, second = views(interrupted(new_call, *spans, stream=stream, kind=kind))
    assert total_response(first) == dead_air_max(first) == AMBIGUOUS
    assert ms(ttfa_heard(first)) == pytest.approx(500, abs=1)
    metrics = (ttft, ttfa, ttfa_heard, total_response, dead_air_max)
    assert [metric(second) for metric in metrics] == [AMBIGUOUS] * len(metrics)
    if not stream:
        assert leading_silence(second) == rtf(second) == AMBIGUOUS
    assert not {Flag.EARLY, Flag.NO_REPLY} & set(second.flags)


@both
def test_a_message_of_a_cut_makes_what_follows_a_reply(new_call: Any, stream: bool) -> None:
    call = interrupted(new_call, (2500, 5000), (6300, 8000), stream=stream)
    call.event(Interrupt(at=call.at(5000), response_id=None))
    _, _, second = views(call)
    assert ms(ttfa_heard(second)) == pytest.approx(300, abs=1)


@both
def test_a_quick_answer_to_who_waited_for_the_end_is_a_reply(new_call: Any, stream: bool) -> None:
    """Nothing was interrupted, so that nothing can go on, however short all of it is."""
    spans = (2500, 3800), (4700, 5600)
    call = interrupted(new_call, *spans, stream=stream, user=(4000, 4500), kind=SAY)
    _, _, second = views(call)
    assert ms(ttfa_heard(second)) == pytest.approx(200, abs=1)


@both
def test_an_early_reply_long_after_the_agents_last_word_stays_early(
    new_call: Any, stream: bool
) -> None:
    view, _, second = views(interrupted(new_call, (2500, 3900), (5500, 7500), stream=stream))
    assert Flag.EARLY in second.flags
    assert ms(ttfa_heard(second)) == pytest.approx(-500, abs=1)
    assert agent_interruptions(view) == Measured(1.0)


@both
def test_in_a_scripted_pause_nothing_tells(new_call: Any, stream: bool) -> None:
    call = interrupted(new_call, (2500, 4200), (5200, 8000), stream=stream, pause=(4800, 5600))
    view, _, second = views(call)
    assert ttfa_heard(second) == AMBIGUOUS
    assert agent_interruptions(view) == AMBIGUOUS
    assert not {Flag.EARLY, Flag.PREMATURE_ENDPOINT} & set(second.flags)
    assert second.reaction is not None
    assert second.reaction.fate is Fate.AMBIGUOUS


@both
def test_a_greeting_goes_on_too(new_call: Any, stream: bool) -> None:
    call = new_call(**RAW, continuous_stream=stream)
    call.say(1000, 3000)
    spoken(call, (300, 1200), (1900, 2500), (4100, 5100), stream=stream)
    view = CallView(call.build(15_000))
    assert [h.role for h in view.turns.greeting.segments] == [Role.GREETING, CARRY]
    assert view.turns.greeting.index == GREETING
    assert ms(ttfa_heard(view.turn_views[0])) == pytest.approx(1100, abs=1)


# -- names that are none of responses --------------------------------------------------------------

SPANS = (2500, 4200), (6600, 8000)


def renamed(call: Any, name: Any) -> Any:
    """Give each message of `call` a name by its number."""
    call.audio = [replace(m, response_id=name(i)) for i, m in enumerate(call.audio)]
    return call


@pytest.mark.parametrize("flush", [None, "stream", 0], ids=["no flush", "of it", "of all"])
def test_the_one_name_of_a_stream_names_no_response(new_call: Any, flush: Any) -> None:
    """It is heard on after a flush, and its speech is not all of the first turn."""
    call = renamed(interrupted(new_call, *SPANS), lambda i: "stream")
    if flush is not None:
        call.flush(4200, flush or None)
    _, first, second = views(call)
    assert roles(first) == roles(second) == [REPLY]
    assert ms(ttfa_heard(second)) == pytest.approx(600, abs=1)
    assert second.reaction is not None
    assert second.reaction.fate is Fate.STOPPED


def test_late_audio_of_a_response_in_a_stream_stays_dropped(new_call: Any) -> None:
    call = interrupted(new_call, (2500, 5000), (6600, 8000))
    begin, end = call.at(2500).at, call.at(5000).at
    names = ["r1" if begin <= m.arrival.at < end else None for m in call.audio]
    call = renamed(call, lambda i: names[i])
    call.flush(4200, "r1")
    _, first, second = views(call)
    assert ms(total_response(first)) == pytest.approx(2200, abs=1)
    assert ms(ttfa_heard(second)) == pytest.approx(600, abs=1)


@both
@pytest.mark.parametrize("each", [1, 2, 10])
def test_names_of_messages_name_no_response(new_call: Any, stream: bool, each: int) -> None:
    call = renamed(interrupted(new_call, *SPANS, stream=stream), lambda i: f"m{i // each}")
    call.flush(4200)
    _, first, second = views(call)
    assert roles(first) == roles(second) == [REPLY]
    assert ms(ttfa_heard(first)) == pytest.approx(500, abs=1)
    assert ms(ttfa_heard(second)) == pytest.approx(600, abs=1)


def test_responses_of_one_short_message_keep_their_names(new_call: Any) -> None:
    call = new_call()
    for i in range(5):
        call.say(1000 + 2000 * i, 1500 + 2000 * i)
        call.reply(2000 + 2000 * i, call.tone(300), response_id=f"r{i}", chunk_ms=300)
    found = CallView(call.build()).turns.turns
    assert [h.segment.response_id for t in found for h in t.segments] == [f"r{i}" for i in range(5)]


# -- some names ------------------------------------------------------------------------------------


def words(call: Any, hiss_dbfs: float | None = None) -> Any:
    """Speech of 1.6 s: words of different levels over silence, or noise."""
    levels = (8000, 2000, 400, 6000, 1000, 8000)
    parts = [p for a in levels for p in (call.tone(200, amplitude=a), call.hush(60))]
    pcm = np.concatenate(parts)
    if hiss_dbfs is not None:
        pcm = pcm + call.noise(len(pcm) * 1000 / call.rate_hz, hiss_dbfs)[: len(pcm)]
    return pcm


def mixed(new_call: Any, pcm: Any) -> Any:
    """Turn 0 is answered without a name, turn 1 with one."""
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, pcm, response_id=None)
    call.say(6000, 7000)
    call.reply(7700, call.tone(900), response_id="r1")
    return call


def test_an_answer_without_a_name_is_no_noise_between_answers_that_have_one(new_call: Any) -> None:
    call = mixed(new_call, words(new_call()))
    _, first, second = views(call)
    assert ms(ttfa_heard(first)) == pytest.approx(500, abs=1)
    assert ms(ttfa_heard(second)) == pytest.approx(700, abs=1)


def test_where_it_may_be_either_that_is_what_is_said(new_call: Any) -> None:
    call = mixed(new_call, words(new_call(), -30))
    for view in views(call)[1:]:
        assert ttfa_heard(view) == Undefined(Reason.UNNAMED_AUDIO)


def test_steady_noise_between_named_answers_stays_noise(new_call: Any) -> None:
    call = mixed(new_call, new_call().noise(2000, -30))
    assert ttfa_heard(views(call)[1]) == Undefined(Reason.NOISE_TOO_HIGH)


def test_late_audio_of_the_only_response_of_a_stream_stays_dropped(new_call: Any) -> None:
    """Its name is the only one in the call, but it was told to be cancelled while audio came."""
    call = new_call(continuous_stream=True)
    call.say(1000, 2000)
    # 800 ms of it come after the cut.
    call.reply(2000, call.hush(500), call.tone(2500), status=None)
    call.say(4000, 5500, kind=BARGE_IN)
    call.event(ResponseEnded(at=call.at(4200), response_id="r1", status="cancelled"))
    call.flush(4200, "r1")
    (segment,) = CallView(call.build()).hearing.segments
    assert abs((segment.end.when.at - call.origin) / 1e6 - 4200) < 1


def test_short_responses_whose_ends_are_told_keep_their_names(new_call: Any) -> None:
    """Three attempts of 200 ms, each cancelled for the next, then the answer."""
    call = new_call()
    call.say(1000, 2000)
    for k in range(3):
        call.reply(2500 + 250 * k, call.tone(200), response_id=f"r{k}", status="cancelled")
    call.reply(3250, call.tone(1000), response_id="r3")
    names = [s.response_id for s in CallView(call.build()).hearing.segments]
    assert names == ["r0", "r1", "r2", "r3"]
