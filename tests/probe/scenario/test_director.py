"""The director on a hand clock. Times are ms; an action is logged when it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Interrupt,
    ResponseEnded,
    ResponseStarted,
    TextDelta,
    ToolCall,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.script import StepKind
from vakforge_probe.scenario.anchors import parse_anchor
from vakforge_probe.scenario.director import Action, Branch, Director, Fire, HangUp, Skip
from vakforge_probe.scenario.edges import HeardEdge
from vakforge_probe.scenario.flow import Act, Choice, Condition, Flow, Node, Way

MS = 1_000_000
T0 = 10_000
"""The stream starts here, so that a forgotten origin shows."""
LEAD = 40


@dataclass
class Scripted:
    flow: Flow


class Stage:
    """Director, clock and log. All times are ms from the stream's start."""

    def __init__(
        self,
        *nodes: Node,
        call: int = 60_000,
        greeting: int = 3000,
        delays: dict[str, int] | None = None,
        tells_end: bool = True,
    ) -> None:
        flow = Flow(
            nodes=nodes,
            call_ns=call * MS,
            greeting_ns=greeting * MS,
            tool_delays_ns={k: v * MS for k, v in (delays or {"book": 900}).items()},
            tells_response_end=tells_end,
        )
        self.director = Director(Scripted(flow), lead_ns=LEAD * MS)
        self.now = 0
        self.log: list[tuple[float, Action]] = []
        self.director.ready(T0 * MS)
        self.poll()

    def poll(self) -> None:
        now_ns = (T0 + self.now) * MS
        self.log += [(self.now, action) for action in self.director.poll(now_ns)]
        wake = self.director.next_wake()
        assert wake is None or wake > now_ns, "an action was left behind"

    def to(self, ms: int) -> Stage:
        """Let time pass, polling only when asked for."""
        assert ms >= self.now
        while (wake := self.director.next_wake()) is not None and wake <= (T0 + ms) * MS:
            self.now = -(-wake // MS) - T0
            self.poll()
        self.now = ms
        return self

    def hear(self, kind: Any, at: int, rid: str | None = "r") -> Stage:
        self.director.heard(HeardEdge(kind, (T0 + at) * MS, (T0 + self.now) * MS, rid))
        self.poll()
        return self

    def tell(self, cls: type[Event], **facts: Any) -> Stage:
        self.director.event(cls(at=Instant.exact((T0 + self.now) * MS), **facts))
        self.poll()
        return self

    def flush(self, *, was_speaking: bool = True) -> Stage:
        """What a call does when audio is dropped."""
        self.director.revoke((T0 + self.now) * MS)
        if was_speaking:
            self.director.heard(HeardEdge("end", (T0 + self.now) * MS, (T0 + self.now) * MS, "r"))
        self.poll()
        return self

    def reply(self, start: int, end: int, rid: str = "r") -> Stage:
        """A paced reply: response started, heard, ended as it is heard."""
        self.to(start).tell(ResponseStarted, response_id=rid).hear("onset", start, rid)
        return self.to(end).tell(ResponseEnded, response_id=rid).hear("end", end, rid)

    @property
    def fired(self) -> list[tuple[int, float]]:
        """(step, planned start of speech without lead-in) of each `Fire`."""
        return [(a.step, a.due_ns / MS - T0) for _, a in self.log if isinstance(a, Fire)]

    @property
    def rest(self) -> list[Action]:
        """All that is no `Fire`."""
        return [a for _, a in self.log if not isinstance(a, Fire)]

    def fire(self, step: int) -> Fire:
        return next(a for _, a in self.log if isinstance(a, Fire) and a.step == step)

    def given_at(self, step: int) -> float:
        return next(t for t, a in self.log if isinstance(a, Fire) and a.step == step)


def act(
    step: int, kind: str, anchor: str, speech: int = 1000, *, lead: int = 0, within: int = 8000,
    limit: int = 0,
) -> Act:  # fmt: skip
    silent = kind in ("sham", "pause", "wait", "hang_up")
    return Act(
        step=step,
        kind=StepKind(kind),
        anchor=parse_anchor(anchor),
        reply_within_ns=within * MS,
        lead_ns=lead * MS,
        speech_ns=0 if silent else speech * MS,
        limit_ns=limit * MS,
    )


def say(step: int = 0, anchor: str = "0 s", **facts: Any) -> Act:
    return act(step, "say", anchor, **facts)


def barge(step: int = 1, anchor: str = "600 ms after agent onset", **facts: Any) -> Act:
    return act(step, "barge_in", anchor, **facts)


# -- time ---------------------------------------------------------------------------------------


def test_nothing_happens_before_the_stream_is_ready() -> None:
    director = Director(Scripted(Flow((say(),), 1, 1, {}, tells_response_end=True)))
    assert director.poll(10**15) == []
    assert director.next_wake() is None


def test_a_step_at_a_time_is_given_out_one_lead_before_it() -> None:
    stage = Stage(say(0, "4.0 s")).to(5000)
    assert stage.fired == [(0, 4000)]
    assert stage.given_at(0) == 4000 - LEAD
    fire = stage.fire(0)
    assert (fire.anchor, fire.live_ns, fire.confirmed_ns) == ("4.0 s", None, None)


def test_due_is_the_first_sample_so_that_speech_begins_at_the_anchor() -> None:
    stage = Stage(say(0, "4.0 s", lead=20)).to(5000)
    assert stage.fired == [(0, 3980)]


def test_after_previous_counts_from_the_end_of_its_speech() -> None:
    stage = Stage(say(speech=1000, lead=15), act(1, "correction", "300 ms after previous", lead=20))
    stage.to(3000)
    # The first step's lead-in could not be laid before the stream: its speech began 15 ms late.
    assert stage.fired == [(0, -15), (1, 15 + 1000 + 300 - 20)]


def test_after_previous_without_offset_is_given_out_while_the_previous_step_still_plays() -> None:
    stage = Stage(say(speech=1000), act(1, "correction", "after previous", lead=20)).to(3000)
    assert stage.fired == [(0, 0), (1, 980)]
    assert stage.given_at(1) == 980 - LEAD


def test_the_user_never_speaks_over_the_user() -> None:
    stage = Stage(say(speech=3000), act(1, "noise", "1 s"), act(2, "say", "after tool call book"))
    stage.to(500).tell(ToolCall, call_id="c", name="book", response_id="r").to(9000)
    assert stage.fired == [(0, 0), (1, 3000), (2, 4000)]


# -- greeting -----------------------------------------------------------------------------------


def test_the_user_opens_after_the_greeting_has_been_heard() -> None:
    stage = Stage(say(anchor="300 ms after greeting")).reply(400, 2000).to(5000)
    assert stage.fired == [(0, 2300)]
    fire = stage.fire(0)
    assert fire.live_ns == (T0 + 2000) * MS
    assert fire.confirmed_ns == (T0 + 2000) * MS


def test_the_user_opens_alone_when_no_greeting_comes() -> None:
    stage = Stage(say(anchor="300 ms after greeting"), greeting=3000).to(5000)
    assert stage.fired == [(0, 3000)]
    assert stage.fire(0).live_ns is None


def test_a_greeting_that_is_being_made_is_waited_for() -> None:
    stage = Stage(say(anchor="300 ms after greeting"), greeting=3000)
    stage.to(2500).tell(ResponseStarted, response_id="r").to(4000)
    assert stage.fired == []
    stage.hear("onset", 4000).to(6000).tell(ResponseEnded, response_id="r").hear("end", 6000)
    stage.to(9000)
    assert stage.fired == [(0, 6300)]


# -- the end of a reply -------------------------------------------------------------------------


NEXT = act(1, "say", "500 ms after agent end")


def test_the_next_turn_begins_after_the_reply() -> None:
    stage = Stage(say(), NEXT).reply(1500, 3000).to(9000)
    assert stage.fired == [(0, 0), (1, 3500)]


@pytest.mark.parametrize("order", ["edge first", "event first"])
def test_it_does_not_matter_whether_edge_or_event_tells_the_end_first(order: str) -> None:
    stage = Stage(say(), NEXT)
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500).to(3000)
    if order == "edge first":
        stage.hear("end", 3000).tell(ResponseEnded, response_id="r")
    else:
        stage.tell(ResponseEnded, response_id="r").hear("end", 3000)
    assert stage.to(9000).fired == [(0, 0), (1, 3500)]


def test_a_pause_of_the_agents_is_no_end_while_its_response_goes_on() -> None:
    stage = Stage(say(), NEXT)
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(2400).hear("end", 2000).to(4000)
    assert stage.fired == [(0, 0)]
    stage.hear("onset", 4000).to(5000).tell(ResponseEnded, response_id="r").hear("end", 5000)
    assert stage.to(9000).fired == [(0, 0), (1, 5500)]


def test_a_second_segment_before_the_step_fires_takes_the_end_back() -> None:
    """Without told ends, only a new onset says that the reply was not over."""
    stage = Stage(say(), NEXT, tells_end=False)
    stage.to(1530).hear("onset", 1500).to(2350).hear("end", 2000)
    stage.to(2430).hear("onset", 2400)
    stage.to(4350).hear("end", 4000).to(9000)
    assert stage.fired == [(0, 0), (1, 4500)]


def test_audio_queued_ahead_plans_ahead() -> None:
    stage = Stage(say(), NEXT).to(1500).tell(ResponseStarted, response_id="r")
    stage.hear("onset", 1500).hear("end", 6000).tell(ResponseEnded, response_id="r")
    assert stage.director.next_wake() == (T0 + 6500 - LEAD) * MS
    assert stage.to(9000).fired == [(0, 0), (1, 6500)]


def test_a_filler_before_a_tool_result_does_not_end_the_reply() -> None:
    stage = Stage(say(), NEXT, delays={"book": 3000})
    stage.to(1500).tell(ResponseStarted, response_id="a").hear("onset", 1500, "a")
    stage.to(2000).tell(ToolCall, call_id="c", name="book", response_id="a")
    stage.to(2500).tell(ResponseEnded, response_id="a").hear("end", 2500, "a")
    stage.to(5000).director.tool_answered("book", (T0 + 5000) * MS)
    stage.poll()
    assert stage.to(5900).fired == [(0, 0)]
    stage.reply(6000, 7000, "b").to(9000)
    assert stage.fired == [(0, 0), (1, 7500)]


def test_the_rest_of_the_filler_is_not_the_answer_to_the_tool_result() -> None:
    stage = Stage(say(), NEXT, delays={"book": 0})
    stage.to(1500).tell(ResponseStarted, response_id="a").hear("onset", 1500, "a")
    stage.to(1600).tell(ToolCall, call_id="c", name="book", response_id="a")
    stage.director.tool_answered("book", (T0 + 1600) * MS)
    stage.to(1700).hear("end", 1700, "a").to(2100).hear("onset", 2100, "a")
    stage.to(2500).tell(ResponseEnded, response_id="a").hear("end", 2500, "a").to(3500)
    assert stage.fired == [(0, 0)]
    stage.reply(3600, 5000, "b").to(9000)
    assert stage.fired == [(0, 0), (1, 5500)]


@pytest.mark.parametrize("sign", [AudioChunk, TextDelta, ResponseStarted])
def test_without_told_ends_only_speech_after_the_tool_result_is_its_answer(
    sign: type[Event],
) -> None:
    """A message tells it 30 ms before the onset does; the filler's end must not count between."""
    stage = Stage(say(), NEXT, tells_end=False)
    stage.to(1500).hear("onset", 1500, None).to(2400).hear("end", 2000, None)
    stage.tell(ToolCall, call_id="c", name="book")
    stage.to(3400).director.tool_answered("book", (T0 + 3400) * MS)
    stage.to(4000).tell(sign).to(4030).hear("onset", 4000, None)
    stage.to(5400).hear("end", 5000, None).to(9000)
    assert stage.fired == [(0, 0), (1, 5500)]


def test_a_tool_call_that_leads_nowhere_ends_by_time_out() -> None:
    stage = Stage(say(within=4000), NEXT, delays={"book": 900})
    stage.to(1500).tell(ToolCall, call_id="c", name="book", response_id="a")
    stage.to(2400).director.tool_answered("book", (T0 + 2400) * MS)
    stage.poll()
    assert stage.to(20_000).fired == [(0, 0), (1, 6400)]


def test_a_slow_tool_is_no_missing_reply() -> None:
    stage = Stage(say(within=2000), NEXT, delays={"book": 9000})
    stage.to(1500).tell(ToolCall, call_id="c", name="book", response_id="a").to(10_400)
    assert stage.fired == [(0, 0)]
    stage.to(10_500).director.tool_answered("book", (T0 + 10_500) * MS)
    assert stage.reply(11_000, 12_000).to(15_000).fired == [(0, 0), (1, 12_500)]


def test_no_reply_at_all_leads_on_after_the_replys_budget() -> None:
    stage = Stage(say(within=4000), NEXT).to(20_000)
    assert stage.fired == [(0, 0), (1, 5000)]
    assert stage.fire(1).live_ns is None


def test_a_response_without_a_sound_is_waited_for_and_then_given_up() -> None:
    stage = Stage(say(within=4000), NEXT)
    stage.to(3000).tell(ResponseStarted, response_id="r").to(20_000)
    assert stage.fired == [(0, 0), (1, 7000)]


def test_an_agents_backchannel_in_the_users_turn_is_no_reply() -> None:
    stage = Stage(say(speech=3000), NEXT)
    stage.reply(1000, 1400, "bc").to(3600)
    assert stage.fired == [(0, 0)]
    assert stage.reply(3700, 5000).to(9000).fired == [(0, 0), (1, 5500)]


def test_a_reply_that_began_early_ends_like_any_other() -> None:
    stage = Stage(say(speech=3000), NEXT).reply(2500, 5000).to(9000)
    assert stage.fired == [(0, 0), (1, 5500)]


def test_the_end_of_an_old_reply_is_no_reply_to_a_barge_in() -> None:
    """An agent that never stops has not answered: its answer is waited for."""
    stage = Stage(say(), barge(speech=1500), act(2, "say", "500 ms after agent end"))
    stage.reply(1500, 6000).to(6600)
    assert stage.fired == [(0, 0), (1, 2100)]
    assert stage.reply(7000, 8000, "b").to(12_000).fired == [(0, 0), (1, 2100), (2, 8500)]


def test_a_negative_offset_is_met_when_the_audio_is_here_ahead() -> None:
    stage = Stage(say(), barge(anchor="-300 ms after agent end", speech=1500))
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.hear("end", 5000).tell(ResponseEnded, response_id="r").to(9000)
    assert stage.fired == [(0, 0), (1, 4700)]


# -- the onset ----------------------------------------------------------------------------------


def test_a_barge_in_fires_after_the_heard_onset() -> None:
    stage = Stage(say(), barge(lead=20, speech=1500))
    stage.to(1530).tell(ResponseStarted, response_id="r").hear("onset", 1500).to(3000)
    assert stage.fired == [(0, 0), (1, 2080)]
    assert stage.fire(1) == Fire(
        1, (T0 + 2080) * MS, "600 ms after agent onset", (T0 + 1500) * MS, (T0 + 1530) * MS
    )


def test_an_onset_that_is_revoked_before_the_step_fired_fires_nothing() -> None:
    stage = Stage(say(), barge(), call=30_000)
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 2500).hear("end", 9000)
    stage.to(2400).flush(was_speaking=False).tell(ResponseEnded, response_id="r").to(5000)
    assert stage.fired == [(0, 0)]
    stage.to(6000).hear("onset", 6000, "b").to(7000)
    assert stage.fired == [(0, 0), (1, 6600)]


def test_speech_that_is_cut_before_the_offset_is_not_barged_into() -> None:
    stage = Stage(say(), barge()).to(1500).tell(ResponseStarted, response_id="r")
    stage.hear("onset", 1500).hear("end", 9000)
    stage.to(1900).flush().tell(ResponseEnded, response_id="r").to(4000)
    assert stage.fired == [(0, 0)]


def test_a_revoke_leaves_what_was_heard_before_it() -> None:
    stage = Stage(say(), act(1, "say", "2 s after agent onset"))
    stage.to(1500).hear("onset", 1500).to(1600).flush().to(9000)
    assert stage.fired == [(0, 0), (1, 3500)]


def test_one_reply_can_be_barged_into_twice() -> None:
    stage = Stage(say(), barge(1, speech=1500), barge(2, "4 s after agent onset"))
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500).to(9000)
    assert stage.fired == [(0, 0), (1, 2100), (2, 5500)]


def test_an_offset_that_is_past_waits_for_the_next_onset() -> None:
    stage = Stage(say(), barge(1, speech=1500), barge(2, "700 ms after agent onset"))
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500).to(4000)
    stage.tell(ResponseEnded, response_id="r").hear("end", 4000)
    assert stage.fired == [(0, 0), (1, 2100)]
    stage.to(5000).tell(ResponseStarted, response_id="b").hear("onset", 5000, "b").to(9000)
    assert stage.fired == [(0, 0), (1, 2100), (2, 5700)]


def test_speech_from_before_the_steps_turn_counts_if_the_offset_lies_ahead() -> None:
    stage = Stage(say(speech=2000), barge(1, "600 ms after agent onset"))
    stage.to(1700).hear("onset", 1700).to(5000)
    assert stage.fired == [(0, 0), (1, 2300)]


def test_speech_that_ended_before_the_steps_turn_does_not_count() -> None:
    stage = Stage(say(speech=2000), act(1, "say", "600 ms after agent onset"))
    stage.reply(1500, 1900).to(5000)
    assert stage.fired == [(0, 0)]


@pytest.mark.parametrize("kind", ["barge_in", "backchannel", "noise", "side_talk", "sham"])
def test_what_is_meant_to_be_heard_over_speech_is_skipped_without_it(kind: str) -> None:
    stage = Stage(say(within=4000), act(1, kind, "600 ms after agent onset"), NEXT).to(20_000)
    assert Skip(1, "no_agent_speech") in stage.rest
    assert stage.fired == [(0, 0), (1, 5000)]  # NEXT has the index 1 too


def test_a_reply_too_short_to_be_barged_into_leads_on_soon() -> None:
    stage = Stage(say(within=8000), barge(1), act(2, "say", "500 ms after agent end"))
    stage.reply(1500, 1900).to(20_000)
    assert Skip(1, "no_agent_speech") in stage.rest
    assert stage.fired[1][0] == 2
    assert stage.fired[1][1] == pytest.approx(4900, abs=LEAD)


def test_a_barge_in_during_the_filler_fires_on_it() -> None:
    stage = Stage(say(), barge(1, speech=1500))
    stage.to(1500).tell(ResponseStarted, response_id="a").hear("onset", 1500, "a")
    stage.tell(ToolCall, call_id="c", name="book", response_id="a").to(4000)
    assert stage.fired == [(0, 0), (1, 2100)]


def test_a_chain_of_disturbances_keeps_its_order() -> None:
    stage = Stage(
        say(),
        act(1, "backchannel", "500 ms after agent onset", speech=300),
        act(2, "sham", "1.5 s after agent onset"),
        act(3, "side_talk", "2 s after agent onset", speech=800),
        barge(4, "3.5 s after agent onset", speech=1600),
        act(5, "correction", "300 ms after previous"),
        act(6, "say", "500 ms after agent end"),
    )
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(5600).flush().tell(ResponseEnded, response_id="r", status="cancelled")
    stage.reply(9000, 10_000, "b").to(12_000)
    assert stage.fired == [
        (0, 0), (1, 2000), (2, 3000), (3, 3500), (4, 5000), (5, 6900), (6, 10_500),
    ]  # fmt: skip


def test_a_backchannel_that_silences_the_agent_does_not_cost_the_next_turn_its_anchor() -> None:
    stage = Stage(say(), act(1, "backchannel", "500 ms after agent onset", speech=400), NEXT)
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(2200).flush().tell(ResponseEnded, response_id="r", status="cancelled").to(9000)
    assert stage.fired == [(0, 0), (1, 2000), (1, 2700)]


@pytest.mark.parametrize(("tells_end", "next_at"), [(True, 2700), (False, 6000)])
def test_an_agent_that_may_yet_go_on_after_a_disturbance_is_waited_for(
    tells_end: bool, next_at: int
) -> None:
    """Where a response's end is told, a silence that is no end is waited for anyway."""
    nod = act(1, "backchannel", "500 ms after agent onset", speech=400)
    stage = Stage(say(), nod, NEXT, tells_end=tells_end).to(1500).hear("onset", 1500)
    stage.to(2550).hear("end", 2200).to(9000)
    assert stage.fired == [(0, 0), (1, 2000), (1, next_at)]
    stuttering = Stage(say(), nod, NEXT, tells_end=False).to(1500).hear("onset", 1500)
    stuttering.to(2550).hear("end", 2200).to(4200).hear("onset", 4180).to(5350).hear("end", 5000)
    assert stuttering.to(9000).fired[2] == (1, 5500)
    late = Stage(say(), nod, NEXT, tells_end=False).to(1500).hear("onset", 1500)
    late.to(3400).hear("end", 3050).to(9000)
    assert late.fired[2] == (1, 3550)


# -- chains -------------------------------------------------------------------------------------


def test_an_offset_into_a_reply_outlasts_a_pause_for_breath() -> None:
    stage = Stage(say(), barge(1, "2.5 s after agent onset"))
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(2850).hear("end", 2500).to(3130).hear("onset", 3100).to(6000)
    assert stage.fired == [(0, 0), (1, 4000)]
    assert stage.fire(1).live_ns == (T0 + 1500) * MS


@pytest.mark.parametrize("back_at", [3990, 4100])
def test_an_offset_into_a_pause_waits_for_the_next_onset(back_at: int) -> None:
    """Also where the agent is known to speak again only after the moment."""
    stage = Stage(say(), barge(1, "2.5 s after agent onset"))
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(2850).hear("end", 2500).to(back_at + 30).hear("onset", back_at).to(9000)
    assert stage.fired == [(0, 0), (1, back_at + 2500)]


def test_a_caller_corrects_what_they_barged_in_with() -> None:
    stage = Stage(say(), barge(1, speech=1500), act(2, "correction", "400 ms after previous"), LAST)
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(2400).flush().tell(ResponseEnded, response_id="r", status="cancelled")
    stage.reply(6000, 7000, "b").to(9000)
    assert stage.fired == [(0, 0), (1, 2100), (2, 4000), (2, 7500)]


def test_after_a_stop_the_second_barge_in_goes_into_the_next_reply() -> None:
    stage = Stage(say(), barge(1, speech=1500), barge(2, "3 s after agent onset", speech=1500))
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(2400).flush().tell(ResponseEnded, response_id="r", status="cancelled")
    stage.to(4500).tell(ResponseStarted, response_id="b").hear("onset", 4500, "b").to(9000)
    assert stage.fired == [(0, 0), (1, 2100), (2, 7500)]


def test_a_barge_in_during_the_filler_is_answered_and_so_is_the_tool() -> None:
    stage = Stage(say(), barge(1, "400 ms after agent onset", speech=1500), LAST)
    stage.to(1500).tell(ResponseStarted, response_id="a").hear("onset", 1500, "a")
    stage.tell(ToolCall, call_id="c", name="book", response_id="a")
    stage.to(2100).flush().tell(ResponseEnded, response_id="a", status="cancelled")
    stage.to(2400).director.tool_answered("book", (T0 + 2400) * MS)
    stage.reply(4000, 5000, "b").to(9000)
    assert stage.fired == [(0, 0), (1, 1900), (2, 5500)]


def test_a_barge_in_before_an_end_that_is_not_told_ahead_comes_late_and_the_call_goes_on() -> None:
    """It meets silence: the capture says so, for its start lies after the end."""
    stage = Stage(say(), barge(1, "-300 ms after agent end", speech=1500), LAST)
    stage.reply(1500, 4000).to(6000)
    assert stage.fired == [(0, 0), (1, 3700)]
    assert stage.given_at(1) == 4000
    stage.reply(6500, 7500, "b").to(9000)
    assert stage.fired[2] == (2, 8000)


@pytest.mark.parametrize("kind", ["backchannel", "noise", "side_talk"])
@pytest.mark.parametrize(
    "anchor", ["700 ms after agent onset", "-300 ms after agent end", "200 ms after tool call book"]
)
def test_a_sham_comes_at_the_very_moment_of_what_it_stands_for(kind: str, anchor: str) -> None:
    def played(kind: str) -> list[tuple[int, float]]:
        stage = Stage(say(), act(1, kind, anchor, speech=300)).to(1500)
        stage.tell(ResponseStarted, response_id="r").hear("onset", 1500).hear("end", 6000)
        if "tool" in anchor:
            stage.tell(ToolCall, call_id="c", name="book", response_id="r")
        return stage.tell(ResponseEnded, response_id="r").to(9000).fired

    assert played(kind) == played("sham")
    assert [step for step, _ in played("sham")] == [0, 1]


# -- tools --------------------------------------------------------------------------------------


def test_a_step_after_a_tool_call_fires_on_that_tool_only() -> None:
    stage = Stage(say(), act(1, "noise", "500 ms after tool call book"), delays={"a": 0, "book": 0})
    stage.to(1500).tell(ToolCall, call_id="c", name="a").to(2000)
    stage.tell(ToolCall, call_id="d", name="book").to(5000)
    assert stage.fired == [(0, 0), (1, 2500)]
    assert stage.fire(1).live_ns == (T0 + 2000) * MS


def test_a_step_after_a_tool_call_that_never_comes_is_skipped() -> None:
    stage = Stage(say(within=3000), act(1, "say", "after tool call book"), NEXT).to(9000)
    assert stage.rest[0] == Skip(1, "no_tool_call")


def test_a_tool_call_of_an_earlier_turn_is_not_taken_again() -> None:
    stage = Stage(
        say(), NEXT, act(2, "noise", "after tool call book"), act(3, "say", "1 s after previous")
    )
    stage.to(1200).tell(ToolCall, call_id="c", name="book")
    stage.director.tool_answered("book", (T0 + 1300) * MS)
    stage.reply(1500, 2500).reply(5000, 6000, "b").to(20_000)
    assert Skip(2, "no_tool_call") in stage.rest


# -- pause, wait, hang up -----------------------------------------------------------------------


def test_a_pause_has_a_fixed_length_whatever_the_agent_does() -> None:
    stage = Stage(
        say(), act(1, "pause", "after previous", limit=4000), act(2, "say", "after previous")
    )
    stage.reply(1500, 2500).to(9000)
    assert stage.fired == [(0, 0), (1, 1000), (2, 5000)]


def test_a_reply_heard_during_a_pause_is_over_when_the_pause_is() -> None:
    stage = Stage(
        say(),
        act(1, "pause", "after previous", limit=4000),
        act(2, "say", "500 ms after agent end"),
    )
    stage.reply(1500, 2500).to(9000)
    assert stage.fired == [(0, 0), (1, 1000), (2, 5000)]


@pytest.mark.parametrize(("end", "went_on"), [(2500, 2500), (7000, 4000)])
def test_a_wait_ends_with_its_anchor_or_its_limit(end: int, went_on: int) -> None:
    wait = act(1, "wait", "after agent end", limit=3000)
    stage = Stage(say(), wait, act(2, "say", "200 ms after previous")).reply(1500, end).to(9000)
    assert stage.fired == [(0, 0), (1, went_on), (2, went_on + 200)]
    assert (stage.fire(1).live_ns is None) == (end > 4000)


def test_a_wait_knows_its_limit_before_an_end_that_is_queued_far_ahead() -> None:
    wait = act(1, "wait", "after agent end", limit=3000)
    stage = Stage(say(), wait, act(2, "say", "after previous")).to(1500)
    stage.hear("onset", 1500).hear("end", 30_000).to(9000)
    assert stage.fired == [(0, 0), (1, 4000), (2, 4000)]


def test_hanging_up_ends_the_call_at_its_moment_and_not_a_lead_before() -> None:
    stage = Stage(say(), act(1, "hang_up", "500 ms after agent end")).reply(1500, 3000).to(9000)
    assert stage.log[-1] == (3500, HangUp("hang_up"))
    assert stage.fired == [(0, 0), (1, 3500)]


# -- the end of the call ------------------------------------------------------------------------


def test_the_call_ends_after_the_last_reply() -> None:
    stage = Stage(say()).reply(1500, 3000).to(9000)
    assert stage.log[-1] == (3500, HangUp("done"))


def test_the_call_ends_when_no_last_reply_comes() -> None:
    assert Stage(say(within=4000)).to(9000).log[-1] == (5000, HangUp("done"))


def test_a_last_disturbance_is_watched_for_four_seconds() -> None:
    stage = Stage(say(), act(1, "backchannel", "500 ms after agent onset", speech=300))
    stage.reply(1500, 3000).to(9000)
    assert stage.log[-1] == (6000, HangUp("done"))


def test_the_last_reply_is_heard_to_its_end_although_more_comes() -> None:
    stage = Stage(say()).reply(1500, 3000).reply(3400, 5000, "b").to(9000)
    assert stage.log[-1] == (5500, HangUp("done"))


def test_the_calls_budget_ends_everything() -> None:
    stage = Stage(say(), NEXT, call=7000).to(1500).hear("onset", 1500).to(9000)
    assert stage.log[-1] == (7000, HangUp("budget"))
    assert stage.director.next_wake() is None
    assert stage.director.poll(10**15) == []


def test_a_target_that_only_starts_responses_cannot_hold_the_call_for_ever() -> None:
    stage = Stage(say(within=2000), NEXT, call=30_000)
    for at in range(1500, 40_000, 1000):
        stage.to(at).tell(ResponseStarted, response_id=f"r{at}")
    assert stage.log[-1] == (30_000, HangUp("budget"))


# -- branches -----------------------------------------------------------------------------------


def branch(*ways: tuple[Condition, tuple[Node, ...]]) -> Choice:
    return Choice("steps[1].branch", tuple(Way(when, then) for when, then in ways))


def fork() -> Choice:
    return branch(
        (Condition(said=("what time", "wie spät")), (act(10, "say", "500 ms after agent end"),)),
        (Condition(tool="book"), (act(20, "say", "500 ms after agent end"),)),
        (Condition(timeout_ns=6000 * MS), (act(30, "say", "after previous"),)),
        (Condition(), (act(40, "say", "after previous"),)),
    )


LAST = act(2, "say", "500 ms after agent end")


def test_a_branch_goes_by_what_the_agent_said() -> None:
    stage = Stage(say(), fork(), LAST).to(1500).tell(ResponseStarted, response_id="r")
    stage.hear("onset", 1500).tell(TextDelta, response_id="r", text="Sure. What ti")
    stage.to(1600).tell(TextDelta, response_id="r", text="me, please?")
    stage.to(3000).tell(ResponseEnded, response_id="r").hear("end", 3000)
    stage.reply(5500, 6000, "b").to(8000)
    assert stage.log[1] == (1600, Branch("steps[1].branch", 0))
    assert stage.fired == [(0, 0), (10, 3500), (2, 6500)]


def test_a_branch_goes_by_the_tool_called() -> None:
    stage = Stage(say(), fork()).to(1500).tell(ToolCall, call_id="c", name="book")
    assert stage.rest == [Branch("steps[1].branch", 1)]


def test_a_branch_goes_its_time_out() -> None:
    stage = Stage(say(), fork()).to(9000)
    assert stage.rest[0] == Branch("steps[1].branch", 2)
    assert stage.fired == [(0, 0), (30, 7000)]


def test_a_branch_goes_its_otherwise_once_the_reply_is_over() -> None:
    stage = Stage(say(), fork()).reply(1500, 3000).to(9000)
    assert stage.rest[0] == Branch("steps[1].branch", 3)
    assert stage.fired[:2] == [(0, 0), (40, 3500)]


def test_a_branch_waits_for_the_end_of_the_users_own_step() -> None:
    stage = Stage(say(speech=4000), fork()).to(1000).tell(ToolCall, call_id="c", name="book")
    assert stage.rest == []
    assert stage.to(4000).rest == [Branch("steps[1].branch", 1)]


def test_text_of_a_response_that_began_before_the_users_turn_is_not_its_reply() -> None:
    stage = Stage(say(anchor="2 s"), fork()).to(1000).tell(ResponseStarted, response_id="old")
    stage.to(3500).tell(TextDelta, response_id="old", text="what time")
    assert stage.rest == []
    stage.tell(TextDelta, response_id="new", text="what time")
    assert stage.rest == [Branch("steps[1].branch", 0)]


def test_a_branch_waits_while_the_agent_speaks_and_nothing_else_can_decide() -> None:
    stage = Stage(say(), branch((Condition(), ()), (Condition(tool="book"), ())))
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500).to(20_000)
    assert stage.rest == []
    stage.tell(ResponseEnded, response_id="r").hear("end", 20_000).to(20_500)
    assert stage.rest[0] == Branch("steps[1].branch", 0)


@pytest.mark.parametrize(
    ("text", "phrase", "holds"),
    [
        ("WHAT  Time?", "what time", True),
        ("somewhat timely", "what time", False),
        ("It's booked.", "it's", True),
        ("हाँ, ठीक है।", "ठीक है", True),
        ("何時がよろしいですか", "何時", True),
        ("time", "...", False),
        ("Straße 5", "STRASSE", True),
    ],
)
def test_phrases_are_found_as_whole_words_in_any_script(
    text: str, phrase: str, holds: bool
) -> None:
    way = branch((Condition(said=(phrase,)), ()), (Condition(timeout_ns=9000 * MS), ()))
    stage = Stage(say(), way).to(1500).tell(TextDelta, response_id="r", text=text)
    assert (stage.rest == [Branch("steps[1].branch", 0)]) == holds


def test_a_nested_branch_takes_the_first_way_that_comes_true() -> None:
    inner = Choice(
        "inner", (Way(Condition(timeout_ns=1000 * MS), (act(11, "say", "after previous"),)),)
    )
    stage = Stage(say(), branch((Condition(timeout_ns=2000 * MS), (inner,))), LAST).to(4500)
    assert stage.rest == [Branch("steps[1].branch", 0), Branch("inner", 0)]
    assert stage.fired == [(0, 0), (11, 4000)]


# -- robustness ---------------------------------------------------------------------------------


def test_repeated_or_stray_edges_change_nothing() -> None:
    stage = Stage(say(), NEXT)
    stage.to(1200).hear("end", 1200).to(1500).hear("onset", 1500).hear("onset", 1600)
    stage.to(3000).hear("end", 3000).hear("end", 3100).to(9000)
    assert stage.fired == [(0, 0), (1, 3500)]


def test_an_interrupt_ends_the_response_it_names() -> None:
    stage = Stage(say(), NEXT)
    stage.to(1500).tell(ResponseStarted, response_id="r").hear("onset", 1500)
    stage.to(3000).tell(Interrupt, response_id="r").flush().to(9000)
    assert stage.fired == [(0, 0), (1, 3500)]


_KINDS = st.sampled_from([k.value for k in StepKind if k is not StepKind.HANG_UP])
_ANCHORS = st.sampled_from(
    ["0 s", "2 s", "after greeting", "500 ms after agent end", "-200 ms after agent end",
     "600 ms after agent onset", "after previous", "300 ms after previous", "after tool call book"]
)  # fmt: skip
_INPUTS = st.lists(
    st.tuples(
        st.integers(0, 1500),
        st.sampled_from(
            ["onset", "end", "ahead", "flush", "started", "ended", "chunk", "text", "tool",
             "answered", "interrupt", "late poll"]
        ),
    ),
    max_size=40,
)  # fmt: skip


def _play(stage: Stage, what: str) -> None:
    match what:
        case "onset" | "end":
            stage.hear(what, stage.now)
        case "ahead":
            stage.hear("onset", stage.now + 200).hear("end", stage.now + 1700)
        case "flush":
            stage.flush()
        case "started":
            stage.tell(ResponseStarted, response_id="r")
        case "ended":
            stage.tell(ResponseEnded, response_id="r")
        case "chunk":
            stage.tell(AudioChunk, response_id="r")
        case "text":
            stage.tell(TextDelta, response_id="r", text="what time ")
        case "tool":
            stage.tell(ToolCall, call_id="c", name="book", response_id="r")
        case "answered":
            stage.director.tool_answered("book", (T0 + stage.now) * MS)
            stage.poll()
        case "interrupt":
            stage.tell(Interrupt)
        case _:
            stage.now += 700
            stage.poll()


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(_KINDS, _ANCHORS, st.integers(0, 2000)), max_size=6),
    has_branch=st.booleans(),
    inputs=_INPUTS,
    tells_end=st.booleans(),
)
def test_whatever_is_heard_every_step_comes_once_in_order_and_the_call_ends(
    steps: list[tuple[str, str, int]],
    has_branch: bool,
    inputs: list[tuple[int, str]],
    tells_end: bool,
) -> None:
    acts: list[Node] = [
        act(i, kind, anchor, speech, within=2000, limit=speech)
        for i, (kind, anchor, speech) in enumerate(steps)
    ]
    if has_branch:
        acts.insert(len(acts) // 2, fork())
    stage = Stage(*acts, call=45_000, greeting=1500, tells_end=tells_end)
    for wait, what in inputs:
        stage.to(stage.now + wait)
        _play(stage, what)
    stage.to(max(stage.now, 45_000))

    seen = [a.step for _, a in stage.log if isinstance(a, Fire | Skip)]
    own = [step for step in seen if step < 10]
    assert own == sorted(set(own)), "a step came twice or out of order"
    reasons = [a.reason for _, a in stage.log if isinstance(a, HangUp)]
    assert len(reasons) == 1
    assert isinstance(stage.log[-1][1], HangUp)
    if reasons == ["done"]:
        assert own == list(range(len(steps)))
    for given_at, action in stage.log:
        if isinstance(action, Fire):
            assert action.due_ns / MS - T0 - given_at <= LEAD
    assert stage.director.next_wake() is None


@settings(deadline=None)
@given(inputs=_INPUTS, extra=st.lists(st.integers(0, 40), min_size=40, max_size=40))
def test_polling_more_often_than_asked_changes_nothing(
    inputs: list[tuple[int, str]], extra: list[int]
) -> None:
    def walk(*, often: bool) -> list[tuple[float, Action]]:
        stage = Stage(say(), barge(1), fork(), LAST, call=45_000)
        for (wait, what), pause in zip(inputs, extra, strict=False):
            until = stage.now + wait
            if often:
                stage.to(min(until, stage.now + pause)).poll()
            stage.to(until)
            _play(stage, what)
        return stage.to(max(stage.now, 45_000)).log

    assert walk(often=True) == walk(often=False)
