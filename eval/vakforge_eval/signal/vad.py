"""A second witness beside the level detector: the WebRTC voice activity detector.

It knows speech by its spectrum, at 10 ms steps, so it neither moves nor replaces an edge: where the
two disagree by more than 100 ms the turn is flagged.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["AGGRESSIVENESS", "FRAME_MS", "MIN_FRAMES", "first_speech"]

AGGRESSIVENESS = 2
FRAME_MS = 10
MIN_FRAMES = 3
"""Voiced frames in a row that count as speech: the 30 ms of the level detector."""

_NATIVE_RATES = (8000, 16000, 32000, 48000)
_COMMON_RATE = 16000


def first_speech(pcm: npt.NDArray[np.int16], rate_hz: int) -> int | None:
    """Return the first sample of the first run of voiced 10 ms frames.

    Parameters
    ----------
    pcm
        Mono int16, shape ``(n_samples,)``.
    rate_hz
        Its rate. A rate that the detector does not know is resampled to 16 kHz.

    Returns
    -------
    int or None
        Sample of `pcm` at which the run begins, on a grid of 10 ms; None without speech.
    """
    import webrtcvad

    rate = rate_hz if rate_hz in _NATIVE_RATES else _COMMON_RATE
    size = rate * FRAME_MS // 1000
    frames = _at_rate(pcm, rate_hz, rate).astype("<i2")
    vad = webrtcvad.Vad(AGGRESSIVENESS)
    n_voiced = 0
    for at in range(0, len(frames) - size + 1, size):
        n_voiced = n_voiced + 1 if vad.is_speech(frames[at : at + size].tobytes(), rate) else 0
        if n_voiced == MIN_FRAMES:
            return (at - (MIN_FRAMES - 1) * size) * rate_hz // rate
    return None


def _at_rate(pcm: npt.NDArray[np.int16], rate_hz: int, rate: int) -> npt.NDArray[np.int16]:
    if rate_hz == rate or not len(pcm):
        return pcm
    import soxr

    resampled: npt.NDArray[np.int16] = soxr.resample(pcm, rate_hz, rate)
    return resampled
