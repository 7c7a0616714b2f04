"""In-band key tones: 100 ms of the key's two frequencies (ITU-T Q.23), 80 ms of silence between."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["KEYS", "tones"]

_LOW_HZ = (697, 770, 852, 941)
_HIGH_HZ = (1209, 1336, 1477, 1633)
KEYS = {
    key: (low, high)
    for low, row in zip(_LOW_HZ, ("123A", "456B", "789C", "*0#D"), strict=True)
    for high, key in zip(_HIGH_HZ, row, strict=True)
}
"""Key -> its two frequencies in Hz."""

_ON_MS, _OFF_MS = 100, 80
_LEVEL_DBFS = -12.0

Pcm = npt.NDArray[np.int16]


def tones(keys: str, rate_hz: int) -> tuple[Pcm, list[tuple[int, int]]]:
    """Return the keys' audio and its audible spans [start, end) in samples.

    Both frequencies are equally strong; a tone's RMS level is -12 dBFS.
    """
    n_on, n_period = rate_hz * _ON_MS // 1000, rate_hz * (_ON_MS + _OFF_MS) // 1000
    pcm = np.zeros(n_period * (len(keys) - 1) + n_on, dtype=np.int16)
    spans = [(i * n_period, i * n_period + n_on) for i in range(len(keys))]
    seconds = np.arange(n_on) / rate_hz
    amplitude = 32768 * 10 ** (_LEVEL_DBFS / 20)
    for key, (start, end) in zip(keys, spans, strict=True):
        low, high = KEYS[key]
        wave = np.sin(2 * np.pi * low * seconds) + np.sin(2 * np.pi * high * seconds)
        pcm[start:end] = np.rint(amplitude * wave)
    return pcm, spans
