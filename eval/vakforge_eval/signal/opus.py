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

from vakforge_eval.ogg import OggReader, OggWriter, OpusHead, is_header

__all__ = [
    "LOOK_AHEAD",
    "OPUS_RATE_HZ",
    "OggOpusDecoder",
    "OggOpusEncoder",
    "OpusDecoder",
    "OpusEncoder",
]

OPUS_RATE_HZ = 48_000
"""What a decoder gives, whatever an encoder took."""
LOOK_AHEAD = 312
"""Samples at 48 kHz by which libopus delays what it codes, in its mode for speech."""

_MAX_PACKET_SAMPLES = OPUS_RATE_HZ * 120 // 1000
_MAX_FEED_SAMPLES = OPUS_RATE_HZ * 300
"""What one message may hold: a packet of one byte stands for 120 ms."""
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


class OggOpusEncoder:
    """Codes mono speech to one Ogg stream, a page a frame; the first also holds the headers.

    See `OpusEncoder` for the parameters.
    """

    def __init__(self, rate_hz: int, frame_ms: int = 20, bit_rate: int = 32_000) -> None:
        self._encoder = OpusEncoder(rate_hz, frame_ms, bit_rate)
        self._writer = OggWriter(OpusHead(LOOK_AHEAD, rate_hz))
        self._n_samples = OPUS_RATE_HZ * frame_ms // 1000
        self._headers = self._writer.headers()

    def encode(self, pcm: Pcm) -> bytes:
        """Return the next bytes of the stream: those of one frame of samples.

        Raises
        ------
        ValueError
            If there are more or fewer samples than in a frame.
        """
        page = self._writer.page(self._encoder.encode(pcm), self._n_samples)
        headers, self._headers = self._headers, b""
        return headers + page


class OggOpusDecoder:
    """Decodes one Ogg stream, to mono at `OPUS_RATE_HZ`; what its head says to skip is left out."""

    def __init__(self) -> None:
        self._reader, self._decoder = OggReader(), OpusDecoder()
        self._n_corrupt = 0
        self._skip = 0

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their page."""
        return self._reader.pending

    @property
    def n_corrupt(self) -> int:
        """Pages and packets so far that were missing, damaged, or not Opus."""
        return self._n_corrupt + self._reader.n_corrupt + self._decoder.n_corrupt

    def feed(self, data: bytes) -> Pcm:
        """Return the samples of the packets that `data` completes, ``(n_samples,)``."""
        parts, room = [np.zeros(0, np.int16)], _MAX_FEED_SAMPLES
        for packet, _ in self._reader.feed(data):
            if is_header(packet):
                self._begin(packet)
                continue
            if room <= 0:
                self._n_corrupt += 1
                break
            pcm = self._decoder.feed(packet)
            room -= len(pcm)
            parts.append(pcm[self._skip :])
            self._skip -= min(self._skip, len(pcm))
        return np.concatenate(parts)

    def _begin(self, packet: bytes) -> None:
        head = OpusHead.of(packet)
        if head is not None:
            self._skip = head.pre_skip
            self._n_corrupt += self._decoder.n_corrupt
            self._decoder = OpusDecoder()
