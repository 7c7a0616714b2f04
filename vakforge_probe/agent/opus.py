"""Opus at the agent's end, apart from the probe's: packets in and out, in the clock of the input.

What a coder gives lies `LOOK_AHEAD` behind what it took. Here that is cut away at the beginning of
a stream, so that sample k of what was heard is sample k of what was put in; the last samples of a
frame then come with the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt

from vakforge_eval.ogg import OggReader, OggWriter, OpusHead, is_header
from vakforge_probe.agent.clips import RATE_HZ
from vakforge_probe.agent.voice import Encoder

__all__ = [
    "DECODED_HZ",
    "LOOK_AHEAD",
    "OggDecoder",
    "OpusVoice",
    "PacketDecoder",
    "PacketEncoder",
    "hear",
]

DECODED_HZ = 48_000
STREAM_BIT_RATE, LINE_BIT_RATE = 48_000, 96_000
"""In Ogg, and on RTP, where servers by aiortc spend as much."""
LOOK_AHEAD = 312
"""At `DECODED_HZ`: 6.5 ms."""

_FRAMES = tuple(DECODED_HZ * ms // 1000 for ms in (5, 10, 20, 40, 60))

Pcm = npt.NDArray[np.int16]


class PacketEncoder:
    """Codes frames of `n` samples each at `rate_hz`, one packet a frame.

    `head` says how far it looks ahead: `LOOK_AHEAD`, and less for frames shorter than 10 ms.
    """

    def __init__(self, rate_hz: int, n: int, bit_rate: int = 48_000) -> None:
        codec = av.CodecContext.create("libopus", "w")
        if not isinstance(codec, av.AudioCodecContext):
            raise TypeError("no coder of audio")
        codec.sample_rate, codec.format, codec.layout = rate_hz, "s16", "mono"
        codec.bit_rate, codec.time_base = bit_rate, Fraction(1, rate_hz)
        codec.options = {"application": "voip", "frame_duration": f"{1000 * n / rate_hz:g}"}
        codec.open()
        self.head = OpusHead.of(bytes(codec.extradata or b"")) or OpusHead(LOOK_AHEAD)
        self._codec, self._rate_hz, self._n, self._at = codec, rate_hz, n, 0

    def encode(self, pcm: Pcm) -> bytes:
        """Return the packet of the next frame."""
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, self._n), format="s16", layout="mono")
        frame.sample_rate, frame.pts = self._rate_hz, self._at
        self._at += self._n
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))


class PacketDecoder:
    """Decodes packets in their order, at `DECODED_HZ`, without the look-ahead of their coder."""

    def __init__(self, look_ahead: int = LOOK_AHEAD) -> None:
        codec = av.CodecContext.create("libopus", "r")
        if not isinstance(codec, av.AudioCodecContext):
            raise TypeError("no decoder of audio")
        codec.sample_rate, codec.layout = DECODED_HZ, "mono"
        self._codec, self._skip = codec, look_ahead

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


class OggDecoder:
    """Decodes the packets of one Ogg stream, however its bytes come."""

    def __init__(self) -> None:
        self._reader, self._decoder = OggReader(), PacketDecoder()

    def decode(self, data: bytes) -> Pcm:
        """Return the samples of the packets that `data` completes."""
        parts = [np.zeros(0, np.int16)]
        for packet, _ in self._reader.feed(data):
            head = OpusHead.of(packet)
            if head is not None:
                self._decoder = PacketDecoder(head.pre_skip)
            elif not is_header(packet):
                parts.append(self._decoder.decode(packet))
        return np.concatenate(parts)


class OpusVoice(Encoder):
    """The agent's voice in Opus, a message a frame, where positions are those that a decoder gives.

    What a reply says is heard `behind` samples after its place, and the last of it with the next
    frame: so a reply is closed by silence of that length.
    """

    is_stateful = True

    def __init__(self, codec: str) -> None:
        self.codec, self.rate_hz, self.width = codec, DECODED_HZ, 1
        self.chunk(_FRAMES[0])

    def chunk(self, n_bytes: int) -> int:
        """Begin anew with frames not longer than `n_bytes` samples, and return their length."""
        self._n = max((n for n in _FRAMES if n <= n_bytes), default=_FRAMES[0])
        is_line = self.codec == "opus"
        bit_rate = LINE_BIT_RATE if is_line else STREAM_BIT_RATE
        self._encoder = PacketEncoder(RATE_HZ, self.n_in(self._n), bit_rate)
        self.behind = self._encoder.head.pre_skip
        # RTP has no header that would say what to leave out.
        self.n_skipped = 0 if is_line else self.behind
        self._ogg = OggWriter(self._encoder.head) if self.codec == "ogg_opus" else None
        self._headers = b"" if self._ogg is None else self._ogg.headers()
        return self._n

    def spans(self, voiced: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return where spans at 24 kHz sound in the output."""
        return [(a + self.behind, b + self.behind) for a, b in super().spans(voiced)]

    def closed(self, pcm: Pcm) -> Pcm:
        """Return `pcm` with as much silence as lets all of it be heard, in whole frames."""
        n = len(pcm) + self.n_in(self.behind)
        frame = self.n_in(self._n)
        return np.pad(pcm, (0, -(-n // frame) * frame - len(pcm)))

    def encode(self, pcm: Pcm) -> bytes:
        """Return the message of one frame, with silence behind what is less."""
        packet = self._encoder.encode(np.pad(pcm, (0, self.n_in(self._n) - len(pcm))))
        if self._ogg is None:
            return packet
        headers, self._headers = self._headers, b""
        return headers + self._ogg.page(packet, self._n)


def hear(pcm: Pcm, rate_hz: int) -> Pcm:
    """Return `pcm` as it is heard at `DECODED_HZ` when it begins after silence."""
    n, lead = rate_hz // 50, rate_hz // 10
    up = DECODED_HZ // rate_hz
    padded = np.concatenate([np.zeros(lead, np.int16), pcm, np.zeros(2 * n, np.int16)])
    encoder, decoder = PacketEncoder(rate_hz, n), PacketDecoder()
    whole = len(padded) - len(padded) % n
    parts = [decoder.decode(encoder.encode(padded[at : at + n])) for at in range(0, whole, n)]
    return np.concatenate(parts)[up * lead : up * (lead + len(pcm))]
