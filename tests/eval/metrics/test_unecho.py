"""An agent or a line that sends the caller's voice back is heard as if it did not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile as sf
import soxr

from vakforge_eval.metrics.hearing import Hearing, hear
from vakforge_eval.metrics.unecho import unecho
from vakforge_eval.metrics.view import CallView
from vakforge_eval.scoring.score import score_call
from vakforge_eval.signal.gate import GATE_DBFS
from vakforge_eval.timeline.instant import NS_PER_MS
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Flag, Reason, Undefined

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

CLIPS = Path(__file__).parents[3] / "scenarios/clips"
RATE = 24_000
USER_AT, REPLY_AT, BARGE_AT = 600, 3600, 4300

Pcm = npt.NDArray[np.int16]


@cache
def clip(name: str) -> Pcm:
    pcm, own = sf.read(CLIPS / f"{name}.flac", dtype="int16")
    return np.asarray(soxr.resample(pcm, own, RATE))


def put(track: npt.NDArray[Any], ms: float, pcm: npt.NDArray[Any]) -> float:
    """Add `pcm` to `track`; return when it is over (ms)."""
    at = round(ms * RATE / 1000)
    part = pcm[: max(0, len(track) - at)]
    track[at : at + len(part)] += part
    return ms + len(part) * 1000 / RATE


class Room:
    """A question, a reply that goes on while it is talked over, and an echo of both utterances."""

    def __init__(self, new_call: Any, *, stops_at: float | None = None, **capabilities: bool):
        self.call = new_call(**capabilities)
        self.sent = np.zeros(12 * RATE, dtype=np.int16)
        for kind, at, name in (
            (StepKind.SAY, USER_AT, "en/order_where"),
            (StepKind.BARGE_IN, BARGE_AT, "en/order_stop"),
        ):
            self.call.say(at, put(self.sent, at, clip(name)), kind=kind)
        self.call.sent = self.sent
        self.agent = np.zeros(len(self.sent))
        put(self.agent, REPLY_AT, clip("agent/long_1").astype(float))
        if stops_at is not None:
            self.agent[round(stops_at * RATE / 1000) :] = 0

    def hear(
        self,
        *,
        gain_db: float | None = -20,
        delay_ms: float = 120,
        noise_dbfs: float | None = None,
        jitter_ms: float = 0,
        skew_ppm: float = 0,
        reply_only: bool = False,
    ) -> Hearing:
        """Let the stream arrive in 20 ms messages; with `reply_only` those of the reply."""
        stream = self.agent.copy()
        if gain_db is not None:
            put(stream, delay_ms, self.sent * 10 ** (gain_db / 20))
        rng = np.random.default_rng(1)
        if noise_dbfs is not None:
            stream += rng.normal(0, 32768 * 10 ** (noise_dbfs / 20), len(stream))
        pcm = np.clip(np.rint(stream), -32768, 32767).astype(np.int16)
        sounding = np.flatnonzero(self.agent)
        first, last = (int(sounding[0]), int(sounding[-1]) + 1) if reply_only else (0, len(pcm))
        arrived = 0.0
        for at in range(first, last, RATE // 50):
            due = at * 1000 / RATE / (1 + skew_ppm / 1e6) + rng.uniform(0, jitter_ms)
            arrived = max(arrived, due)
            name = "r1" if sounding[0] <= at <= sounding[-1] and reply_only else None
            self.call.audio_at(arrived, pcm[at : min(at + RATE // 50, last)], name)
        return hear(self.call.build(12_000))

    def edges(self, hearing: Hearing) -> list[float]:
        pairs = ((s.start.when.at, s.end.when.at) for s in hearing.segments)
        return [(ns - self.call.origin) / NS_PER_MS for pair in pairs for ns in pair]


def streaming(new_call: Any, **settings: Any) -> Room:
    return Room(new_call, continuous_stream=True, response_ids=False, **settings)


CONDITIONS: list[tuple[dict[str, Any], float]] = [
    ({}, 0.5),
    ({"gain_db": -6, "delay_ms": 320}, 0.5),
    ({"gain_db": -30, "delay_ms": 40}, 0.5),
    ({"gain_db": -12, "delay_ms": 480}, 0.5),
    ({"noise_dbfs": -50}, 20),
    ({"noise_dbfs": -40}, 20),
    ({"jitter_ms": 60}, 0.5),
    ({"jitter_ms": 60, "noise_dbfs": -50}, 20),
    ({"skew_ppm": 5000}, 0.5),
    ({"skew_ppm": -5000}, 0.5),
]


@pytest.mark.parametrize("stops_at", [None, 4500])
@pytest.mark.parametrize(("settings", "bound"), CONDITIONS)
def test_an_echo_makes_and_moves_no_edge_of_a_stream(
    new_call: Any, settings: dict[str, Any], bound: float, stops_at: float | None
) -> None:
    room = streaming(new_call, stops_at=stops_at)
    hearing = room.hear(**settings)
    without = streaming(new_call, stops_at=stops_at)
    expected = without.edges(without.hear(**{**settings, "gain_db": None}))
    assert room.edges(hearing) == pytest.approx(expected, abs=bound)


@pytest.mark.parametrize("settings", [{}, {"jitter_ms": 60}, {"skew_ppm": 5000}])
def test_an_echo_inside_of_a_response_moves_no_edge(
    new_call: Any, settings: dict[str, Any]
) -> None:
    room, without = Room(new_call), Room(new_call)
    hearing = room.hear(reply_only=True, **settings)
    expected = without.edges(without.hear(reply_only=True, **{**settings, "gain_db": None}))
    assert hearing.echo is not None
    assert room.edges(hearing) == pytest.approx(expected, abs=0.5)


def test_level_and_delay_of_the_echo_are_told(new_call: Any) -> None:
    room = streaming(new_call)
    hearing = room.hear(gain_db=-17, delay_ms=230)
    assert hearing.echo is not None
    assert hearing.echo.delay_ns == pytest.approx(230 * NS_PER_MS, abs=0.1 * NS_PER_MS)
    assert hearing.echo.level_db == pytest.approx(-17, abs=0.5)
    score = score_call(CallView(room.call.build(12_000)), "tuned")[0]
    assert score.facts["echo"] == {
        "delay_s": pytest.approx(0.23, abs=1e-4),
        "level_db": pytest.approx(-17, abs=0.5),
        "correlation": pytest.approx(hearing.echo.correlation, abs=1e-3),
    }


def test_messages_outside_of_responses_that_are_an_echo_are_no_reply(new_call: Any) -> None:
    call = new_call()
    call.sent = np.zeros(6 * RATE, dtype=np.int16)
    end = put(call.sent, 600, clip("en/order_where"))
    call.say(600, end)
    back = np.rint(clip("en/order_where") * 0.1).astype(np.int16)
    for at in range(0, len(back), RATE // 50):
        call.audio_at(720 + at * 1000 / RATE, back[at : at + RATE // 50], None)
    view = CallView(call.build(6000))
    assert view.hearing.segments == ()
    assert not view.turns.turns[0].segments
    assert Flag.EARLY not in view.turn_views[0].flags
    assert Flag.ECHO in view.turn_views[0].flags


def test_only_the_turns_that_the_echo_touched_are_flagged(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    call.sent = np.zeros(12 * RATE, dtype=np.int16)
    for at in (600, 6600):
        call.say(at, put(call.sent, at, clip("en/order_where")))
    stream = np.zeros(12 * RATE)
    put(stream, 4000, clip("agent/short_ok").astype(float))
    put(stream, 6720, clip("en/order_where") * 0.1)
    for at in range(0, len(stream), RATE // 50):
        pcm = np.rint(stream[at : at + RATE // 50]).astype(np.int16)
        call.audio_at(at * 1000 / RATE, pcm, None)
    flags = [Flag.ECHO in view.flags for view in CallView(call.build(12_000)).turn_views]
    assert flags == [False, True]


@pytest.mark.parametrize(
    ("lost_ms", "expected"),
    [
        ((0, 12_000), [True, True]),
        ((1000, 1040), [True, False]),
        ((7000, 7020), [False, True]),
        ((4000, 6000), [False, False]),
    ],
    ids=["all", "first", "second", "silence"],
)
def test_a_turn_whose_echo_cannot_be_looked_for_says_so(
    new_call: Any, lost_ms: tuple[int, int], expected: list[bool]
) -> None:
    call = new_call(continuous_stream=True)
    call.sent = np.zeros(12 * RATE, dtype=np.int16)
    for at in (600, 6600):
        call.say(at, put(call.sent, at, clip("en/order_where")))
    lost = [ms * RATE // 1000 for ms in lost_ms]
    call.sent[lost[0] : lost[1]] = 0

    def gaps(start: int, stop: int) -> list[tuple[int, int]]:
        lo, hi = max(start, lost[0]), min(stop, lost[1])
        return [(lo, hi)] if lo < hi else []

    call.sent_gaps = gaps
    stream = np.zeros(12 * RATE)
    for at in (600, 6600):
        put(stream, at, clip("agent/generic_1").astype(float))
    for at in range(0, len(stream), RATE // 50):
        pcm = np.rint(stream[at : at + RATE // 50]).astype(np.int16)
        call.audio_at(at * 1000 / RATE, pcm, None)
    views = CallView(call.build(12_000)).turn_views
    assert [Flag.ECHO_UNKNOWN in view.flags for view in views] == expected
    assert not any(Flag.ECHO in view.flags for view in views)


@pytest.mark.parametrize("noise_dbfs", [None, -50])
def test_a_call_without_echo_is_not_touched(new_call: Any, noise_dbfs: float | None) -> None:
    room, blind = streaming(new_call), streaming(new_call)
    blind.call.sent = None
    settings: dict[str, Any] = {"gain_db": None, "noise_dbfs": noise_dbfs}
    hearing, expected = room.hear(**settings), blind.hear(**settings)
    assert hearing.echo is None
    assert room.edges(hearing) == blind.edges(expected)
    assert hearing.floor_dbfs == expected.floor_dbfs
    assert [s.start for s in hearing.segments] == [s.start for s in expected.segments]
    for mine, theirs in zip(hearing.placed, expected.placed, strict=True):
        assert np.array_equal(mine.pcm, theirs.pcm)


def test_the_audio_that_is_shown_and_played_is_what_came(new_call: Any) -> None:
    room = streaming(new_call)
    hearing = room.hear()
    came = {id(message) for message in room.call.audio}
    assert hearing.echo is not None
    assert all(id(piece.audio) in came for piece in hearing.placed)
    told = [segment.messages for segment in hearing.segments]
    told += [tuple(response.messages) for response in hearing.responses.values()]
    assert all(id(message) in came for messages in told for message in messages)


def test_a_burst_that_was_made_before_the_user_spoke_is_not_searched(new_call: Any) -> None:
    call = new_call()
    call.sent = np.zeros(6 * RATE, dtype=np.int16)
    call.say(600, put(call.sent, 600, clip("en/order_where")))
    call.reply(3000, clip("agent/long_1"), pace=0)
    assert unecho(call.build(20_000), GATE_DBFS) == (None, ())
    assert len(hear(call.build(20_000)).segments) >= 1


def test_what_is_left_of_an_echo_is_no_speech_and_spoils_the_edge_beside_it(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    call.sent = np.zeros(8 * RATE, dtype=np.int16)
    spoken = clip("en/order_where")
    call.say(600, put(call.sent, 600, spoken))
    # A room that answers for longer than any short path can follow.
    stream = np.zeros(8 * RATE)
    for delay, gain in ((120, 0.2), (127, -0.17), (141, 0.14), (150, -0.1)):
        put(stream, 600 + delay, spoken * gain)
    put(stream, 4200, clip("agent/short_ok").astype(float))
    for at in range(0, len(stream), RATE // 50):
        pcm = np.rint(stream[at : at + RATE // 50]).astype(np.int16)
        call.audio_at(at * 1000 / RATE, pcm, None)
    view = CallView(call.build(8000))
    assert view.hearing.echo is not None
    first = view.turns.turns[0].first_reply
    assert first is not None
    is_told = abs((first.segment.start.when.at - call.origin) / NS_PER_MS - 4200) < 20
    assert is_told or first.segment.start_fault is Reason.ECHO


def test_an_edge_that_may_be_an_echo_has_no_latency(new_call: Any) -> None:
    room = streaming(new_call, stops_at=4500)
    room.hear()
    view = CallView(room.call.build(12_000))
    turn = view.turn_views[0]
    segment = turn.turn.reply[0]
    object.__setattr__(segment, "is_start_echo", True)
    assert turn.missing(audible=True) == Undefined(Reason.ECHO)
