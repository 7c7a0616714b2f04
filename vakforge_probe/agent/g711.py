"""G.711 by the segment arithmetic of ITU-T G.711, apart from the probe's own tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["decode", "encode"]

Pcm = npt.NDArray[np.int16]


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


def _nearest_codes(levels: Pcm) -> npt.NDArray[np.uint8]:
    order = np.argsort(levels, kind="stable")
    ranked = levels[order].astype(np.int32)
    edges = (ranked[1:] + ranked[:-1]) / 2
    places = np.searchsorted(edges, np.arange(-32768, 32768))
    return order[places].astype(np.uint8)


_ENCODED = {codec: _nearest_codes(levels) for codec, levels in _DECODED.items()}
_ENCODED["pcmu"][32768] = 0xFF  # of the two zeros the one that telephony idles with


def decode(data: bytes, codec: str) -> Pcm:
    """Return the samples of ``pcmu`` or ``pcma`` bytes, shape ``(len(data),)``."""
    return _DECODED[codec][np.frombuffer(data, dtype=np.uint8)]


def encode(pcm: Pcm, codec: str) -> bytes:
    """Return `pcm` as the nearest codes of ``pcmu`` or ``pcma``."""
    return _ENCODED[codec][pcm.astype(np.int32) + 32768].tobytes()
