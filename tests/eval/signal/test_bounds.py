from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from vakforge_eval.signal.activity import ActivityTracker, find_spans
from vakforge_eval.signal.bounds import MAX_HALVES, LevelBounds
from vakforge_eval.signal.gate import Gate

Pcm = npt.NDArray[np.int16]


def levels_of(pcm: Pcm, window: int) -> npt.NDArray[np.int64]:
    """``W² · variance`` of the window that ends at each sample; silence before the first."""
    x = np.concatenate([np.zeros(window - 1, np.int64), pcm])
    windows = sliding_window_view(x, window)
    levels: npt.NDArray[np.int64] = window * (windows**2).sum(axis=1) - windows.sum(axis=1) ** 2
    return levels


def drawn(n: int, loudness: int, offset: int, seed: int) -> Pcm:
    """Noise that swells and fades, on an offset."""
    rng = np.random.default_rng(seed)
    swell = np.abs(np.sin(np.arange(n) * rng.uniform(0.001, 0.05)))
    pcm: Pcm = np.clip(rng.normal(size=n) * loudness * swell + offset, -32768, 32767).astype("i2")
    return pcm


@settings(deadline=None, max_examples=80)
@given(
    window=st.sampled_from([80, 160, 240, 441, 480]),
    sizes=st.lists(st.integers(2, MAX_HALVES + 1), min_size=1, max_size=6),
    odd=st.lists(st.booleans(), min_size=6, max_size=6),
    loudness=st.sampled_from([0, 1, 30, 3000, 40_000]),
    offset=st.sampled_from([0, 500, -32768]),
    seed=st.integers(0, 99),
)
def test_no_level_is_outside_the_bounds(
    window: int, sizes: list[int], odd: list[bool], loudness: int, offset: int, seed: int
) -> None:
    bounds, half = LevelBounds(window), window // 2
    lengths = [n * half + is_odd for n, is_odd in zip(sizes, odd, strict=False)]
    pcm = drawn(sum(lengths), loudness, offset, seed)
    levels, at = levels_of(pcm, window), 0
    for n in lengths:
        before = np.concatenate([np.zeros(window, np.int16), pcm[:at]])
        has_bounds = bounds.push(pcm[at : at + n], before[-window:])
        assert has_bounds == (n % half == 0 and n // half <= MAX_HALVES)
        if has_bounds:
            assert bounds.least() <= levels[at : at + n].min()
            assert bounds.most() >= levels[at : at + n].max()
            assert not bounds.stays_below(float(levels[at : at + n].max()))
            assert bounds.stays_below(bounds.most() + 1)
        at += n


def test_the_bounds_of_even_sound_are_narrow() -> None:
    bounds = LevelBounds(240)
    tone = np.rint(3000 * np.cos(np.arange(4800) / 7)).astype(np.int16)
    assert bounds.push(tone[:960], np.zeros(240, np.int16))
    assert bounds.push(tone[960:1440], tone[720:960])
    level = levels_of(tone, 240)[960:1440]
    assert bounds.least() > 0.4 * level.min()
    assert bounds.most() < 1.6 * level.max()


def test_full_scale_does_not_overflow() -> None:
    square = np.where(np.arange(960) % 2, 32767, -32768).astype(np.int16)
    bounds = LevelBounds(480)
    assert bounds.push(square, square[:480])
    level = int(levels_of(square, 480)[-1])
    assert bounds.least() <= level <= bounds.most()
    assert bounds.most() == pytest.approx(1.5 * level, rel=1e-9)


@pytest.mark.parametrize("offset", [0, 4000])
@pytest.mark.parametrize("message", [240, 480, 960, 1920])
def test_speech_in_messages_is_where_it_is_in_one_piece(message: int, offset: int) -> None:
    """Most messages are skimmed; the edges are those of the definition all the same."""
    rng = np.random.default_rng(message)
    parts = []
    for gap_ms, sound_ms in ((90, 500), (200, 40), (400, 1200), (351, 25), (700, 800), (10, 60)):
        parts += [
            rng.normal(size=gap_ms * 24) * 8,
            rng.normal(size=sound_ms * 24) * rng.choice([70, 900, 5000]),
        ]
    pcm = (np.concatenate([*parts, np.zeros(message)]) + offset).astype(np.int16)
    pcm = pcm[: len(pcm) // message * message]
    whole = find_spans(pcm, 24_000, Gate.at(-55.0))
    tracker = ActivityTracker(24_000, Gate.at(-55.0))
    found = [t for i in range(0, len(pcm), message) for t in tracker.push(pcm[i : i + message])]
    found += tracker.finish()
    assert len(whole) >= 3
    assert [(t.kind, t.sample) for t in found] == [
        edge for span in whole for edge in (("onset", span.start), ("end", span.end))
    ]
