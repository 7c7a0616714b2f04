"""What the truth log says of speech into the agent's speech, against the caller's own record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

MS = 1_000_000
S = 1_000_000_000
Converse = Callable[..., Any]
Stream = Callable[..., Any]

# en/hello ends at 0.1 + 1.0 s; its reply begins at 1.6 s, what follows 2.0 s of silence
# begins at 3.13 s; en/stop is voiced from 3.17 s.
TALK: dict[str, Any] = {"reply_length": 5.0, "stop_delay": 0.2}
NODS: dict[str, Any] = {**TALK, "backchannel_words": 2}


@pytest.fixture
def barge_in(stream_of: Stream) -> Any:
    return stream_of(0.1, "en/hello", 2.0, "en/stop", 3.0)


@pytest.fixture
def mm_hm(stream_of: Stream) -> Any:
    return stream_of(0.1, "en/hello", 2.0, "backchannel/mm", 4.5)


def onset_ns(out: Any, n: int = 1) -> int:
    return int(out.lines("utterance")[n]["user_start"]["microphone"][0])


def event(out: Any, n: int = 1) -> dict[str, Any]:
    return dict(out.lines("event")[n])


def value(row: dict[str, Any], name: str) -> float | None:
    found = row["microphone"][name]
    if found is None:
        return None
    assert found["lo"] == found["hi"] == found["value"], "virtual time has no error"
    return float(found["value"])


def last_heard(out: Any, tag: str, flush_at: float = float("inf")) -> float:
    """When the last loud sample of a response sounded, by a player of the caller's own."""
    playhead, last = 0.0, 0.0
    for at, data, name in out.caller.audio:
        pcm = np.frombuffer(data, dtype="<i2")
        start = max(at, playhead if at < flush_at else 0.0)
        playhead = start + len(pcm) * S / 24000
        loud = np.flatnonzero(np.abs(pcm.astype(int)) > 0)
        if name == tag and len(loud) and at <= flush_at and start < flush_at:
            last = min(start + (loud[-1] + 1) * S / 24000, flush_at)
    return last


def last_arrived(out: Any, tag: str) -> float:
    ends = [
        at + (np.flatnonzero(np.frombuffer(data, "<i2"))[-1] + 1) * S / 24000
        for at, data, name in out.caller.audio
        if name == tag
    ]
    return float(ends[-1])


@pytest.mark.parametrize("stop", [0.0, 0.2, 0.8])
@pytest.mark.parametrize("pacing", ["paced", "x10", "burst"])
@pytest.mark.parametrize("flushes", [True, False], ids=["flush", "no flush"])
def test_a_stop_is_told_when_the_caller_can_know_of_it(
    converse: Converse, barge_in: Any, stop: float, pacing: str, flushes: bool
) -> None:
    knobs = {**TALK, "stop_delay": stop, "pacing": pacing, "interrupt_response": flushes}
    out = converse(barge_in, **knobs)
    row, onset = event(out), onset_ns(out)
    tag = row["response"]
    started = out.caller.all("input_audio_buffer.speech_started")[1].at
    assert started - onset == pytest.approx(stop * S, abs=40 * MS)
    names = ("stop_reaction", "stop_network", "stop_heard", "natural_end")
    found = [value(row, name) for name in names]
    if pacing != "paced" and not flushes:
        # All was sent and nothing takes it back: the client plays it to its end.
        end = last_heard(out, tag) - onset
        assert found == [None, None, None, pytest.approx(end / S, abs=1e-6)]
        assert (row["outcome"], row["never"]) == ("held", False)
        return
    # Without a flush the response is still told to be cancelled, and no more of it is played.
    heard = last_heard(out, tag, started)
    moments = (started, last_arrived(out, tag), heard)
    assert found[:3] == [pytest.approx((at - onset) / S, abs=1e-6) for at in moments]
    assert found[3] is None
    assert row["outcome"] == "restarted"
    turn = out.turns[1]["microphone"]
    assert [turn[name] for name in names] == [row["microphone"][name] for name in names]
    assert turn["interruption_response"] == turn["ttfa_heard"]


def test_only_a_turn_that_met_speech_has_stops(converse: Converse, barge_in: Any) -> None:
    first, second = converse(barge_in, **TALK).turns
    assert "stop_heard" not in first["microphone"]
    assert second["marks_late_ns"]["stop_heard"] == 0
    assert second["marks_late_ns"]["interruption_response"] == 0


@pytest.mark.parametrize("pacing", ["paced", "burst"])
def test_a_reply_that_ends_before_its_stop_ended_by_itself(
    converse: Converse, barge_in: Any, pacing: str
) -> None:
    # The reply runs from 1.6 s to 3.3 s, the stop would be at 3.97 s.
    out = converse(barge_in, **{**TALK, "reply_length": 1.7, "stop_delay": 0.8, "pacing": pacing})
    row = event(out)
    assert (row["outcome"], row["never"]) == ("ended", False)
    assert value(row, "natural_end") == pytest.approx(0.13, abs=0.001)
    assert [value(row, name) for name in ("stop_reaction", "stop_network", "stop_heard")] == [
        None
    ] * 3


def test_agent_that_never_stops_ends_by_itself_much_later(
    converse: Converse, barge_in: Any
) -> None:
    row = event(converse(barge_in, **{**TALK, "stop_delay": "never"}))
    assert (row["rule"], row["outcome"]) == ("never_stops", "held")
    assert value(row, "natural_end") == pytest.approx(1.6 + 5.0 - 3.17, abs=0.002)
    assert value(row, "stop_heard") is None


def test_agent_that_talks_to_the_end_of_the_call_never_stopped(
    converse: Converse, barge_in: Any
) -> None:
    row = event(converse(barge_in, **{**TALK, "stop_delay": "never", "reply_length": 60.0}))
    assert row["never"] is True
    assert set(row["microphone"].values()) == {None}


@pytest.mark.parametrize("gap", [0.3, 0.75, 1.2])
def test_a_pause_inside_a_reply_is_no_stop(
    converse: Converse, stream_of: Stream, gap: float
) -> None:
    # Clips of 1.5 s; the caller begins 0.3 s before the first pause.
    stream = stream_of(0.1, "en/hello", 1.66, "en/stop", 8.0)
    knobs: dict[str, Any] = {"segments": 3, "segment_gap": gap, "stop_delay": "never"}
    row = event(converse(stream, **knobs))
    assert value(row, "stop_heard") is None
    assert row["never"] is False
    if gap < 0.35:
        assert row["outcome"] == "held"
    else:
        assert row["outcome"] == "stuttered"
        assert row["gap_s"]["value"] == pytest.approx(gap, abs=1e-6)


@pytest.mark.parametrize(
    ("knobs", "outcome"),
    [
        ({}, "held"),
        ({"on_backchannel": "pause", "resume_delay": 0.2}, "held"),
        ({"on_backchannel": "pause", "resume_delay": 0.5}, "stuttered"),
        ({"on_backchannel": "pause", "resume_delay": 2.0}, "stuttered"),
        ({"on_backchannel": "pause", "resume_delay": 3.5}, "stopped"),
        ({"on_backchannel": "stop"}, "stopped"),
        ({"on_backchannel": "interrupt"}, "restarted"),
        ({"on_backchannel": "interrupt", "no_reply": 2}, "stopped"),
        ({"on_backchannel": "stop", "stop_delay": 1.2}, "held"),
        ({"reply_length": 2.0}, "ended"),
        ({"reply_length": 1.0}, "silent"),
        ({"reply_length": 2.6}, "held"),
    ],
)
@pytest.mark.parametrize("stream", ["turn", "continuous"])
def test_what_a_backchannel_did_is_told_by_what_was_heard(
    converse: Converse, mm_hm: Any, stream: str, knobs: dict[str, Any], outcome: str
) -> None:
    row = event(converse(mm_hm, **{**NODS, "stream": stream, **knobs}))
    assert (row["clip"], row["outcome"]) == ("backchannel/mm", outcome)
    if outcome == "stuttered":
        # What the client holds when the agent pauses is at most one message of 20 ms.
        assert row["gap_s"]["value"] == pytest.approx(knobs["resume_delay"], abs=0.021)
    else:
        assert row["gap_s"] is None


def test_call_that_ends_too_soon_tells_nothing(converse: Converse, stream_of: Stream) -> None:
    stream = stream_of(0.1, "en/hello", 2.0, "backchannel/mm", 0.5)
    out = converse(stream, **NODS, on_backchannel="pause", resume_delay=2.0)
    assert event(out)["outcome"] is None


@pytest.mark.parametrize("stream", ["turn", "continuous"])
def test_two_barge_ins_in_one_reply_have_truths_of_their_own(
    converse: Converse, stream_of: Stream, stream: str
) -> None:
    audio = stream_of(0.1, "en/hello", 2.0, "en/stop", 1.0, "en/stop", 5.0)
    out = converse(audio, **{**TALK, "reply_length": 20.0}, stop_on=2, stream=stream)
    first, second = event(out, 1), event(out, 2)
    assert first["response"] == second["response"]
    assert (first["rule"], first["outcome"], first["never"]) == ("not_yet", "held", True)
    assert value(first, "stop_reaction") is None
    assert (second["rule"], second["outcome"]) == ("stop", "restarted")
    assert value(second, "stop_reaction") == 0.2


def test_each_reply_counts_its_interruptions_anew(converse: Converse, stream_of: Stream) -> None:
    pair = ("en/stop", 1.0, "en/stop", 4.0)
    out = converse(
        stream_of(0.1, "en/hello", 2.0, *pair, *pair),
        **{**TALK, "reply_length": 30.0}, stop_on=2,
    )  # fmt: skip
    assert [e["rule"] for e in out.lines("event")] == [None, *("not_yet", "stop") * 2]


def test_deaf_agent_answers_only_what_outlasts_its_speech(
    converse: Converse, barge_in: Any
) -> None:
    lost = converse(barge_in, **TALK, half_duplex=True)
    assert event(lost)["rule"] == "half_duplex"
    assert len(lost.turns) == 1
    kept = converse(barge_in, **{**TALK, "reply_length": 2.0}, half_duplex=True)
    assert len(kept.turns) == 2
    assert kept.turns[1]["microphone"]["ttfa"]["value"] == 0.5
    assert value(event(kept), "stop_heard") is None


def test_background_of_a_continuous_stream_is_no_talk(converse: Converse, barge_in: Any) -> None:
    out = converse(
        barge_in, reply_length=1.0, stop_delay="never", stream="continuous", noise_dbfs=-50
    )
    assert [row["rule"] for row in out.turns] == ["generic", "generic"]
    assert event(out)["outcome"] == "silent"
    started = out.caller.all("input_audio_buffer.speech_started")[1].at
    assert started - onset_ns(out) <= 40 * MS


def test_log_says_when_each_response_was_heard(converse: Converse, barge_in: Any) -> None:
    out = converse(barge_in, **{**TALK, "reply_length": 2.2})
    first, second = out.lines("heard")
    started = out.caller.all("input_audio_buffer.speech_started")[1].at
    assert first["spans"] == [[out.caller.audio[0][0], started]]
    assert (first["is_whole"], first["is_open"], first["width_ns"]) == (False, False, 0)
    assert (second["is_whole"], second["late_ns"]) == (True, 0)
    assert second["spans"][0][1] == pytest.approx(last_heard(out, second["response"]), abs=2)


def test_overlap_is_the_time_in_which_both_talk(converse: Converse, barge_in: Any) -> None:
    (row,) = converse(barge_in, **{**TALK, "reply_length": 2.2}).lines("overlap")
    assert row["overlap_s"] == pytest.approx(0.2, abs=1e-6)
    assert row["agent_overlap_s"] == 0.0
    assert row["error_s"] <= 10e-9
    assert row["total_s"] == pytest.approx(len(barge_in) / 24000, abs=1e-6)
    # The caller's 0.94 s and 1.56 s, the agent's 1.77 s until it stops and its 2.2 s, once each.
    assert row["speech_s"] == pytest.approx(0.94 + 1.56 + 1.77 + 2.2 - 0.2, abs=0.002)


def test_overlap_that_the_agent_begins_is_its_own(converse: Converse, stream_of: Stream) -> None:
    out = converse(stream_of(0.1, "en/hello", 4.0), early_talk=0.4)
    (row,) = out.lines("overlap")
    assert row["overlap_s"] == row["agent_overlap_s"] == pytest.approx(0.4, abs=1e-6)


def test_noise_is_not_counted_as_the_callers_talk(converse: Converse, stream_of: Stream) -> None:
    out = converse(stream_of(0.1, "en/hello", 2.0, "noise/door", 4.0), **NODS)
    assert event(out)["outcome"] == "held"
    assert out.lines("overlap")[0]["overlap_s"] == 0.0


def test_live_player_catches_up_after_a_stall(converse: Converse, stream_of: Stream) -> None:
    stream = stream_of(0.1, "en/hello", 8.0, "en/hello", 6.0)
    knobs: dict[str, Any] = {
        "stream": "continuous", "stall": 2.0, "stall_at": 0.5, "reply_length": 1.0,
        "interrupt_response": False,
    }  # fmt: skip
    fifo, live = (
        [row["spans"] for row in converse(stream, **knobs, playout=kind).lines("heard")]
        for kind in ("fifo", "live")
    )
    # The first stall cuts both in the same way, and no player leaves voice out.
    assert fifo[0] == live[0]
    assert [round((b - a) / MS) for spans in (*fifo[:1], *live) for a, b in spans] == [500] * 6
    # Without a flush a queue that never shrinks makes the next reply 2 s late.
    late = fifo[1][0][0] - live[1][0][0]
    assert late == pytest.approx(2 * S, abs=80 * MS)
