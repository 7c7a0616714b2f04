from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vakforge_probe.tape import Tape

L = 480
RATE = 24000
MS = 1_000_000


def _frames(tape: Tape, n: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.frombuffer(b"".join(tape.cut(k) for k in range(n)), dtype="<i2")


@given(st.integers(0, 3000), st.integers(1, 2000))
def test_a_clip_lies_at_its_exact_sample(start: int, length: int) -> None:
    tape = Tape(RATE, L)
    clip = np.arange(1, length + 1, dtype=np.int16)
    tape.lay(start, clip)
    out = _frames(tape, 12)
    assert np.array_equal(out[start : start + length], clip)
    assert not out[:start].any()
    assert not out[start + length :].any()


def test_overlapping_clips_are_summed_and_saturate() -> None:
    tape = Tape(RATE, L)
    loud = np.full(10, 30000, dtype=np.int16)
    tape.lay(5, loud)
    tape.lay(10, loud)
    out = _frames(tape, 1)
    assert out[5] == 30000
    assert out[10] == 32767
    assert out[15] == 30000


@given(st.integers(1, 3000))
def test_a_background_goes_round_without_a_gap_under_what_is_laid(length: int) -> None:
    background = np.arange(1, length + 1, dtype=np.int16)
    tape = Tape(RATE, L, background)
    tape.lay(700, np.full(100, 5, dtype=np.int16))
    expected = np.resize(background, 12 * L)
    expected[700:800] += 5
    assert np.array_equal(_frames(tape, 12), expected)


def test_position_and_spoken_time_are_inverse_in_the_microphone_model() -> None:
    tape = Tape(RATE, L)
    tape.start(100 * MS)
    # Frame 0 leaves at 100 ms, so its first sample was spoken 20 ms before.
    assert tape.spoken_ns(0) == 80 * MS
    assert tape.position(123 * MS) == 43 * 24
    tape.shift(2)
    assert tape.spoken_ns(0) == 120 * MS


def test_a_moment_already_cut_moves_to_the_next_frame() -> None:
    tape = Tape(RATE, L)
    tape.start(20 * MS)
    tape.cut(0)
    tape.cut(1)
    assert tape.position(0) == 2 * L
