"""The agent's voice: clips joined into the samples of one reply, and cut into messages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vakforge_probe.agent import g711
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clips import RATE_HZ, Clip, Pcm

__all__ = ["Encoder", "Noise", "Speech", "compose"]

EDGE_SAMPLES = RATE_HZ // 1000
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

    For 8 kHz formats every third sample of a three-sample mean is taken: the edges of the voice,
    which the truth counts by, stay within one sample; the sound is a telephone's.
    """

    def __init__(self, codec: str) -> None:
        self.codec = codec
        self.rate_hz = RATE_HZ if codec == "pcm_s16le" else 8000
        self.width = 2 if codec == "pcm_s16le" else 1

    @property
    def decimation(self) -> int:
        """Samples at 24 kHz for each sample sent."""
        return RATE_HZ // self.rate_hz

    def encode(self, pcm: Pcm) -> bytes:
        """Return `pcm` (24 kHz; whole groups of `decimation` samples) in the output format."""
        if self.codec == "pcm_s16le":
            return pcm.astype("<i2").tobytes()
        groups = pcm[: len(pcm) // self.decimation * self.decimation].reshape(-1, self.decimation)
        return g711.encode(_clipped(groups.mean(axis=1)), self.codec)
