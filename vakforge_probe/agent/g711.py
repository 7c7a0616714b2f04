"""G.711 by the segment arithmetic of ITU-T G.711, apart from the probe's own tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["CODECS", "decode", "encode", "hear"]

Pcm = npt.NDArray[np.int16]
Levels = npt.NDArray[np.int64]


def _expand_ulaw(code: int) -> int:
    code = ~code & 0xFF
    exponent, mantissa = code >> 4 & 7, code & 15
    magnitude = ((mantissa << 3) + 0x84 << exponent) - 0x84
    return -magnitude if code & 0x80 else magnitude


def _expand_alaw(code: int) -> int:
    code ^= 0x55
    exponent, mantissa = code >> 4 & 7, code & 15
    magnitude = (mantissa << 4) + 8 if exponent == 0 else (mantissa << 4) + 0x108 << exponent - 1
    return magnitude if code & 0x80 else -magnitude


_DECODED = {
    "pcmu": np.array([_expand_ulaw(c) for c in range(256)], dtype=np.int16),
    "pcma": np.array([_expand_alaw(c) for c in range(256)], dtype=np.int16),
}


CODECS = frozenset(_DECODED)
_HEARD = {**_DECODED, "pcma": np.where(abs(_DECODED["pcma"]) <= 8, 0, _DECODED["pcma"])}
"""A-law has no zero: what it idles with is silence."""


def _segment(magnitude: Levels) -> Levels:
    return np.searchsorted([0x100 << n for n in range(7)], magnitude, side="right")


def _compress_ulaw(samples: Levels) -> Levels:
    magnitude = np.minimum(np.abs(samples), 0x7FFF - 0x84) + 0x84
    exponent = _segment(magnitude)
    mantissa = magnitude >> exponent + 3 & 15
    code: Levels = ~((samples < 0) << 7 | exponent << 4 | mantissa) & 0xFF
    return code


def _compress_alaw(samples: Levels) -> Levels:
    magnitude = np.where(samples < 0, -samples - 1, samples)
    exponent = _segment(magnitude)
    mantissa = magnitude >> np.maximum(exponent, 1) + 3 & 15
    code: Levels = ((samples >= 0) << 7 | exponent << 4 | mantissa) ^ 0x55
    return code


_SAMPLES = np.arange(-32768, 32768)
_ENCODED = {
    codec: compress(_SAMPLES).astype(np.uint8)
    for codec, compress in (("pcmu", _compress_ulaw), ("pcma", _compress_alaw))
}


def decode(data: bytes, codec: str) -> Pcm:
    """Return the samples of ``pcmu`` or ``pcma`` bytes, shape ``(len(data),)``."""
    return _DECODED[codec][np.frombuffer(data, dtype=np.uint8)]


def hear(data: bytes, codec: str) -> Pcm:
    """Return the samples as `decode` does, but zeros where the codec idles."""
    return _HEARD[codec][np.frombuffer(data, dtype=np.uint8)]


def encode(pcm: Pcm, codec: str) -> bytes:
    """Return `pcm` in codes of ``pcmu`` or ``pcma``."""
    return _ENCODED[codec][pcm.astype(np.int32) + 32768].tobytes()
