"""The agent's voice: clips joined into the samples of one reply, and cut into messages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vakforge_probe.agent import g711
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clips import RATE_HZ, Clip, Pcm

__all__ = ["Encoder", "Noise", "Speech", "compose"]

EDGE_SAMPLES = RATE_HZ // 1000
WIDTHS = {"pcm_s16le": 2, "float32le": 4, "pcmu": 1, "pcma": 1}
"""Bytes of one sample."""
HUM_HZ = 200
"""Whole periods in 10 ms, so that its level is the same wherever one measures."""
EDGE_SHARE = 0.25
"""A hard edge: within its last ms a clip reaches this share of its peak."""


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    """Samples of one reply at 24 kHz; `voiced` are its audible spans, exact by construction."""

    pcm: Pcm
    voiced: tuple[tuple[int, int], ...]
    text: str


def compose(behaviour: Behaviour, clips: Sequence[Clip], spare: Sequence[Clip]) -> Speech:
    """Return the speech of a reply that says `clips`, with more segments or length from `spare`."""
    segments = _cut_to_length(behaviour, _segments(behaviour, clips, spare), spare)
    gap = np.zeros(round(behaviour.segment_gap * RATE_HZ), dtype=np.int16)
    parts: list[Pcm] = [np.zeros(round(behaviour.leading_silence * RATE_HZ), dtype=np.int16)]
    voiced: list[tuple[int, int]] = []
    at = len(parts[0])
    for i, (pcm, _) in enumerate(segments):
        if i:
            parts.append(gap)
            at += len(gap)
        parts.append(_humming(_at_level(pcm, behaviour.level_dbfs), behaviour.hum_dbfs))
        voiced.append((at, at + len(pcm)))
        at += len(pcm)
    return Speech(np.concatenate(parts), tuple(voiced), " ".join(t for _, t in segments))


def _segments(
    behaviour: Behaviour, clips: Sequence[Clip], spare: Sequence[Clip]
) -> list[tuple[Pcm, str]]:
    if behaviour.segments == 1:
        joined = np.concatenate([clip.pcm for clip in clips])
        return [(joined, " ".join(clip.text for clip in clips))]
    source = itertools.chain(clips, itertools.cycle(spare))
    return [(clip.pcm, clip.text) for clip in itertools.islice(source, behaviour.segments)]


def _cut_to_length(
    behaviour: Behaviour, segments: list[tuple[Pcm, str]], spare: Sequence[Clip]
) -> list[tuple[Pcm, str]]:
    if behaviour.reply_length is None:
        return segments
    left = round(behaviour.reply_length * RATE_HZ)
    out: list[tuple[Pcm, str]] = []
    for pcm, text in segments:
        cut = _hard_end(pcm, left)
        out.append((pcm[:cut], text))
        left -= cut
        if left <= EDGE_SAMPLES:
            return out
    last, text = out.pop()
    more = itertools.cycle(spare)
    while left > EDGE_SAMPLES:
        clip = next(more)
        cut = _hard_end(clip.pcm, left)
        last, text, left = np.concatenate([last, clip.pcm[:cut]]), f"{text} {clip.text}", left - cut
    return [*out, (last, text)]


def _hard_end(pcm: Pcm, n: int) -> int:
    """Return the place nearest to `n` at which a cut leaves a hard edge."""
    if n >= len(pcm):
        return len(pcm)
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) >= EDGE_SHARE * np.max(np.abs(pcm)))
    return int(loud[np.argmin(np.abs(loud + 1 - n))]) + 1


def _at_level(pcm: Pcm, level_dbfs: float | None) -> Pcm:
    if level_dbfs is None:
        return pcm
    rms = float(np.sqrt(np.mean(np.square(pcm.astype(np.float64)))))
    gain = 10 ** (level_dbfs / 20) * 32768 / rms
    return _clipped(pcm.astype(np.float64) * gain)


def _humming(pcm: Pcm, hum_dbfs: float | None) -> Pcm:
    if hum_dbfs is None:
        return pcm
    peak = math.sqrt(2) * 10 ** (hum_dbfs / 20) * 32768
    return _clipped(pcm + peak * np.sin(2 * np.pi * HUM_HZ / RATE_HZ * np.arange(len(pcm))))


def _clipped(samples: npt.NDArray[np.float64]) -> Pcm:
    return np.clip(np.rint(samples), -32768, 32767).astype(np.int16)


class Noise:
    """Seeded comfort noise (white, Gaussian) added to what is sent; none when `dbfs` is None."""

    def __init__(self, dbfs: float | None, seed: int) -> None:
        self._rms = None if dbfs is None else 10 ** (dbfs / 20) * 32768
        self._random = np.random.default_rng(seed)

    def under(self, pcm: Pcm) -> Pcm:
        """Return `pcm` with the next stretch of noise mixed in."""
        if self._rms is None:
            return pcm
        return _clipped(pcm + self._random.standard_normal(len(pcm)) * self._rms)


class Encoder:
    """Samples at 24 kHz to bytes of the session's output format.

    A sample at another rate is the mean of what sounds while it lasts: the edges of the voice,
    which the truth counts by, stay within one sample; the sound is a telephone's.

    Attributes
    ----------
    is_stateful
        Whether each message builds on those before it, so that none may be made and not sent.
    behind
        By how many samples of the output what is said is behind its place.
    n_skipped
        How many at the beginning of a stream its decoders leave out.
    """

    is_stateful = False
    behind = 0
    n_skipped = 0

    def __init__(self, codec: str, rate_hz: int) -> None:
        self.codec, self.rate_hz = codec, rate_hz
        self.width = WIDTHS[codec]

    def chunk(self, n_bytes: int) -> int:
        """Return how many bytes a message has that is to have `n_bytes`."""
        return n_bytes

    def closed(self, pcm: Pcm) -> Pcm:
        """Return `pcm` with what must follow for all of it to be heard."""
        return pcm

    def n_out(self, position: int) -> int:
        """Return in which sample of the output a position at 24 kHz lies."""
        return position * self.rate_hz // RATE_HZ

    def n_in(self, position: int) -> int:
        """Return the position at 24 kHz at which a sample of the output begins, or the next one."""
        return -(-position * RATE_HZ // self.rate_hz)

    def spans(self, voiced: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return where spans at 24 kHz sound in the output."""
        return [(self.n_out(a), -(-b * self.rate_hz // RATE_HZ)) for a, b in voiced]

    def whole(self, n: int) -> int:
        """Return the next number of output samples that is whole at 24 kHz as well."""
        step = self.rate_hz // math.gcd(self.rate_hz, RATE_HZ)
        return -(-n // step) * step

    def encode(self, pcm: Pcm) -> bytes:
        """Return `pcm` (24 kHz) in the output format, but for a last sample that is not whole."""
        pcm = self._at_rate(pcm)
        if self.codec == "pcm_s16le":
            return pcm.astype("<i2").tobytes()
        if self.codec == "float32le":
            return (pcm.astype("<f4") / 32768).astype("<f4").tobytes()
        return g711.encode(pcm, self.codec)

    def _at_rate(self, pcm: Pcm) -> Pcm:
        if self.rate_hz == RATE_HZ:
            return pcm
        step = math.gcd(self.rate_hz, RATE_HZ)
        n_from, n_to = RATE_HZ // step, self.rate_hz // step
        # Cut as fine as both rates need, then put together again.
        fine = np.repeat(pcm.astype(np.float64), n_to)
        return _clipped(fine[: len(fine) // n_from * n_from].reshape(-1, n_from).mean(axis=1))
