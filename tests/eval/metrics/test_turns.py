from __future__ import annotations

from typing import Any

import pytest

from vakforge_eval.metrics.turns import GREETING, Role, Turns
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.events import (
    ResponseEnded,
    ResponseStarted,
    SpeechStopped,
    TextDelta,
)
from vakforge_eval.timeline.script import StepKind

REPLY, GREET, CARRY = Role.REPLY, Role.GREETING, Role.CARRY_OVER
BACKCHANNEL, UNSOLICITED = Role.AGENT_BACKCHANNEL, Role.UNSOLICITED


def turns_of(call: Any, ended: float = 20_000) -> Turns:
    return CallView(call.build(ended)).turns


def roles(turns: Turns) -> dict[int, list[tuple[str | None, Role]]]:
    return {
        turn.index: [(h.segment.response_id, h.role) for h in turn.segments]
        for turn in (turns.greeting, *turns.turns)
        if turn.segments
    }


def test_a_segment_before_the_first_word_of_the_user_is_the_greeting(new_call: Any) -> None:
    call = new_call()
    call.reply(200, call.tone(700), response_id="hello")
    call.say(1500, 2500)
    call.reply(3000, call.tone(700))
    assert roles(turns_of(call)) == {GREETING: [("hello", GREET)], 0: [("r1", REPLY)]}


def test_a_greeting_that_goes_on_after_the_user_began_stays_the_greeting(new_call: Any) -> None:
    call = new_call()
    call.reply(200, call.tone(700), call.hush(900), call.tone(700), response_id="hello")
    call.say(1500, 2500)
    assert roles(turns_of(call)) == {GREETING: [("hello", GREET), ("hello", CARRY)]}


def test_audio_of_a_response_that_was_audible_before_belongs_to_the_old_turn(
    new_call: Any,
) -> None:
    call = new_call()
    call.say(1000, 2000)
    # r1 is audible 2500-3500 and again from 4200 on, after the user's next word at 4000.
    call.reply(2500, call.tone(1000), call.hush(700), call.tone(1500))
    call.say(4000, 5000, kind=StepKind.BARGE_IN)
    call.reply(6000, call.tone(500), response_id="r2")
    turns = turns_of(call)
    assert roles(turns) == {0: [("r1", REPLY), ("r1", CARRY)], 1: [("r2", REPLY)]}
    assert len(turns.turns[0].reply) == 2


def test_audio_of_a_response_cancelled_before_belongs_to_the_old_turn(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(ResponseStarted(at=call.at(2300), response_id="r1"))
    call.event(ResponseEnded(at=call.at(2400), response_id="r1", status="cancelled"))
    call.say(3000, 4000)
    # The server goes on sending what it had cancelled; no flush told the client.
    for k in range(40):
        call.audio_at(4200 + 20 * k, call.tone(20))
    call.reply(5500, call.tone(500), response_id="r2")
    assert roles(turns_of(call)) == {0: [("r1", CARRY)], 1: [("r2", REPLY)]}


def test_without_ids_audio_that_runs_across_the_users_start_belongs_to_the_old_turn(
    new_call: Any,
) -> None:
    call = new_call(response_ids=False)
    call.say(1000, 2000)
    call.reply(2500, call.tone(2000), response_id=None)
    call.say(3500, 5000)
    call.reply(5500, call.tone(500), response_id=None)
    turns = turns_of(call)
    assert roles(turns) == {0: [(None, REPLY)], 1: [(None, REPLY)]}


def test_a_short_sound_inside_of_the_users_turn_is_a_backchannel(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 4000)
    call.reply(2000, call.tone(999), response_id="mhm")
    call.reply(4500, call.tone(700))
    turns = turns_of(call)
    assert roles(turns) == {0: [("mhm", BACKCHANNEL), ("r1", REPLY)]}
    first = turns.turns[0].first_reply
    assert first is not None
    assert (first.segment.response_id, first.is_early) == ("r1", False)


@pytest.mark.parametrize(("start", "length"), [(2000, 1001), (3500, 700)])
def test_a_sound_inside_of_the_users_turn_that_lasts_or_goes_on_is_an_early_reply(
    new_call: Any, start: float, length: float
) -> None:
    call = new_call()
    call.say(1000, 4000)
    call.reply(start, call.tone(length))
    first = turns_of(call).turns[0].first_reply
    assert first is not None
    assert (first.is_early, first.is_premature) == (True, False)


def test_an_early_reply_in_a_scripted_pause_is_a_premature_endpoint(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 5000, pause=(2000, 3500))
    call.reply(2400, call.tone(1500))
    first = turns_of(call).turns[0].first_reply
    assert first is not None
    assert (first.is_early, first.is_premature) == (True, True)


def test_a_reply_may_come_in_several_segments(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(600), call.hush(500), call.tone(600))
    call.reply(6000, call.tone(600), response_id="r2")
    turn = turns_of(call).turns[0]
    # r2 was born at 6000, 1.8 s after the last word at 4200.
    assert [s.response_id for s in turn.reply] == ["r1", "r1", "r2"]


def test_a_segment_long_after_the_reply_is_unsolicited(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(600))
    # The last word was heard at 3100; 3.0 s later nothing was owed.
    call.reply(6101, call.tone(600), response_id="still_there")
    turn = turns_of(call).turns[0]
    assert [h.role for h in turn.segments] == [REPLY, UNSOLICITED]
    assert [s.response_id for s in turn.reply] == ["r1"]


@pytest.mark.parametrize(("start", "role"), [(6099, REPLY), (6101, UNSOLICITED)])
def test_the_limit_of_unsolicited_is_three_seconds(new_call: Any, start: float, role: Role) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(600))
    call.reply(start, call.tone(600), response_id="r2")
    assert turns_of(call).turns[0].segments[-1].role is role


def test_a_segment_whose_response_was_pending_is_no_afterthought(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(600))
    call.event(ResponseStarted(at=call.at(3000), response_id="r2"))
    call.reply(8000, call.tone(600), response_id="r2")
    assert turns_of(call).turns[0].segments[-1].role is REPLY


def test_a_segment_after_a_slow_tool_is_a_reply(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(600), response_id="filler")
    call.tool(2600, 7000)
    call.reply(7500, call.tone(600), response_id="answer")
    turn = turns_of(call).turns[0]
    assert [h.role for h in turn.segments] == [REPLY, REPLY]


def test_a_slow_first_reply_is_a_reply(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(SpeechStopped(at=call.at(2300)))
    call.reply(7000, call.tone(600))
    assert roles(turns_of(call)) == {0: [("r1", REPLY)]}


def test_asking_whether_the_user_is_still_there_is_no_reply_to_what_was_not_noticed(
    new_call: Any,
) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(7000, call.tone(600), response_id="still_there")
    assert roles(turns_of(call)) == {0: [("still_there", UNSOLICITED)]}
    blind = new_call(server_vad_events=False)
    blind.say(1000, 2000)
    blind.reply(7000, blind.tone(600))
    assert roles(turns_of(blind)) == {0: [("r1", REPLY)]}


def test_background_steps_open_no_turn_and_are_kept(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(3000))
    for k, kind in enumerate((StepKind.BACKCHANNEL, StepKind.NOISE, StepKind.SIDE_TALK)):
        call.say(3000 + 500 * k, 3200 + 500 * k, kind=kind)
    call.say(5000, 5000, kind=StepKind.SHAM)
    turns = turns_of(call)
    assert len(turns.turns) == 1
    assert [u.kind for u in turns.background] == ["backchannel", "noise", "side_talk", "sham"]


@pytest.mark.parametrize("kind", [StepKind.BARGE_IN, StepKind.CORRECTION, StepKind.DTMF])
def test_each_floor_taking_step_opens_a_turn(new_call: Any, kind: StepKind) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.say(4000, 5000, kind=kind)
    turns = turns_of(call).turns
    assert [(t.index, t.step, t.kind) for t in turns] == [(0, 0, "say"), (1, 1, kind)]


def test_utterances_split_only_by_scripted_pauses_are_one_turn(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.pause_step()
    call.say(2800, 3800, anchor="after previous")
    call.reply(2200, call.tone(1500))
    turns = turns_of(call).turns
    assert len(turns) == 1
    assert (turns[0].start, turns[0].end) == (call.at(1000), call.at(3800))
    first = turns[0].first_reply
    assert first is not None
    assert first.is_premature


def test_a_barge_in_after_a_pause_step_is_a_turn_of_its_own_and_is_followed(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2200, call.tone(1800))
    call.pause_step()
    call.say(3500, 5000, kind=StepKind.BARGE_IN, anchor="after previous")
    view = CallView(call.build())
    assert [turn.kind for turn in view.turns.turns] == ["say", "barge_in"]
    reaction = view.turn_views[-1].reaction
    assert reaction is not None
    assert reaction.void is None


def test_a_pause_that_waits_for_the_agent_splits_turns(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.pause_step("after agent end")
    call.say(6000, 7000, anchor="after previous")
    call.say(9000, 9500, anchor="after previous")
    assert len(turns_of(call).turns) == 3


def test_an_interruption_and_a_tool_call_lose_no_turn(new_call: Any) -> None:
    call = new_call()
    for k in range(6):
        call.say(3000 * k + 100, 3000 * k + 1000, kind=StepKind.BARGE_IN if k == 3 else "say")
        call.reply(3000 * k + 1500, call.tone(700), response_id=f"r{k}")
    call.tool(7200, 7400)
    turns = turns_of(call).turns
    assert [[s.response_id for s in t.reply] for t in turns] == [[f"r{k}"] for k in range(6)]


def test_replies_are_never_paired_by_their_order(new_call: Any) -> None:
    call = new_call()
    for k in range(3):
        call.say(5000 * k, 5000 * k + 1000)
    # The first turn gets nothing: the later replies must not move up.
    call.reply(6500, call.tone(700), response_id="second")
    call.reply(11_500, call.tone(700), response_id="third")
    replies = [[s.response_id for s in t.reply] for t in turns_of(call).turns]
    assert replies == [[], ["second"], ["third"]]


def test_a_response_cancelled_before_it_was_heard_is_discarded(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2300, call.hush(60), call.tone(700), response_id="gone", pace=0, status="cancelled")
    call.flush(2310, "gone")
    call.reply(3000, call.tone(700), response_id="r2")
    turns = turns_of(call)
    assert [r.response_id for r in turns.discarded] == ["gone"]
    assert [s.response_id for s in turns.turns[0].reply] == ["r2"]


def test_a_reply_below_the_gate_is_unheard_not_discarded(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(700, 20), response_id="quiet")
    turns = turns_of(call)
    assert turns.discarded == ()
    assert [r.response_id for r in turns.turns[0].unheard] == ["quiet"]


def test_a_reply_in_text_alone_belongs_to_its_turn(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(TextDelta(at=call.at(2500), response_id="r1", text="hi"))
    assert [r.response_id for r in turns_of(call).turns[0].unheard] == ["r1"]


def test_every_segment_is_in_exactly_one_turn(new_call: Any) -> None:
    call = new_call()
    call.reply(100, call.tone(500), response_id="g")
    call.say(1000, 2500)
    call.reply(1500, call.tone(400), response_id="mhm")
    call.reply(3000, call.tone(500), call.hush(3500), call.tone(500))
    call.say(5000, 6000, kind=StepKind.BARGE_IN)
    call.reply(11_000, call.tone(500), response_id="late")
    view = CallView(call.build())
    placed = [h.segment for t in (view.turns.greeting, *view.turns.turns) for h in t.segments]
    assert sorted(s.start.when.at for s in placed) == [
        s.start.when.at for s in view.hearing.segments
    ]


def test_a_call_in_which_nobody_spoke_has_no_turn(new_call: Any) -> None:
    turns = turns_of(new_call())
    assert (turns.turns, turns.greeting.segments) == ((), [])
