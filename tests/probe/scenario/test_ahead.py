"""Frames that are coded before the call."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from vakforge_probe.scenario.ahead import Ahead, coded_ahead
from vakforge_probe.tape import Tape

pytest.importorskip("av")

RATE, FRAME = 48_000, 960
SILENCE = bytes(2 * FRAME)

Pcm = npt.NDArray[np.int16]


def voice(n: int, seed: int) -> Pcm:
    t = np.arange(n) / RATE
    tone = np.sin(2 * np.pi * (180 + 40 * seed) * t) * np.abs(np.sin(2 * np.pi * 3 * t))
    return (9000 * tone).astype(np.int16)


def stream(clips: list[tuple[int, Pcm]], n_frames: int, *, is_on_grid: bool) -> list[bytes]:
    """Return the frames of a tape on which each clip is laid at a time (ms)."""
    tape = Tape(RATE, FRAME, is_on_grid=is_on_grid)
    tape.start(0)
    for at_ms, clip in clips:
        tape.lay(tape.position(at_ms * 1_000_000), clip)
    return [tape.cut(k) for k in range(n_frames)]


def found(ahead: Ahead, frames: list[bytes]) -> list[bytes | None]:
    return [ahead.find(a, b) for a, b in zip([SILENCE, *frames[:-1]], frames, strict=True)]


def decoded(packets: list[bytes]) -> Pcm:
    from vakforge_eval.signal.opus import OpusDecoder

    decoder = OpusDecoder()
    return np.concatenate([decoder.feed(packet) for packet in packets])


def test_all_frames_of_clips_on_the_grid_are_found_and_sound_as_they_should() -> None:
    from vakforge_eval.signal.opus import OpusEncoder

    clips = [voice(40_111, 1), voice(12_345, 2)]
    frames = stream([(333, clips[0]), (1501, clips[1])], 120, is_on_grid=True)
    packets = found(coded_ahead(clips, RATE, FRAME), frames)
    assert None not in packets
    encoder = OpusEncoder(RATE)
    live = decoded([encoder.encode(np.frombuffer(frame, "<i2")) for frame in frames])
    ahead = decoded([packet for packet in packets if packet is not None])
    assert np.corrcoef(live, ahead)[0, 1] > 0.97
    assert np.abs(ahead[: 16 * FRAME]).max() <= 4


def test_what_lies_off_the_grid_or_over_another_clip_is_not_found() -> None:
    clips = [voice(40_111, 1), voice(12_345, 2)]
    ahead = coded_ahead(clips, RATE, FRAME)
    off = stream([(333, clips[0])], 100, is_on_grid=False)
    assert None in found(ahead, off)
    mixed = stream([(340, clips[0]), (400, clips[1])], 100, is_on_grid=True)
    assert None in found(ahead, mixed)


def test_nothing_is_found_where_nothing_was_coded() -> None:
    assert not Ahead()
    assert Ahead().find(SILENCE, SILENCE) is None
