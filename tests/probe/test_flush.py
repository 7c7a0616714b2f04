"""What empties the caller's queue in a call, and what it then tells the target."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.hearing import hear
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.instant import NS_PER_MS as MS
from vakforge_eval.timeline.records import Direction, Kind
from vakforge_eval.timeline.values import Flag

QUESTION = "en/order_delivery_date"
WAITS = {"id": "waits", "steps": [{"hang_up": None, "at": "3 s"}]}

Script = Callable[[Any], Coroutine[Any, Any, None]]


async def frames(peer: Any, n: int) -> None:
    for _ in range(n):
        await peer.take("input_audio_buffer.append")


def detecting(**detection: Any) -> dict[str, Any]:
    return {"audio": {"input": {"turn_detection": {"type": "server_vad", **detection}}}}


# -- by session and profile -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "later", "profile", "flushes"),
    [
        ({"interrupt_response": True}, None, "", True),
        ({"interrupt_response": False}, None, "", False),
        ({}, None, "", True),
        ({"interrupt_response": True}, {"interrupt_response": False}, "", False),
        ({"interrupt_response": False}, {"interrupt_response": True}, "", True),
        ({"interrupt_response": False}, {"threshold": 0.9}, "", False),
        ({"interrupt_response": False}, None, "/flush", True),
    ],
    ids=["true", "false", "absent", "true to false", "false to true", "still false", "profile"],
)
def test_speech_started_flushes_as_the_session_in_force_says(
    with_target: Any,
    playing: Any,
    journal: Any,
    first: dict[str, Any],
    later: dict[str, Any] | None,
    profile: str,
    flushes: bool,
) -> None:
    async def target(peer: Any) -> None:
        await peer.open_session(**detecting(**first))
        await frames(peer, 5)
        await peer.say("response.created", response={"id": "r"})
        await peer.audio(2000)
        if later is not None:
            await peer.say("session.updated", session=detecting(**later))
        await frames(peer, 25)
        await peer.say("input_audio_buffer.speech_started", audio_start_ms=1, item_id="u")
        await peer.listen()

    play = playing(WAITS, protocol=f"openai-realtime{profile}")
    outcome, peer = with_target(target, play)
    flushed = journal(outcome.capture, "flush")
    told = [m["audio_end_ms"] for m in peer.got if m["type"] == "conversation.item.truncate"]
    assert len(flushed) == len(told) == flushes
    for flush, ms in zip(flushed, told, strict=True):
        assert ms == flush["played_ms"]
        assert 490 <= ms <= 510
    (segment,) = hear(build_timeline(Capture.open(outcome.capture))).segments
    assert segment.is_cut is flushes


@pytest.mark.parametrize("gap_ms", [0, 800])
def test_late_audio_of_a_cancelled_response_is_never_heard(
    with_target: Any, playing: Any, journal: Any, gap_ms: int
) -> None:
    """Neither if all that came before had been played by then."""

    async def target(peer: Any) -> None:
        await peer.open_session()
        await frames(peer, 5)
        await peer.say("response.created", response={"id": "r"})
        await peer.audio(500)
        await frames(peer, 10 + gap_ms // 20)
        await peer.say("response.done", response={"id": "r", "status": "cancelled"})
        await peer.audio(500)
        await peer.audio(500, response="next", item="j")
        await peer.listen()

    outcome, _ = with_target(target, playing(WAITS))
    timeline = build_timeline(Capture.open(outcome.capture))
    segments = hear(timeline).segments
    assert [(s.response_id, s.is_cut) for s in segments] == [("r", gap_ms == 0), ("next", False)]
    assert [a.response_id for a in timeline.audio] == ["r", "r", "next"]
    (flush,) = journal(outcome.capture, "flush")
    assert (flush["played_ms"] is None) is (gap_ms > 0)


def test_speech_that_nothing_waits_for_flushes_nothing(
    with_target: Any, playing: Any, journal: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.open_session()
        await peer.say("response.created", response={"id": "r"})
        await peer.audio(100)
        await peer.say("response.done", response={"id": "r", "status": "completed"})
        await frames(peer, 30)
        await peer.say("input_audio_buffer.speech_started", audio_start_ms=1, item_id="u")
        await peer.listen()

    outcome, peer = with_target(target, playing(WAITS))
    assert journal(outcome.capture, "flush") == []
    assert all("truncate" not in m["type"] for m in peer.got)


# -- by hand ----------------------------------------------------------------------------------

INTERRUPTED = {
    "id": "interrupted",
    "steps": [
        {"say": None, "clip": QUESTION, "at": "0.2 s"},
        {"barge_in": None, "clip": "en/booking_stop", "at": "1.2 s after agent onset"},
        {"hang_up": None, "at": "100 ms after agent end"},
    ],
}


@pytest.mark.parametrize("is_shown", [True, False])
def test_null_turn_detection_is_push_to_talk_until_the_target_detects_a_turn(
    with_target: Any, playing: Any, journal: Any, is_shown: bool
) -> None:
    """Some servers write null for whatever they were not told, and detect turns all the same."""

    async def target(peer: Any) -> None:
        await peer.open_session(audio={"input": {"turn_detection": None}})
        await frames(peer, 30)
        if is_shown:
            await peer.say("input_audio_buffer.speech_started", audio_start_ms=1, item_id="u")
        await frames(peer, 150)
        await peer.say("response.created", response={"id": "r"})
        await peer.audio(2000)
        await frames(peer, 20)
        await peer.say("input_audio_buffer.speech_started", audio_start_ms=1, item_id="v")
        await peer.listen()

    scenario = {
        "id": "null",
        "steps": [{"say": None, "clip": QUESTION, "at": "0.2 s"}, {"hang_up": None, "at": "6 s"}],
    }
    outcome, peer = with_target(target, playing(scenario))
    told = {message["type"] for message in peer.got}
    assert ("input_audio_buffer.commit" in told) is not is_shown
    assert ("response.create" in told) is not is_shown
    assert len(journal(outcome.capture, "flush")) == 1


def sent_types(capture: Capture) -> list[str]:
    """All that the caller said beside audio, in order."""

    told = capture.frames[
        (capture.frames["direction"] == Direction.USER) & (capture.frames["kind"] == Kind.CONTROL)
    ]
    return [json.loads(capture.payload(record))["type"] for record in told]


@pytest.mark.parametrize("pacing", ["paced", "burst"])
def test_a_push_to_talk_caller_takes_and_gives_the_floor_itself(
    with_agent: Any, playing: Any, journal: Any, truth: Any, pacing: str
) -> None:
    play = playing(INTERRUPTED, protocol="openai-realtime/manual")
    outcome = with_agent(play, pacing=pacing, say="long_1", reply_delay=0.4)
    assert (outcome.reason, outcome.failure) == ("hang_up", None)
    capture = Capture.open(outcome.capture)
    # All of a burst has been sent by then: there is nothing left to cancel.
    cancels = ["response.cancel"] if pacing == "paced" else []
    assert sent_types(capture) == [
        "session.update",
        "input_audio_buffer.commit",
        "response.create",
        "conversation.item.truncate",
        *cancels,
        "input_audio_buffer.commit",
        "response.create",
    ]
    assert len(truth("cancelled_by_client")) == len(cancels)
    view = CallView(build_timeline(capture))
    first, second = view.turn_views
    assert first.turn.reply[0].is_cut
    assert Flag.ENDPOINTING_MANUAL in first.flags
    assert Flag.ENDPOINTING_MANUAL in second.flags
    for turn in (first, second):
        begin = turn.turn.reply[0].start.when.at - turn.turn.end.at
        assert abs(begin - 400 * MS) < 1 * MS
    (flush,) = journal(outcome.capture, "flush")
    (cut,) = truth("truncated")
    assert cut["audio_end_ms"] == flush["played_ms"]
    # With the frame that holds the first voiced sample, so at most one frame after it was spoken.
    assert 0 <= flush["lo"] - second.turn.start.at <= 20 * MS
    commits = [at.at for at in view.timeline.commits]
    for turn, commit in zip((first, second), commits, strict=True):
        assert 0 <= commit - turn.turn.end.at <= 20 * MS


def test_a_pause_inside_of_a_turn_gives_the_floor_to_nobody(
    with_agent: Any, playing: Any, journal: Any
) -> None:
    scenario = {
        "id": "thinks",
        "steps": [
            {"say": None, "clip": "en/booking_think_1", "at": "0.2 s"},
            {"pause": "700 ms"},
            {"say": None, "clip": QUESTION, "at": "after previous"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }
    outcome = with_agent(playing(scenario, protocol="openai-realtime/manual"))
    assert outcome.reason == "hang_up"
    (commit,) = journal(outcome.capture, "sent", "commit")
    view = CallView(build_timeline(Capture.open(outcome.capture)))
    (turn,) = view.turn_views
    assert 0 <= commit["before"] - turn.turn.end.at <= 20 * MS
    assert turn.has_reply
    assert journal(outcome.capture, "sent", "cancel") == []


def test_a_barge_in_after_a_pause_takes_the_floor_that_was_given(
    with_agent: Any, playing: Any, journal: Any
) -> None:
    scenario = {
        "id": "waits",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"pause": "1500 ms"},
            {"barge_in": None, "clip": "en/booking_stop", "at": "after previous"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }
    play = playing(scenario, protocol="openai-realtime/manual")
    outcome = with_agent(play, say="long_1", reply_delay=0.4)
    view = CallView(build_timeline(Capture.open(outcome.capture)))
    commits = [line["before"] for line in journal(outcome.capture, "sent", "commit")]
    first, second = view.turn_views
    for turn, commit in zip((first, second), commits, strict=True):
        assert 0 <= commit - turn.turn.end.at <= 20 * MS
    assert second.reaction is not None
    assert second.reaction.void is None


def test_backchannels_of_a_push_to_talk_caller_take_nothing(
    with_agent: Any, playing: Any, journal: Any
) -> None:
    scenario = {
        "id": "nods",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"backchannel": None, "clip": "backchannel/mm_hm", "at": "0.5 s after agent onset"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }
    outcome = with_agent(playing(scenario, protocol="openai-realtime/manual"), say="long_1")
    assert journal(outcome.capture, "flush") == []
    assert len(journal(outcome.capture, "sent", "commit")) == 1


def test_an_answer_is_asked_for_once_the_cancelled_one_has_ended(
    with_target: Any, playing: Any
) -> None:
    """A server refuses a response while another one runs."""
    ended = False

    async def target(peer: Any) -> None:
        nonlocal ended
        await peer.open_session(turn_detection=None)
        await peer.say("response.created", response={"id": "r"})
        await peer.take("input_audio_buffer.commit")
        assert [m["type"] for m in peer.got if m["type"].startswith("response.")] == [
            "response.cancel"
        ]
        await frames(peer, 10)
        ended = True
        await peer.say("response.done", response={"id": "r", "status": "cancelled"})
        await peer.take("response.create")
        await peer.audio(100, response="s")
        await peer.listen()

    scenario = {
        "id": "one",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"hang_up": None, "at": "4 s"},
        ],
    }
    outcome, peer = with_target(target, playing(scenario))
    assert outcome.failure is None
    assert ended
    assert [m["type"] for m in peer.got if m["type"].startswith("response.")] == [
        "response.cancel",
        "response.create",
    ]


def test_a_half_duplex_agent_is_talked_to_in_turns(
    with_agent: Any, playing: Any, journal: Any
) -> None:
    scenario = {
        "id": "turns",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"say": None, "clip": QUESTION, "at": "600 ms after agent end"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }
    play = playing(scenario, protocol="openai-realtime/halfduplex")
    outcome = with_agent(play, half_duplex=True)
    assert outcome.reason == "hang_up"
    capture = Capture.open(outcome.capture)
    assert capture.header["capabilities"]["barge_in"] is False
    assert all(turn.has_reply for turn in CallView(build_timeline(capture)).turn_views)
    assert journal(outcome.capture, "flush") == []
