"""Metrics of a call as a whole: setup, shares, transport, the probe itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vakforge_eval.metrics import latency, setup, transport
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.records import Flags
from vakforge_eval.timeline.values import Measured, Rate, Reason, Undefined


def view_of(call: Any, ended: float = 20_000) -> CallView:
    return CallView(call.build(ended))


def value_of(value: object) -> float:
    assert isinstance(value, Measured), value
    return value.value


def test_setup_is_dial_to_ready_and_its_phases_add_up(new_call: Any) -> None:
    view = view_of(new_call())
    phases = [setup.setup_resolve, setup.setup_connect, setup.setup_handshake, setup.setup_ready]
    assert [value_of(phase(view)) for phase in phases] == [0.01, 0.02, 0.03, 0.04]
    assert value_of(setup.setup(view)) == pytest.approx(0.1)


def test_a_call_without_tls_has_no_tls_time(new_call: Any) -> None:
    assert setup.setup_tls(view_of(new_call())) == Undefined(Reason.NOT_APPLICABLE)


def test_a_call_that_never_was_ready_keeps_the_phases_that_it_had(new_call: Any) -> None:
    timeline = new_call().build()
    phases = {"resolve": timeline.phases["resolve"]}
    failure = {"kind": "refused", "phase": "connect", "message": ""}
    view = CallView(replace(timeline, ready=None, phases=phases, failure=failure))
    assert value_of(setup.setup_resolve(view)) == 0.01
    for metric in (setup.setup, setup.setup_connect, setup.greeting_latency):
        assert metric(view) == Undefined(Reason.CALL_FAILED)
    assert setup.failed_calls(view) == Rate(1, 1)
    assert setup.no_reply_rate(view) == Rate(0, 0)


def test_the_greeting_is_measured_from_ready_to_its_first_sound(new_call: Any) -> None:
    call = new_call()
    call.reply(300, call.hush(50), call.tone(500))
    call.say(2000, 3000)
    assert value_of(setup.greeting_latency(view_of(call))) == pytest.approx(0.35, abs=3e-4)


def test_an_agent_that_waits_for_the_user_gave_no_greeting(new_call: Any) -> None:
    call = new_call()
    call.say(2000, 3000)
    call.reply(3500, call.tone(500))
    assert setup.greeting_latency(view_of(call)) == Undefined(Reason.NO_GREETING)


def test_shares_count_every_valid_turn_failed_ones_too(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(500), response_id="r0")
    call.say(4000, 6000)
    call.reply(5500, call.tone(700), response_id="early")
    call.say(8000, 9000, reply_within_s=1)
    call.say(11_000, 12_000, late_ms=50)
    call.say(14_000, 15_000)
    call.failure = {"kind": "closed", "phase": "call", "message": ""}
    view = view_of(call, ended=16_000)
    assert setup.early_rate(view) == Rate(1, 4)
    assert setup.no_reply_rate(view) == Rate(1, 4)
    assert setup.invalid_turns(view) == Rate(1, 5)


def test_send_lateness_is_told_by_percentile(new_call: Any) -> None:
    call = new_call()
    # Of 1000 frames one is 40 ms late and 20 are 11 ms late.
    call.lateness = {500: 40_000_000} | dict.fromkeys(range(20), 11000000)
    view = view_of(call)
    assert value_of(transport.send_lateness_p50(view)) == 0.0
    assert value_of(transport.send_lateness_p99(view)) == 0.011
    assert value_of(transport.send_lateness_max(view)) == 0.04
    assert transport.frames_late(view) == Rate(21, 1000)


def test_frames_without_a_plan_are_not_late(new_call: Any) -> None:
    timeline = new_call().build(1000)
    stream = timeline.stream.copy()
    stream["flags"][10], stream["due"][10] = Flags.NO_DUE, 0
    assert transport.frames_late(CallView(replace(timeline, stream=stream))) == Rate(0, 49)


def test_a_stream_that_never_began_has_no_lateness(new_call: Any) -> None:
    view = view_of(new_call(), ended=0)
    assert transport.send_lateness_p50(view) == Undefined(Reason.TOO_FEW)
    assert transport.frames_late(view) == Rate(0, 0)


def test_the_time_that_a_write_took_is_the_error_of_its_lateness(new_call: Any) -> None:
    timeline = new_call().build(1000)
    stream = timeline.stream.copy()
    stream["after"] = stream["before"] + 400_000
    value = transport.send_lateness_max(CallView(replace(timeline, stream=stream)))
    assert isinstance(value, Measured)
    assert value.value == pytest.approx(0.0002)
    assert value.u == pytest.approx((0.0002, 0.0002))


@pytest.mark.parametrize("ppm", [-5000, -50, 0, 50, 5000])
def test_a_skewed_clock_is_found_within_its_stated_error(new_call: Any, ppm: float) -> None:
    call = new_call()
    call.reply(500, call.tone(5000), skew_ppm=ppm)
    value = transport.clock_skew_ppm(view_of(call))
    assert isinstance(value, Measured)
    assert value.value == pytest.approx(ppm, abs=0.1)


def test_jitter_widens_the_error_of_the_skew_and_stays_inside_of_it(new_call: Any) -> None:
    call = new_call()
    late = np.random.default_rng(5).uniform(0, 60, 250)
    arrivals = np.maximum.accumulate(500 + 20 * np.arange(250) * (1 - 0.005) + late)
    for when in arrivals:
        call.audio_at(float(when), call.tone(20))
    value = transport.clock_skew_ppm(view_of(call))
    assert isinstance(value, Measured)
    assert value.lo < 1e6 * (1 / 0.995 - 1) < value.hi
    assert value.u[0] < 5000


@pytest.mark.parametrize("pace", [0.0, 0.1])
def test_an_agent_that_does_not_pace_has_no_clock_to_measure(new_call: Any, pace: float) -> None:
    call = new_call()
    call.reply(500, call.tone(5000), pace=pace)
    view = view_of(call)
    assert transport.clock_skew_ppm(view) == Undefined(Reason.NOT_APPLICABLE)
    assert transport.interarrival_jitter(view) == Undefined(Reason.NOT_APPLICABLE)


def test_little_audio_tells_no_skew(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(1000))
    assert transport.clock_skew_ppm(view_of(call)) == Undefined(Reason.TOO_FEW)


def test_jitter_is_the_mean_change_of_the_transit_time(new_call: Any) -> None:
    call = new_call()
    # Every other message is 4 ms late: |D| = 4 ms throughout.
    for k in range(50):
        call.audio_at(500 + 20 * k + 4 * (k % 2), call.tone(20))
    assert value_of(transport.interarrival_jitter(view_of(call))) == pytest.approx(0.004)


def test_underruns_are_holes_inside_of_a_response(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(500), response_id="r1")
    call.audio_at(1050, call.tone(200), "r1")  # the queue had run dry at 1000
    call.audio_at(1259, call.tone(200), "r1")  # 9 ms: below what can be heard as a hole
    call.reply(4000, call.tone(500), response_id="r2")
    assert value_of(transport.underruns(view_of(call))) == 1


def test_a_silent_agent_has_no_underruns(new_call: Any) -> None:
    assert transport.underruns(view_of(new_call())) == Undefined(Reason.NO_AUDIO)


def test_the_probe_tells_its_own_load(new_call: Any) -> None:
    call = new_call()
    call.probe = {"cpu_s": 0.5, "wall_s": 20.0, "loop_lag_max_ns": 1_500_000}
    view = view_of(call)
    assert value_of(transport.cpu_share(view)) == 0.025
    assert value_of(transport.loop_lag_max(view)) == 0.0015


@pytest.mark.parametrize(
    "probe", [{}, {"cpu_s": "1", "wall_s": 1}, {"cpu_s": 1.0, "wall_s": 0}, {"wall_s": True}]
)
def test_what_the_probe_does_not_tell_is_not_zero(new_call: Any, probe: dict[str, object]) -> None:
    call = new_call()
    call.probe = probe
    view = view_of(call)
    assert transport.cpu_share(view) == Undefined(Reason.NOT_OBSERVABLE)
    assert transport.loop_lag_max(view) == Undefined(Reason.NOT_OBSERVABLE)


def test_disagreements_count_the_replies_that_both_detectors_were_asked_about(
    new_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = new_call()
    for n in range(3):
        call.say(1000 + 5000 * n, 2000 + 5000 * n)
    call.reply(2500, call.tone(500), response_id="r0")
    call.reply(7500, call.tone(500), response_id="r1")
    # The witness puts the first reply's start where the gate does, the second's nowhere.
    answers = iter([0, None])
    monkeypatch.setattr("vakforge_eval.signal.vad.first_speech", lambda *_: next(answers))
    assert setup.vad_disagreements(view_of(call, ended=20_000)) == Rate(1, 2)


def test_audio_that_cannot_be_decoded_tells_no_rate_no_jitter_and_no_skew(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(3000))
    whole = view_of(call)
    assert value_of(latency.rtf(whole.turn_views[0])) == pytest.approx(1)
    lost = call.audio[40]
    call.audio[40] = replace(lost, pcm=lost.pcm[:0], is_corrupt=True)
    view = view_of(call)
    assert latency.rtf(view.turn_views[0]) == Undefined(Reason.CORRUPT_AUDIO)
    assert latency.rtf_inverse(view.turn_views[0]) == Undefined(Reason.CORRUPT_AUDIO)
    assert transport.interarrival_jitter(view) == Undefined(Reason.NOT_APPLICABLE)
    assert transport.clock_skew_ppm(view) == Undefined(Reason.NOT_APPLICABLE)


def test_a_greeting_whose_beginning_cannot_be_decoded_has_no_latency(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(1000))
    call.say(3000, 4000)
    assert value_of(setup.greeting_latency(view_of(call))) == pytest.approx(0.5, abs=1e-3)
    call.audio[0] = replace(call.audio[0], is_corrupt=True)
    assert setup.greeting_latency(view_of(call)) == Undefined(Reason.CORRUPT_AUDIO)
