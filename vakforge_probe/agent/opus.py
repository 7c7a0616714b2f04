"""Opus at the agent's end, apart from the probe's: packets in and out, in the clock of the input.

What a coder gives lies `LOOK_AHEAD` behind what it took. Here that is cut away at the beginning of
a stream, so that sample k of what was heard is sample k of what was put in; the last samples of a
frame then come with the next one.
"""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt

__all__ = ["DECODED_HZ", "LOOK_AHEAD", "PacketDecoder", "PacketEncoder", "hear"]

DECODED_HZ = 48_000
LOOK_AHEAD = 312
"""At `DECODED_HZ`: 6.5 ms."""

Pcm = npt.NDArray[np.int16]


class PacketEncoder:
    """Codes frames of `n` samples each at `rate_hz`, one packet a frame.

    `header` is the OpusHead of its stream.
    """

    def __init__(self, rate_hz: int, n: int) -> None:
        codec = av.CodecContext.create("libopus", "w")
        if not isinstance(codec, av.AudioCodecContext):
            raise TypeError("no coder of audio")
        codec.sample_rate, codec.format, codec.layout = rate_hz, "s16", "mono"
        codec.bit_rate, codec.time_base = 48_000, Fraction(1, rate_hz)
        codec.options = {"application": "voip", "frame_duration": f"{1000 * n / rate_hz:g}"}
        codec.open()
        self.header = bytes(codec.extradata or b"")
        self._codec, self._rate_hz, self._n, self._at = codec, rate_hz, n, 0

    def encode(self, pcm: Pcm) -> bytes:
        """Return the packet of the next frame."""
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, self._n), format="s16", layout="mono")
        frame.sample_rate, frame.pts = self._rate_hz, self._at
        self._at += self._n
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))


class PacketDecoder:
    """Decodes packets in their order, at `DECODED_HZ`, without the look-ahead of their coder."""

    def __init__(self) -> None:
        codec = av.CodecContext.create("libopus", "r")
        if not isinstance(codec, av.AudioCodecContext):
            raise TypeError("no decoder of audio")
        codec.sample_rate, codec.layout = DECODED_HZ, "mono"
        self._codec, self._skip = codec, LOOK_AHEAD

    def decode(self, packet: bytes) -> Pcm:
        """Return the samples of one packet; none of one that is not Opus."""
        try:
            frames = self._codec.decode(av.Packet(packet)) if packet else []
        except av.FFmpegError:
            frames = []
        parts = [np.asarray(frame.to_ndarray(), np.int16).reshape(-1) for frame in frames]
        pcm = np.concatenate(parts) if parts else np.zeros(0, np.int16)
        skipped = min(self._skip, len(pcm))
        self._skip -= skipped
        return pcm[skipped:]


def hear(pcm: Pcm, rate_hz: int) -> Pcm:
    """Return `pcm` as it is heard at `DECODED_HZ` when it begins after silence."""
    n, lead = rate_hz // 50, rate_hz // 10
    up = DECODED_HZ // rate_hz
    padded = np.concatenate([np.zeros(lead, np.int16), pcm, np.zeros(2 * n, np.int16)])
    encoder, decoder = PacketEncoder(rate_hz, n), PacketDecoder()
    whole = len(padded) - len(padded) % n
    parts = [decoder.decode(encoder.encode(padded[at : at + n])) for at in range(0, whole, n)]
    return np.concatenate(parts)[up * lead : up * (lead + len(pcm))]
