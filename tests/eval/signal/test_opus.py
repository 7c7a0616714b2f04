"""Opus packets through libopus, against what went in."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.signal.codecs import CodecMissing, make_decoder
from vakforge_eval.signal.opus import LOOK_AHEAD, OPUS_RATE_HZ, OpusDecoder, OpusEncoder

Pcm = npt.NDArray[np.int16]


def chirp(rate_hz: int, begin_s: float, end_s: float, total_s: float) -> Pcm:
    pcm = np.zeros(round(total_s * rate_hz), np.float64)
    n = slice(round(begin_s * rate_hz), round(end_s * rate_hz))
    t = np.arange(n.stop - n.start) / rate_hz
    pcm[n] = 8000 * np.sin(2 * np.pi * (200 + 900 * t) * t)
    return pcm.astype(np.int16)


def through(pcm: Pcm, rate_hz: int, frame_ms: int = 20) -> Pcm:
    encoder, decoder = OpusEncoder(rate_hz, frame_ms), OpusDecoder()
    n = rate_hz * frame_ms // 1000
    frames = [pcm[at : at + n] for at in range(0, len(pcm), n)]
    return np.concatenate([decoder.feed(encoder.encode(frame)) for frame in frames])


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("frame_ms", [10, 20, 40, 60])
def test_what_comes_out_is_what_went_in_a_look_ahead_later(rate_hz: int, frame_ms: int) -> None:
    pcm = chirp(rate_hz, 0.36, 0.84, 1.2)
    out = through(pcm, rate_hz, frame_ms).astype(np.float64)
    assert len(out) == len(pcm) * OPUS_RATE_HZ // rate_hz
    step = OPUS_RATE_HZ // rate_hz
    sent = np.repeat(pcm.astype(np.float64), step)
    lags = range(0, 3 * LOOK_AHEAD, 12)
    best = max(lags, key=lambda lag: float(np.dot(out[lag:], sent[: len(sent) - lag])))
    # Low rates are resampled inside, which adds a fraction of a ms.
    assert abs(best - LOOK_AHEAD) <= 48


def test_silence_stays_silence() -> None:
    assert np.abs(through(np.zeros(48_000, np.int16), 24_000)).max() <= 4  # -78 dBFS


@pytest.mark.parametrize("n", [0, 479, 481, 960])
def test_a_frame_of_another_length_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="480 samples"):
        OpusEncoder(24_000).encode(np.zeros(n, np.int16))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_what_is_not_opus_breaks_nothing(packets: list[bytes]) -> None:
    decoder = make_decoder("opus")
    for packet in packets:
        pcm = decoder.feed(packet)
        assert pcm.dtype == np.int16
        assert len(pcm) <= OPUS_RATE_HZ * 120 // 1000
    assert decoder.pending == 0
    assert decoder.n_corrupt <= len(packets)


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without_av(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "av":
            raise ImportError("No module named 'av'")
        return whole(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "vakforge_eval.signal.opus")
    monkeypatch.setattr(builtins, "__import__", without_av)
    with pytest.raises(CodecMissing, match=r"vakforge-probe\[webrtc\]"):
        make_decoder("opus")
