"""The caller's audio as bytes to samples, apart from the probe's own decoders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vakforge_probe.agent import g711
from vakforge_probe.agent.clipbook import OPUS
from vakforge_probe.agent.clips import Pcm
from vakforge_probe.agent.voice import WIDTHS

__all__ = ["Decode", "decode_of"]

Decode = Callable[[bytes], Pcm]


def decode_of(codec: str) -> Decode:
    """Return what takes the next bytes of one stream and gives the samples that they complete."""
    if codec in g711.CODECS:
        return lambda data: g711.hear(data, codec)
    if codec in OPUS:
        # Loads FFmpeg, which only those who need it should wait for.
        from vakforge_probe.agent.opus import OggDecoder, PacketDecoder

        return OggDecoder().decode if codec == "ogg_opus" else PacketDecoder().decode
    return _Samples(codec).decode


class _Samples:
    """Linear samples, of which one may come in two messages."""

    def __init__(self, codec: str) -> None:
        self._codec, self._odd = codec, b""

    def decode(self, data: bytes) -> Pcm:
        data = self._odd + data
        whole = len(data) - len(data) % WIDTHS[self._codec]
        self._odd = data[whole:]
        if self._codec == "float32le":
            floats = np.nan_to_num(np.frombuffer(data[:whole], dtype="<f4"))
            pcm: Pcm = np.clip(np.rint(floats * 32768.0), -32768, 32767).astype(np.int16)
            return pcm
        return np.frombuffer(data[:whole], dtype="<i2").astype(np.int16)
