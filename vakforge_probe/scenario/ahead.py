"""The user's frames coded before the call, where coding costs more than a call should wait for.

A frame of Opus takes some 0.3 ms, and what it is coded to depends on those before it. So each clip
is coded whole, from the silence before it to the silence after, and a frame is found again by its
samples and those of the frame before it. What is found nowhere, as over a background or where two
clips overlap, is coded in the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["CODED_AHEAD", "NOTHING_AHEAD", "Ahead", "coded_ahead"]

CODED_AHEAD = "opus"
"""The codec whose packets may be made ahead: each stands for itself."""
_LEAD = 10
"""Frames of silence before and behind, by which a coder has come to rest."""

Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Ahead:
    """Packets by (samples of the frame before, samples of the frame), as 16-bit PCM."""

    packets: Mapping[tuple[bytes, bytes], bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.packets)

    def find(self, before: bytes, frame: bytes) -> bytes | None:
        """Return the packet of `frame`; None if it has not been made."""
        return self.packets.get((before, frame))


NOTHING_AHEAD = Ahead()


def coded_ahead(clips: Iterable[Pcm], rate_hz: int, frame_samples: int) -> Ahead:
    """Return the packets of all clips, each beginning with a frame, and of silence.

    Raises
    ------
    ImportError
        If Opus cannot be coded here.
    """
    from vakforge_eval.signal.opus import OpusEncoder

    frame_ms = frame_samples * 1000 // rate_hz
    silence = np.zeros(_LEAD * frame_samples, np.int16)
    packets: dict[tuple[bytes, bytes], bytes] = {}
    for clip in (silence, *clips):
        whole = np.concatenate([silence, clip, silence])
        encoder, before = OpusEncoder(rate_hz, frame_ms), bytes(2 * frame_samples)
        for at in range(0, len(whole) - frame_samples + 1, frame_samples):
            frame = whole[at : at + frame_samples].astype("<i2")
            coded, samples = encoder.encode(frame), frame.tobytes()
            # The first silences of a coder are not yet as all others.
            if at >= len(silence) - frame_samples:
                packets.setdefault((before, samples), coded)
            before = samples
    return Ahead(packets)
