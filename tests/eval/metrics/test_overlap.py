"""Who talks when: shares of a call in which one or both talk, and how the floor passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vakforge_eval.metrics import overlap
from vakforge_eval.metrics.hearing import Hearing
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.instant import NS_PER_MS, Edge, Instant
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Measured, MetricValue, Reason, Undefined

SHARES = (
    overlap.overlap_rate,
    overlap.overlap_share_of_speech,
    overlap.agent_overlap_rate,
    overlap.talk_ratio,
)
COUNTS = (overlap.reprompts, overlap.agent_interruptions)


def measured(value: MetricValue) -> Measured:
    assert isinstance(value, Measured), value
    return value


def shares(view: CallView) -> list[float]:
    return [measured(metric(view)).value for metric in SHARES]


def near(*values: float) -> Any:
    return pytest.approx(values, abs=1e-4)


def test_overlap_is_counted_to_the_call_to_its_speech_and_to_who_began_last(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 3000)
    call.reply(2500, call.tone(2000), response_id="r1")  # the agent begins last: [2500, 3000)
    call.say(4000, 6000)  # the user begins last: [4000, 4500)
    view = CallView(call.build(10_000))
    assert shares(view) == near(0.1, 1 / 5, 0.05, 2 / 6)


def test_noise_and_keys_are_no_speech_but_a_backchannel_is(new_call: Any) -> None:
    call = new_call()
    call.reply(1000, call.tone(3000))
    call.say(1500, 2000, kind=StepKind.NOISE)
    call.say(2500, 2700, kind=StepKind.DTMF)
    call.say(3000, 3250, kind=StepKind.BACKCHANNEL)
    assert measured(overlap.overlap_rate(CallView(call.build(10_000)))).value == pytest.approx(
        0.025, abs=1e-4
    )


@pytest.mark.parametrize(("pause", "expected"), [(190, 0.1), (210, 0.079)])
def test_a_pause_of_the_user_below_200_ms_is_part_of_talk(
    new_call: Any, pause: float, expected: float
) -> None:
    call = new_call()
    call.reply(1000, call.tone(3000))
    call.say(2000, 3000, pause=(2400, 2400 + pause))
    value = measured(overlap.overlap_rate(CallView(call.build(10_000)))).value
    assert value == pytest.approx(expected, abs=1e-4)


def test_an_agent_that_takes_no_notice_of_a_barge_in_did_not_begin_the_overlap(
    new_call: Any,
) -> None:
    call = new_call()
    call.reply(1000, call.tone(900), call.hush(150), call.tone(3000))
    call.say(1500, 4000, kind=StepKind.BARGE_IN)
    view = CallView(call.build(10_000))
    assert measured(overlap.agent_overlap_rate(view)).value == 0
    # After a silence of 250 ms the same sound is a new start of the agent.
    other = new_call()
    other.reply(1000, other.tone(900), other.hush(250), other.tone(3000))
    other.say(1500, 4000, kind=StepKind.BARGE_IN)
    began = measured(overlap.agent_overlap_rate(CallView(other.build(10_000))))
    assert began.value == pytest.approx((4.0 - 2.15) / 10, abs=1e-4)


def test_time_counts_as_long_as_the_user_s_stream_runs(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 3000)
    call.reply(2500, call.tone(2000))
    timeline = call.build(10_000)
    # The session was ready 2 s before the first frame left and the line stayed open after the last.
    early = replace(timeline, ready=call.at(-2000), ended=call.at(15_000))
    assert shares(CallView(early)) == shares(CallView(timeline))
    mute = replace(timeline, stream=timeline.stream[:0])
    assert overlap.overlap_rate(CallView(mute)) == Undefined(Reason.NOT_APPLICABLE)


def test_talk_after_the_end_of_watching_counts_for_nothing(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(10_000), pace=0)
    view = CallView(call.build(4000))
    assert shares(view) == near(0, 0, 0, 1.5 / 2.5)


def test_a_stamp_error_widens_the_share_by_what_it_may_move(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 3000)
    # The one message came somewhere in [2400, 2500]: the overlap lasts 500 to 600 ms.
    call.reply(2500, call.tone(2000), chunk_ms=2000, width_ms=100)
    value = measured(overlap.overlap_rate(CallView(call.build(10_000))))
    assert value.u == near(0, 0.01)
    assert value.lo == pytest.approx(0.05, abs=2e-4)
    assert value.hi == pytest.approx(0.06, abs=2e-4)


def test_a_gap_that_may_be_shorter_than_200_ms_may_be_talk(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 4000)
    call.reply(1000, call.tone(1000), response_id="r1", chunk_ms=1000)
    call.audio_at(2210, call.tone(1000), "r2", width_ms=30)
    value = measured(overlap.overlap_rate(CallView(call.build(10_000))))
    assert value.value == pytest.approx(0.2, abs=1e-4)
    # As soon as it may have come after 180 ms, the silence counts in the longest reading.
    assert value.hi == pytest.approx(0.221, abs=1e-3)


def test_who_began_last_is_open_where_the_starts_are_not_told_apart(new_call: Any) -> None:
    call = new_call()
    call.say(2450, 3000)
    call.reply(2500, call.tone(2000), chunk_ms=2000, width_ms=100)
    value = measured(overlap.agent_overlap_rate(CallView(call.build(10_000))))
    assert value.value == pytest.approx(0.05, abs=1e-4)
    assert value.lo == 0
    assert value.hi >= 0.05


def _silent(call: Any) -> None:
    call.reply(3000, call.tone(500, amplitude=5))


def _corrupt(call: Any) -> None:
    call.reply(3000, call.tone(500))
    call.audio[3] = replace(call.audio[3], is_corrupt=True)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda call: None, Reason.NO_AUDIO),
        (_silent, Reason.NOT_AUDIBLE),
        (_corrupt, Reason.CORRUPT_AUDIO),
    ],
)
def test_where_the_agent_was_not_heard_nothing_is_said_of_its_talk(
    new_call: Any, spoil: Any, reason: Reason
) -> None:
    call = new_call()
    call.say(1000, 2000)
    spoil(call)
    view = CallView(call.build())
    for metric in (*SHARES, *COUNTS):
        assert metric(view) == Undefined(reason), metric


def test_where_the_caller_s_echo_is_not_told_from_speech_there_is_no_overlap(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(1000), response_id="r1")
    timeline = call.build()
    (segment,) = CallView(timeline).hearing.segments
    for doubtful in (replace(segment, is_start_echo=True), replace(segment, is_end_echo=True)):
        view = CallView(timeline)
        view.__dict__["hearing"] = replace(view.hearing, segments=(doubtful,))
        for metric in (*SHARES, *COUNTS):
            assert metric(view) == Undefined(Reason.ECHO), metric


def test_in_noise_above_any_gate_there_is_no_overlap_rate(new_call: Any) -> None:
    call = new_call(continuous_stream=True, response_ids=False)
    call.say(1000, 2000)
    call.reply(0, call.noise(5000, -20), response_id=None)
    for metric in (*SHARES, *COUNTS):
        assert metric(CallView(call.build())) == Undefined(Reason.NOISE_TOO_HIGH)


def test_a_call_that_never_was_ready_and_a_user_who_says_nothing_have_no_overlap(
    new_call: Any,
) -> None:
    call = new_call()
    call.reply(500, call.tone(500))
    call.say(1000, 2000, kind=StepKind.NOISE)
    timeline = call.build()
    for metric in SHARES:
        assert metric(CallView(timeline)) == Undefined(Reason.NOT_APPLICABLE)
        assert metric(CallView(replace(timeline, ready=None))) == Undefined(Reason.CALL_FAILED)


def test_a_floor_transfer_is_signed_and_early_replies_belong_to_it(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 3000)
    call.reply(2500, call.tone(1500), response_id="early")
    call.say(6000, 7000)
    call.reply(7400, call.hush(100), call.tone(500), response_id="late")
    call.say(10_000, 11_000, reply_within_s=2)
    view = CallView(call.build())
    early, late, none = (overlap.floor_transfer_offset(turn) for turn in view.turn_views)
    assert measured(early).value == pytest.approx(-0.5, abs=1e-3)
    assert measured(late).value == pytest.approx(0.5, abs=1e-3)
    assert none == Undefined(Reason.NOT_APPLICABLE)


def test_a_transfer_to_audio_that_could_not_be_decoded_has_no_offset(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(500))
    call.audio[0] = replace(call.audio[0], is_corrupt=True)
    (turn,) = CallView(call.build()).turn_views
    assert overlap.floor_transfer_offset(turn) == Undefined(Reason.CORRUPT_AUDIO)


def test_interruptions_and_reprompts_are_counted_by_response(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 6000)
    call.reply(1500, call.tone(500), response_id="mhm")
    # One response in two segments takes the floor, and so does the reply.
    call.reply(3000, call.tone(1200), call.hush(400), call.tone(1200), response_id="cut in")
    call.reply(5900, call.tone(1000), response_id="reply")
    call.reply(12_000, call.tone(600), call.hush(500), call.tone(600), response_id="still there?")
    view = CallView(call.build())
    assert overlap.agent_interruptions(view) == Measured(2.0)
    assert overlap.reprompts(view) == Measured(1.0)


# Edges in ms, in order, cut into stretches of user and agent; errors are up to 90 ms.
_edges = st.lists(st.integers(0, 9_000), min_size=2, max_size=16, unique=True).map(sorted)
_errors = st.lists(st.integers(0, 90), min_size=4, max_size=4)


def pairs(edges: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(edges[::2], edges[1::2], strict=False))


def view_of(
    call: Any, user: Sequence[tuple[int, int]], agent: Sequence[tuple[int, int]], errors: list[int]
) -> CallView:
    """Return a call in which talk is what is given, each edge with the same errors."""
    before, after, minus, plus = (e * NS_PER_MS for e in errors)

    def edge(ms: int) -> Edge:
        at = call.at(ms).at
        return Edge(Instant(at - before, at + after, at), minus, plus)

    for begin, end in user:
        call.say(begin, end)
    call.audio_at(0, np.zeros(10, dtype=np.int16))
    view = CallView(call.build(10_000))
    sounds = tuple((edge(a), edge(b)) for a, b in agent)
    heard: Hearing = replace(view.hearing, sounds=sounds)
    view.__dict__["hearing"] = heard
    return view


def simulated(user: Sequence[tuple[int, int]], agent: Sequence[tuple[int, int]]) -> list[float]:
    """Return the shares by brute force, millisecond by millisecond."""

    def lane(stretches: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
        talks, since = np.zeros(10_000, bool), np.full(10_000, -1)
        for begin, end in stretches:
            talks[begin:end] = True
        start, last = -1, -1000
        for t in range(10_000):
            if not talks[t]:
                continue
            if t - last - 1 >= 200:
                start = t
            since[last + 1 if start <= last else t : t + 1] = start
            last = t
        return since >= 0, since

    (u, u_since), (a, a_since) = lane(user), lane(agent)
    both = (u & a).sum()
    began = (u & a & (a_since > u_since)).sum()
    return [both / 10_000, both / (u | a).sum(), began / 10_000, a.sum() / (a.sum() + u.sum())]


fast = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@fast
@given(_edges, _edges)
def test_the_shares_are_those_of_a_call_gone_through_by_the_millisecond(
    new_call: Any, user: list[int], agent: list[int]
) -> None:
    view = view_of(new_call(), pairs(user), pairs(agent), [0, 0, 0, 0])
    assert shares(view) == pytest.approx(simulated(pairs(user), pairs(agent)))


@fast
@given(_edges, _edges, _errors, st.data())
def test_the_interval_holds_the_value_and_whatever_the_edges_allow(
    new_call: Any, user: list[int], agent: list[int], errors: list[int], data: Any
) -> None:
    view = view_of(new_call(), pairs(user), pairs(agent), errors)
    before, after, minus, plus = errors
    moved = st.integers(-before - minus, after + plus)
    truth = [max(0, edge + data.draw(moved)) for edge in agent]
    true_agent = [(a, b) for a, b in pairs(truth) if a < b]
    for metric, true in zip(SHARES, simulated(pairs(user), true_agent), strict=True):
        value = measured(metric(view))
        assert value.lo - 1e-9 <= value.value <= value.hi + 1e-9
        assert value.lo - 1e-9 <= true <= value.hi + 1e-9
        assert min(*value.u, *value.u_detect) >= 0


@fast
@given(_edges, _edges, _errors, st.data())
def test_it_does_not_matter_how_talk_is_cut_into_stretches_or_when_the_call_was(
    new_call: Any, user: list[int], agent: list[int], errors: list[int], data: Any
) -> None:
    exact = [0, 0, 0, 0]
    whole = view_of(new_call(), pairs(user), pairs(agent), exact)
    begin, end = data.draw(st.sampled_from(pairs(agent)))
    cut = data.draw(st.integers(begin, end))
    pieces = sorted([*pairs(agent), (begin, cut), (cut, end)])
    pieces.remove((begin, end))
    parts = view_of(new_call(), pairs(user), [p for p in pieces if p[0] < p[1]], exact)
    later = view_of(new_call(origin_ms=86_400_000), pairs(user), pairs(agent), errors)
    for metric in SHARES:
        assert metric(parts) == metric(whole)
        there = view_of(new_call(), pairs(user), pairs(agent), errors)
        assert metric(later) == metric(there)


@fast
@given(_edges, _edges)
def test_overlap_is_the_same_whichever_side_talks(
    new_call: Any, user: list[int], agent: list[int]
) -> None:
    one = view_of(new_call(), pairs(user), pairs(agent), [0, 0, 0, 0])
    other = view_of(new_call(), pairs(agent), pairs(user), [0, 0, 0, 0])
    for metric in (overlap.overlap_rate, overlap.overlap_share_of_speech):
        assert metric(one) == metric(other)
    total = measured(overlap.overlap_rate(one)).value
    begun = [measured(overlap.agent_overlap_rate(view)).value for view in (one, other)]
    # Of two starts at the same moment neither is later.
    assert sum(begun) <= total + 1e-12
    if not set(user) & set(agent):
        assert sum(begun) == pytest.approx(total)
