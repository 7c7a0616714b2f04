"""Live hearing. Speech is a hard-edged tone, so its edges are known to the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.metrics.segments import find_islands
from vakforge_eval.signal.pcm import encode
from vakforge_eval.signal.playout import Placed
from vakforge_eval.timeline.call import AgentAudio
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.ear import Ear, FlushFact, HeardEdge
from vakforge_probe.floor import usable_gate
from vakforge_probe.guard import EchoGuard

MS = 1_000_000
RATE = 24_000
T0 = 5_000 * MS
CLOSE = 300_000
"""0.3 ms in ns: what a hard edge may be off by."""

Pcm = npt.NDArray[np.int16]


def tone(ms: float, dbfs: float = -15.0, rate: int = RATE) -> Pcm:
    n = round(ms * rate / 1000)
    peak = 32768 * 10 ** (dbfs / 20) * 2**0.5
    return np.rint(peak * np.cos(2 * np.pi * 300 * np.arange(n) / rate)).astype(np.int16)


def quiet(ms: float) -> Pcm:
    return np.zeros(round(ms * RATE / 1000), dtype=np.int16)


def hiss(ms: float, dbfs: float, seed: int = 1) -> Pcm:
    noise = np.random.default_rng(seed).normal(size=round(ms * RATE / 1000))
    return np.rint(noise * 32768 * 10 ** (dbfs / 20)).astype(np.int16)


class Line:
    """An ear, and a clock in ms from `T0`."""

    def __init__(self, **settings: Any) -> None:
        self.ear = Ear(**settings)
        self.edges: list[HeardEdge] = []

    def send(
        self, pcm: Pcm, at: float, rid: str | None = "r", item: str | None = "i", rate: int = RATE
    ) -> Line:
        """All of `pcm` in one message at `at`."""
        arrival = T0 + round(at * MS)
        chunk = AudioChunk(
            at=Instant.exact(arrival),
            response_id=rid,
            item_id=item,
            rate_hz=rate,
            data=encode(pcm, "pcm_s16le"),
        )
        self.edges += self.ear.hear(chunk, arrival)
        return self

    def pace(self, pcm: Pcm, at: float, rid: str | None = "r", item: str | None = "i") -> Line:
        """20 ms messages, each sent when its turn to be played comes; ticks between."""
        for k in range(0, len(pcm), RATE // 50):
            now = at + k / RATE * 1000
            self.tick(now)
            self.send(pcm[k : k + RATE // 50], now, rid, item)
        return self

    def tick(self, at: float) -> Line:
        self.edges += self.ear.tick(T0 + round(at * MS))
        return self

    def end(self, at: float, rid: str | None = "r") -> Line:
        self.edges += self.ear.response_ended(rid, T0 + round(at * MS))
        return self

    def flush(self, at: float, rid: str | None = None) -> FlushFact | None:
        edges, fact = self.ear.flush(T0 + round(at * MS), rid)
        self.edges += edges
        return fact

    @property
    def told(self) -> list[tuple[str, float]]:
        """(kind, heard ms), rounded to a ms."""
        return [(e.kind, round((e.heard_ns - T0) / MS)) for e in self.edges]


def test_paced_speech_is_heard_where_it_is() -> None:
    line = Line().pace(np.concatenate([quiet(150), tone(800)]), 1000).tick(2500)
    assert line.told == [("onset", 1150), ("end", 1950)]
    onset, end = line.edges
    assert abs(onset.heard_ns - T0 - 1150 * MS) < CLOSE
    assert abs(end.heard_ns - T0 - 1950 * MS) < CLOSE


def test_an_onset_is_known_within_30_ms_and_one_message() -> None:
    line = Line().pace(np.concatenate([quiet(155), tone(800)]), 1000)
    (onset,) = line.edges
    assert 0 <= onset.confirmed_ns - onset.heard_ns <= 50 * MS


def test_an_end_is_known_by_silence_of_350_ms() -> None:
    line = Line().pace(np.concatenate([tone(500), quiet(1000)]), 0)
    assert line.told == [("onset", 0), ("end", 500)]
    # Known when the message arrives that completes the silence, up to its 20 ms before it plays.
    assert 330 * MS <= line.edges[1].confirmed_ns - line.edges[1].heard_ns <= 370 * MS


def test_an_end_is_known_by_350_ms_without_any_audio() -> None:
    line = Line().pace(tone(500), 0).tick(849)
    assert line.told == [("onset", 0)]
    line.tick(850)
    assert line.told == [("onset", 0), ("end", 500)]
    assert line.edges[1].confirmed_ns == T0 + 850 * MS
    assert line.tick(5000).told == line.told


def test_an_end_is_known_at_once_when_the_response_has_ended() -> None:
    line = Line().pace(tone(500), 0).end(505)
    assert line.told == [("onset", 0), ("end", 500)]
    assert line.edges[1].confirmed_ns == T0 + 505 * MS


def test_the_end_of_another_response_ends_nothing() -> None:
    assert Line().pace(tone(500), 0).end(300, "other").told == [("onset", 0)]


@pytest.mark.parametrize(("audio", "event"), [(None, "r"), ("r", None), (None, None)])
def test_an_end_without_a_name_on_either_side_is_the_end(
    audio: str | None, event: str | None
) -> None:
    assert Line().pace(tone(500), 0, audio).end(505, event).told == [("onset", 0), ("end", 500)]


def test_a_burst_is_heard_ahead_in_real_time() -> None:
    pcm = np.concatenate([tone(2000), quiet(500), tone(1000)])
    line = Line()
    for k in range(0, len(pcm), 4800):
        line.send(pcm[k : k + 4800], 100)
    line.end(101)
    assert line.told == [("onset", 100), ("end", 2100), ("onset", 2600), ("end", 3600)]
    assert all(e.confirmed_ns <= T0 + 101 * MS for e in line.edges)


def test_a_gap_in_arrival_is_silence_and_does_not_split_speech() -> None:
    line = Line().send(tone(300), 0).send(tone(300), 500).tick(700).send(tone(300), 1000)
    assert line.end(1100).told == [("onset", 0), ("end", 1300)]


def test_a_gap_of_350_ms_ends_speech_even_if_nobody_ticked() -> None:
    line = Line().send(tone(300), 0).send(tone(300), 2000).end(2100)
    assert line.told == [("onset", 0), ("end", 300), ("onset", 2000), ("end", 2300)]


def test_two_responses_are_never_one_stretch_of_speech() -> None:
    line = Line().send(tone(500), 0, "a").send(tone(500), 100, "b").end(200, "b")
    assert line.told == [("onset", 0), ("end", 500), ("onset", 500), ("end", 1000)]
    assert [e.response_id for e in line.edges] == ["a", "a", "b", "b"]


@given(cuts=st.lists(st.integers(1, 3000), max_size=12))
@settings(deadline=None, max_examples=40)
def test_how_audio_is_cut_into_messages_moves_no_edge(cuts: list[int]) -> None:
    data = encode(np.concatenate([quiet(100), tone(400), quiet(50), tone(100)]), "pcm_s16le")
    line, at = Line(), 0
    for cut in [*cuts, len(data)]:
        part, at = data[at : at + cut], at + cut
        chunk = AudioChunk(at=Instant.exact(T0), response_id="r", rate_hz=RATE, data=part)
        line.edges += line.ear.hear(chunk, T0)
    assert line.end(1).told == [("onset", 100), ("end", 650)]


def test_an_odd_byte_is_carried_within_an_item_and_not_into_the_next() -> None:
    line = Line()
    data = encode(tone(200), "pcm_s16le")
    for item, part in (("i", data[:4001]), ("i", data[4001:-1]), ("j", data), ("j", data)):
        chunk = AudioChunk(
            at=Instant.exact(T0), response_id="r", item_id=item, rate_hz=RATE, data=part
        )
        line.edges += line.ear.hear(chunk, T0)
    # A sample out of step would be full-scale noise; only one sample is missing.
    assert line.end(1).told == [("onset", 0), ("end", 600)]


@pytest.mark.parametrize("rate", [8000, 16_000, 48_000])
def test_any_rate_is_heard_at_its_own_speed(rate: int) -> None:
    line = Line().send(tone(500, rate=rate), 0, rate=rate).end(1)
    assert line.told == [("onset", 0), ("end", 500)]


def test_a_change_of_rate_does_not_mix_two_clocks() -> None:
    line = Line().send(tone(500), 0).send(tone(500, rate=8000), 0, rate=8000).end(1)
    assert line.told == [("onset", 0), ("end", 500), ("onset", 500), ("end", 1000)]


def test_nothing_but_silence_is_no_speech() -> None:
    assert Line().pace(quiet(1000), 0).end(1000).tick(3000).told == []
    assert Line().pace(hiss(1000, -60), 0).end(1000).told == []


def test_a_long_call_does_not_drift() -> None:
    """10 minutes in messages of a length that no whole number of ns fits."""
    line = Line()
    n, step = 0, 479
    silence = np.zeros(step, np.int16)
    for _ in range(30_000):
        line.send(silence, 0)
        n += step
    line.send(tone(500), 0).end(1)
    onset = line.edges[0]
    assert abs(onset.heard_ns - T0 - n * 1_000_000_000 // RATE) < CLOSE


# -- holes --------------------------------------------------------------------------------------


def offline(parts: list[tuple[Pcm, float]]) -> list[tuple[str, float]]:
    """(kind, heard ms) as the metrics find them in messages that are heard from these instants."""
    placed = []
    for k, (pcm, at) in enumerate(parts):
        start = Instant.exact(T0 + round(at * MS))
        audio = AgentAudio(start, pcm, RATE, "r", "i", k)
        placed.append(Placed(audio, start, start.shifted(audio.duration_ns), len(pcm)))
    found: list[tuple[str, float]] = []
    for island in find_islands(placed, []):
        for start_edge, end_edge in island.sounds(island.runs(usable_gate(None))):
            begin, end = ((e.when.at - T0) / MS for e in (start_edge, end_edge))
            if found and begin - found[-1][1] < 350:
                found.pop()
            else:
                found.append(("onset", begin))
            found.append(("end", end))
    return [(kind, round(ms)) for kind, ms in found]


def test_speech_begins_before_a_hole_after_its_first_message() -> None:
    """An underrun delays what comes after it; it is not silence of the agent's."""
    line = Line().send(tone(20), 1000).send(tone(20), 1130).send(tone(300), 1150)
    onset = line.edges[0]
    assert abs(onset.heard_ns - T0 - 1000 * MS) < CLOSE
    assert line.end(1200).told == [("onset", 1000), ("end", 1450)]


def test_speech_ends_before_a_hole_and_not_behind_it() -> None:
    line = Line().send(tone(300), 0).send(quiet(20), 400).tick(900)
    assert line.told == [("onset", 0), ("end", 300)]


def test_a_hole_is_part_of_the_silence_that_ends_speech() -> None:
    line = Line().send(np.concatenate([tone(300), quiet(60)]), 0).send(quiet(60), 600)
    assert line.told == [("onset", 0), ("end", 300)]
    line.send(tone(300), 660)
    assert line.end(700).told[2:] == [("onset", 660), ("end", 960)]


def test_a_hole_in_speech_is_no_part_of_the_silence_after_it() -> None:
    line = Line().send(tone(300), 0).send(np.concatenate([tone(40), quiet(200)]), 500)
    assert line.told == [("onset", 0)]
    assert line.send(tone(100), 740).end(800).told == [("onset", 0), ("end", 840)]


_HOLEY = st.lists(
    st.tuples(
        st.sampled_from(["speech", "silence"]),
        st.sampled_from([20, 20, 40, 100, 200, 400]),
        # Never so that a silence is 350 ms to the millisecond.
        st.sampled_from([0, 0, 0, 0.1, 45, 115, 255, 345, 365]),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("is_guarded", [False, True])
@settings(deadline=None, max_examples=60)
@given(messages=_HOLEY)
def test_holes_are_heard_as_the_metrics_hear_them(
    messages: list[tuple[str, int, float]], is_guarded: bool
) -> None:
    guard = EchoGuard(RATE, RATE // 50)
    guard.said(encode(hiss(20, -20), "pcm_s16le"), T0)
    guard.wary_until_ns = T0 + 60_000 * MS
    line = Line(guard=guard if is_guarded else None)
    at, parts = 0.0, []
    for kind, ms, hole in messages:
        at += hole
        parts.append((tone(ms) if kind == "speech" else quiet(ms), at))
        at += ms
    for pcm, start in parts:
        line.send(pcm, start)
    assert line.tick(at + 400).told == offline(parts)


def test_holes_behind_which_nothing_more_is_told_are_forgotten() -> None:
    """An agent with a slow clock leaves one before every message."""
    line = Line()
    for k in range(2000):
        line.send(tone(20), 20.1 * k)
    assert line.ear._stretch is not None
    assert len(line.ear._stretch._pieces) < 50


# -- flush --------------------------------------------------------------------------------------


def test_a_flush_ends_speech_at_its_instant_and_tells_what_was_played() -> None:
    line = Line().send(tone(3000), 100).end(101)
    assert line.told == [("onset", 100), ("end", 3100)]
    assert line.flush(1234.9) == FlushFact("i", 1134)
    assert line.told[-1] == ("end", 1235)
    assert line.edges[-1].heard_ns == line.edges[-1].confirmed_ns == T0 + round(1234.9 * MS)


def test_played_time_is_that_of_the_item_over_all_its_messages() -> None:
    line = Line().pace(tone(400), 0, item="a").pace(tone(400), 400, item="b").send(tone(900), 790)
    assert line.send(tone(2000), 795, item="b").flush(850) == FlushFact("i", 50)
    line = Line().pace(tone(400), 0, item="a").pace(tone(400), 400, item="b")
    assert line.send(tone(900), 800, item="b").flush(1000) == FlushFact("b", 600)


def test_an_item_that_had_not_begun_was_played_for_0_ms() -> None:
    line = Line(buffer_ns=100 * MS).send(tone(500), 0)
    assert line.flush(50) == FlushFact("i", 0)
    assert line.told == [("onset", 100)]


def test_gaps_of_silence_between_messages_are_not_played_time() -> None:
    line = Line().send(tone(200), 0).send(tone(500), 1000)
    assert line.flush(1300) == FlushFact("i", 500)


def test_a_flush_of_an_empty_queue_cuts_nothing() -> None:
    line = Line().pace(tone(500), 0).end(505)
    assert line.flush(600) is None
    assert Line().flush(0) is None


def test_late_audio_of_a_flushed_response_is_dropped() -> None:
    line = Line().send(tone(1000), 0, "a").send(tone(1000), 0, "b")
    assert line.flush(500, "a") is not None
    told = line.told
    line.send(tone(500), 600, "a").send(tone(500), 600, "b")
    assert line.told == told
    line.send(tone(500), 700, "c").end(701, "c")
    assert line.told[-2:] == [("onset", 700), ("end", 1200)]


def test_a_flush_names_a_response_before_its_late_audio_even_if_nothing_is_queued() -> None:
    line = Line()
    assert line.flush(0, "a") == FlushFact(None, None)
    assert line.flush(1, "a") is None
    assert line.send(tone(500), 10, "a").end(600, "a").told == []


def test_a_flush_without_a_name_silences_all_responses_so_far_and_no_later_one() -> None:
    line = Line().send(tone(1000), 0, "a")
    line.flush(100)
    line.send(tone(300), 200, "a").send(tone(300), 300, "b").end(301, "b")
    assert line.told == [("onset", 0), ("end", 100), ("onset", 300), ("end", 600)]


def test_a_flush_without_a_name_silences_a_response_whose_queue_ran_empty() -> None:
    line = Line().pace(tone(200), 0, "a")
    assert line.flush(300) == FlushFact(None, None)
    line.send(tone(500), 400, "a").send(tone(300), 1000, "b").end(1400, "b")
    assert line.told == [("onset", 0), ("end", 200), ("onset", 1000), ("end", 1300)]


def test_a_flush_without_a_name_tells_nothing_once_all_responses_have_ended() -> None:
    assert Line().pace(tone(200), 0, "a").end(205, "a").flush(300) is None


@pytest.mark.parametrize("named", [None, "a"], ids=["of all", "of it"])
def test_a_stream_of_one_name_is_heard_on_after_a_flush(named: str | None) -> None:
    line = Line(continuous=True).send(tone(400), 0, "a")
    assert line.flush(200, named) == FlushFact("i", 200)
    assert line.flush(300, named) is None
    line.pace(np.concatenate([quiet(500), tone(300), quiet(400)]), 400, "a")
    assert line.told == [("onset", 0), ("end", 200), ("onset", 900), ("end", 1200)]


@pytest.mark.parametrize("other", [None, "b"])
def test_late_audio_of_a_response_is_dropped_in_a_stream_too(other: str | None) -> None:
    line = Line(continuous=True).pace(quiet(200), 0, other).send(tone(400), 200, "a")
    line.flush(400, "a")
    line.send(tone(300), 500, "a").pace(quiet(400), 600, other)
    assert line.told == [("onset", 200), ("end", 400)]


@pytest.mark.parametrize("continuous", [False, True])
def test_messages_that_each_have_a_name_are_one_speech(continuous: bool) -> None:
    line = Line(continuous=continuous)
    pcm = np.concatenate([quiet(200), tone(600), quiet(400)])
    for i in range(0, 1200, 20):
        line.send(pcm[i * 24 : (i + 20) * 24], i, f"m{i}")
    assert line.told == [("onset", 200), ("end", 800)]


def test_what_was_played_before_a_flush_counts_when_an_item_goes_on_after_it() -> None:
    line = Line(buffer_ns=100 * MS).pace(tone(200), 0, None)
    assert line.flush(190) == FlushFact("i", 90)
    line.send(tone(300), 200, None)
    assert line.flush(250) == FlushFact("i", 90)


def test_a_flush_in_a_pause_ends_nothing_twice() -> None:
    pcm = np.concatenate([tone(500), quiet(600), tone(500)])
    line = Line().send(pcm, 0).end(1)
    assert line.flush(800) is not None
    assert [e for e in line.told if e[0] == "end"] == [("end", 500), ("end", 1600)]


def test_without_ids_speech_goes_on_after_a_flush() -> None:
    line = Line().send(tone(1000), 0, None)
    line.flush(500)
    line.send(tone(300), 600, None).end(700, None)
    assert line.told == [("onset", 0), ("end", 500), ("onset", 600), ("end", 900)]


# -- noise and floods ---------------------------------------------------------------------------


def test_the_gate_rises_over_noise_that_lies_outside_responses() -> None:
    line = Line().pace(hiss(40, -45), 0, "first")
    line.pace(hiss(2500, -45), 40, None)
    before = len(line.edges)
    pcm = np.concatenate([hiss(400, -45, 2), tone(500) // 2, hiss(1000, -45, 3)])
    line.pace(pcm, 2540, None)
    later = [(e.kind, (e.heard_ns - T0) / MS) for e in line.edges[before:]]
    assert [kind for kind, _ in later] == ["onset", "end"]
    assert later[0][1] == pytest.approx(2940, abs=10)
    assert later[1][1] == pytest.approx(3440, abs=10)


def test_a_continuous_stream_gives_its_floor_from_the_start() -> None:
    line = Line(continuous=True).pace(hiss(1500, -45), 0, None)
    assert line.told[-1][0] == "end"
    line.pace(np.concatenate([tone(500), hiss(1000, -45)]), 1500, None)
    assert [kind for kind, _ in line.told[-2:]] == ["onset", "end"]
    assert line.told[-2][1] == pytest.approx(1500, abs=10)


def test_without_ids_speech_alone_does_not_raise_the_gate() -> None:
    line = Line().pace(tone(3000), 0, None).end(3000, None)
    line.pace(tone(500, -40), 4000, None).end(4500, None)
    assert line.told == [("onset", 0), ("end", 3000), ("onset", 4000), ("end", 4500)]


def test_noise_too_loud_to_measure_over_still_lets_the_call_go_on() -> None:
    line = Line(continuous=True).pace(hiss(3000, -20), 0, None)
    assert line.told[0][0] == "onset"


def test_more_audio_ahead_than_allowed_is_reported_and_stays_so() -> None:
    line = Line(max_ahead_s=1.0).send(tone(900), 0)
    assert not line.ear.is_flooded
    line.send(tone(200), 0)
    assert line.ear.is_flooded
    line.flush(10)
    assert line.ear.is_flooded


_MOVES = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.sampled_from(["speech", "silence", "tick", "ended", "flush", "flush all"]),
        st.sampled_from(["a", "b", None]),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(moves=_MOVES)
def test_onsets_and_ends_alternate_in_time_whatever_comes(
    moves: list[tuple[int, str, str | None]],
) -> None:
    """With what a flush revokes taken out, as a director sees it."""
    line, now = Line(), 0
    seen: list[HeardEdge] = []
    taken = 0
    for wait, move, rid in moves:
        now += wait
        match move:
            case "speech":
                line.send(tone(200), now, rid)
            case "silence":
                line.send(quiet(200), now, rid)
            case "tick":
                line.tick(now)
            case "ended":
                line.end(now, rid)
            case _:
                at = T0 + now * MS
                if line.flush(now, rid if move == "flush" else None) is not None:
                    seen = [
                        e for e in seen
                        if e.heard_ns < at or (e.kind == "end" and e.heard_ns == at)
                    ]  # fmt: skip
        fresh, taken = line.edges[taken:], len(line.edges)
        seen += [e for e in fresh if not (seen and seen[-1].kind == e.kind == "end")]
    line.end(now, None)
    seen += line.edges[taken:]
    assert [e.kind for e in seen] == ["onset", "end"] * (len(seen) // 2)
    times = [e.heard_ns for e in seen]
    assert times == sorted(times)


def test_stream_of_opus_goes_on_through_responses_and_through_what_is_not_played() -> None:
    pytest.importorskip("av")
    from vakforge_eval.signal.opus import OggOpusEncoder

    encoder, ear, edges = OggOpusEncoder(RATE), Ear(), list[HeardEdge]()

    def send(pcm: Pcm, at: float, rid: str) -> None:
        for k, frame in enumerate(pcm.reshape(-1, 480)):
            arrival = T0 + round((at + 20 * k) * MS)
            data = encoder.encode(frame)
            chunk = AudioChunk(
                at=Instant.exact(arrival), response_id=rid, item_id=rid, codec="ogg_opus",
                rate_hz=48_000, data=data,
            )  # fmt: skip
            edges.extend(ear.hear(chunk, arrival))

    send(tone(200), 0, "a")
    edges += ear.flush(T0 + 200 * MS, "a")[0]
    send(tone(200), 200, "a")
    send(quiet(200), 400, "a")
    send(tone(200), 1000, "b")
    assert [(e.kind, e.response_id) for e in edges] == [
        ("onset", "a"), ("end", "a"), ("onset", "b"),
    ]  # fmt: skip
    assert abs(edges[2].heard_ns - T0 - 1006.5 * MS) <= 8 * MS
    assert ear._decoder is not None
    assert ear._decoder.n_corrupt == 0
