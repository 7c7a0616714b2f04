"""Decoding and encoding of the audio codecs that realtime agents speak.

G.711 follows ITU-T Recommendation G.711 (1988), scaled to 16 bit as usual: µ-law codes decode to
multiples of 4, A-law codes to multiples of 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["CODECS", "FULL_SCALE", "PcmDecoder", "dbfs", "decode", "encode", "sample_bytes"]

FULL_SCALE = 32768
"""The int16 amplitude that is 0 dBFS."""

Pcm = npt.NDArray[np.int16]

_S16LE = np.dtype("<i2")
_MU_BIAS = 132
_MU_CLIP = 32635


def _mu_law_table() -> Pcm:
    code = ~np.arange(256) & 0xFF
    magnitude = (((code & 0x0F) << 3) + _MU_BIAS << (code >> 4 & 0x07)) - _MU_BIAS
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _a_law_table() -> Pcm:
    code = np.arange(256) ^ 0x55
    segment = code >> 4 & 0x07
    step = (code & 0x0F) << 4
    magnitude = np.where(segment == 0, step + 8, step + 0x108 << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


_MU_LAW = _mu_law_table()
_A_LAW = _a_law_table()


def _encode_mu_law(pcm: Pcm) -> bytes:
    wide = pcm.astype(np.int32)
    biased = np.minimum(np.abs(wide), _MU_CLIP) + _MU_BIAS
    # frexp's exponent is the bit length; segment 0 begins at bit length 8.
    segment = np.frexp(biased)[1] - 8
    code = (segment << 4) | (biased >> (segment + 3) & 0x0F)
    return bytes((~np.where(wide < 0, code | 0x80, code) & 0xFF).astype(np.uint8))


def _encode_a_law(pcm: Pcm) -> bytes:
    wide = pcm.astype(np.int32)
    # Negative values are mirrored by complement, so that -1 and 0 are each other's image.
    magnitude = np.where(wide < 0, ~wide, wide) >> 4
    segment = np.maximum(np.frexp(magnitude)[1] - 4, 0)
    code = (segment << 4) | (magnitude >> np.maximum(segment - 1, 0) & 0x0F)
    return bytes((np.where(wide < 0, code, code | 0x80) ^ 0x55).astype(np.uint8))


def _encode_s16le(pcm: Pcm) -> bytes:
    return pcm.astype("<i2").tobytes()


def _encode_float32le(pcm: Pcm) -> bytes:
    return (pcm.astype("<f4") / FULL_SCALE).astype("<f4").tobytes()


CODECS: dict[str, tuple[int, Callable[[Pcm], bytes]]] = {
    "pcm_s16le": (2, _encode_s16le),
    "pcmu": (1, _encode_mu_law),
    "pcma": (1, _encode_a_law),
    "float32le": (4, _encode_float32le),
}
"""Codec name -> (bytes of one sample, encoder)."""


def sample_bytes(codec: str) -> int:
    """Return the bytes of one sample of `codec`.

    Raises
    ------
    ValueError
        If the codec is unknown.
    """
    try:
        return CODECS[codec][0]
    except KeyError:
        raise ValueError(f"unknown codec; known are {', '.join(CODECS)}") from None


def encode(pcm: Pcm, codec: str) -> bytes:
    """Return mono int16 `pcm` of shape ``(n_samples,)`` coded as `codec`.

    Raises
    ------
    ValueError
        If the codec is unknown.
    """
    sample_bytes(codec)
    return CODECS[codec][1](pcm)


class PcmDecoder:
    """Turns a byte stream into int16 samples; a sample split over two messages is put together.

    Attributes
    ----------
    n_corrupt
        Samples so far that were NaN or infinite; each was replaced by silence.

    Raises
    ------
    ValueError
        If the codec is unknown.
    """

    def __init__(self, codec: str) -> None:
        self._width = sample_bytes(codec)
        self._codec = codec
        self._rest = b""
        self.n_corrupt = 0

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their sample."""
        return len(self._rest)

    def feed(self, data: bytes) -> Pcm:
        """Return the samples that `data` completes, ``(n_samples,)``; do not write to them."""
        if not self._rest and len(data) % self._width == 0:
            return self._decode(data)
        data = self._rest + data
        whole = len(data) - len(data) % self._width
        self._rest = data[whole:]
        return self._decode(data[:whole])

    def _decode(self, data: bytes) -> Pcm:
        if self._codec != "float32le":
            return decode(data, self._codec)
        samples = np.frombuffer(data, "<f4")
        self.n_corrupt += int(np.count_nonzero(~np.isfinite(samples)))
        return _decode_float(samples)


def decode(data: bytes | bytearray, codec: str) -> Pcm:
    """Return the samples of whole samples of a known codec, ``(n_samples,)``; do not write to them.

    A float that is no number is silence.
    """
    if codec == "pcm_s16le":
        return np.frombuffer(data, _S16LE).astype(np.int16, copy=False)
    if codec == "pcmu":
        return _MU_LAW[np.frombuffer(data, np.uint8)]
    if codec == "pcma":
        return _A_LAW[np.frombuffer(data, np.uint8)]
    return _decode_float(np.frombuffer(data, "<f4"))


def _decode_float(samples: npt.NDArray[np.float32]) -> Pcm:
    # Clipped before scaling: the largest float32 would overflow.
    clipped = np.clip(np.where(np.isfinite(samples), samples, 0), -1, 1).astype(np.float64)
    return np.clip(np.rint(clipped * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def dbfs(pcm: Pcm) -> float | None:
    """Return the RMS level of `pcm` in dB re full scale.

    None for digital silence and for no samples, whose level is not a number.
    """
    energy = int(np.sum(np.square(pcm.astype(np.int64))))
    if energy == 0:
        return None
    return 10 * math.log10(energy / len(pcm) / FULL_SCALE**2)
