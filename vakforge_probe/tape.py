"""The user's stream: an endless tape onto which clips are laid sample by sample.

It is silent, or has a background that goes round and round.

Frame k carries the samples [k*L, (k+1)*L). Which moment a sample stands for is the microphone
model: a frame leaves when its last sample has been spoken, so sample s is spoken at
``origin + s / rate`` with ``origin = due(frame 0) - L / rate``; a reanchored schedule moves the
origin of everything after it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.instant import NS_PER_S, samples_to_ns

__all__ = ["Tape"]

Pcm = npt.NDArray[np.int16]


class Tape:
    """Stream samples at `rate_hz`, cut into frames of `frame_samples`.

    Parameters
    ----------
    background
        One round of what lies under everything, int16; None for silence.
    is_on_grid
        Whether clips begin with a frame, as those do that are coded ahead.
    """

    def __init__(
        self,
        rate_hz: int,
        frame_samples: int,
        background: Pcm | None = None,
        *,
        is_on_grid: bool = False,
    ) -> None:
        self.rate_hz = rate_hz
        self._is_on_grid = is_on_grid
        self.frame_samples = frame_samples
        self._silence = bytes(2 * frame_samples)
        self._background = background
        self._origin_ns = 0
        self._next_frame = 0
        self._laid: list[tuple[int, Pcm]] = []

    @property
    def frame_ns(self) -> int:
        """Duration of a frame."""
        return samples_to_ns(self.frame_samples, self.rate_hz)

    def start(self, first_due_ns: int) -> None:
        """Begin the stream: frame 0 is due at `first_due_ns`."""
        self._origin_ns = first_due_ns - self.frame_ns

    def shift(self, n_frames: int) -> None:
        """Follow a schedule that was moved `n_frames` later."""
        self._origin_ns += n_frames * self.frame_ns

    def spoken_ns(self, sample: int) -> int:
        """Return the planned moment of a stream sample."""
        return self._origin_ns + samples_to_ns(sample, self.rate_hz)

    def position(self, spoken_ns: int) -> int:
        """Return the stream sample spoken at `spoken_ns`, or the first one still to be cut.

        On the grid it is the first one of a frame, the next after that moment.
        """
        sample = round((spoken_ns - self._origin_ns) * self.rate_hz / NS_PER_S)
        if self._is_on_grid:
            sample = -(-sample // self.frame_samples) * self.frame_samples
        return max(sample, self._next_frame * self.frame_samples)

    def lay(self, start: int, pcm: Pcm) -> None:
        """Lay a clip with its first sample at stream sample `start`; overlaps are mixed."""
        self._laid.append((start, pcm))

    def cut(self, frame: int) -> bytes:
        """Return frame number `frame` as 16-bit PCM; frames are cut in order, each once."""
        lo = frame * self.frame_samples
        hi = lo + self.frame_samples
        self._next_frame = frame + 1
        if not self._laid and self._background is None:
            return self._silence
        playing = [(s, pcm) for s, pcm in self._laid if s < hi]
        if not playing and self._background is None:
            return self._silence
        self._laid = [(s, pcm) for s, pcm in self._laid if s + len(pcm) > hi]
        mix = self._under(lo)
        for start, pcm in playing:
            a, b = max(start, lo), min(start + len(pcm), hi)
            mix[a - lo : b - lo] += pcm[a - start : b - start]
        return np.clip(mix, -32768, 32767).astype("<i2").tobytes()

    def _under(self, start: int) -> npt.NDArray[np.int32]:
        """Return the frame that begins at stream sample `start`, without clips."""
        if self._background is None:
            return np.zeros(self.frame_samples, dtype=np.int32)
        at = np.arange(start, start + self.frame_samples)
        return self._background.take(at, mode="wrap").astype(np.int32)
