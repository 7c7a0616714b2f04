"""What callers do to an agent that speaks, live on virtual time: where it lands, and what follows.

The agent's speech is told by its own log, so that neither ear nor director judges itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.call import Utterance
from vakforge_probe.call import Call, CallOutcome
from vakforge_probe.scenario.clips import data_root

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

MS = 1_000_000
QUESTION = "en/order_delivery_date"
STOP = "en/booking_stop"
QUESTION_LONG = "en/general_other"

ASK = {"say": None, "clip": QUESTION, "at": "0.2073 s"}
HANG_UP = {"hang_up": None, "at": "500 ms after agent end"}
TOOLS = [
    {
        "name": "get_order_status",
        "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}},
        "result": {"status": "on the way"},
        "delay": "1.2 s",
    }
]


def act(kind: str, clip: str | None, at: str) -> dict[str, Any]:
    return {kind: None, "at": at} | ({} if clip is None else {"clip": clip})


def onset(ms: float) -> str:
    return f"{ms} ms after agent onset"


class Played:
    """A finished call: its utterances, and the agent's replies as its own log has them."""

    def __init__(self, outcome: CallOutcome, truth: Callable[[str], list[dict[str, Any]]]) -> None:
        assert outcome.failure is None
        assert outcome.reason == "hang_up"
        self.capture = Capture.open(outcome.capture)
        self.utterances: tuple[Utterance, ...] = build_timeline(self.capture).utterances
        self.audio = [line for line in truth("sent") if line["kind"] == "audio"]

    def spoken(self, response: str) -> tuple[int, int]:
        """First and last message of a response, paced as it is heard (ns)."""
        own = [line["before"] for line in self.audio if line["response"] == response]
        return own[0], own[-1] + 20 * MS

    def heard_out(self, response: str) -> int:
        """When a response that was sent whole has been heard to its end (ns)."""
        own = [a for a in build_timeline(self.capture).audio if a.response_id == response]
        return own[0].arrival.at + sum(a.duration_ns for a in own)

    @property
    def responses(self) -> list[str]:
        return list(dict.fromkeys(line["response"] for line in self.audio))

    def begins(self, index: int) -> int:
        return self.utterances[index].start.at

    def journal(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.capture.journal if line["type"] == kind]


@pytest.fixture
def play(with_agent: Any, plan: Any, truth: Any) -> Callable[..., Played]:
    """Return a player: ``play(steps..., **knobs)`` of an agent that answers at length."""

    def go(*steps: dict[str, Any], tools: Any = (), **knobs: Any) -> Played:
        scenario = {"id": "chain", "tools": list(tools), "steps": [*steps, HANG_UP]}

        async def call(url: str) -> CallOutcome:
            return await Call(plan(url, scenario)).run()

        return Played(with_agent(call, **{"say": "long_1", **knobs}), truth)

    return go


def test_a_barge_in_lands_at_its_offset_into_the_reply(play: Any) -> None:
    call = play(ASK, act("barge_in", STOP, onset(1211.7)))
    began, ended = call.spoken(call.responses[0])
    assert call.begins(1) - began == pytest.approx(1211.7 * MS, abs=MS)
    assert call.begins(1) + 200 * MS == pytest.approx(ended, abs=25 * MS)
    assert len(call.responses) == 2


def test_a_caller_barges_in_and_corrects_themselves(play: Any) -> None:
    call = play(
        ASK,
        act("barge_in", STOP, onset(1211.7)),
        act("correction", "en/booking_day_fixed", "377.9 ms after previous"),
    )
    barge, correction = call.utterances[1:]
    assert correction.start.at - barge.end.at == pytest.approx(377.9 * MS, abs=MS)
    assert call.spoken(call.responses[-1])[0] > correction.end.at


def test_two_barge_ins_go_into_one_reply_of_an_agent_that_never_stops(play: Any) -> None:
    call = play(
        ASK,
        act("barge_in", QUESTION_LONG, onset(811.3)),
        act("barge_in", STOP, onset(4511.9)),
        stop_delay="never",
    )
    began, ended = call.spoken(call.responses[0])
    for index, offset in ((1, 811.3), (2, 4511.9)):
        assert call.begins(index) - began == pytest.approx(offset * MS, abs=MS)
        assert call.begins(index) < ended


def test_the_second_barge_in_goes_into_the_next_reply_of_an_agent_that_stops(play: Any) -> None:
    call = play(
        ASK,
        act("barge_in", QUESTION_LONG, onset(811.3)),
        act("barge_in", STOP, onset(4511.9)),
    )
    began, _ = call.spoken(call.responses[1])
    assert call.begins(2) - began == pytest.approx(4511.9 * MS, abs=MS)


def test_what_only_disturbs_lands_at_its_offsets_and_a_sham_plays_nothing(play: Any) -> None:
    call = play(
        ASK,
        act("backchannel", "backchannel/okay", onset(913.7)),
        act("sham", None, onset(2217.1)),
        act("noise", "noise/cough", onset(3521.3)),
        act("side_talk", "noise/side_talk", onset(4824.9)),
        backchannel_words=20,
    )
    began, _ = call.spoken(call.responses[0])
    offsets = [(u.start.at - began) / MS for u in call.utterances[1:]]
    assert offsets == pytest.approx([913.7, 2217.1, 3521.3, 4824.9], abs=1.0)
    assert call.utterances[2].start == call.utterances[2].end
    assert len(call.responses) == 1


def test_a_barge_in_lands_in_the_filler_before_a_tools_result(play: Any) -> None:
    ask = {"say": None, "clip": "en/order_number", "at": "0.2 s"}
    call = play(
        ask, act("barge_in", STOP, onset(411.3)), tools=TOOLS, filler=True, say=None, stop_delay=0.3
    )
    began, ended = call.spoken(call.responses[0])
    assert ended - began < 1300 * MS, "it is the filler, and it was cut"
    assert call.begins(1) - began == pytest.approx(411.3 * MS, abs=MS)
    assert call.spoken(call.responses[-1])[0] > call.utterances[1].end.at


def test_a_barge_in_over_a_filler_that_goes_on_is_followed_by_the_tools_answer(play: Any) -> None:
    ask = {"say": None, "clip": "en/order_number", "at": "0.2 s"}
    call = play(
        ask, act("barge_in", STOP, onset(411.3)), tools=TOOLS, filler=True, say=None,
        stop_delay="never",
    )  # fmt: skip
    (answered,) = [s for s in call.journal("sent") if s["what"] == "tool_result"]
    assert answered["delay_s"] == 1.2
    hung_up = call.journal("step")[-1]["due"]
    assert call.spoken(call.responses[-1])[1] <= hung_up


@pytest.mark.parametrize("pacing", ["burst", "x10"])
def test_a_barge_in_lands_in_the_last_300_ms_of_audio_that_came_ahead(
    play: Any, pacing: str
) -> None:
    call = play(ASK, act("barge_in", STOP, "-300 ms after agent end"), pacing=pacing)
    assert call.heard_out(call.responses[0]) - call.begins(1) == pytest.approx(300 * MS, abs=MS)


def test_a_barge_in_before_an_end_that_nobody_told_meets_silence_and_the_call_goes_on(
    play: Any,
) -> None:
    call = play(ASK, act("barge_in", STOP, "-300 ms after agent end"))
    assert 0 < call.begins(1) - call.heard_out(call.responses[0]) < 100 * MS
    assert len(call.responses) == 2, "it is answered as any other turn"


def test_a_barge_in_into_a_reply_that_is_too_short_is_left_out_and_said_to_be(play: Any) -> None:
    call = play(ASK, act("barge_in", STOP, onset(1500)), say="short_ok")
    (skipped,) = call.journal("step_skipped")
    assert (skipped["step"], skipped["reason"]) == (1, "no_agent_speech")
    assert len(call.utterances) == 1
    (left_out,) = build_timeline(call.capture).skipped
    assert (left_out.step.index, left_out.reason) == (1, "no_agent_speech")


@pytest.mark.parametrize("resume", [0.5, 2.0])
def test_an_agent_that_falters_is_heard_to_its_end(play: Any, resume: float) -> None:
    call = play(
        ASK,
        act("backchannel", "backchannel/okay", onset(1013.7)),
        backchannel_words=2,
        on_backchannel="pause",
        resume_delay=resume,
    )
    _, ended = call.spoken(call.responses[0])
    assert call.journal("step")[-1]["due"] == pytest.approx(ended + 500 * MS, abs=30 * MS)


def test_a_background_lies_under_every_frame(with_agent: Any, plan: Any) -> None:
    scenario = {
        "id": "noisy",
        "background": {"clip": "background/room"},
        "steps": [act("say", QUESTION, "1 s"), {"hang_up": None, "at": "3 s"}],
    }

    async def call(url: str) -> CallOutcome:
        return await Call(plan(url, scenario)).run()

    timeline = build_timeline(Capture.open(with_agent(call).capture))
    assert timeline.sent_pcm is not None
    background, _ = soundfile.read(data_root() / "clips/background/room.flac", dtype="int16")
    assert np.array_equal(timeline.sent_pcm(0, 20_000), background[:20_000])
