"""Speech that lies on a steady sound, where nothing has told how loud that sound is.

A gate is set above a measured noise floor. A turn protocol sends audio only inside of responses, so
there may be no floor to measure, and the noise that an agent puts under its own voice crosses the
gate with the response's first sample. Such noise shows in the stretch itself: it begins or ends
with a level that does not move, nothing in it is quieter, and speech rises out of it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import Span, find_spans
from vakforge_eval.signal.gate import FLOOR_MARGIN_DB, WINDOW_MS, Gate
from vakforge_eval.signal.pcm import FULL_SCALE

__all__ = ["RISE_BLOCKS", "STEADY_BLOCKS", "STEADY_DB", "over_underlay"]

STEADY_DB = 5.0
"""How far the levels of 10 ms blocks of steady noise lie apart; those of speech move more."""
STEADY_BLOCKS = 4
"""Fewer do not tell a steady sound from a vowel that dies away."""
RISE_BLOCKS = 2
"""Blocks next to the rise that speech may already have begun in."""

Pcm = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]


def over_underlay(pcm: Pcm, rate_hz: int, span: Span) -> Span:
    """Return `span` with ranges that leave out the steady sound at its head and its tail.

    Parameters
    ----------
    pcm
        The audio that `span` was found in with ``end_silence_ms=0``, int16 of shape
        ``(n_samples,)``.

    Returns
    -------
    Span
        The same edges. Its ranges reach to where the sound rises 10 dB out of its quietest block,
        if all before that, or all after, is as steady as noise; else they are what they were.
    """
    window = round(WINDOW_MS * rate_hz / 1000)
    voice = pcm[span.start : span.end]
    levels = _levels(voice, window)
    quietest = float(min(levels, default=-math.inf))
    if math.isinf(quietest):
        return span
    inner = find_spans(voice, rate_hz, Gate.at(quietest + FLOOR_MARGIN_DB), end_silence_ms=0)
    if not inner:
        return span
    first, last = inner[0].start, inner[-1].end
    (start_lo, start_hi), (end_lo, end_hi) = span.start_range, span.end_range
    if _is_steady(levels[: max(0, first // window - RISE_BLOCKS)], quietest):
        start_hi = max(start_hi, span.start + first)
    if _is_steady(levels[-(-last // window) + RISE_BLOCKS :], quietest):
        end_lo = min(end_lo, span.start + last)
    return replace(span, start_range=(start_lo, start_hi), end_range=(end_lo, end_hi))


def _is_steady(levels: Floats, quietest: float) -> bool:
    if len(levels) < STEADY_BLOCKS:
        return False
    # The loudest of many blocks of noise strays far, one block in ten does not.
    return float(np.quantile(levels, 0.9, method="higher")) <= quietest + STEADY_DB


def _levels(voice: Pcm, window: int) -> Floats:
    """Return the level of each whole 10 ms block (dBFS), minus infinity for digital silence."""
    blocks = voice[: len(voice) // window * window].reshape(-1, window).astype(np.float64)
    power = np.var(blocks, axis=1) / FULL_SCALE**2
    with np.errstate(divide="ignore"):
        levels: Floats = 10 * np.log10(power)
    return levels
