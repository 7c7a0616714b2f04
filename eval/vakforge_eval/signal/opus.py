"""Opus packets (RFC 6716) to samples and back, through libopus in PyAV.

An encoder looks 6.5 ms ahead, so that what comes out of a decoder lies that much later than what
went in. A transport with a header that tells so (Ogg) lets it be cut away; on RTP it is part of the
path, as a person hears it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import cast

import av
import numpy as np
import numpy.typing as npt

__all__ = ["LOOK_AHEAD", "OPUS_RATE_HZ", "OpusDecoder", "OpusEncoder"]

OPUS_RATE_HZ = 48_000
"""What a decoder gives, whatever an encoder took."""
LOOK_AHEAD = 312
"""Samples at 48 kHz by which libopus delays what it codes, in its mode for speech."""

_MAX_PACKET_SAMPLES = OPUS_RATE_HZ * 120 // 1000
_LIBRARY = "libopus"

Pcm = npt.NDArray[np.int16]


class OpusEncoder:
    """Codes mono speech, one packet a frame; each packet builds on those before.

    Parameters
    ----------
    rate_hz
        Of the samples: 8000, 12000, 16000, 24000 or 48000.
    frame_ms
        Length of a frame: 10, 20, 40 or 60.
    bit_rate
        Bits a second to aim at.
    """

    def __init__(self, rate_hz: int, frame_ms: int = 20, bit_rate: int = 32_000) -> None:
        self._rate_hz = rate_hz
        self._n_samples = rate_hz * frame_ms // 1000
        self._at = 0
        self._codec = cast(av.AudioCodecContext, av.CodecContext.create(_LIBRARY, "w"))
        self._codec.sample_rate = rate_hz
        self._codec.format = "s16"
        self._codec.layout = "mono"
        self._codec.bit_rate = bit_rate
        self._codec.time_base = Fraction(1, rate_hz)
        self._codec.options = {"application": "voip", "frame_duration": str(frame_ms)}
        self._codec.open()

    def encode(self, pcm: Pcm) -> bytes:
        """Return the packet of one frame of samples, ``(rate_hz * frame_ms / 1000,)``.

        Raises
        ------
        ValueError
            If there are more or fewer samples.
        """
        if pcm.shape != (self._n_samples,):
            raise ValueError(f"a frame has {self._n_samples} samples, not {pcm.shape}")
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(pcm).reshape(1, -1), format="s16", layout="mono"
        )
        frame.sample_rate, frame.pts = self._rate_hz, self._at
        self._at += self._n_samples
        (packet,) = self._codec.encode(frame)
        return bytes(packet)


class OpusDecoder:
    """Decodes packets in their order, to mono at `OPUS_RATE_HZ`.

    Attributes
    ----------
    n_corrupt
        Packets so far that are not Opus; each gave no samples.
    pending
        Always 0: a packet is whole.
    """

    pending = 0

    def __init__(self) -> None:
        self.n_corrupt = 0
        self._codec = cast(av.AudioCodecContext, av.CodecContext.create(_LIBRARY, "r"))
        self._codec.sample_rate = OPUS_RATE_HZ
        self._codec.layout = "mono"

    def feed(self, packet: bytes) -> Pcm:
        """Return the samples of one packet, ``(n_samples,)``; none for an empty or broken one."""
        if not packet:
            return np.zeros(0, np.int16)
        try:
            frames = self._codec.decode(av.Packet(packet))
        except av.FFmpegError:
            self.n_corrupt += 1
            return np.zeros(0, np.int16)
        parts = [np.asarray(frame.to_ndarray(), np.int16).reshape(-1) for frame in frames]
        pcm = np.concatenate(parts) if parts else np.zeros(0, np.int16)
        return pcm[:_MAX_PACKET_SAMPLES]
