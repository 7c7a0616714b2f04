"""Playout against timelines drawn by hand, 1 sample = 1 ms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.signal.gate import Gate
from vakforge_eval.signal.playout import Fifo, Live, Placed, place
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


@pytest.mark.timeout(20)
def test_a_flood_of_responses_each_flushed_costs_no_more_than_its_length() -> None:
    n = 100_000
    audio = [chunk(10 * k, 2, f"r{k}") for k in range(n)]
    placed = place(audio, [flush(10 * k + 1) for k in range(n)])
    assert sum(piece.n_played for piece in placed) == n


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


# -- live ---------------------------------------------------------------------------------------

KHZ = 1000
QUIET_GATE = Gate.at(-55)


def sound(ms: int, level: int = 8000) -> npt.NDArray[np.int16]:
    """1 kHz audio that is as loud in each block: +level, -level, ..."""
    return np.resize(np.array([level, -level], np.int16), ms)


def stream(*parts: npt.NDArray[np.int16], at: int = 0, size: int = 20) -> list[AgentAudio]:
    """Messages of `size` ms that each come when they begin to sound."""
    pcm = np.concatenate(parts)
    return [message(at + first, pcm[first : first + size]) for first in range(0, len(pcm), size)]


def message(
    arrival: int | tuple[int, int], pcm: npt.NDArray[np.int16], response: str | None = None
) -> AgentAudio:
    lo, hi = arrival if isinstance(arrival, tuple) else (arrival, arrival)
    return AgentAudio(Instant.arrival(lo * MS, hi * MS), pcm, KHZ, response, None, 0)


def live(gate: Gate = QUIET_GATE, buffer_ms: int = 0) -> Callable[[], Live[AgentAudio]]:
    return lambda: Live(gate, buffer_ms * MS)


def delayed(messages: Sequence[AgentAudio], since: int, until: int) -> list[AgentAudio]:
    """The same messages with those of a stall all arriving at its end."""
    return [
        replace(m, arrival=Instant.exact(until * MS)) if since <= m.arrival.at // MS < until else m
        for m in messages
    ]


def shifted_delays(sent: list[AgentAudio], since: int, until: int) -> dict[int, int]:
    """Delay of each heard ms of a stream that stalls."""
    late = delayed(sent, since, until)
    meant = {id(b): a.arrival.at // MS for a, b in zip(sent, late, strict=True)}
    out: dict[int, int] = {}
    for piece in place(late, [], live()):
        for i in range(piece.n_played):
            at = meant[id(piece.audio)] + piece.first + i
            out[at] = piece.start.at // MS + i - at
    return out


@pytest.mark.parametrize("size", [7, 10, 20, 33, 60, 80, 300])
def test_a_paced_stream_is_heard_as_by_fifo(size: int) -> None:
    sent = stream(np.zeros(400, np.int16), sound(300), np.zeros(500, np.int16), size=size)
    assert place(sent, [], live()) == place(sent, [])


def test_a_stall_is_over_once_as_much_silence_has_come() -> None:
    sent = stream(sound(3000), np.zeros(2500, np.int16), sound(3000), np.zeros(500, np.int16))
    delay = shifted_delays(sent, 500, 2500)
    assert delay[499] == 0
    assert {delay[at] for at in range(500, 3000)} == {2000}, "speech is never dropped"
    assert {delay[at] for at in range(5500, 8500)} <= set(range(71)), "the rest is not late"
    assert all(at in delay for at in (*range(3000), *range(5500, 8500)))


def test_a_stall_in_silence_delays_nothing_that_follows() -> None:
    sent = stream(np.zeros(3000, np.int16), sound(1000), np.zeros(500, np.int16))
    delay = shifted_delays(sent, 500, 2500)
    assert max(delay[at] for at in range(3000, 4000)) <= 70


def test_what_is_louder_than_the_gate_is_never_dropped() -> None:
    noise = sound(4000, 100)
    assert len(shifted_delays(stream(noise), 500, 2500)) == 4000
    above = Gate.at(-40)
    late = delayed(stream(noise), 500, 2500)
    assert sum(p.n_played for p in place(late, [], live(above))) < 2200


@pytest.mark.parametrize("ppm", [5000, -5000])
def test_a_skewed_clock_makes_no_delay_that_grows(ppm: int) -> None:
    """10 minutes of 4 s of speech and 2 s of silence; without drops 3 s late in the end."""
    second = [*[sound(1000)] * 4, *[np.zeros(1000, np.int16)] * 2]
    sent = [
        replace(
            message(0, second[k // 20 % 6][:50]),
            arrival=Instant.exact(round(k * 50 * MS / (1 + ppm * 1e-6))),
        )
        for k in range(12_000)
    ]
    waits = [
        piece.start.at - piece.audio.arrival.at - piece.first * MS
        for piece in place(sent, [], live())
        if piece.audio.pcm.any()
    ]
    assert 0 <= min(waits) <= max(waits) <= 90 * MS


cut_sizes = st.lists(st.integers(1, 90), min_size=1, max_size=12)
patterns = st.lists(
    st.tuples(st.booleans(), st.integers(5, 250)), min_size=1, max_size=8
).map(lambda parts: np.concatenate([sound(n) if loud else np.zeros(n, np.int16)
                                    for loud, n in parts]))  # fmt: skip


@given(patterns, cut_sizes, st.integers(0, 40))
def test_how_a_burst_is_cut_into_messages_changes_nothing(
    pcm: npt.NDArray[np.int16], sizes: list[int], buffer_ms: int
) -> None:
    """As long as no message is longer than what may wait."""

    def heard_at(sizes: list[int]) -> dict[int, int]:
        queue: Live[int] = Live(QUIET_GATE, buffer_ms * MS)
        first, pieces = 0, []
        for size in itertools.cycle(min(size, 60) for size in sizes):
            part = pcm[first : first + size]
            if not len(part):
                break
            pieces += queue.push(first, Instant.exact(0), part, KHZ)
            first += size
        pieces += queue.settle()
        return {p.source + p.first + i: p.start.at // MS + i for p in pieces for i in range(p.n)}

    assert heard_at(sizes) == heard_at([60])


messages = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(0, 90), st.booleans(), st.integers(1, 80)
    ),
    min_size=1,
    max_size=25,
)  # fmt: skip


@given(messages, st.lists(st.floats(0, 1), min_size=25, max_size=25), st.integers(0, 30))
def test_live_truth_inside_the_arrival_bounds_is_heard_inside_the_heard_bounds(
    parts: list[tuple[int, int, bool, int]], where: list[float], buffer_ms: int
) -> None:
    """What is heard in both: a block of silence may be dropped in one and not in the other."""
    at, late, bounded, true = 0, 0, [], []
    for (gap, width, is_loud, n), x in zip(parts, where, strict=False):
        at += gap
        late = max(late, at + round(x * width))
        pcm = sound(n) if is_loud else np.zeros(n, np.int16)
        bounded.append(message((at, max(late, at + width)), pcm))
        true.append(message(late, pcm))
    truth = samples_heard(place(true, [], live(buffer_ms=buffer_ms)), true)
    stated = samples_heard(place(bounded, [], live(buffer_ms=buffer_ms)), bounded)
    for key in truth.keys() & stated.keys():
        assert stated[key].lo <= truth[key].at <= stated[key].hi, key
    for k, part in enumerate(true):
        for i in range(len(part.pcm)) if part.pcm.any() else ():
            assert (k, i) in truth
            assert (k, i) in stated


def samples_heard(
    placed: Sequence[Placed], sent: Sequence[AgentAudio]
) -> dict[tuple[int, int], Instant]:
    number = {id(m): k for k, m in enumerate(sent)}
    return {
        (number[id(p.audio)], p.first + i): p.start.shifted(i * MS)
        for p in placed
        for i in range(p.n_played)
    }


def test_a_message_that_is_dropped_in_its_middle_is_placed_in_two_pieces() -> None:
    pcm = np.concatenate([sound(10), np.zeros(30, np.int16), sound(20)])
    placed = place([message(0, sound(200)), message(0, pcm)], [], live())
    assert [(p.start.at // MS, p.first, p.n_played) for p in placed] == [
        (0, 0, 200), (200, 0, 10), (210, 40, 20)
    ]  # fmt: skip
    assert [len(p.pcm) for p in placed] == [200, 10, 20]
    assert placed[2].arrival == Instant.exact(40 * MS)
    assert not any(p.is_cut for p in placed)


def test_a_flush_places_and_cuts_what_was_held_back() -> None:
    audio = [message(0, sound(100), "r"), message(0, np.zeros(5, np.int16), "r")]
    placed = place(audio, [flush(102)], live())
    assert [(p.start.at // MS, p.n_played, p.is_cut) for p in placed] == [
        (0, 100, False), (100, 2, True)
    ]  # fmt: skip


@given(messages, st.lists(st.integers(0, 1500), max_size=4), st.booleans())
def test_live_hears_one_thing_at_a_time_in_order_and_nothing_across_a_flush(
    parts: list[tuple[int, int, bool, int]], flushes: list[int], has_ids: bool
) -> None:
    at, audio = 0, []
    for gap, width, is_loud, n in parts:
        at += gap
        pcm = sound(n) if is_loud else np.zeros(n, np.int16)
        audio.append(message(at, pcm, str(width % 3) if has_ids else None))
    heard_parts = [p for p in place(audio, [flush(at) for at in flushes], live()) if p.n_played]
    order = {id(m): k for k, m in enumerate(audio)}
    for a, b in itertools.pairwise(heard_parts):
        assert a.end.at <= b.start.at
        assert (order[id(a.audio)], a.first) < (order[id(b.audio)], b.first)
    for piece in heard_parts:
        assert not any(piece.start.at < at * MS < piece.end.at for at in flushes)
