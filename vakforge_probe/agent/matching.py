"""Recognition of known clips in the caller's stream, by exact comparison of samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vakforge_probe.agent import g711
from vakforge_probe.agent.clips import RATE_HZ, Clip
from vakforge_probe.agent.tape import Tape

__all__ = ["ClipBook", "ClipIndex", "ClipMatcher", "Match", "Silence", "Unknown"]

EXACT = g711.CODECS | {"pcm_s16le", "float32le"}
"""Codecs that give the samples which the caller put in, or what G.711 makes of them."""
KEYS_PER_S = 50
"""20 ms: enough to tell clips apart, short enough to know one before it means anything."""
QUIETS_PER_S = 100
"""10 ms of digital silence after an unknown sound: a clip may begin after it."""


class ClipIndex:
    """Clips by their first samples, from the first that is not zero; all at `rate_hz`."""

    def __init__(self, clips: Iterable[Clip], rate_hz: int = RATE_HZ) -> None:
        self._by_key: dict[bytes, list[tuple[Clip, int]]] = {}
        self.key = rate_hz // KEYS_PER_S
        for clip in clips:
            loud = np.flatnonzero(clip.pcm)
            if len(loud) and len(clip.pcm) - loud[0] >= self.key:
                lead = int(loud[0])
                key = clip.pcm[lead : lead + self.key].tobytes()
                self._by_key.setdefault(key, []).append((clip, lead))

    def find(self, key: bytes) -> list[tuple[Clip, int]]:
        """Return the clips that begin so, each with its leading zeros."""
        return self._by_key.get(key, [])


@dataclass(slots=True)
class Match:
    """A clip found at `start` (stream position of its sample 0).

    `n_same` samples of it have been compared and were equal; `is_broken` says that it then ended
    or changed, so that nothing after them is known.
    """

    clip: Clip
    start: int
    n_same: int
    is_broken: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the clip has been heard to its end, or broken off."""
        return self.is_broken or self.n_same == len(self.clip.pcm)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Samples [start, stop) that belong to no known clip and are not digital silence."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Samples [start, stop) of digital silence outside clips."""

    start: int
    stop: int


class ClipBook:
    """Indexes of the same clips in each form in which they may come; made when first asked for."""

    def __init__(self, clips: Iterable[Clip]) -> None:
        self._clips = list(clips)
        self._known: dict[tuple[str, int], ClipIndex] = {}

    def index(self, codec: str, rate_hz: int) -> ClipIndex:
        """Return the index of a form; an empty one where samples do not come as they were sent."""
        form = (codec, rate_hz)
        if form not in self._known:
            clips = self._clips if codec in EXACT else ()
            coded = (clip.coded(codec, rate_hz) for clip in clips)
            self._known[form] = ClipIndex(coded, rate_hz)
        return self._known[form]


class ClipMatcher:
    """Walks along a tape; `advance` yields what the newly received part is made of, in order."""

    def __init__(self, index: ClipIndex, tape: Tape) -> None:
        self._index = index
        self._tape = tape
        self._at = 0
        self._least_quiet = tape.rate_hz // QUIETS_PER_S
        self._quiet = self._least_quiet
        self._match: Match | None = None
        self._rivals: list[Match] = []

    def advance(self) -> list[Match | Unknown | Silence]:
        """Return what is new; a `Match` is returned when found, and updates itself afterwards."""
        out: list[Match | Unknown | Silence] = []
        while self._at < self._tape.length:
            before = self._at
            if self._match is not None:
                self._compare()
            elif self._quiet >= self._least_quiet or self._at == 0:
                out += self._search()
            else:
                out += self._skip_unknown()
            if self._at == before:
                break
        return out

    def _search(self) -> list[Match | Unknown | Silence]:
        loud = np.flatnonzero(self._tape.slice(self._at, self._tape.length))
        begin = self._at + int(loud[0]) if len(loud) else self._tape.length
        out: list[Match | Unknown | Silence] = []
        if begin > self._at:
            out.append(Silence(self._at, begin))
            self._at = begin
        if not len(loud) or self._tape.length - begin < self._index.key:
            return out
        found = self._index.find(self._tape.slice(begin, begin + self._index.key).tobytes())
        if not found:
            self._quiet = 0
            return out + self._skip_unknown()
        hits = [Match(clip, begin - lead, lead) for clip, lead in found]
        # Of clips with one beginning the longest goes first; a difference decides.
        hits.sort(key=lambda m: -len(m.clip.pcm))
        self._match, self._rivals = hits[0], hits[1:]
        out.append(self._match)
        return out

    def _skip_unknown(self) -> list[Match | Unknown | Silence]:
        start, stop = self._at, self._tape.length
        loud = np.flatnonzero(self._tape.slice(start, stop))
        gaps = np.diff(np.concatenate(([-1 - self._quiet], loud, [stop - start]))) - 1
        long_enough = np.flatnonzero(gaps >= self._least_quiet)
        if len(long_enough):
            first = int(long_enough[0])
            after = int(loud[first - 1]) + 1 if first else -self._quiet
            self._quiet = self._least_quiet
            stop = start + after + self._least_quiet
        else:
            self._quiet = int(gaps[-1])
        self._at = stop
        return [Unknown(start, stop)] if stop > start else []

    def _compare(self) -> None:
        match = self._match
        if match is None:
            return
        n = min(self._tape.length - self._at, len(match.clip.pcm) - match.n_same)
        mine = match.clip.pcm[match.n_same : match.n_same + n]
        differs = np.flatnonzero(mine != self._tape.slice(self._at, self._at + n))
        if len(differs):
            n = int(differs[0])
        match.n_same += n
        self._at += n
        if len(differs) and self._take_rival(match):
            return
        match.is_broken = bool(len(differs))
        if match.is_over:
            # Broken off: what follows the last equal sample is looked at afresh.
            self._match, self._rivals, self._quiet = None, [], self._least_quiet

    def _take_rival(self, match: Match) -> bool:
        for rival in self._rivals:
            same = self._at - rival.start
            if same < len(rival.clip.pcm) and np.array_equal(
                rival.clip.pcm[: same + 1], self._tape.slice(rival.start, self._at + 1)
            ):
                match.clip, match.start, match.n_same = rival.clip, rival.start, same
                self._rivals.remove(rival)
                return True
        return False
