"""What servers say of turns and of their own latency, beside what was heard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vakforge_eval.metrics.claimed import CLAIMS, LATENCY, Claimed, claims
from vakforge_eval.metrics.latency import ttfa_heard
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.events import (
    Claim,
    ResponseAudioEnd,
    SpeechStarted,
    SpeechStopped,
    Truncated,
)
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Measured, Reason, Undefined


def told(call: Any, name: str, ended: float = 20_000) -> list[Claimed]:
    return [claim for claim in claims(CallView(call.build(ended))) if claim.claim == name]


def numbers(claim: Claimed) -> tuple[float, float, float]:
    assert isinstance(claim.heard, Measured), claim
    assert isinstance(claim.difference, Measured), claim
    return claim.claimed.value, claim.heard.value, claim.difference.value


def near(*values: float) -> Any:
    return pytest.approx(values, abs=1e-3)


def item_audio(call: Any, ms: float, duration: float, item_id: str = "i1") -> None:
    """Let a response of one item arrive in one message."""
    call.reply(ms, call.tone(duration), chunk_ms=duration)
    call.audio[-1] = replace(call.audio[-1], item_id=item_id)


def test_speech_events_are_held_against_the_microphone_by_offset_and_by_arrival(
    new_call: Any,
) -> None:
    call = new_call()
    call.say(1000, 3000)
    # The stream begins with the session: its offset is the time since ready. The server pads by
    # 300 ms in front, waits 500 ms behind, and its words take 40 ms.
    call.event(SpeechStarted(at=call.at(1140), offset_ms=700))
    call.event(SpeechStopped(at=call.at(3540), offset_ms=3500))
    call.reply(3700, call.tone(1000))
    assert [numbers(c) for c in told(call, "speech_started")] == [near(-0.3, 0, -0.3)]
    assert [numbers(c) for c in told(call, "speech_started_event")] == [near(0.14, 0, 0.14)]
    assert [numbers(c) for c in told(call, "speech_stopped")] == [near(2.5, 2, 0.5)]
    assert [numbers(c) for c in told(call, "speech_stopped_event")] == [near(2.54, 2, 0.54)]


@pytest.mark.parametrize("offset", [None, -1.0, 1e9, 10**400])
def test_an_offset_outside_of_the_stream_claims_nothing(new_call: Any, offset: Any) -> None:
    call = new_call()
    call.say(1000, 3000)
    call.event(SpeechStarted(at=call.at(1140), offset_ms=offset))
    call.event(SpeechStopped(at=call.at(3540), offset_ms=offset))
    assert told(call, "speech_started") == told(call, "speech_stopped") == []
    assert len(told(call, "speech_started_event")) == len(told(call, "speech_stopped_event")) == 1


def test_what_the_server_says_of_a_later_backchannel_is_not_the_start_of_the_turn(
    new_call: Any,
) -> None:
    call = new_call()
    call.say(1000, 3000)
    call.reply(3500, call.tone(3000))
    call.say(5000, 5300, kind=StepKind.BACKCHANNEL)
    call.event(SpeechStarted(at=call.at(5100), offset_ms=5000))
    assert told(call, "speech_started_event") == []


def test_turns_that_the_probe_spoilt_prove_nothing_against_a_server(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 3000, late_ms=50)
    call.event(SpeechStarted(at=call.at(1140), offset_ms=700))
    call.event(Claim(at=call.at(3600), name="ttfb", value_s=0.2))
    view = CallView(call.build())
    assert {claim.claim for claim in claims(view)} == {LATENCY + "ttfb"}
    assert claims(view)[0].heard == Undefined(Reason.NOT_APPLICABLE)


def test_a_cut_item_is_held_against_what_was_played_of_it(new_call: Any) -> None:
    call = new_call()
    item_audio(call, 1000, 5000)
    call.flush(2200)
    call.event(Truncated(at=call.at(2300), item_id="i1", audio_end_ms=1500))
    (claim,) = told(call, "truncated")
    assert numbers(claim) == near(1.5, 1.2, 0.3)


def test_an_item_that_is_still_played_when_it_is_said_to_be_cut_counts_until_then(
    new_call: Any,
) -> None:
    call = new_call()
    item_audio(call, 1000, 5000)
    call.event(Truncated(at=call.at(2300, width_ms=20), item_id="i1", audio_end_ms=1300))
    (claim,) = told(call, "truncated")
    assert numbers(claim) == near(1.3, 1.3, 0)
    assert isinstance(claim.difference, Measured)
    assert (claim.difference.lo, claim.difference.hi) == near(0, 0.02)


def test_the_error_of_the_flush_and_of_the_arrival_is_in_what_was_played(new_call: Any) -> None:
    call = new_call()
    call.reply(1000, call.tone(5000), chunk_ms=5000, width_ms=30)
    call.audio[-1] = replace(call.audio[-1], item_id="i1")
    call.flushes.append(replace(_flush(call, 2200), at=call.at(2200, width_ms=8)))
    call.event(Truncated(at=call.at(2300), item_id="i1", audio_end_ms=1200))
    (claim,) = told(call, "truncated")
    assert isinstance(claim.heard, Measured)
    # From [970, 1000] to [2192, 2200].
    assert claim.heard.lo <= 1.192
    assert claim.heard.hi >= 1.23
    assert claim.heard.hi - claim.heard.lo <= 2 * 0.038 + 1e-9


def _flush(call: Any, ms: float) -> Any:
    call.flush(ms)
    return call.flushes.pop()


def test_a_cut_of_an_item_that_never_came_has_nothing_to_compare(new_call: Any) -> None:
    call = new_call()
    item_audio(call, 1000, 5000)
    call.event(Truncated(at=call.at(2300), item_id="i2", audio_end_ms=1300))
    call.event(Truncated(at=call.at(2300), item_id=None, audio_end_ms=1300))
    call.event(Truncated(at=call.at(2300), item_id="i1", audio_end_ms=10**400))
    call.event(Truncated(at=call.at(2300), item_id="i1", audio_end_ms=-5))
    call.event(Truncated(at=call.at(2400), item_id="i2", audio_end_ms=1400))
    found = told(call, "truncated")
    assert [claim.heard for claim in found] == [Undefined(Reason.NO_AUDIO)] * 2


def test_a_burst_is_over_for_the_server_long_before_it_was_heard(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(4000), pace=0)
    call.event(ResponseAudioEnd(at=call.at(2550), response_id="r1"))
    assert [numbers(c) for c in told(call, "response_ended")] == [near(0, 4, -4)]
    assert [numbers(c) for c in told(call, "response_audio_end")] == [near(0.05, 4, -3.95)]


def test_a_response_that_was_cut_or_cancelled_says_nothing_of_its_end(new_call: Any) -> None:
    call = new_call()
    call.reply(1000, call.tone(4000), pace=0, response_id="cut")
    call.flush(2000)
    call.reply(6000, call.tone(500), response_id="cancelled", status="cancelled")
    assert told(call, "response_ended") == []


def test_a_latency_is_held_against_that_of_its_own_response(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2800, call.tone(500), response_id="r1")
    call.say(5000, 6000)
    call.reply(7000, call.tone(500), response_id="r2")
    # It comes a turn late, and names its response.
    call.event(Claim(at=call.at(7100), name="ttfb", value_s=0.3, response_id="r1"))
    call.event(Claim(at=call.at(7200), name="processing", value_s=0.4))
    call.event(Claim(at=call.at(7300), name="ttfb", value_s=0.3, response_id="r9"))
    first, last = told(call, LATENCY + "ttfb")
    (open_turn,) = told(call, LATENCY + "processing")
    assert numbers(first) == near(0.3, 0.8, -0.5)
    assert numbers(open_turn) == near(0.4, 1.0, -0.6)
    assert last.difference == Undefined(Reason.NOT_APPLICABLE)
    turn = CallView(call.build()).turn_views[0]
    heard = ttfa_heard(turn)
    assert isinstance(heard, Measured)
    assert isinstance(first.difference, Measured)
    assert first.difference.lo == pytest.approx(0.3 - heard.hi)
    assert first.difference.hi == pytest.approx(0.3 - heard.lo)


@pytest.mark.parametrize("value", [None, -0.1, 1e300, 10**400])
def test_a_latency_that_is_none_is_no_claim(new_call: Any, value: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2800, call.tone(500))
    call.event(Claim(at=call.at(2900), name="ttfb", value_s=value))
    assert told(call, LATENCY + "ttfb") == []


def test_a_call_without_a_claim_has_none_and_every_other_has_a_name(new_call: Any) -> None:
    call = new_call()
    assert claims(CallView(call.build(0))) == ()
    call.say(1000, 2000)
    call.event(SpeechStarted(at=call.at(1140), offset_ms=700))
    call.event(SpeechStopped(at=call.at(2540), offset_ms=2500))
    call.reply(2800, call.tone(500))
    found = claims(CallView(call.build()))
    assert {claim.claim for claim in found} <= set(CLAIMS)


def test_moving_the_whole_call_on_the_clock_changes_no_claim(new_call: Any) -> None:
    found = []
    for origin in (1000, 86_400_000):
        call = new_call(origin_ms=origin)
        call.say(1000, 2000)
        call.event(SpeechStarted(at=call.at(1140), offset_ms=700))
        call.reply(2800, call.tone(500))
        call.event(Claim(at=call.at(2900), name="ttfb", value_s=0.3))
        found.append(claims(CallView(call.build())))
    assert found[0] == found[1]


class Counted(tuple[Any, ...]):
    """A tuple that counts how often it is gone through."""

    passes = 0

    def __iter__(self) -> Any:
        type(self).passes += 1
        return super().__iter__()


def test_the_events_of_a_call_are_not_gone_through_for_every_turn(new_call: Any) -> None:
    passes = []
    for n_turns in (2, 8):
        call = new_call()
        for i in range(n_turns):
            call.say(1000 + 5000 * i, 2000 + 5000 * i)
            call.event(SpeechStarted(at=call.at(1140 + 5000 * i), offset_ms=None))
        timeline = call.build(5000 * n_turns)
        view = CallView(replace(timeline, events=Counted(timeline.events)))
        assert len(claims(view)) == n_turns
        Counted.passes = 0
        claims(view)
        passes.append(Counted.passes)
    assert passes[0] == passes[1]
