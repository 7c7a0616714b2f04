"""Recognition of known clips where a codec has changed their samples.

Theory. A codec changes samples, but not when things happen: what it makes of a clip now is nearly
what it made of it before. So each clip is coded once when its form is asked for, and the stream is
compared with that, by normalised cross-correlation of what follows the first loud sample. A good
codec gives more than 0.9 there, another clip less; the lag of the maximum is where the clip begins,
to the sample. Two clips may begin alike: more is listened to until one of them stands out. Whether
a clip goes on is then told by its level, as it may be cut off at any place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vakforge_probe.agent import opus
from vakforge_probe.agent.clips import Clip, Pcm
from vakforge_probe.agent.matching import Match, Matcher
from vakforge_probe.agent.tape import Tape

__all__ = ["LossyIndex", "LossyMatcher"]

LOUD = 64
"""A codec's idling stays below; as exact comparison has zero, this has silence."""
QUIETS_PER_S = 100
"""10 ms of silence after an unknown sound: a clip may begin after it."""
KEYS_MS = (40, 60, 80, 100, 150, 200)
"""How much of a beginning is compared, as long as it is not told from others."""
SLACK_MS = 6
"""The first loud sample of a clip may be another one each time it is coded."""
LEAST = 0.65
"""Less is no clip in all that is compared: one of noise reaches 0.78, another voice 0.55."""
SURE, MARGIN = 0.92, 0.1
"""A clip that reaches so much, and is by so much better than all others, is taken at once."""
COARSE = 4
"""Samples that are taken together to find the lag roughly."""
BLOCKS_PER_S = 50
GONE = 10 ** (-20 / 20)
"""A clip has broken off where, for two blocks, so little of its level is left ..."""
SURE_RMS = 10 ** (-38 / 20) * 32768
"""... unless it is quieter than this by itself: codecs for speech drop what is deep and faint."""

_Real = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    clip: Clip
    heard: Pcm
    """As it comes out of the codec, from `lead` samples after the clip's first one on."""
    lead: int
    levels: _Real
    """RMS of each block of the clip."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """How well the best clip fits, its lag, and how well the next one fits."""

    known: _Known
    value: float
    lag: int
    next_value: float

    @property
    def is_good(self) -> bool:
        return self.value >= LEAST

    @property
    def is_clear(self) -> bool:
        return self.value >= SURE and self.value - self.next_value >= MARGIN


class LossyIndex:
    """Clips, at `opus.DECODED_HZ`, by what the codec makes of their beginnings."""

    behind = opus.LOOK_AHEAD

    def __init__(self, clips: Iterable[Clip]) -> None:
        self.slack = opus.DECODED_HZ * SLACK_MS // 1000
        self.keys = [opus.DECODED_HZ * ms // 1000 for ms in KEYS_MS]
        self._known = [known for clip in clips if (known := self._read(clip)) is not None]
        self._spectra: dict[int, npt.NDArray[np.complex64]] = {}

    def matcher(self, tape: Tape) -> LossyMatcher:
        """Return what finds the clips on `tape`."""
        return LossyMatcher(self, tape)

    def _read(self, clip: Clip) -> _Known | None:
        loud = np.flatnonzero(np.abs(clip.pcm.astype(np.int32)) > LOUD)
        if not len(loud) or len(clip.pcm) - loud[0] < self.keys[0]:
            return None
        about = int(loud[0])
        heard = opus.hear(clip.pcm[: about + self.keys[-1] + self.slack], opus.DECODED_HZ)
        loud = np.flatnonzero(np.abs(heard.astype(np.int32)) > LOUD)
        lead = int(loud[0]) if len(loud) else about
        return _Known(clip, heard[lead:], lead, _levels(clip.pcm, opus.DECODED_HZ // BLOCKS_PER_S))

    def find(self, heard: Pcm, key: int) -> _Fit | None:
        """Return which clip fits best, None when there are none.

        `heard` is ``slack + key + slack`` samples from `slack` before the first loud one; a lag is
        where in it the clip's own first loud sample lies, from 0 to 2 * slack.
        """
        rough = self._coarse(heard, key)
        near = [self._known[i] for i in np.argsort(-rough)[:2]]
        fits = sorted(((*self._fine(k, heard, key), k) for k in near), key=lambda f: -f[0])
        if not fits:
            return None
        (value, lag, known), *others = fits
        return _Fit(known, value, lag, others[0][0] if others else 0.0)

    def _coarse(self, heard: Pcm, key: int) -> _Real:
        """Return how well each clip fits at its best lag, roughly."""
        n = 1 << (len(heard) // COARSE).bit_length()
        if key not in self._spectra:
            keys = [_coarse(known.heard[:key]) for known in self._known]
            scaled = [k / max(float(np.linalg.norm(k)), 1.0) for k in keys]
            padded = np.array([np.pad(k, (0, n - len(k))) for k in scaled]).reshape(-1, n)
            self._spectra[key] = np.conj(np.fft.rfft(padded)).astype(np.complex64)
        mine = _coarse(heard)
        size = key // COARSE
        product = np.fft.irfft(np.fft.rfft(mine, n) * self._spectra[key], n)
        product = product[:, : len(mine) - size + 1]
        fits: _Real = (product / _norms(mine, size)).max(axis=1, initial=0.0)
        return fits

    def _fine(self, known: _Known, heard: Pcm, key: int) -> tuple[float, int]:
        mine = known.heard[:key].astype(np.float64)
        theirs = heard.astype(np.float64)
        n = 1 << len(theirs).bit_length()
        product = np.fft.irfft(np.fft.rfft(theirs, n) * np.conj(np.fft.rfft(mine, n)), n)
        norms = _norms(theirs, len(mine)) * max(float(np.linalg.norm(mine)), 1.0)
        fits = product[: len(norms)] / norms
        lag = int(np.argmax(fits))
        return float(fits[lag]), lag


class LossyMatcher(Matcher):
    """Finds clips that went through a codec."""

    def __init__(self, index: LossyIndex, tape: Tape) -> None:
        super().__init__(tape)
        self._index = index
        self._block = tape.rate_hz // BLOCKS_PER_S
        self._tried = (0, 0)
        self._levels = np.zeros(0)

    def _loud(self, start: int, stop: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(np.abs(self._tape.slice(start, stop).astype(np.int32)) > LOUD)

    def _recognise(self, begin: int) -> Match | Literal["wait"] | None:
        slack, keys = self._index.slack, self._index.keys
        n_tried = self._tried[1] if self._tried[0] == begin else 0
        for key in keys[n_tried:]:
            if self._tape.length < begin + key + slack:
                self._tried = (begin, n_tried)
                return "wait"
            n_tried += 1
            fit = self._index.find(self._tape.slice(begin - slack, begin + key + slack), key)
            if fit is not None and fit.is_good and (fit.is_clear or key == keys[-1]):
                self._levels = fit.known.levels
                start = begin - slack + fit.lag - fit.known.lead
                return Match(fit.known.clip, start, max(begin - start, 0))
        return None

    def _follow(self, match: Match) -> None:
        n_heard = min(self._tape.length - match.start, len(match.clip.pcm))
        first, last = match.n_same // self._block, n_heard // self._block
        for block in range(first, last - 1):
            if self._is_gone(match, block) and self._is_gone(match, block + 1):
                match.is_broken = True
                loud = self._loud(match.start, match.start + (block + 1) * self._block)
                match.n_same = max(match.n_same, int(loud[-1]) + 1 if len(loud) else 0)
                self.decided = max(self.decided, match.start + match.n_same)
                self._let_go()
                return
        # The last two blocks may still turn out to have broken off.
        is_whole = n_heard == len(match.clip.pcm)
        match.n_same = max(match.n_same, n_heard if is_whole else (last - 1) * self._block)
        self.decided = match.start + n_heard
        if is_whole:
            self._let_go()

    def _is_gone(self, match: Match, block: int) -> bool:
        level = float(self._levels[block])
        if level < SURE_RMS:
            return False
        start = match.start + block * self._block
        heard = self._tape.slice(start, start + self._block).astype(np.float64)
        return float(np.sqrt(np.mean(np.square(heard)))) < level * GONE


def _coarse(pcm: Pcm | _Real) -> _Real:
    whole = len(pcm) - len(pcm) % COARSE
    mean: _Real = pcm[:whole].astype(np.float64).reshape(-1, COARSE).mean(axis=1)
    return mean


def _norms(pcm: _Real, n: int) -> _Real:
    """Return the length of each stretch of `n` samples as a vector; never 0."""
    sums = np.concatenate([[0.0], np.cumsum(np.square(pcm))])
    norms: _Real = np.sqrt(np.maximum(sums[n:] - sums[:-n], 1.0))
    return norms


def _levels(pcm: Pcm, block: int) -> _Real:
    whole = len(pcm) - len(pcm) % block
    squares = np.square(pcm[:whole].astype(np.float64)).reshape(-1, block)
    rms: _Real = np.sqrt(squares.mean(axis=1))
    return rms
