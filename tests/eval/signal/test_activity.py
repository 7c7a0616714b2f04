"""The detector against a naive, sample-by-sample reading of its definition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.signal.activity import ActivityTracker, Span, Transition, find_spans
from vakforge_eval.signal.gate import Gate, gate_for, noise_floor
from vakforge_eval.timeline.values import Reason, Undefined

Pcm = npt.NDArray[np.int16]
QUIET = Gate.at(-55.0)


def speech_like(n: int, rate_hz: int, level_dbfs: float, seed: int = 0) -> Pcm:
    """A buzz with syllables: harmonics of a moving pitch, level swinging by 12 dB, hard edges."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / rate_hz
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 1.3 * t)) / rate_hz
    wave = sum(np.sin(k * phase + rng.uniform(0, 2 * np.pi)) / k for k in range(1, 20))
    wave = wave * 10 ** (6 * np.sin(2 * np.pi * 4 * t + rng.uniform(0, 6)) / 20)
    wave *= 32768 * 10 ** (level_dbfs / 20) / np.sqrt(np.mean(wave**2))
    # Rolled, so that it begins and ends with full amplitude.
    loud = np.flatnonzero(np.abs(wave) > 0.4 * np.max(np.abs(wave)))
    wave = np.roll(wave, -loud[0])
    wave[-1] = wave[0]
    return np.clip(np.rint(wave), -32768, 32767).astype(np.int16)


def noise(n: int, level_dbfs: float, seed: int = 1) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, 32768 * 10 ** (level_dbfs / 20), n)


def noise_of(n: int, level_dbfs: float) -> Pcm:
    return np.rint(noise(n, level_dbfs, 2)).astype(np.int16)


def placed(speech: Pcm, before: int, after: int) -> Pcm:
    zeros = np.zeros
    return np.concatenate((zeros(before, np.int16), speech, zeros(after, np.int16)))


def spans_of(transitions: list[Transition]) -> list[tuple[int, int]]:
    edges = [t.sample for t in transitions]
    assert [t.kind for t in transitions] == ["onset", "end"] * (len(edges) // 2)
    return list(zip(edges[::2], edges[1::2], strict=True))


def naive_spans(pcm: Pcm, rate_hz: int, gate: Gate) -> list[tuple[int, int]]:
    """The definition, read word by word, one sample at a time."""
    w, run, silence = rate_hz // 100, 30 * rate_hz // 1000, 350 * rate_hz // 1000
    padded = [0] * (w - 1) + pcm.tolist() + [0] * w
    windows = np.lib.stride_tricks.sliding_window_view(np.array(padded, np.int64), w)
    level = (np.std(windows, axis=1) / 32768).tolist()
    on, off = 10 ** (gate.on_dbfs / 20), 10 ** (gate.off_dbfs / 20)
    spans: list[list[int]] = []
    start = last = None
    for i, x in enumerate([*level, 0.0]):
        if x >= on:
            start = i if start is None else start
            last = i
        if x < off:
            if start is not None and i - start >= run:
                assert last is not None
                end = max(last, start + run - 1) - w + 2
                if spans and start - spans[-1][2] < silence:
                    spans[-1][1:] = end, i - w + 1
                else:
                    spans.append([start, end, i - w + 1])
            start = None
    return [(s, e) for s, e, _ in spans]


bursts = st.lists(
    st.tuples(st.integers(0, 700), st.integers(1, 90), st.sampled_from([-18.0, -35.0, -52.0])),
    min_size=0,
    max_size=5,
)


def signal_of(parts: list[tuple[int, int, float]], noise_dbfs: float, rate_hz: int) -> Pcm:
    pieces = [np.zeros(0, np.int16)]
    for i, (gap_ms, ms, level) in enumerate(parts):
        pieces.append(np.zeros(gap_ms * rate_hz // 1000, np.int16))
        pieces.append(speech_like(max(2, ms * rate_hz // 1000), rate_hz, level, i))
    clean = np.concatenate(pieces)
    return np.clip(clean + noise(len(clean), noise_dbfs), -32768, 32767).astype(np.int16)


@settings(deadline=None, max_examples=120)
@given(bursts, st.sampled_from([-90.0, -62.0, -57.0]), st.data())
def test_any_chunking_gives_the_same_transitions_at_the_same_moments(
    parts: list[tuple[int, int, float]], noise_dbfs: float, data: st.DataObject
) -> None:
    rate = 8000
    pcm = signal_of(parts, noise_dbfs, rate)
    whole = ActivityTracker(rate, QUIET)
    expected_early, expected_late = whole.push(pcm), whole.finish()
    cuts = data.draw(st.lists(st.integers(0, len(pcm)), max_size=30))
    tracker = ActivityTracker(rate, QUIET)
    got: list[Transition] = []
    at = 0
    for cut in [*sorted(cuts), len(pcm)]:
        got += tracker.push(pcm[at:cut])
        at = cut
        assert got == [t for t in expected_early if t.confirmed <= at]
    assert tracker.finish() == expected_late


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(100, 500), st.integers(50, 2000), st.sampled_from([-18.0, -35.0, -52.0])
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([-90.0, -62.0, -57.0]),
    st.sampled_from([80, 160, 200, 221, 800, 4000]),
)
def test_long_speech_and_long_silence_are_skipped_without_moving_an_edge(
    parts: list[tuple[int, int, float]], noise_dbfs: float, size: int
) -> None:
    """Against the detector off line, which looks at every sample; and each edge in its message."""
    rate = 8000
    pcm = np.concatenate((signal_of(parts, noise_dbfs, rate), noise_of(4000, noise_dbfs)))
    tracker = ActivityTracker(rate, QUIET)
    got: list[Transition] = []
    for at in range(0, len(pcm), size):
        found = tracker.push(pcm[at : at + size])
        assert all(at < t.confirmed <= at + size for t in found)
        got += found
    spans = find_spans(pcm, rate, QUIET)
    assert spans_of(got + tracker.finish()) == [(s.start, s.end) for s in spans]
    assert all(t.confirmed == t.sample + 240 for t in got if t.kind == "onset")


@settings(deadline=None, max_examples=100)
@given(bursts, st.sampled_from([-90.0, -62.0, -57.0]))
def test_spans_are_those_of_the_definition_and_of_the_tracker(
    parts: list[tuple[int, int, float]], noise_dbfs: float
) -> None:
    rate = 8000
    pcm = signal_of(parts, noise_dbfs, rate)
    spans = find_spans(pcm, rate, QUIET)
    assert [(s.start, s.end) for s in spans] == naive_spans(pcm, rate, QUIET)
    tracker = ActivityTracker(rate, QUIET)
    assert spans_of(tracker.push(pcm) + tracker.finish()) == [(s.start, s.end) for s in spans]
    for span in spans:
        assert span.start_range[0] <= span.start <= span.start_range[1]
        assert span.end_range[0] <= span.end <= span.end_range[1]
        assert span.start < span.end


@pytest.mark.parametrize("level", [-18.0, -35.0])
@pytest.mark.parametrize("rate", [8000, 16000, 24000, 44100, 48000])
@pytest.mark.parametrize("seed", range(5))
def test_hard_edges_are_exact_at_both_ends(level: float, rate: int, seed: int) -> None:
    speech = speech_like(rate, rate, level, seed)
    pcm = placed(speech, 12345, rate)
    (span,) = find_spans(pcm, rate, QUIET)
    resolution = max(2, 0.0002 * rate)
    assert 0 <= span.start - 12345 < resolution
    assert 0 <= 12345 + len(speech) - span.end < resolution
    assert _contains(span, 12345, 12345 + len(speech))


@pytest.mark.parametrize("level", [-18.0, -35.0])
def test_speech_that_fills_the_audio_has_its_edges_at_the_ends(level: float) -> None:
    speech = speech_like(24000, 24000, level)
    (span,) = find_spans(speech, 24000, QUIET)
    assert span.start < 5
    assert len(speech) - 5 < span.end <= len(speech)


@pytest.mark.parametrize(("level", "floor"), [(-18.0, -50.0), (-18.0, -40.0), (-35.0, -50.0)])
@pytest.mark.parametrize("seed", range(20))
def test_edges_in_noise_are_within_20_ms_and_inside_their_range(
    level: float, floor: float, seed: int
) -> None:
    rate = 24000
    speech = speech_like(rate, rate, level, seed)
    pcm = placed(speech, 2 * rate, 2 * rate)
    pcm = np.clip(pcm + noise(len(pcm), floor, seed), -32768, 32767).astype(np.int16)
    found = noise_floor([pcm[: 2 * rate]], rate)
    assert found is not None
    assert found == pytest.approx(floor, abs=1.0)
    (span,) = find_spans(pcm, rate, Gate.at(found + 10))
    assert abs(span.start - 2 * rate) < 0.02 * rate
    assert abs(span.end - 3 * rate) < 0.02 * rate
    assert _contains(span, 2 * rate, 3 * rate)


def _contains(span: Span, start: int, end: int) -> bool:
    return (
        span.start_range[0] <= start <= span.start_range[1]
        and span.end_range[0] <= end <= span.end_range[1]
    )


def test_gate_follows_the_floor_and_gives_up_above_minus_35() -> None:
    assert gate_for(None) == Gate(-55.0, -61.0)
    assert gate_for(-80.0) == Gate(-55.0, -61.0)
    assert gate_for(-50.0) == Gate(-40.0, -46.0)
    assert gate_for(-35.0) == Gate(-25.0, -31.0)
    assert gate_for(-34.9) == Undefined(Reason.NOISE_TOO_HIGH)


def test_constant_offset_is_not_sound() -> None:
    rate = 24000
    speech = speech_like(rate, rate, -18.0)
    pcm = placed(speech, rate, rate) // 2 + np.int16(3000)
    (span,) = find_spans(pcm, rate, QUIET)
    assert abs(span.start - rate) < 5
    assert abs(span.end - 2 * rate) < 5


def test_click_is_not_speech_alone_nor_after_speech() -> None:
    rate = 24000
    pcm = placed(speech_like(rate, rate, -18.0), rate, rate)
    (clean,) = find_spans(pcm, rate, QUIET)
    pcm[100:120] = 20000
    pcm[2 * rate + 2400] = 20000
    assert find_spans(pcm, rate, QUIET) == [clean]


def test_gap_of_350_ms_splits_and_a_shorter_one_joins() -> None:
    rate = 8000
    tone = np.tile(np.array([8000, -8000], np.int16), 800)
    for gap, n in ((2799, 1), (2800, 2)):
        pcm = np.concatenate((tone, np.zeros(gap, np.int16), tone))
        assert len(find_spans(pcm, rate, QUIET)) == n


def test_onset_is_confirmed_after_30_ms_and_end_after_350_ms() -> None:
    rate = 8000
    tone = np.tile(np.array([8000, -8000], np.int16), 800)
    tracker = ActivityTracker(rate, QUIET)
    found = tracker.push(placed(tone, 800, 8000))
    assert found == [Transition("onset", 800, 1040), Transition("end", 2400, 5200)]


def test_end_waits_for_a_sound_that_might_still_belong_to_the_speech() -> None:
    rate = 8000
    tone = np.tile(np.array([8000, -8000], np.int16), 800)
    pcm = placed(tone, 0, 8000)
    pcm[1600 + 2790] = 30000
    tracker = ActivityTracker(rate, QUIET)
    found = tracker.push(pcm)
    # The click keeps its 80 windows loud: the last of them ends at 4390 + 80.
    assert found[1:] == [Transition("end", 1600, 4390 + 80 + 1)]


def test_reset_forgets_sound_and_counts_on() -> None:
    tone = np.tile(np.array([8000, -8000], np.int16), 800)
    tracker = ActivityTracker(8000, QUIET)
    assert tracker.push(tone) == [Transition("onset", 0, 240)]
    tracker.reset()
    assert tracker.push(tone) == [Transition("onset", 1600, 1840)]
    assert tracker.finish() == [Transition("end", 3200, 3200)]
    assert tracker.finish() == []


@pytest.mark.parametrize("pcm", [np.zeros(0, np.int16), np.zeros(50_000, np.int16)])
def test_silence_has_no_spans(pcm: Pcm) -> None:
    assert find_spans(pcm, 24000, QUIET) == []


def test_full_scale_audio_does_not_overflow() -> None:
    pcm = np.tile(np.array([32767, -32768], np.int16), 400_000)
    assert [(s.start, s.end) for s in find_spans(pcm, 96000, QUIET)] == [(0, 800_000)]


def test_rate_without_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="too low"):
        ActivityTracker(100, QUIET)


def test_floor_needs_a_second_of_sound_and_leaves_out_digital_silence() -> None:
    rate = 8000
    hiss = noise(rate, -50.0).astype(np.int16)
    assert noise_floor([hiss[: rate - 1]], rate) is None
    assert noise_floor([np.zeros(10 * rate, np.int16)], rate) is None
    floor = noise_floor([np.zeros(10 * rate, np.int16), hiss[: rate // 2], hiss[rate // 2 :]], rate)
    assert floor == pytest.approx(-50.5, abs=1.0)
