"""Codec names to decoders: a new codec is one class and one line here."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.pcm import CODECS, PcmDecoder

__all__ = [
    "DECODABLE",
    "SMEAR_MS",
    "STATEFUL",
    "UNPARTED",
    "CodecMissing",
    "Decoder",
    "make_decoder",
]

Pcm = npt.NDArray[np.int16]


class CodecMissing(ImportError):
    """A codec's library is not installed; the message says what to install."""


class Decoder(Protocol):
    """One direction of one stream."""

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of what they belong to."""
        ...

    @property
    def n_corrupt(self) -> int:
        """How often so far something in the stream was not audio."""
        ...

    def feed(self, data: bytes) -> Pcm:
        """Return the samples that `data` completes, ``(n_samples,)``; do not write to them."""
        ...


def _opus(codec: str) -> Decoder:
    # Loads FFmpeg, which only those who need it should wait for.
    try:
        from vakforge_eval.signal.opus import OggOpusDecoder, OpusDecoder
    except ImportError as error:
        text = "Opus needs PyAV: pip install 'vakforge-probe[webrtc]'"
        raise CodecMissing(f"{text} ({error})") from None

    return OggOpusDecoder() if codec in UNPARTED else OpusDecoder()


UNPARTED = frozenset({"ogg_opus"})
"""Codecs in which all audio of one side is one stream, whatever response it belongs to."""
STATEFUL = frozenset({"opus"}) | UNPARTED
"""Codecs in which each message builds on those before it, and which give 48 kHz."""

SMEAR_MS = dict.fromkeys(STATEFUL, (8, 28))
"""By how much a codec lets sound begin before it does, and ring on after it is over.

Measured on the agent's voices with hard edges, up to -12 dBFS, at 16 to 64 kbit/s: sound begins up
to 6.7 ms early and rings for up to 25.7 ms; at -18 dBFS and 32 kbit/s for 5.9 and 21.8 ms.
"""

DECODABLE = frozenset(CODECS) | STATEFUL


def make_decoder(codec: str) -> Decoder:
    """Return a fresh decoder of a codec's stream.

    Raises
    ------
    ValueError
        If the codec is unknown.
    CodecMissing
        If its library is not installed.
    """
    return _opus(codec) if codec in STATEFUL else PcmDecoder(codec)
