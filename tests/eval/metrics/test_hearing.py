from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vakforge_eval.metrics.hearing import Hearing, hear
from vakforge_eval.metrics.segments import Segment
from vakforge_eval.timeline.call import Flush
from vakforge_eval.timeline.instant import NS_PER_MS, Edge
from vakforge_eval.timeline.values import Reason, Undefined

TOLERANCE_MS = 0.3


def ms(call: Any, ns: int) -> float:
    return float(ns - call.origin) / NS_PER_MS


def heard(call: Any, hearing: Hearing) -> list[tuple[float, float]]:
    return [(ms(call, s.start.when.at), ms(call, s.end.when.at)) for s in hearing.segments]


def near(*pairs: tuple[float, float]) -> Any:
    return [pytest.approx(pair, abs=TOLERANCE_MS) for pair in pairs]


@pytest.mark.parametrize("pace", [1.0, 0.1, 0.0])
def test_a_reply_is_heard_in_real_time_however_fast_it_came(new_call: Any, pace: float) -> None:
    call = new_call()
    call.reply(500, call.hush(200), call.tone(1000), pace=pace)
    assert heard(call, hear(call.build())) == near((700, 1700))


def test_the_first_audible_sample_arrives_with_its_message_not_when_it_is_played(
    new_call: Any,
) -> None:
    call = new_call()
    # A burst at 500: the audible sample lies 200 ms into the audio, in the chunk [200, 220).
    call.reply(500, call.hush(210), call.tone(1000), pace=0)
    segment = hear(call.build()).segments[0]
    # Its message arrived at 500, it lies 10 ms inside; it is heard at 500 + 210.
    assert ms(call, segment.arrival_start.when.at) == pytest.approx(510, abs=TOLERANCE_MS)
    assert ms(call, segment.start.when.at) == pytest.approx(710, abs=TOLERANCE_MS)


@pytest.mark.parametrize("chunk_ms", [1 / 24, 0.7, 20, 137.5, 5000])
def test_the_size_of_messages_moves_no_edge(new_call: Any, chunk_ms: float) -> None:
    call = new_call()
    call.reply(500, call.hush(60), call.tone(200), chunk_ms=chunk_ms, pace=0)
    assert heard(call, hear(call.build())) == near((560, 760))


def test_a_short_gap_in_a_reply_does_not_split_it_and_a_long_one_does(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(400), call.hush(340), call.tone(400), call.hush(360), call.tone(400))
    assert heard(call, hear(call.build())) == near((500, 1640), (2000, 2400))


def test_two_responses_are_never_joined(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(400), response_id="r1", pace=0)
    call.reply(501, call.tone(400), response_id="r2", pace=0)
    hearing = hear(call.build())
    assert heard(call, hearing) == near((500, 900), (900, 1300))
    assert [s.response_id for s in hearing.segments] == ["r1", "r2"]


def test_an_agent_with_a_slow_clock_speaks_in_one_piece(new_call: Any) -> None:
    call = new_call()
    # 5000 ppm slow: each 20 ms message is 0.1 ms late, so the queue runs dry before each of them.
    call.reply(500, call.tone(2000), skew_ppm=-5000)
    assert len(hear(call.build()).segments) == 1


def test_a_freeze_and_the_burst_after_it_are_heard_once(new_call: Any) -> None:
    call = new_call()
    # 1 s of speech, a stall of 2 s, then the other second at once.
    call.reply(500, call.tone(1000), status=None)
    for _ in range(50):
        call.audio_at(3500, call.tone(20))
    assert heard(call, hear(call.build())) == near((500, 1500), (3500, 4500))


def test_a_hole_of_200_ms_in_the_playout_stays_inside_the_segment(new_call: Any) -> None:
    call = new_call()
    call.audio_at(500, call.tone(300))
    call.audio_at(1000, call.tone(300))
    assert heard(call, hear(call.build())) == near((500, 1300))


def test_what_was_flushed_is_not_heard_and_late_audio_of_it_never_plays(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(3000), pace=0)
    call.flush(1200, "r1")
    call.audio_at(1300, call.tone(500), "r1")
    hearing = hear(call.build())
    assert heard(call, hearing) == near((500, 1200))
    assert hearing.segments[0].is_cut
    cancelled = hearing.responses["r1"].cancelled
    assert cancelled is not None
    assert ms(call, cancelled.at) == 1200


def test_the_end_of_a_cut_has_the_error_of_the_flush(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(3000), pace=0)
    call.flushes.append(Flush(call.at(1200, width_ms=0.8), "r1"))
    end = hear(call.build()).segments[0].end
    assert end.when.width == round(0.8 * NS_PER_MS)
    assert ms(call, end.when.at) == 1200


def test_comfort_noise_of_a_continuous_stream_is_not_speech(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    stream = call.noise(4000, -45)
    begin = 24 * 1500
    stream[begin : begin + 24 * 800] += call.tone(800)
    call.reply(0, stream, response_id=None)
    hearing = hear(call.build())
    assert hearing.floor_dbfs == pytest.approx(-45, abs=1)
    assert heard(call, hearing) == near((1500, 2300))


def test_where_no_response_is_ever_named_loud_speech_is_no_noise(new_call: Any) -> None:
    call = new_call()
    assert call.build().capabilities.response_ids
    # The pauses between the words are the floor.
    words = [call.noise(1000, -10), call.hush(500)] * 3
    call.reply(0, *words, response_id=None)
    found = hear(call.build())
    assert found.floor_dbfs is None
    assert heard(call, found) == near((0, 1000), (1500, 2500), (3000, 4000))


def test_a_steady_roar_of_the_agent_is_reported_as_such(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    call.reply(0, call.noise(4000, -30), response_id=None)
    hearing = hear(call.build())
    assert hearing.gate == Undefined(Reason.NOISE_TOO_HIGH)
    assert hearing.segments == ()


@pytest.mark.parametrize(("pause_ms", "is_told"), [(200, False), (2000, True)])
def test_a_stream_that_leaves_out_its_silence_may_be_loud_all_the_time_it_is_sent(
    new_call: Any, pause_ms: int, is_told: bool
) -> None:
    """As peers of WebRTC do, and those that transmit discontinuously."""
    call = new_call(continuous_stream=True)
    call.reply(0, call.tone(2000), response_id=None)
    call.reply(2000 + pause_ms, call.tone(2000), response_id=None)
    hearing = hear(call.build())
    if is_told:
        start = 2000 + pause_ms
        assert heard(call, hearing) == near((0, 2000), (start, start + 2000))
    else:
        assert hearing.gate == Undefined(Reason.NOISE_TOO_HIGH)


def test_noise_between_responses_sets_the_floor_and_speech_does_not(new_call: Any) -> None:
    call = new_call()
    call.reply(0, call.noise(1500, -50), response_id=None)
    call.reply(1500, call.tone(4000), response_id="r1")
    assert hear(call.build()).floor_dbfs == pytest.approx(-50, abs=1)


def test_without_a_second_of_noise_there_is_no_floor(new_call: Any) -> None:
    call = new_call()
    call.reply(0, call.noise(900, -50), response_id=None)
    call.reply(1500, call.tone(4000), response_id="r1")
    assert hear(call.build()).floor_dbfs is None


def test_a_quiet_agent_is_heard(new_call: Any) -> None:
    call = new_call()
    amplitude = round(32768 * 10 ** (-35 / 20))
    call.reply(500, call.tone(1000, amplitude))
    assert heard(call, hear(call.build())) == near((500, 1500))


def test_an_agent_below_the_gate_is_not(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(1000, 20))
    assert hear(call.build()).segments == ()


def test_a_slow_fade_marks_a_soft_edge_and_a_hard_attack_does_not(new_call: Any) -> None:
    call = new_call()
    ramp = np.linspace(0, 1, 24 * 4000) ** 2 * call.tone(4000)
    call.reply(500, ramp.astype(np.int16), pace=0)
    assert hear(call.build()).segments[0].has_soft_edge
    hard = new_call()
    hard.reply(500, hard.tone(400), pace=0)
    assert not hear(hard.build()).segments[0].has_soft_edge


def test_stamp_error_of_a_message_is_carried_into_what_is_heard(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(400), width_ms=3)
    segment = hear(call.build()).segments[0]
    assert segment.start.when.width == 3 * NS_PER_MS
    assert segment.arrival_start.when.width == 3 * NS_PER_MS


def test_the_second_witness_that_hears_speech_elsewhere_is_noted(
    new_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(shift_ms: float | None) -> bool | None:
        call = new_call()
        call.reply(500, call.hush(300), call.tone(400))
        monkeypatch.setattr(
            "vakforge_eval.signal.vad.first_speech",
            lambda pcm, rate: None if shift_ms is None else round((300 + shift_ms) * rate / 1000),
        )
        return hear(call.build()).segments[0].is_witnessed

    assert [verdict(99), verdict(-99), verdict(101), verdict(None)] == [True, True, False, False]


def test_a_change_of_rate_inside_of_a_response_is_followed(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(400), status=None)
    call.rate_hz = 8000
    call.audio_at(900, call.tone(400, rate_hz=8000))
    segments = hear(call.build()).segments
    assert ms(call, segments[-1].end.when.at) == pytest.approx(1300, abs=TOLERANCE_MS)


def test_a_call_without_audio_is_heard_as_nothing(new_call: Any) -> None:
    hearing = hear(new_call().build())
    assert (hearing.segments, hearing.responses) == ((), {})


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    cuts=st.lists(st.integers(1, 24 * 1500 - 1), max_size=12, unique=True),
    delays=st.lists(st.integers(0, 60), min_size=13, max_size=13),
)
def test_heard_intervals_always_hold_their_estimate_and_keep_their_order(
    new_call: Any, cuts: list[int], delays: list[int]
) -> None:
    call = new_call()
    pcm = np.concatenate([call.tone(500), call.hush(500), call.tone(500)])
    edges = [0, *sorted(cuts), len(pcm)]
    for (a, b), late in zip(pairwise(edges), delays, strict=False):
        call.audio_at(500 + a / 24 + late, pcm[a:b], width_ms=1)
    segments: tuple[Segment, ...] = hear(call.build()).segments
    for s in segments:
        assert s.start.when.lo <= s.start.when.at <= s.start.when.hi
        assert s.start.when.at < s.end.when.at
    for before, after in pairwise(segments):
        assert before.end.when.at <= after.start.when.at


@pytest.mark.parametrize(
    ("at", "edges"), [(0, (True, False)), (520, (False, True)), (260, (False, False))]
)
def test_only_an_edge_next_to_undecodable_audio_is_called_corrupt(
    new_call: Any, at: float, edges: tuple[bool, bool]
) -> None:
    call = new_call()
    call.reply(500, call.tone(500))
    # A message of which nothing could be decoded, before, after or in the middle of the sound.
    call.audio_at(500 + at - 1, call.hush(0))
    call.audio[-1] = replace(call.audio[-1], is_corrupt=True)
    segment = hear(call.build()).segments[0]
    assert (segment.is_start_corrupt, segment.is_end_corrupt) == edges


@pytest.mark.parametrize("hole", [0.1, 10, 60, 300])
def test_a_late_second_message_does_not_move_the_onset(new_call: Any, hole: float) -> None:
    # 20 ms of speech are heard at once, the rest after the hole: on its own the first message is
    # shorter than the 30 ms that speech must last.
    call = new_call()
    speech = call.tone(800)
    call.reply(1000, speech[: 24 * 20])
    call.reply(1020 + hole, speech[24 * 20 :])
    hearing = hear(call.build())
    assert heard(call, hearing) == near((1000, 1800 + hole))


def test_a_gap_counts_as_long_as_it_is_heard_not_as_it_was_sent(new_call: Any) -> None:
    # 200 ms of silence were sent, and the message after it came 200 ms too late: 400 ms are heard.
    call = new_call()
    call.reply(1000, call.tone(500), call.hush(200), chunk_ms=700, status=None)
    call.reply(1900, call.tone(500), chunk_ms=500)
    assert heard(call, hear(call.build())) == near((1000, 1500), (1900, 2400))


def test_a_flush_of_all_cancels_each_response_that_had_begun_and_no_later_one(
    new_call: Any,
) -> None:
    call = new_call()
    call.reply(500, call.tone(3000), response_id="first", pace=0)
    call.flush(1200, None)
    call.reply(2000, call.tone(3000), response_id="second", pace=0)
    call.flush(2500, None)
    cancelled = {name: r.cancelled for name, r in hear(call.build()).responses.items()}
    assert {name: at and ms(call, at.at) for name, at in cancelled.items()} == {
        "first": 1200,
        "second": 2500,
    }


def bounds(call: Any, edge: Edge) -> tuple[float, float]:
    """The whole interval that an edge states."""
    lo, hi = edge.when.lo - edge.detect_minus, edge.when.hi + edge.detect_plus
    return ms(call, lo), ms(call, hi)


def rising(call: Any, over_ms: float) -> Any:
    """A tone that swells to its level: a detector cannot see its first sample."""
    tone = call.tone(over_ms + 500)
    swell = np.minimum(1, np.arange(len(tone)) / (over_ms * call.rate_hz / 1000))
    return (tone * swell).astype(np.int16)


def test_an_edge_that_may_lie_in_the_message_before_has_the_times_of_both(new_call: Any) -> None:
    call = new_call()
    # The voice begins 1 ms before the end of a message and is loud enough in the next one. Both
    # arrive at 500, so that by arrival the earlier sample is the later one.
    call.reply(500, call.hush(59), rising(call, 40), pace=0)
    segment = hear(call.build()).segments[0]
    assert ms(call, segment.arrival_start.when.at) < 519, "the edge was found a message later"
    lo, hi = bounds(call, segment.arrival_start)
    assert lo <= 500 + 19 <= hi


def test_an_edge_that_may_lie_before_a_hole_reaches_across_it(new_call: Any) -> None:
    call = new_call()
    sound = np.concatenate([call.hush(59), rising(call, 40)])
    split = 60 * call.rate_hz // 1000
    call.audio_at(500, sound[:split])
    call.audio_at(700, sound[split:])
    segment = hear(call.build()).segments[0]
    for edge in (segment.start, segment.arrival_start):
        lo, hi = bounds(call, edge)
        assert lo <= 559 <= hi
    assert segment.has_soft_edge


@pytest.mark.parametrize("dbfs", [-52, -45, -38])
@pytest.mark.parametrize("lead_ms", [70, 300, 1500])
@pytest.mark.parametrize("rate_hz", [8000, 24_000])
def test_noise_under_a_reply_never_passes_for_its_first_and_last_word(
    new_call: Any, dbfs: float, lead_ms: float, rate_hz: int
) -> None:
    call = new_call(rate_hz=rate_hz)
    # No sound outside of responses tells this noise, which is over the gate.
    length = lead_ms + 800 + lead_ms
    sound = call.noise(length, dbfs, rate_hz)
    voice = call.tone(800, 4000, rate_hz)
    begin = round(lead_ms * rate_hz / 1000)
    sound[begin : begin + len(voice)] += voice
    call.reply(500, sound)
    segment = hear(call.build()).segments[0]
    for edge, truth in ((segment.start, 500 + lead_ms), (segment.end, 1300 + lead_ms)):
        lo, hi = bounds(call, edge)
        assert lo <= truth <= hi
    assert segment.has_soft_edge


@pytest.mark.parametrize("amplitude", [600, 8000])
def test_a_steady_reply_is_no_noise_under_one(new_call: Any, amplitude: int) -> None:
    call = new_call()
    call.reply(500, call.hush(200), call.tone(800, amplitude))
    segment = hear(call.build()).segments[0]
    assert not segment.has_soft_edge
    assert sum(abs(end - 700) for end in bounds(call, segment.start)) < 2
