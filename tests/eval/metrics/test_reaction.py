"""Fates of interrupted speech; times in ms after ready, the arithmetic beside each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vakforge_eval.metrics.reaction import Fate, Reaction, find_reaction
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.events import Interrupt, ResponseEnded, ResponseStarted
from vakforge_eval.timeline.instant import Edge
from vakforge_eval.timeline.script import BACKGROUND_KINDS, StepKind
from vakforge_eval.timeline.values import Flag, Reason

BARGE_IN, BACKCHANNEL = StepKind.BARGE_IN, StepKind.BACKCHANNEL
ONSET = "1500 ms after agent onset"


def asked(new_call: Any, **capabilities: bool) -> Any:
    """User 1000-2000; what the agent says begins at 2500 in the tests."""
    call = new_call(**capabilities)
    call.say(1000, 2000)
    return call


def talk(
    call: Any,
    ms: float,
    *lengths: float,
    response_id: str | None = "r1",
    status: str | None = "completed",
    **how: Any,
) -> None:
    """Let the agent speak, pause, speak ... for so long each."""
    parts = [call.hush(n) if i % 2 else call.tone(n) for i, n in enumerate(lengths)]
    call.reply(ms, *parts, response_id=response_id, status=status, **how)


def barge_in(call: Any, start: float = 4000, end: float = 5500, **how: Any) -> None:
    call.say(start, end, kind=BARGE_IN, **how)


def cancelled(call: Any, ms: float, response_id: str = "r1") -> None:
    call.event(ResponseEnded(at=call.at(ms), response_id=response_id, status="cancelled"))


def interrupted(call: Any, ms: float, response_id: str | None = None) -> None:
    """Let the server interrupt: the client drops what is queued."""
    call.event(Interrupt(at=call.at(ms), response_id=response_id))
    call.flush(ms, response_id)


def reaction_of(call: Any, ended: float = 20_000) -> Reaction:
    """Return the reaction to the last utterance."""
    view = CallView(call.build(ended))
    return find_reaction(view, view.timeline.utterances[-1])


def ms(call: Any, edge: object) -> float:
    assert isinstance(edge, Edge)
    return float((edge.when.at - call.origin) / 1e6)


def about(value: float) -> Any:
    return pytest.approx(value, abs=0.3)


def stopped_at(call: Any, at: float, ended: float = 20_000) -> Reaction:
    """Return the reaction to the last utterance, which must be a stop that is heard at `at`."""
    found = reaction_of(call, ended)
    assert found.fate is Fate.STOPPED
    assert ms(call, found.silence) == about(at)
    return found


# -- what the user met ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BARGE_IN, *sorted(BACKGROUND_KINDS)])
def test_who_speaks_into_silence_meets_nobody(new_call: Any, kind: StepKind) -> None:
    call = asked(new_call)
    talk(call, 2500, 1000)
    call.say(4000, 5500, kind=kind)
    found = reaction_of(call)
    assert (found.fate, found.void) == (Fate.SILENT, Reason.AGENT_SILENT)


def test_a_phrase_pause_of_350_ms_is_silence_and_a_shorter_one_is_speech(new_call: Any) -> None:
    fates = []
    for gap in (300, 400):
        call = asked(new_call)
        # Speech 2500-3900, the gap from 3900 on, then speech to the budget.
        talk(call, 2500, 1400, gap, 15_000)
        barge_in(call)
        fates.append(reaction_of(call).fate)
    assert fates == [Fate.NEVER_STOPPED, Fate.SILENT]


@pytest.mark.parametrize(("start", "width"), [(2510, 20), (4510, 20)])
def test_an_onset_that_lies_in_the_error_of_an_edge_may_have_met_nobody(
    new_call: Any, start: float, width: float
) -> None:
    call = asked(new_call)
    talk(call, 2500, 2000)
    barge_in(call, start, start + 1500, width_ms=width)
    found = reaction_of(call)
    assert (found.fate, found.void) == (Fate.INDETERMINATE, Reason.INDETERMINATE)


def test_what_is_to_meet_nobody_has_no_reaction(new_call: Any) -> None:
    call = asked(new_call)
    view = CallView(call.build())
    with pytest.raises(ValueError, match="no reaction to say"):
        find_reaction(view, view.timeline.utterances[0])


def test_in_noise_that_hides_speech_nothing_is_void_and_nothing_is_known(new_call: Any) -> None:
    call = asked(new_call)
    call.audio_at(0, call.noise(1500, -30), response_id=None)
    talk(call, 2500, 4000)
    barge_in(call)
    found = reaction_of(call)
    assert (found.fate, found.segment, found.void) == (Fate.INDETERMINATE, None, None)


# -- live anchors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-99, 0, 99])
def test_an_anchor_within_100_ms_of_the_onset_is_met(new_call: Any, off: float) -> None:
    call = asked(new_call)
    talk(call, 2500, 15_000)
    barge_in(call, anchor=ONSET, live=2500 + off)
    assert reaction_of(call).fate is Fate.NEVER_STOPPED


@pytest.mark.parametrize("off", [-101, 101])
@pytest.mark.parametrize("kind", [BARGE_IN, BACKCHANNEL, StepKind.SHAM])
def test_a_live_anchor_more_than_100_ms_from_the_onset_is_missed(
    new_call: Any, off: float, kind: StepKind
) -> None:
    call = asked(new_call)
    talk(call, 2500, 15_000)
    call.say(4000, 5500, kind=kind, anchor=ONSET, live=2500 + off)
    found = reaction_of(call)
    assert (found.fate, found.void) == (Fate.ANCHOR_MISSED, Reason.ANCHOR_MISSED)


@pytest.mark.parametrize("anchor", ["after agent end", "-300 ms after agent end", "after greeting"])
def test_an_anchor_at_an_end_is_looked_for_among_the_ends(new_call: Any, anchor: str) -> None:
    for live, is_missed in ((4500, False), (2500, True)):
        call = asked(new_call)
        talk(call, 2500, 2000)
        barge_in(call, 4200, 5700, anchor=anchor, live=live)
        assert (reaction_of(call).fate is Fate.ANCHOR_MISSED) is is_missed


@pytest.mark.parametrize("anchor", ["4 s", "1 s after previous", "after tool call look_up"])
def test_an_anchor_that_is_not_heard_cannot_be_missed(new_call: Any, anchor: str) -> None:
    call = asked(new_call)
    talk(call, 2500, 15_000)
    barge_in(call, anchor=anchor, live=9000)
    assert reaction_of(call).fate is Fate.NEVER_STOPPED


def test_an_anchor_that_was_never_heard_live_cannot_be_missed(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 15_000)
    barge_in(call, anchor=ONSET, live=None)
    assert reaction_of(call).fate is Fate.NEVER_STOPPED


def test_many_events_look_the_journal_through_once(new_call: Any) -> None:
    class Counted(tuple[Any, ...]):
        n_times = 0

        def __iter__(self) -> Any:
            Counted.n_times += 1
            return super().__iter__()

    call = asked(new_call)
    talk(call, 2500, 15_000)
    for k in range(20):
        call.say(3000 + 100 * k, 3050 + 100 * k, kind=BACKCHANNEL, anchor=ONSET, live=2500)
    timeline = call.build()
    view = CallView(replace(timeline, journal=Counted(timeline.journal)))
    assert {event.reaction.fate for event in view.event_views} == {Fate.HELD}
    assert Counted.n_times == 1


# -- stops of a barge-in --------------------------------------------------------------------------


def test_a_cancelled_response_has_stopped_where_it_falls_silent(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1740, status=None)
    barge_in(call)
    cancelled(call, 4200)
    found = reaction_of(call)
    assert found.fate is Fate.STOPPED
    assert found.evidence == found.reacted == call.at(4200)
    # 2500 + 1740, paced: heard when it arrives.
    assert ms(call, found.silence) == ms(call, found.silence_arrival) == about(4240)


def test_a_flush_stops_what_was_sent_ahead_where_it_falls(new_call: Any) -> None:
    call = asked(new_call)
    # Ten seconds at once, called completed at 2500: only the flush tells of a cut.
    talk(call, 2500, 10_000, pace=0)
    barge_in(call)
    call.flush(4200)
    found = stopped_at(call, 4200)
    # By arrival all was there before the user began.
    assert ms(call, found.silence_arrival) == about(2520)


def test_a_flush_within_a_phrase_pause_stops_at_the_pause(new_call: Any) -> None:
    call = asked(new_call)
    # Silent from 4100; the rest would come at 4600.
    talk(call, 2500, 1600, 500, 3000, pace=0)
    barge_in(call)
    interrupted(call, 4400)
    stopped_at(call, 4100)


def test_silence_of_1_5_s_is_a_stop_without_any_message(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1740, status=None)
    barge_in(call)
    talk(call, 6200, 1000, response_id="r2")
    found = reaction_of(call)
    assert (found.fate, found.evidence, found.reacted) == (Fate.STOPPED, None, None)
    assert ms(call, found.silence) == about(4240)


def test_a_message_that_comes_too_late_to_be_the_reason_confirms_nothing(new_call: Any) -> None:
    fates = []
    for late in (490, 510):
        call = asked(new_call)
        talk(call, 2500, 1740, status=None)
        barge_in(call)
        cancelled(call, 4240 + late)
        fates.append(reaction_of(call, ended=5600).fate)
    assert fates == [Fate.STOPPED, Fate.UNCONFIRMED]


def test_a_message_before_the_user_began_is_no_evidence(new_call: Any) -> None:
    call = asked(new_call)
    call.event(Interrupt(at=call.at(3900), response_id="r1"))
    talk(call, 2500, 15_000)
    barge_in(call)
    found = reaction_of(call)
    assert (found.fate, found.evidence) == (Fate.NEVER_STOPPED, None)


def test_a_new_response_does_not_undo_a_stop(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1740, status=None)
    barge_in(call)
    cancelled(call, 4240)
    talk(call, 4500, 3000, response_id="r2")
    stopped_at(call, 4240)


@pytest.mark.parametrize("gap", [360, 800, 1200, 1490])
def test_a_phrase_pause_is_no_stop(new_call: Any, gap: float) -> None:
    call = asked(new_call)
    talk(call, 2500, 1900, gap, 15_000)
    barge_in(call)
    found = reaction_of(call)
    assert (found.fate, found.silence) == (Fate.NEVER_STOPPED, None)


def test_sound_that_goes_on_after_the_message_stops_where_it_is_last_heard(new_call: Any) -> None:
    call = asked(new_call)
    # Cancelled at 4200, but what was sent goes on: 2500-4500, 5000-6500.
    talk(call, 2500, 2000, 500, 1500, status=None)
    barge_in(call, 4000, 5500)
    cancelled(call, 4200)
    found = reaction_of(call)
    assert found.fate is Fate.STOPPED
    assert found.reacted == call.at(4200)
    assert ms(call, found.silence) == about(6500)


def test_late_audio_of_a_cancelled_response_is_not_heard_but_still_arrives(new_call: Any) -> None:
    call = asked(new_call)
    # Paced to 5000; the client drops all from 4200 on.
    talk(call, 2500, 2500, status=None)
    barge_in(call)
    interrupted(call, 4200, "r1")
    found = reaction_of(call)
    assert ms(call, found.silence) == about(4200)
    assert ms(call, found.silence_arrival) == about(5000)


# -- natural ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pace", [0, 0.1, 1.0])
def test_a_reply_that_comes_to_its_own_end_did_not_stop(new_call: Any, pace: float) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, pace=pace)
    barge_in(call)
    talk(call, 6500, 1000, response_id="r2")
    found = reaction_of(call)
    assert found.fate is Fate.ENDED
    assert ms(call, found.silence) == about(4300)
    assert found.until == found.silence.when.at if found.silence else None


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_any_end_but_a_cancelled_one_is_an_own_end(new_call: Any, status: str) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, status=status)
    barge_in(call)
    assert reaction_of(call).fate is Fate.ENDED


def test_an_interrupt_of_what_was_over_cut_nothing(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800)  # called completed at 4280
    barge_in(call)
    interrupted(call, 4500)
    assert reaction_of(call).fate is Fate.ENDED


def test_a_flush_that_takes_only_trailing_silence_cut_nothing(new_call: Any) -> None:
    call = asked(new_call)
    # All sent at 2500; speech to 4300, silence to 5300.
    talk(call, 2500, 1800, 1000, pace=0)
    barge_in(call)
    call.flush(4600)
    assert reaction_of(call).fate is Fate.ENDED


def test_a_reply_without_an_end_of_its_own_was_stopped(new_call: Any) -> None:
    call = asked(new_call, response_end=False)
    talk(call, 2500, 1800, status=None)
    barge_in(call)
    assert reaction_of(call).fate is Fate.STOPPED


@pytest.mark.parametrize(("delay", "fate"), [(200, Fate.STOPPED), (800, Fate.ENDED)])
def test_in_the_last_300_ms_of_a_reply_the_faster_of_stop_and_end_counts(
    new_call: Any, delay: float, fate: Fate
) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, pace=0)  # ends at 4300
    barge_in(call, 4000)
    interrupted(call, 4000 + delay)
    found = reaction_of(call)
    assert found.fate is fate
    assert ms(call, found.silence) == about(4000 + min(delay, 300))


# -- what watching did not last for ---------------------------------------------------------------


def test_an_agent_that_talks_to_the_budget_never_stopped(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 15_000)
    barge_in(call, reply_within_s=3.0)
    found = reaction_of(call)
    assert (found.fate, found.until) == (Fate.NEVER_STOPPED, call.at(8500).at)


def test_a_silence_that_watching_did_not_outlast_is_not_confirmed(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 3000, status=None)
    barge_in(call)
    found = reaction_of(call, ended=6900)  # 1.4 s after the silence
    assert found.fate is Fate.UNCONFIRMED
    # It surely had not stopped before it fell silent; more is not known.
    assert found.until == found.silence.when.at if found.silence else None
    assert reaction_of(call, ended=7001).fate is Fate.STOPPED


def test_of_two_barge_ins_in_one_reply_each_has_its_own_reaction(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 6240, status=None)
    barge_in(call, 4000, 5500)
    barge_in(call, 8000, 9500)
    cancelled(call, 8740)
    first, second = (turn.reaction for turn in CallView(call.build()).turn_views[1:])
    assert first is not None
    assert second is not None
    assert (first.fate, first.until) == (Fate.NEVER_STOPPED, call.at(8000).at)
    assert second.fate is Fate.STOPPED
    assert ms(call, second.silence) == about(8740)


# -- where it falls -------------------------------------------------------------------------------


def test_the_greeting_can_be_interrupted(new_call: Any) -> None:
    call = new_call()
    talk(call, 200, 1440, response_id="hello", status=None)
    barge_in(call, 1000, 2500)
    cancelled(call, 1640, "hello")
    stopped_at(call, 1640)


def test_the_filler_before_a_tool_result_can_be_interrupted(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1700, response_id="filler", status=None)
    call.tool(2600, 6000)
    barge_in(call)
    cancelled(call, 4200, "filler")
    talk(call, 6200, 2000, response_id="answer")
    stopped_at(call, 4200)


def test_waiting_for_a_tool_inside_a_response_is_no_stop(new_call: Any) -> None:
    call = asked(new_call)
    # The filler ends at 4500, the result comes at 7000, the same response goes on at 7500.
    call.event(ResponseStarted(at=call.at(2500), response_id="r1"))
    for begin, n in ((2500, 100), (7500, 500)):
        for k in range(n):
            call.audio_at(begin + 20 * k, call.tone(20))
    call.tool(2600, 7000)
    barge_in(call)
    assert reaction_of(call, ended=30_000).fate is Fate.NEVER_STOPPED


def test_what_is_left_of_an_older_turn_can_be_interrupted(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 6700, status=None)
    barge_in(call, 4000, 5000)  # talked through
    call.say(6000, 7000)
    barge_in(call, 9000, 10_500)
    cancelled(call, 9200)
    found = reaction_of(call)
    assert found.fate is Fate.STOPPED
    assert found.segment is not None
    assert found.segment.response_id == "r1"
    assert ms(call, found.silence) == about(9200)


def test_a_continuous_stream_stops_where_its_speech_does(new_call: Any) -> None:
    call = asked(new_call, continuous_stream=True, response_ids=False, response_end=False)
    floor = [call.noise(n, -60, seed=n) for n in (2500, 2060, 6000)]
    call.reply(0, floor[0], call.tone(1940), floor[1], call.tone(1000), floor[2], response_id=None)
    barge_in(call)
    found = reaction_of(call, ended=13_000)
    assert found.fate is Fate.STOPPED
    assert ms(call, found.silence) == pytest.approx(4440, abs=3)


# -- without response ids -------------------------------------------------------------------------


def no_ids(new_call: Any) -> Any:
    return asked(new_call, response_ids=False, response_end=False)


@pytest.mark.parametrize("chunk_ms", [20, 37])
def test_without_ids_an_interrupt_tells_a_stop_from_a_pause(new_call: Any, chunk_ms: float) -> None:
    call = no_ids(new_call)
    # At 4200 nothing is queued, or the last 2 ms of a message that began at 4165.
    talk(call, 2500, 1740, response_id=None, chunk_ms=chunk_ms)
    barge_in(call)
    interrupted(call, 4200)
    talk(call, 5600, 2000, response_id=None)
    # What still comes plays on: nothing tells that it is late.
    stopped_at(call, 4240)


def test_without_ids_a_stop_is_one_even_if_new_audio_comes_soon(new_call: Any) -> None:
    call = no_ids(new_call)
    talk(call, 2500, 6000, response_id=None, pace=0)
    barge_in(call)
    interrupted(call, 4200)
    talk(call, 4560, 3000, response_id=None)
    found = stopped_at(call, 4200)
    assert ms(call, found.silence_arrival) == about(2520)


def test_without_ids_audio_while_the_user_still_speaks_is_the_same_response(new_call: Any) -> None:
    call = no_ids(new_call)
    talk(call, 2500, 1740, 700, 15_000, response_id=None)
    barge_in(call)
    assert reaction_of(call).fate is Fate.NEVER_STOPPED


def test_without_ids_audio_after_the_user_may_be_a_reply_or_the_rest(new_call: Any) -> None:
    call = no_ids(new_call)
    talk(call, 2500, 1740, 1400, 3000, response_id=None)  # silent from 4240, on again at 5640
    barge_in(call)
    found = reaction_of(call)
    assert found.fate is Fate.AMBIGUOUS
    assert ms(call, found.resumed) == about(5640)


def test_without_ids_audio_1_5_s_later_is_new(new_call: Any) -> None:
    call = no_ids(new_call)
    talk(call, 2500, 1740, 1560, 3000, response_id=None)
    barge_in(call)
    assert reaction_of(call).fate is Fate.STOPPED


def test_without_ids_a_told_end_is_told_apart_by_the_audio_around_it(new_call: Any) -> None:
    call = asked(new_call, response_ids=False)
    talk(call, 2500, 1800, response_id=None)
    call.event(ResponseEnded(at=call.at(4300)))
    barge_in(call)
    talk(call, 5600, 1000, response_id=None)
    call.event(ResponseEnded(at=call.at(6600)))
    assert reaction_of(call).fate is Fate.ENDED


# -- disturbances ---------------------------------------------------------------------------------


def disturb(call: Any, start: float = 4000, kind: StepKind = BACKCHANNEL, **how: Any) -> None:
    call.say(start, start if kind is StepKind.SHAM else start + 400, kind=kind, **how)


@pytest.mark.parametrize("kind", sorted(BACKGROUND_KINDS))
def test_an_agent_that_talks_on_for_a_second_has_held(new_call: Any, kind: StepKind) -> None:
    call = asked(new_call)
    talk(call, 2500, 2510)  # 10 ms beyond the window, then over
    disturb(call, kind=kind)
    assert reaction_of(call).fate is Fate.HELD


@pytest.mark.parametrize("gap", [500, 2000, 2990])
def test_the_same_response_after_a_silence_is_a_stutter(new_call: Any, gap: float) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, gap, 3000)
    disturb(call)
    found = reaction_of(call)
    assert found.fate is Fate.STUTTERED
    assert (ms(call, found.silence), ms(call, found.resumed)) == (about(4300), about(4300 + gap))


def test_the_same_response_after_more_than_3_s_is_a_stop(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, 3010, 3000)
    disturb(call)
    assert reaction_of(call).fate is Fate.STOPPED


def test_a_silence_for_good_is_a_stop(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, status=None)
    disturb(call)
    cancelled(call, 4300)
    found = reaction_of(call)
    assert (found.fate, found.evidence) == (Fate.STOPPED, call.at(4300))


def test_a_new_response_after_the_stop_is_a_restart(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, status=None)
    disturb(call)
    cancelled(call, 4300)
    talk(call, 5000, 2000, response_id="r2")
    assert reaction_of(call).fate is Fate.RESTARTED


def test_a_response_to_the_users_next_turn_is_no_restart(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, status=None)
    disturb(call)
    cancelled(call, 4300)
    call.say(8000, 9000)
    talk(call, 9500, 1000, response_id="r2")
    (event,) = CallView(call.build()).event_views
    assert event.reaction.fate is Fate.STOPPED


def test_a_stutter_that_ends_in_silence_within_the_window_is_a_stop(new_call: Any) -> None:
    call = asked(new_call)
    # Silent 4200-4600, on to 4900, then nothing.
    talk(call, 2500, 1700, 400, 300, status=None)
    disturb(call)
    stopped_at(call, 4900)


def test_an_own_end_within_the_window_shows_nothing(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 2300)
    disturb(call)
    found = reaction_of(call)
    assert (found.fate, found.void) == (Fate.ENDED, Reason.NATURAL_END)


def test_a_silence_whose_error_straddles_the_window_decides_nothing(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 2510, status=None, width_ms=30)  # silent at 4980-5010
    disturb(call)
    found = reaction_of(call)
    assert (found.fate, found.void) == (Fate.INDETERMINATE, None)


def test_a_resumption_whose_error_straddles_the_limit_decides_nothing(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800, 2990, 3000, width_ms=30)
    disturb(call)
    found = reaction_of(call)
    assert (found.fate, found.void) == (Fate.INDETERMINATE, None)


@pytest.mark.parametrize(("ended", "fate"), [(4900, "unconfirmed"), (7200, "unconfirmed")])
def test_a_hold_or_a_silence_that_was_not_watched_to_its_end_is_open(
    new_call: Any, ended: float, fate: str
) -> None:
    call = asked(new_call)
    talk(call, 2500, 1800 if ended > 5000 else 10_000, status=None)
    disturb(call)
    assert reaction_of(call, ended).fate == fate


def test_without_ids_a_silence_that_ends_may_be_a_stutter_or_a_restart(new_call: Any) -> None:
    for is_told, fate in ((False, Fate.AMBIGUOUS), (True, Fate.RESTARTED)):
        call = no_ids(new_call)
        talk(call, 2500, 1800, 1000, 3000, response_id=None)
        disturb(call)
        if is_told:
            interrupted(call, 4300)
        assert reaction_of(call).fate is fate


def test_events_are_viewed_in_order_with_the_turn_they_fell_into(new_call: Any) -> None:
    call = new_call()
    talk(call, 200, 2000, response_id="hello")
    disturb(call, 700, StepKind.NOISE)
    call.say(3000, 4000)
    talk(call, 4500, 6000)
    disturb(call, 7000, StepKind.SHAM)
    disturb(call, 6000, StepKind.SIDE_TALK)
    events = CallView(call.build()).event_views
    assert [(e.kind, e.turn.index) for e in events] == [
        (StepKind.NOISE, -1), (StepKind.SIDE_TALK, 0), (StepKind.SHAM, 0),
    ]  # fmt: skip


# -- what spoils ----------------------------------------------------------------------------------


def test_a_stall_at_the_stop_spoils_the_barge_in_and_no_other_turn(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1740, status=None, width_ms=12)
    barge_in(call)
    cancelled(call, 4240)
    talk(call, 6000, 1000, response_id="r2")
    call.say(8000, 9000)
    talk(call, 9500, 1000, response_id="r3")
    flags = [turn.flags for turn in CallView(call.build()).turn_views]
    # The reply that was stopped belongs to the first turn and is known no better there.
    assert [Flag.PROBE_STALLED in found for found in flags] == [True, True, False]


def test_a_stalled_silence_spoils_the_event(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 1740, status=None, width_ms=12)
    disturb(call)
    disturb(call, 12_000, StepKind.SHAM)
    first, second = CallView(call.build()).event_views
    assert Flag.PROBE_STALLED in first.flags
    assert Flag.PROBE_STALLED not in second.flags


def test_late_frames_spoil_the_event(new_call: Any) -> None:
    call = asked(new_call)
    talk(call, 2500, 9000)
    disturb(call, late_ms=11)
    (event,) = CallView(call.build()).event_views
    assert Flag.INVALID_PACING in event.flags


def test_a_stop_at_an_edge_that_moves_with_the_gate_is_soft(new_call: Any) -> None:
    call = asked(new_call)
    # The last 400 ms fade by 70 dB, so 6 dB are 34 ms to either side.
    loud = call.tone(1740) * 10 ** (np.interp(np.arange(41_760), [32_160, 41_760], [0, -70]) / 20)
    call.reply(2500, np.rint(loud).astype(np.int16), status=None)
    barge_in(call)
    cancelled(call, 4240)
    assert Flag.SOFT_EDGE in CallView(call.build()).turn_views[1].flags


# -- properties -----------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(400, 2500).map(lambda n: n // 20 * 20), min_size=1, max_size=4)


def scene(
    new_call: Any,
    lengths: list[int],
    kind: StepKind,
    told: int | None,
    *,
    pace: float,
    has_ids: bool,
    origin_ms: float = 1000,
    chunk_ms: float = 20,
) -> Any:
    call = new_call(origin_ms=origin_ms, response_ids=has_ids, response_end=has_ids)
    call.say(1000, 2000)
    name = "r1" if has_ids else None
    talk(call, 2500, *lengths, response_id=name, pace=pace, chunk_ms=chunk_ms)
    call.say(3010, 4510, kind=kind)
    if told is not None:
        interrupted(call, told, name)
    talk(call, 9000, 800, response_id="r2" if has_ids else None)
    return call


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lengths=LENGTHS,
    kind=st.sampled_from([BARGE_IN, BACKCHANNEL]),
    told=st.none() | st.integers(3100, 5000),
    pace=st.sampled_from([0, 0.1, 1.0]),
    has_ids=st.booleans(),
    shift=st.integers(-900, 10**7),
    chunk_ms=st.sampled_from([5, 37, 100, 10_000]),
)
def test_neither_the_clocks_origin_nor_the_size_of_messages_changes_a_fate(
    new_call: Any,
    lengths: list[int],
    kind: StepKind,
    told: int | None,
    pace: float,
    has_ids: bool,
    shift: int,
    chunk_ms: float,
) -> None:
    def found(**how: Any) -> Reaction:
        return reaction_of(scene(new_call, lengths, kind, told, pace=pace, has_ids=has_ids, **how))

    base, moved = found(), found(origin_ms=1000 + shift)
    by = shift * 1_000_000
    assert moved.fate is base.fate
    for name in ("silence", "resumed", "silence_arrival"):
        was, is_ = getattr(base, name), getattr(moved, name)
        assert (was is None) == (is_ is None)
        assert was is None or is_.when == was.when.shifted(by)
    # A longer message is sent further ahead, so that an interrupt takes more of it away.
    if pace == 0 or told is None:
        assert found(chunk_ms=chunk_ms).fate is base.fate
