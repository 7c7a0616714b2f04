"""Playout against timelines drawn by hand, 1 sample = 1 ms."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.signal.playout import Fifo, Placed, place
from vakforge_eval.timeline.call import AgentAudio, Flush
from vakforge_eval.timeline.instant import NS_PER_MS as MS
from vakforge_eval.timeline.instant import Instant


def chunk(arrival: int | tuple[int, int], ms: int, response: str | None = "r") -> AgentAudio:
    lo, hi = arrival if isinstance(arrival, tuple) else (arrival, arrival)
    when = Instant.arrival(lo * MS, hi * MS)
    return AgentAudio(when, np.ones(ms, np.int16), 1000, response, None, 0)


def flush(at: int | tuple[int, int], response: str | None = None) -> Flush:
    lo, hi = at if isinstance(at, tuple) else (at, at)
    return Flush(Instant.arrival(lo * MS, hi * MS), response)


def heard(placed: list[Placed]) -> list[tuple[int, int]]:
    return [(p.start.at // MS, p.n_played) for p in placed]


def test_burst_is_heard_at_the_pace_of_its_samples() -> None:
    placed = place([chunk(0, 100), chunk(1, 100), chunk(2, 100)], [])
    assert heard(placed) == [(0, 100), (100, 100), (200, 100)]


def test_late_chunk_starts_when_it_comes_and_the_queue_begins_anew() -> None:
    placed = place([chunk(0, 100), chunk(150, 100), chunk(160, 100)], [])
    assert heard(placed) == [(0, 100), (150, 100), (250, 100)]


def test_buffer_delays_what_finds_an_empty_queue() -> None:
    placed = place([chunk(0, 100), chunk(5, 100)], [], model=lambda: Fifo(40 * MS))
    assert heard(placed) == [(40, 100), (140, 100)]


def test_flush_cuts_what_was_playing_and_drops_what_waited() -> None:
    placed = place([chunk(0, 100), chunk(0, 100), chunk(0, 100)], [flush(150)])
    assert heard(placed) == [(0, 100), (100, 50), (200, 0)]
    assert [p.end.at // MS for p in placed] == [100, 150, 200]
    assert [p.is_cut for p in placed] == [False, True, True]


def test_late_audio_of_a_flushed_response_never_plays_but_the_next_response_does() -> None:
    audio = [chunk(0, 100), chunk(60, 100), chunk(70, 50, "next"), chunk(80, 50)]
    assert heard(place(audio, [flush(50, "r")])) == [(0, 50), (60, 0), (70, 50), (80, 0)]
    assert heard(place(audio, [flush(50)])) == [(0, 50), (60, 0), (70, 50), (80, 0)]


def test_the_order_of_the_wire_decides_what_a_flush_took_where_arrivals_do_not() -> None:
    # All three were read together: nobody knows better than [0, 100] when each of them came.
    before = replace(chunk((0, 100), 50, None), seq=4)
    after = replace(chunk((0, 100), 50, None), seq=6)
    told = replace(flush((0, 100)), seq=5)
    assert [p.n_played for p in place([before, after], [told])] == [0, 50]
    assert [p.n_played for p in place([before], [told])] == [0]
    # Where no message told it, it comes first at its instant.
    assert [p.n_played for p in place([before, after], [flush((0, 100))])] == [50, 50]


def test_flush_of_one_response_empties_the_whole_queue() -> None:
    audio = [chunk(0, 100), chunk(10, 100, "other"), chunk(60, 10, "other")]
    assert heard(place(audio, [flush(50, "r")])) == [(0, 50), (100, 0), (60, 0)]


def test_flush_before_the_first_audio_of_its_response_silences_it() -> None:
    assert heard(place([chunk(60, 10)], [flush(50, "r")])) == [(60, 0)]
    assert heard(place([chunk(60, 10)], [flush(50, None)])) == [(60, 10)]


def test_audio_without_ids_plays_again_after_a_flush() -> None:
    audio = [chunk(0, 100, None), chunk(60, 100, None)]
    assert heard(place(audio, [flush(50)])) == [(0, 50), (60, 100)]


def test_flush_at_the_instant_of_an_arrival_comes_first() -> None:
    assert heard(place([chunk(50, 100)], [flush(50)])) == [(50, 100)]


def test_second_flush_changes_nothing_that_was_already_silent() -> None:
    audio = [chunk(0, 100), chunk(0, 100)]
    assert heard(place(audio, [flush(50), flush(80)])) == [(0, 50), (100, 0)]
    assert heard(place(audio, [flush(80), flush(50)])) == [(0, 50), (100, 0)]


def test_bounds_go_through_the_queue_worst_case() -> None:
    placed = place([chunk((0, 10), 100), chunk((95, 130), 100)], [flush((180, 190))])
    assert (placed[1].start.lo // MS, placed[1].start.hi // MS) == (100, 130)
    assert (placed[1].end.lo // MS, placed[1].end.hi // MS) == (180, 190)
    assert placed[1].n_played == 60


def test_a_queue_tells_when_it_is_drained() -> None:
    queue: Fifo[str] = Fifo()

    def push(at: int, ms: int) -> int:
        (piece,) = queue.push("x", Instant.exact(at * MS), np.ones(ms, np.int16), 1000)
        return piece.start.at // MS

    assert queue.drained_at == 0
    assert push(10, 100) == 10
    assert push(20, 100) == 110
    assert queue.drained_at == 210 * MS
    queue.flush(Instant.exact(150 * MS))
    assert queue.drained_at == 150 * MS
    queue.flush(Instant.exact(160 * MS))
    assert queue.drained_at == 150 * MS
    assert push(155, 10) == 155


arrivals = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 60), st.integers(0, 90)), max_size=20
).map(sorted)


@given(arrivals, st.lists(st.floats(0, 1), min_size=20, max_size=20))
def test_truth_anywhere_inside_the_arrival_bounds_is_heard_inside_the_heard_bounds(
    parts: list[tuple[int, int, int]], where: list[float]
) -> None:
    bounded = place([chunk((a, a + w), ms) for a, w, ms in parts], [])
    arrived = [a + int(x * w) for (a, w, _), x in zip(parts, where, strict=False)]
    truth = place([chunk(at, part[2]) for at, part in zip(arrived, parts, strict=True)], [])
    for b, t in zip(bounded, truth, strict=True):
        assert b.start.lo <= t.start.at <= b.start.hi
        assert b.end.lo <= t.end.at <= b.end.hi


@given(arrivals, st.lists(st.integers(0, 1500), max_size=4), st.booleans())
def test_one_thing_is_heard_at_a_time_and_nothing_across_a_flush(
    parts: list[tuple[int, int, int]], flushes: list[int], has_ids: bool
) -> None:
    audio = [chunk(a, ms, str(w % 3) if has_ids else None) for a, w, ms in parts]
    placed = place(audio, [flush(at) for at in flushes])
    heard_parts = [p for p in placed if p.n_played]
    for before, after in itertools.pairwise(heard_parts):
        assert before.end.at <= after.start.at
    for piece in heard_parts:
        assert not any(piece.start.at < at * MS < piece.end.at for at in flushes)
        assert piece.n_played <= len(piece.audio.pcm)


def test_no_audio_is_no_placement() -> None:
    assert place([], [flush(0)]) == []
