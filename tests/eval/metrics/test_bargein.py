"""Times to stop; times in ms after ready, the arithmetic beside each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vakforge_eval.metrics.bargein import (
    missed_interruption,
    stop_heard,
    stop_network,
    stop_reaction,
    void_barge_ins,
)
from vakforge_eval.metrics.reaction import Fate
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.call import Flush
from vakforge_eval.timeline.events import Interrupt, ResponseEnded
from vakforge_eval.timeline.instant import NS_PER_MS
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Censored, Flag, Measured, Rate, Reason, Undefined

STOPS = (stop_reaction, stop_network, stop_heard)
ALL = (*STOPS, missed_interruption)


def barged(new_call: Any, *parts: Any, kind: StepKind = StepKind.BARGE_IN, **how: Any) -> Any:
    """User 1000-2000, the agent from 2500 on, barge-in 4000-5500 with budget to 15500."""
    capabilities = {
        name: how.pop(name) for name in ("barge_in", "response_ids", "response_end") if name in how
    }
    call = new_call(**capabilities)
    call.say(1000, 2000)
    call.reply(2500, *(parts or (call.tone(15_000),)), **how)
    call.say(4000, 5500, kind=kind)
    return call


def turn_of(call: Any, ended: float = 20_000) -> TurnView:
    return CallView(call.build(ended)).turn_views[-1]


def cancelled(call: Any, ms: float) -> None:
    call.event(ResponseEnded(at=call.at(ms), response_id="r1", status="cancelled"))


def all_of(view: TurnView) -> list[object]:
    return [metric(view) for metric in STOPS]


def seconds(view: TurnView) -> list[float]:
    found = all_of(view)
    assert all(isinstance(value, Measured) for value in found), found
    return [value.value for value in found if isinstance(value, Measured)]


def exactly(*values: float) -> Any:
    return pytest.approx(values, abs=0.0003)


def test_the_gold_stop(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(1740), status=None)
    cancelled(call, 4150)
    view = turn_of(call)
    # 4150 - 4000; paced, so 2500 + 1740 - 4000 both by arrival and as heard.
    assert seconds(view) == exactly(0.15, 0.24, 0.24)
    assert missed_interruption(view) == Rate(0, 1)
    assert void_barge_ins(view) == Rate(0, 1)


def test_what_was_sent_ahead_stopped_arriving_before_the_user_began(new_call: Any) -> None:
    # 1 s messages of 6 s, each a tenth of real time: the last one begins at 2500 + 500.
    call = barged(new_call, new_call.tone(6000), pace=0.1, chunk_ms=1000)
    call.flush(4200)
    # 4200 - 4000; 3000 + 1000 - 4000.
    assert seconds(turn_of(call)) == exactly(0.2, 0.0, 0.2)
    call = barged(new_call, new_call.tone(6000), pace=0)
    call.flush(4200)
    assert seconds(turn_of(call)) == exactly(0.2, -1.48, 0.2)  # 2500 + 20 - 4000


def test_audio_that_is_sent_on_after_the_flush_counts_by_arrival_only(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(2600), status=None)  # to 5100
    call.flush(4200, "r1")
    cancelled(call, 5100)
    assert seconds(turn_of(call)) == exactly(0.2, 1.1, 0.2)


def test_the_first_message_of_several_is_the_reaction(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(1740), status=None)
    call.event(Interrupt(at=call.at(4100)))
    call.flush(4180)
    cancelled(call, 4200)
    # The flush ends what is heard, the sound that comes until 4240 does not.
    assert seconds(turn_of(call)) == exactly(0.1, 0.24, 0.18)


def test_an_interrupt_where_nothing_was_left_to_cut_is_a_reaction(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(1740), status=None)
    call.flush(4900)
    assert seconds(turn_of(call)) == exactly(0.9, 0.24, 0.24)


def test_a_stop_without_any_message_has_no_observable_reaction(new_call: Any) -> None:
    view = turn_of(barged(new_call, new_call.tone(1740), status=None))
    assert stop_reaction(view) == Undefined(Reason.NOT_OBSERVABLE)
    assert isinstance(stop_network(view), Measured)
    assert isinstance(stop_heard(view), Measured)


@pytest.mark.parametrize("pace", [0, 1.0])
def test_an_own_end_censors_every_stop_there(new_call: Any, pace: float) -> None:
    view = turn_of(barged(new_call, new_call.tone(1800), pace=pace))
    for value in all_of(view):
        assert isinstance(value, Censored)
        assert value.bound == pytest.approx(0.3, abs=0.0003)  # 2500 + 1800 - 4000


def test_an_agent_that_never_stops_censors_every_stop_at_the_budget(new_call: Any) -> None:
    view = turn_of(barged(new_call))
    assert all_of(view) == [Censored(11.5)] * 3  # 5500 + 10000 - 4000
    assert missed_interruption(view) == Rate(1, 1)
    assert Flag.MISSED_INTERRUPTION in view.flags


def test_an_agent_that_reacts_but_is_heard_beyond_the_budget_has_reacted(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(15_000), pace=0, status=None)
    cancelled(call, 4200)
    view = turn_of(call)
    reaction, network, heard = all_of(view)
    assert isinstance(reaction, Measured)
    assert reaction.value == pytest.approx(0.2)
    assert isinstance(network, Measured)
    assert network.value == pytest.approx(-1.48, abs=0.0003)
    assert heard == Censored(11.5)
    assert missed_interruption(view) == Rate(1, 1)


def test_a_silence_that_was_not_confirmed_censors_at_the_silence(new_call: Any) -> None:
    view = turn_of(barged(new_call, new_call.tone(3000), status=None), ended=6000)
    for value in all_of(view):
        assert isinstance(value, Censored)
        assert value.bound == pytest.approx(1.5, abs=0.0003)
    assert missed_interruption(view) == Undefined(Reason.CUT_OFF)


@pytest.mark.parametrize(
    ("length", "status", "ended", "found"),
    [
        (3990, None, 20_000, Rate(0, 1)),  # silent at 6490, 10 ms before the limit
        (4010, None, 20_000, Rate(1, 1)),
        (3990, "completed", 20_000, Undefined(Reason.NATURAL_END)),
        (4010, "completed", 20_000, Rate(1, 1)),
        (15_000, None, 6490, Undefined(Reason.CUT_OFF)),
        (15_000, None, 6510, Rate(1, 1)),
    ],
)
def test_an_interruption_is_missed_if_the_agent_is_heard_1_s_after_its_end(
    new_call: Any, length: float, status: str | None, ended: float, found: object
) -> None:
    view = turn_of(barged(new_call, new_call.tone(length), status=status), ended)
    assert missed_interruption(view) == found
    assert (Flag.MISSED_INTERRUPTION in view.flags) is (found == Rate(1, 1))


def test_a_stop_whose_error_straddles_the_limit_is_not_decided(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(4010), status=None, width_ms=30)
    assert missed_interruption(turn_of(call)) == Undefined(Reason.INDETERMINATE)


def test_a_barge_in_that_met_silence_is_void_and_says_so(new_call: Any) -> None:
    view = turn_of(barged(new_call, new_call.tone(1000)))
    assert [metric(view) for metric in ALL] == [Undefined(Reason.AGENT_SILENT)] * 4
    assert void_barge_ins(view) == Rate(1, 1)
    assert Flag.VOID in view.flags


def test_a_half_duplex_agent_has_no_stop(new_call: Any) -> None:
    view = turn_of(barged(new_call, barge_in=False))
    assert [metric(view) for metric in ALL] == [Undefined(Reason.HALF_DUPLEX)] * 4
    assert Flag.MISSED_INTERRUPTION not in view.flags


def test_a_caller_that_stops_the_agent_by_hand_shows_no_stop_of_the_agent(new_call: Any) -> None:
    call = barged(new_call, response_ids=True)
    call.flush(4000)
    call.commits.append(call.at(5500))
    view = turn_of(call)
    assert [metric(view) for metric in ALL] == [Undefined(Reason.NOT_OBSERVABLE)] * 4
    assert Flag.MISSED_INTERRUPTION not in view.flags


@pytest.mark.parametrize("kind", [StepKind.SAY, StepKind.CORRECTION])
def test_another_turn_has_no_stop(new_call: Any, kind: StepKind) -> None:
    view = turn_of(barged(new_call, kind=kind))
    found = [metric(view) for metric in (*ALL, void_barge_ins)]
    assert found == [Undefined(Reason.NOT_APPLICABLE)] * 5


def test_noise_that_hides_speech_hides_stops(new_call: Any) -> None:
    call = barged(new_call)
    call.audio_at(0, call.noise(1500, -30), response_id=None)
    view = turn_of(call)
    found = [metric(view) for metric in (*ALL, void_barge_ins)]
    assert found == [Undefined(Reason.NOISE_TOO_HIGH)] * 5
    assert Flag.VOID not in view.flags


def test_audio_that_cannot_be_decoded_at_the_stop_hides_it(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(1740), status=None)
    cancelled(call, 4150)
    call.audio[-1] = replace(call.audio[-1], is_corrupt=True)
    view = turn_of(call)
    assert isinstance(stop_reaction(view), Measured)
    hidden = [metric(view) for metric in (stop_network, stop_heard, missed_interruption)]
    assert hidden == [Undefined(Reason.CORRUPT_AUDIO)] * 3


def test_without_ids_what_may_be_the_rest_or_a_reply_is_ambiguous(new_call: Any) -> None:
    parts = (new_call.tone(1740), new_call.hush(1400), new_call.tone(3000))
    how: dict[str, Any] = {"response_id": None, "response_ids": False, "response_end": False}
    view = turn_of(barged(new_call, *parts, **how))
    assert [metric(view) for metric in ALL] == [Undefined(Reason.STOP_AMBIGUOUS)] * 4


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(
    ("width_ms", "gap", "expected"),
    [
        (0, 1450, Fate.NEVER_STOPPED),
        (0, 1550, Fate.STOPPED),
        (9, 1450, Fate.NEVER_STOPPED),
        (9, 1497, Fate.INDETERMINATE),
        (9, 1503, Fate.INDETERMINATE),
        (9, 1550, Fate.STOPPED),
    ],
)
def test_errors_that_straddle_the_limit_of_a_pause_withhold_the_stop(
    new_call: Any, has_ids: bool, width_ms: float, gap: float, expected: Fate
) -> None:
    call = new_call(response_ids=has_ids, response_end=has_ids)
    call.say(1000, 2000)
    name = "r1" if has_ids else None
    call.reply(2500, call.tone(1740), response_id=name, status=None, width_ms=width_ms)
    later = 4240 + gap
    call.reply(later, call.tone(15_000), response_id=name, status=None, width_ms=width_ms)
    call.say(4000, 8000, kind=StepKind.BARGE_IN)
    view = turn_of(call, ended=25_000)
    assert view.reaction is not None
    assert view.reaction.fate is expected
    found = stop_heard(view)
    if expected is Fate.INDETERMINATE:
        assert [metric(view) for metric in ALL] == [Undefined(Reason.INDETERMINATE)] * 4
    else:
        assert isinstance(found, Measured) == (expected is Fate.STOPPED)


def test_the_error_of_the_flush_is_the_error_of_the_stop(new_call: Any) -> None:
    call = barged(new_call, new_call.tone(6000), pace=0)
    call.flushes.append(replace_at(call, 4200, 8))
    value = stop_heard(turn_of(call))
    assert isinstance(value, Measured)
    assert value.u == pytest.approx((0.008, 0))


def replace_at(call: Any, ms: float, width_ms: float) -> Any:
    call.flush(ms)
    return replace(call.flushes.pop(), at=call.at(ms, width_ms))


def test_of_messages_that_share_a_stamp_the_first_one_counts_with_its_own_error(
    new_call: Any,
) -> None:
    call = barged(new_call)
    told = call.at(4300)
    call.flushes.append(Flush(replace(told, lo=told.lo - NS_PER_MS // 2), "r1"))
    call.event(ResponseEnded(at=told, response_id="r1", status="cancelled"))
    reaction = stop_reaction(turn_of(call))
    assert isinstance(reaction, Measured)
    assert reaction.value == pytest.approx(0.3, abs=1e-6)
    assert reaction.u[0] >= 0.0005
