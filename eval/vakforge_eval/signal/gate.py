"""How loud audio must be to count as speech: the gate, and the noise floor it keeps away from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.pcm import FULL_SCALE
from vakforge_eval.timeline.values import Reason, Undefined

__all__ = [
    "FLOOR_MARGIN_DB",
    "FLOOR_QUANTILE",
    "GATE_DBFS",
    "HYSTERESIS_DB",
    "MAX_GATE_DBFS",
    "MIN_RATE_HZ",
    "WINDOW_MS",
    "Gate",
    "block_energies",
    "gate_for",
    "noise_floor",
    "stream_floor",
    "whole_samples",
]

WINDOW_MS = 10
GATE_DBFS = -55.0
"""The gate in quiet; room noise of a good microphone lies below."""
MAX_GATE_DBFS = -25.0
"""A gate above this would cut speech of usual level (-18 to -26 dBFS RMS, with its own dips)."""
FLOOR_MARGIN_DB = 10.0
HYSTERESIS_DB = 6.0
FLOOR_QUANTILE = 0.10
MIN_RATE_HZ = 4000
MIN_FLOOR_BLOCKS = 100
"""1 s of 10 ms blocks: fewer say nothing about a floor."""

Pcm = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gate:
    """Levels (dBFS) at which activity begins, and below which it may end."""

    on_dbfs: float
    off_dbfs: float

    @classmethod
    def at(cls, on_dbfs: float) -> Gate:
        """Return the gate at `on_dbfs` with the hysteresis below it."""
        return cls(on_dbfs, on_dbfs - HYSTERESIS_DB)


def gate_for(floor_dbfs: float | None) -> Gate | Undefined:
    """Return the gate over a noise floor: 10 dB above it, at least -55 dBFS.

    `Undefined(noise_too_high)` when that is above -25 dBFS. Source: metrics definition "Detector
    of agent speech".
    """
    on_dbfs = GATE_DBFS if floor_dbfs is None else max(GATE_DBFS, floor_dbfs + FLOOR_MARGIN_DB)
    return Undefined(Reason.NOISE_TOO_HIGH) if on_dbfs > MAX_GATE_DBFS else Gate.at(on_dbfs)


def noise_floor(
    stretches: Iterable[Pcm], rate_hz: int, quantile: float = FLOOR_QUANTILE
) -> float | None:
    """Return the noise floor in dBFS: the 10th percentile (nearest rank) of 10 ms block levels.

    Each stretch of int16 samples is cut into blocks by itself, and each block loses its mean.
    Blocks of digital silence do not count. None when fewer than 100 blocks (1 s) are left. Another
    `quantile` than 0.1 tells how loud the audio gets.
    """
    window = whole_samples(WINDOW_MS, rate_hz)
    found = [block_energies(pcm, window) for pcm in stretches]
    energies = np.sort(np.concatenate([*found, np.empty(0, np.int64)]))
    if len(energies) < MIN_FLOOR_BLOCKS:
        return None
    quiet = int(energies[math.ceil(quantile * len(energies)) - 1])
    return 10 * math.log10(quiet / (window * FULL_SCALE) ** 2)


def stream_floor(stretches: Iterable[Pcm], rate_hz: int) -> float | None:
    """Return the noise floor in dBFS of audio that never pauses, speech included.

    That of `noise_floor`, but None where a tenth or more of the blocks are digital silence: then
    this is the background, and what is not silent is speech.
    """
    whole = list(stretches)
    window = whole_samples(WINDOW_MS, rate_hz)
    n_blocks = sum(len(pcm) // window for pcm in whole)
    n_sounding = sum(len(block_energies(pcm, window)) for pcm in whole)
    if n_blocks - n_sounding >= FLOOR_QUANTILE * n_blocks:
        return None
    return noise_floor(whole, rate_hz)


def whole_samples(ms: float, rate_hz: int) -> int:
    """Return how many samples `ms` are, rounded.

    Raises
    ------
    ValueError
        If the rate is below 4 kHz.
    """
    if rate_hz < MIN_RATE_HZ:
        raise ValueError(f"rate of {rate_hz} Hz is too low for a detector")
    return round(ms * rate_hz / 1000)


def block_energies(pcm: Pcm, window: int) -> Ints:
    """Return ``window² · variance`` of each whole block that is not digital silence, in order."""
    blocks = pcm[: len(pcm) // window * window].reshape(-1, window).astype(np.int64)
    energies: Ints = window * np.sum(blocks * blocks, axis=1) - np.sum(blocks, axis=1) ** 2
    return energies[energies > 0]
