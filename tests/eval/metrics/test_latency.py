"""Gold timelines; times in ms after ready, the arithmetic beside each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vakforge_eval.metrics import latency
from vakforge_eval.metrics.registry import METRICS
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.events import SpeechStopped, TextDelta, TurnCommitted
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Censored, Flag, Measured, Reason, Undefined

TOLERANCE_S = 0.0003


def turn_of(call: Any, index: int = 0, ended: float = 20_000) -> TurnView:
    return CallView(call.build(ended)).turn_views[index]


def seconds(value: object) -> float:
    assert isinstance(value, Measured), value
    return value.value


def exactly(value: float) -> Any:
    return pytest.approx(value, abs=TOLERANCE_S)


def all_of(view: TurnView) -> dict[str, object]:
    return {spec.name: spec.on_turn(view) for spec in METRICS if spec.on_turn is not None}


def one_turn(new_call: Any, **reply: Any) -> Any:
    """User 1000-2000, reply from 2500: 300 ms of silence, then 1 s of speech."""
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.hush(300), call.tone(1000), text="hello", **reply)
    return call


def test_the_gold_turn(new_call: Any) -> None:
    call = one_turn(new_call)
    call.event(SpeechStopped(at=call.at(2200)))
    found = all_of(turn_of(call))
    gold = {
        "ttft": 0.5,  # 2500 - 2000
        "ttfa": 0.5,  # 2500 - 2000
        "ttfa_audible": 0.8,  # 2500 + 300 - 2000
        "ttfa_heard": 0.8,
        "ttfs": 0.8,
        "ttf_answer": 0.8,  # no tool: = ttfa_heard
        "leading_silence": 0.3,  # 2800 - 2500
        "dead_air_max": 0.8,  # 2000 -> 2800
        "total_response": 1.8,  # 2800 + 1000 - 2000
        "rtf": 1.0,  # paced
        "rtf_inverse": 1.0,
        "endpoint_delay": 0.2,  # 2200 - 2000
    }
    assert {name: seconds(found[name]) for name in gold} == {
        name: exactly(value) for name, value in gold.items()
    }
    assert found["tool_wait"] == Undefined(Reason.NOT_APPLICABLE)
    assert found["endpoint_delay_claimed"] == Undefined(Reason.NOT_OBSERVABLE)


def test_a_burst_is_first_audible_by_arrival_before_it_is_heard(new_call: Any) -> None:
    # All messages at 2500; the audible sample lies 300 ms into the audio, at a message's begin.
    view = turn_of(one_turn(new_call, pace=0))
    assert seconds(latency.ttfa(view)) == exactly(0.5)
    assert seconds(latency.ttfa_audible(view)) == exactly(0.5)
    assert seconds(latency.ttfa_heard(view)) == exactly(0.8)


@pytest.mark.parametrize("chunk_ms", [1 / 24, 7.3, 20, 10_000])
def test_first_audio_does_not_depend_on_the_size_of_messages(
    new_call: Any, chunk_ms: float
) -> None:
    view = turn_of(one_turn(new_call, pace=0, chunk_ms=chunk_ms))
    assert seconds(latency.ttfa(view)) == exactly(0.5)
    assert seconds(latency.ttfa_heard(view)) == exactly(0.8)


def test_a_silent_first_chunk_improves_only_the_metric_that_counts_messages(
    new_call: Any,
) -> None:
    plain, padded = new_call(), new_call()
    for call, silence in ((plain, 0), (padded, 300)):
        call.say(1000, 2000)
        call.reply(2800 - silence, call.hush(silence), call.tone(700))
    assert seconds(latency.ttfa(turn_of(padded))) == exactly(0.5)
    assert seconds(latency.ttfa(turn_of(plain))) == exactly(0.8)
    for metric in (latency.ttfa_audible, latency.ttfa_heard, latency.ttfs):
        assert seconds(metric(turn_of(padded))) == exactly(seconds(metric(turn_of(plain))))


def test_a_short_sound_before_the_answer_is_no_stretch_of_speech(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    # 300 ms "mhm" at 2300, then the answer at 3100.
    call.reply(2300, call.tone(300), call.hush(500), call.tone(900))
    view = turn_of(call)
    assert seconds(latency.ttfa_heard(view)) == exactly(0.3)
    assert seconds(latency.ttfs(view)) == exactly(1.1)


def test_a_reply_of_short_sounds_has_no_stretch_of_speech(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2300, call.tone(300))
    assert latency.ttfs(turn_of(call)) == Undefined(Reason.NO_SPEECH_STRETCH)


def test_filler_before_a_tool_result_is_not_the_answer(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2400, call.tone(600), response_id="filler")
    call.tool(2600, 4100)
    call.reply(4500, call.tone(600), response_id="answer")
    view = turn_of(call)
    assert seconds(latency.ttfa_heard(view)) == exactly(0.4)
    assert seconds(latency.ttf_answer(view)) == exactly(2.5)  # 4500 - 2000
    assert seconds(latency.tool_wait(view)) == exactly(1.5)  # 4100 - 2600
    assert seconds(latency.dead_air_max(view)) == exactly(1.5)  # 3000 -> 4500
    assert seconds(latency.total_response(view)) == exactly(3.1)  # 5100 - 2000


def test_a_tool_result_without_an_answer_is_censored_at_the_budget(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, reply_within_s=4)
    call.reply(2400, call.tone(600), response_id="filler")
    call.tool(2600, 4100)
    assert latency.ttf_answer(turn_of(call)) == Censored(4.0)


def test_an_early_reply_has_a_negative_latency_that_is_not_clamped(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 4000)
    call.reply(3700, call.tone(1000), text="so")
    view = turn_of(call)
    assert Flag.EARLY in view.flags
    for metric in (latency.ttft, latency.ttfa, latency.ttfa_audible, latency.ttfa_heard):
        assert seconds(metric(view)) == exactly(-0.3)
    assert seconds(latency.dead_air_max(view)) == 0.0


def test_no_reply_is_censored_at_the_turns_budget(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, reply_within_s=6)
    view = turn_of(call)
    assert view.flags == (Flag.NO_REPLY,)
    for metric in (latency.ttft, latency.ttfa, latency.ttfa_audible, latency.ttfa_heard,
                   latency.ttfs, latency.ttf_answer, latency.total_response,
                   latency.dead_air_max):  # fmt: skip
        assert metric(view) == Censored(6.0)
    assert latency.leading_silence(view) == Undefined(Reason.NO_AUDIO)
    assert latency.rtf(view) == Undefined(Reason.NO_AUDIO)


def test_no_reply_is_censored_where_watching_ended(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    assert latency.ttfa(turn_of(call, ended=5500)) == Censored(3.5)


def test_an_agent_that_was_not_given_its_time_is_not_blamed_for_its_silence(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, reply_within_s=6)
    assert turn_of(call, ended=5500).flags == ()
    assert turn_of(call, ended=7980).flags == ()
    assert turn_of(call, ended=8000).flags == (Flag.NO_REPLY,)


def test_a_frame_that_left_a_little_late_costs_nobody_the_end_of_the_budget(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000.4, reply_within_s=6)
    assert turn_of(call, ended=8000).flags == (Flag.NO_REPLY,)
    call.failure = {"kind": "timeout", "phase": "first_audio", "message": "mute"}
    assert turn_of(call, ended=8000).flags == (Flag.NO_REPLY,)
    assert latency.ttfa(turn_of(call, ended=8000)) == Censored(5.9996)


def test_no_reply_is_censored_at_the_next_turn(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.say(4500, 5000)
    call.reply(5500, call.tone(700))
    view = turn_of(call)
    assert latency.ttfa(view) == Censored(2.5)
    assert Flag.NO_REPLY in view.flags


def test_a_turn_that_the_script_takes_back_is_censored_but_no_fault_of_the_agent(
    new_call: Any,
) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.say(2300, 3000, kind=StepKind.CORRECTION)
    call.reply(3500, call.tone(700))
    view = turn_of(call)
    assert latency.ttfa(view) == Censored(0.3)
    assert Flag.NO_REPLY not in view.flags


def test_a_reply_after_the_budget_is_a_no_reply(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, reply_within_s=2)
    call.event(SpeechStopped(at=call.at(2200)))
    call.reply(4500, call.tone(700), text="late")
    view = turn_of(call)
    assert Flag.NO_REPLY in view.flags
    assert latency.ttfa_heard(view) == latency.ttft(view) == Censored(2.0)
    assert latency.total_response(view) == Censored(2.0)


def test_being_asked_whether_one_is_still_there_ends_no_wait(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(7000, call.tone(700), response_id="still_there")
    view = turn_of(call)
    assert latency.ttfa_heard(view) == Censored(10.0)
    # The longest silence watched: 2000 -> 7000 against 7700 -> 12000.
    assert seconds_of_censored(latency.dead_air_max(view)) == exactly(5.0)


def seconds_of_censored(value: object) -> float:
    assert isinstance(value, Censored)
    return value.bound


def test_unsolicited_words_do_not_extend_the_response(new_call: Any) -> None:
    call = one_turn(new_call)
    call.reply(9000, call.tone(700), response_id="still_there")
    assert seconds(latency.total_response(turn_of(call))) == exactly(1.8)


def test_a_reply_without_text_has_no_time_to_text(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(700))
    assert latency.ttft(turn_of(call)) == Undefined(Reason.NO_TEXT)


def test_empty_text_is_no_token(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(TextDelta(at=call.at(2100), response_id="r1", text=""))
    call.reply(2500, call.tone(700), text="hi")
    assert seconds(latency.ttft(turn_of(call))) == exactly(0.5)


def test_a_reply_in_text_alone_is_no_audible_reply(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(TextDelta(at=call.at(2500), response_id="r1", text="hi"))
    view = turn_of(call)
    assert seconds(latency.ttft(view)) == exactly(0.5)
    assert latency.ttfa(view) == Censored(10.0)
    assert view.flags == (Flag.NO_REPLY,)


def test_a_reply_below_the_gate_is_undefined_not_missing(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(700, 20))
    view = turn_of(call)
    assert view.flags == (Flag.NOT_AUDIBLE,)
    assert seconds(latency.ttfa(view)) == exactly(0.5)
    for metric in (latency.ttfa_audible, latency.ttfa_heard, latency.ttfs,
                   latency.total_response, latency.leading_silence):  # fmt: skip
        assert metric(view) == Undefined(Reason.NOT_AUDIBLE)


def test_a_floor_too_loud_to_hear_anything_is_the_reason_told(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    call.say(1000, 2000)
    call.reply(0, call.noise(5000, -28), response_id=None)
    view = turn_of(call)
    for metric in (latency.ttfa, latency.ttfa_heard, latency.ttfs, latency.dead_air_max):
        assert metric(view) == Undefined(Reason.NOISE_TOO_HIGH)
    assert view.flags == ()


def test_on_a_continuous_stream_first_audio_is_first_audible(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    stream = call.noise(5000, -60)
    stream[24 * 2700 : 24 * 3700] += call.tone(1000)
    call.say(1000, 2000)
    call.reply(0, stream, response_id=None)
    view = turn_of(call)
    assert seconds(latency.ttfa(view)) == exactly(0.7)
    for metric in (latency.rtf, latency.rtf_inverse, latency.leading_silence):
        assert metric(view) == Undefined(Reason.CONTINUOUS_STREAM)


def test_undecodable_audio_at_the_edge_is_no_edge(new_call: Any) -> None:
    from dataclasses import replace

    call = one_turn(new_call)
    call.audio[0] = replace(call.audio[0], is_corrupt=True)
    view = turn_of(call)
    assert latency.ttfa_heard(view) == Undefined(Reason.CORRUPT_AUDIO)
    assert seconds(latency.ttfa(view)) == exactly(0.5)
    assert seconds(latency.total_response(view)) == exactly(1.8)
    assert Flag.NO_REPLY not in view.flags


@pytest.mark.parametrize(("pace", "value"), [(1.0, 1.0), (0.1, 10.0), (2.0, 0.5)])
def test_the_real_time_factor_is_audio_over_wall(new_call: Any, pace: float, value: float) -> None:
    view = turn_of(one_turn(new_call, pace=pace))
    assert seconds(latency.rtf(view)) == pytest.approx(value, rel=1e-6)
    assert seconds(latency.rtf_inverse(view)) == pytest.approx(1 / value, rel=1e-6)


def test_the_real_time_factor_does_not_count_the_users_time(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 9000)
    call.reply(9500, call.tone(1000), pace=0.5)
    assert seconds(latency.rtf(turn_of(call))) == pytest.approx(2.0)


@pytest.mark.parametrize(("pace", "chunk_ms"), [(1.0, 5000), (0.0, 20)])
def test_one_message_or_one_instant_has_no_rate(
    new_call: Any, pace: float, chunk_ms: float
) -> None:
    view = turn_of(one_turn(new_call, pace=pace, chunk_ms=chunk_ms))
    assert latency.rtf(view) == Undefined(Reason.SINGLE_MESSAGE)


def test_a_long_idle_between_turns_changes_no_latency(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(700), text="a")
    call.say(70_000, 71_000)
    call.reply(71_400, call.tone(700), response_id="r2", text="b")
    view = turn_of(call, 1, ended=90_000)
    assert seconds(latency.ttft(view)) == seconds(latency.ttfa(view)) == exactly(0.4)


def test_a_long_turn_of_the_user_inflates_nothing(new_call: Any) -> None:
    for start in (1000, 9000):
        call = new_call()
        call.say(start, 10_000)
        call.reply(10_500, call.tone(700), text="hi")
        assert seconds(latency.ttft(turn_of(call))) == exactly(0.5)


def test_the_anchor_is_the_users_end_not_what_the_server_says_of_it(new_call: Any) -> None:
    call = one_turn(new_call)
    call.event(SpeechStopped(at=call.at(2490)))
    call.event(TurnCommitted(at=call.at(2499)))
    assert seconds(latency.ttfa(turn_of(call))) == exactly(0.5)


def test_text_of_the_old_reply_is_not_the_new_ones_first_token(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(3000), text="a long story")
    call.say(4000, 5000, kind=StepKind.BARGE_IN)
    call.flush(4200, "r1")
    call.event(TextDelta(at=call.at(5100), response_id="r1", text=" goes on"))
    call.reply(5600, call.tone(700), response_id="r2", text="yes")
    assert seconds(latency.ttft(turn_of(call, 1))) == exactly(0.6)


def test_a_missing_end_of_response_throws_nothing_away(new_call: Any) -> None:
    call = one_turn(new_call, status=None)
    view = turn_of(call)
    assert seconds(latency.ttfa(view)) == exactly(0.5)
    assert latency.total_response(view) == Undefined(Reason.CUT_OFF)
    call.say(8000, 9000)
    # A later turn proves that the reply was heard to its end.
    assert seconds(latency.total_response(turn_of(call))) == exactly(1.8)


def test_a_reply_that_was_still_playing_when_watching_ended_is_cut_off(new_call: Any) -> None:
    view = turn_of(one_turn(new_call, pace=0), ended=3000)
    assert latency.total_response(view) == Undefined(Reason.CUT_OFF)
    assert latency.dead_air_max(view) == Undefined(Reason.CUT_OFF)
    assert seconds(latency.ttfa_heard(view)) == exactly(0.8)


def test_a_reply_that_a_flush_cut_ends_there(new_call: Any) -> None:
    call = one_turn(new_call, pace=0)
    call.flush(3200, "r1")
    assert seconds(latency.total_response(turn_of(call))) == exactly(1.2)


def test_a_call_that_failed_before_the_budget_says_so(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.failure = {"kind": "closed", "phase": "call", "message": ""}
    view = turn_of(call, ended=4000)
    assert view.flags == (Flag.CALL_FAILED,)
    for metric in (latency.ttft, latency.ttfa, latency.ttfa_heard, latency.total_response,
                   latency.dead_air_max):  # fmt: skip
        assert metric(view) == Undefined(Reason.CALL_FAILED)


def test_a_call_that_failed_after_the_budget_had_given_no_reply(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, reply_within_s=2)
    call.failure = {"kind": "closed", "phase": "call", "message": ""}
    view = turn_of(call, ended=6000)
    assert view.flags == (Flag.NO_REPLY,)
    assert latency.ttfa(view) == Censored(2.0)


def test_a_call_that_failed_in_the_reply_keeps_what_was_measured(new_call: Any) -> None:
    call = one_turn(new_call, status=None)
    call.failure = {"kind": "closed", "phase": "call", "message": ""}
    view = turn_of(call, ended=3900)
    assert view.flags == (Flag.CALL_FAILED,)
    assert seconds(latency.ttfa(view)) == exactly(0.5)
    assert latency.total_response(view) == Undefined(Reason.CALL_FAILED)


def test_a_failure_does_not_touch_turns_that_were_over(new_call: Any) -> None:
    call = one_turn(new_call)
    call.say(6000, 7000)
    call.failure = {"kind": "closed", "phase": "call", "message": ""}
    assert turn_of(call, 0, ended=7500).flags == ()
    assert turn_of(call, 1, ended=7500).flags == (Flag.CALL_FAILED,)


def test_the_endpoint_is_the_one_after_the_users_last_words(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 5000, pause=(2000, 3500))
    call.event(SpeechStopped(at=call.at(2700)))
    call.event(SpeechStopped(at=call.at(5400)))
    call.event(SpeechStopped(at=call.at(9000)))  # of a backchannel, later in the same turn
    assert seconds(latency.endpoint_delay(turn_of(call))) == exactly(0.4)


def test_an_endpoint_in_the_pause_that_was_never_taken_back_is_negative(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 5000, pause=(2000, 3500))
    call.event(SpeechStopped(at=call.at(2700)))
    assert seconds(latency.endpoint_delay(turn_of(call))) == exactly(-2.3)


def test_an_endpoint_of_another_turn_is_never_used(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(SpeechStopped(at=call.at(2300)))
    call.say(6000, 7000)
    assert latency.endpoint_delay(turn_of(call, 1)) == Undefined(Reason.NOT_OBSERVABLE)


def test_the_claimed_endpoint_is_told_in_the_microphone_model(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    # Sample at 2330 ms of the stream: frame 116 [2320, 2340) leaves at 2340, so it was spoken at
    # 2330; that frame was 3 ms late, hence 2333.
    call.lateness[116] = 3_000_000
    call.event(SpeechStopped(at=call.at(2400), offset_ms=2330.0))
    view = turn_of(call)
    assert seconds(latency.endpoint_delay_claimed(view)) == exactly(0.333)
    assert seconds(latency.endpoint_delay(view)) == exactly(0.4)


def test_a_claimed_endpoint_on_a_frames_border_belongs_to_the_frame_that_it_ends(
    new_call: Any,
) -> None:
    call = new_call()
    call.say(1000, 2000)
    # 2320 ms is the end of frame 115; that the next frame was late says nothing of it.
    call.lateness[116] = 3_000_000
    call.event(SpeechStopped(at=call.at(2400), offset_ms=2320.0))
    assert seconds(latency.endpoint_delay_claimed(turn_of(call))) == exactly(0.32)


@pytest.mark.parametrize("offset_ms", [-1.0, 1e9, 1e300])
def test_a_claimed_endpoint_outside_of_the_stream_is_not_believed(
    new_call: Any, offset_ms: float
) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(SpeechStopped(at=call.at(2400), offset_ms=offset_ms))
    assert latency.endpoint_delay_claimed(turn_of(call)) == Undefined(Reason.NOT_OBSERVABLE)


@pytest.mark.parametrize(
    ("spoilt", "flag"),
    [
        ({"late_ms": 10.001}, Flag.INVALID_PACING),
        ({"is_reanchored": True}, Flag.INVALID_PACING),
        ({"has_back_pressure": True}, Flag.BACK_PRESSURE),
    ],
)
def test_what_the_probe_spoilt_is_invalid(
    new_call: Any, spoilt: dict[str, Any], flag: Flag
) -> None:
    call = new_call()
    call.say(1000, 2000, **spoilt)
    call.reply(2500, call.tone(700))
    flags = turn_of(call).flags
    assert flags == (flag,)
    assert flag.invalidates


def test_a_frame_10_ms_late_spoils_nothing(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, late_ms=10)
    call.reply(2500, call.tone(700))
    assert turn_of(call).flags == ()


@pytest.mark.parametrize(("width_ms", "flags"), [(10, ()), (10.001, (Flag.PROBE_STALLED,))])
def test_an_edge_known_worse_than_10_ms_marks_a_stall(
    new_call: Any, width_ms: float, flags: tuple[Flag, ...]
) -> None:
    view = turn_of(one_turn(new_call, width_ms=width_ms))
    assert view.flags == flags


def test_a_stall_at_an_edge_inside_the_reply_spoils_the_silences_before_it(new_call: Any) -> None:
    call = one_turn(new_call)
    # The second of three segments: neither the first nor the last edge of the reply.
    call.audio_at(5500, call.tone(500), "r1", width_ms=50)
    call.audio_at(7500, call.tone(500), "r1")
    assert turn_of(call).flags == (Flag.PROBE_STALLED,)


def test_a_stall_where_no_metric_looks_spoils_nothing(new_call: Any) -> None:
    call = one_turn(new_call)
    call.audio_at(3900, call.hush(20), width_ms=0)
    call.audio[20] = type(call.audio[20])(
        call.at(2900, 50), call.audio[20].pcm, 24_000, "r1", None, 20
    )
    assert turn_of(call).flags == ()


def test_a_turn_committed_by_hand_is_marked(new_call: Any) -> None:
    call = one_turn(new_call)
    call.commits.append(call.at(2010))
    assert turn_of(call).flags == (Flag.ENDPOINTING_MANUAL,)


def test_errors_of_both_ends_are_in_the_interval(new_call: Any) -> None:
    view = turn_of(one_turn(new_call, width_ms=0.8))
    value = latency.ttfa(view)
    assert isinstance(value, Measured)
    # The arrival is proven only to lie in [2499.2, 2500].
    assert (value.lo, value.hi) == (exactly(0.4992), exactly(0.5))


def test_what_was_measured_is_what_a_recording_shows(new_call: Any) -> None:
    import numpy as np

    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.hush(130), call.tone(900), pace=0.3)
    view = turn_of(call)
    tape = np.zeros(24 * 6000, dtype=np.int16)
    for piece in view.call.hearing.placed:
        at = round((piece.start.at - call.origin) * 24 / 1e6)
        tape[at : at + piece.n_played] = piece.audio.pcm[: piece.n_played]
    sounding = np.flatnonzero(tape) / 24_000
    assert seconds(latency.ttfa_heard(view)) == exactly(sounding[0] - 2.0)
    assert seconds(latency.total_response(view)) == exactly(sounding[-1] - 2.0)


PROPERTY = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PLANS = st.tuples(
    st.integers(-500, 3000), st.integers(0, 400), st.integers(50, 1500), st.sampled_from([0, 1, 3])
)


def planned(new_call: Any, plan: tuple[int, int, int, int], origin_ms: float = 1000) -> Any:
    delay, silence, length, pace = plan
    call = new_call(origin_ms=origin_ms)
    call.reply(100, call.tone(500), response_id="hello")
    call.say(2000, 4000, pause=(2500, 3000))
    call.event(SpeechStopped(at=call.at(4100), offset_ms=3990.0))
    call.reply(4000 + delay, call.hush(silence), call.tone(length), pace=pace, text="x")
    return call


@PROPERTY
@given(plan=PLANS, shift_ms=st.integers(-900, 10**9))
def test_moving_a_call_in_time_changes_nothing(
    new_call: Any, plan: tuple[int, int, int, int], shift_ms: int
) -> None:
    here, there = (planned(new_call, plan, origin) for origin in (1000, 1000 + shift_ms))
    assert all_of(turn_of(here)) == all_of(turn_of(there))
    assert turn_of(here).flags == turn_of(there).flags


@PROPERTY
@given(plan=PLANS, silence_ms=st.integers(1, 3000))
def test_silence_after_a_reply_changes_nothing_but_its_rate(
    new_call: Any, plan: tuple[int, int, int, int], silence_ms: int
) -> None:
    call, longer = planned(new_call, plan), planned(new_call, plan)
    longer.audio_at(12_000, longer.hush(silence_ms), "r1")
    before, after = all_of(turn_of(call)), all_of(turn_of(longer))
    for name in before.keys() - {"rtf", "rtf_inverse"}:
        assert before[name] == after[name], name


@PROPERTY
@given(plan=PLANS)
def test_watching_longer_changes_no_turn_that_was_over(
    new_call: Any, plan: tuple[int, int, int, int]
) -> None:
    call = planned(new_call, plan)
    assert all_of(turn_of(call, ended=18_000)) == all_of(turn_of(call, ended=25_000))
