"""Recognition of known clips in the caller's stream, by exact comparison of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vakforge_probe.agent import g711
from vakforge_probe.agent.clips import RATE_HZ, Clip
from vakforge_probe.agent.tape import Tape

__all__ = ["EXACT", "ClipIndex", "ClipMatcher", "Match", "Matcher", "Silence", "Unknown"]

EXACT = g711.CODECS | {"pcm_s16le", "float32le"}
"""Codecs that give the samples which the caller put in, or what G.711 makes of them."""
KEYS_PER_S = 50
"""20 ms: enough to tell clips apart, short enough to know one before it means anything."""
QUIETS_PER_S = 100
"""10 ms of digital silence after an unknown sound: a clip may begin after it."""


class ClipIndex:
    """Clips by their first samples, from the first that is not zero; all at `rate_hz`."""

    behind = 0

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

    def matcher(self, tape: Tape) -> Matcher:
        """Return what finds the clips on `tape`."""
        return ClipMatcher(self, tape)


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


class Matcher(ABC):
    """Walks along a tape; `advance` yields what the newly received part is made of, in order.

    Attributes
    ----------
    decided
        Up to where it is known what the tape is made of.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.decided = 0
        self._least_quiet = tape.rate_hz // QUIETS_PER_S
        self._quiet = self._least_quiet
        self._match: Match | None = None

    def advance(self) -> list[Match | Unknown | Silence]:
        """Return what is new; a `Match` is returned when found, and updates itself afterwards."""
        out: list[Match | Unknown | Silence] = []
        while self.decided < self._tape.length:
            before = self.decided
            if self._match is not None:
                self._follow(self._match)
            elif self._quiet >= self._least_quiet or self.decided == 0:
                out += self._search()
            else:
                out += self._skip_unknown()
            if self.decided == before:
                break
        return out

    @abstractmethod
    def _loud(self, start: int, stop: int) -> npt.NDArray[np.intp]:
        """Return which samples of [start, stop) are no silence, counted from `start`."""

    @abstractmethod
    def _recognise(self, begin: int) -> Match | Literal["wait"] | None:
        """Return the clip whose first loud sample lies at `begin`; None: it is of no clip."""

    @abstractmethod
    def _follow(self, match: Match) -> None:
        """Compare what has come of `match` since, and let go of it when it is over."""

    def _search(self) -> list[Match | Unknown | Silence]:
        loud = self._loud(self.decided, self._tape.length)
        begin = self.decided + int(loud[0]) if len(loud) else self._tape.length
        out: list[Match | Unknown | Silence] = []
        if begin > self.decided:
            out.append(Silence(self.decided, begin))
            self.decided = begin
        found = self._recognise(begin) if len(loud) else "wait"
        if found == "wait":
            return out
        if found is None:
            self._quiet = 0
            return out + self._skip_unknown()
        self._match = found
        out.append(found)
        return out

    def _skip_unknown(self) -> list[Match | Unknown | Silence]:
        start, stop = self.decided, self._tape.length
        loud = self._loud(start, stop)
        gaps = np.diff(np.concatenate(([-1 - self._quiet], loud, [stop - start]))) - 1
        long_enough = np.flatnonzero(gaps >= self._least_quiet)
        if len(long_enough):
            first = int(long_enough[0])
            after = int(loud[first - 1]) + 1 if first else -self._quiet
            self._quiet = self._least_quiet
            stop = start + after + self._least_quiet
        else:
            self._quiet = int(gaps[-1])
        self.decided = stop
        return [Unknown(start, stop)] if stop > start else []

    def _let_go(self) -> None:
        # Broken off: what follows is looked at afresh.
        self._match, self._quiet = None, self._least_quiet


class ClipMatcher(Matcher):
    """Finds clips whose samples come as they are."""

    def __init__(self, index: ClipIndex, tape: Tape) -> None:
        super().__init__(tape)
        self._index = index
        self._rivals: list[Match] = []

    def _loud(self, start: int, stop: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self._tape.slice(start, stop))

    def _recognise(self, begin: int) -> Match | Literal["wait"] | None:
        if self._tape.length - begin < self._index.key:
            return "wait"
        found = self._index.find(self._tape.slice(begin, begin + self._index.key).tobytes())
        # Of clips with one beginning the longest goes first; a difference decides.
        hits = sorted(
            (Match(clip, begin - lead, lead) for clip, lead in found),
            key=lambda m: -len(m.clip.pcm),
        )
        self._rivals = hits[1:]
        return hits[0] if hits else None

    def _follow(self, match: Match) -> None:
        n = min(self._tape.length - self.decided, len(match.clip.pcm) - match.n_same)
        mine = match.clip.pcm[match.n_same : match.n_same + n]
        differs = np.flatnonzero(mine != self._tape.slice(self.decided, self.decided + n))
        if len(differs):
            n = int(differs[0])
        match.n_same += n
        self.decided += n
        if len(differs) and self._take_rival(match):
            return
        match.is_broken = bool(len(differs))
        if match.is_over:
            self._rivals = []
            self._let_go()

    def _take_rival(self, match: Match) -> bool:
        for rival in self._rivals:
            same = self.decided - rival.start
            if same < len(rival.clip.pcm) and np.array_equal(
                rival.clip.pcm[: same + 1], self._tape.slice(rival.start, self.decided + 1)
            ):
                match.clip, match.start, match.n_same = rival.clip, rival.start, same
                self._rivals.remove(rival)
                return True
        return False
