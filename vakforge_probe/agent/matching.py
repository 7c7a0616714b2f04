"""Recognition of known clips in the caller's stream, by exact comparison of samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vakforge_probe.agent.clips import Clip
from vakforge_probe.agent.tape import Tape

__all__ = ["ClipIndex", "ClipMatcher", "Match", "Silence", "Unknown"]

KEY_SAMPLES = 480
"""20 ms: enough to tell clips apart, short enough to know one before it means anything."""
QUIET_SAMPLES = 240
"""10 ms of digital silence after an unknown sound: a clip may begin after it."""


class ClipIndex:
    """Clips by their first samples, from the first that is not zero."""

    def __init__(self, clips: Iterable[Clip]) -> None:
        self._by_key: dict[bytes, list[tuple[Clip, int]]] = {}
        for clip in clips:
            loud = np.flatnonzero(clip.pcm)
            if len(loud) and len(clip.pcm) - loud[0] >= KEY_SAMPLES:
                lead = int(loud[0])
                key = clip.pcm[lead : lead + KEY_SAMPLES].tobytes()
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


class ClipMatcher:
    """Walks along a tape; `advance` yields what the newly received part is made of, in order."""

    def __init__(self, index: ClipIndex, tape: Tape) -> None:
        self._index = index
        self._tape = tape
        self._at = 0
        self._quiet = QUIET_SAMPLES
        self._match: Match | None = None
        self._rivals: list[Match] = []

    def advance(self) -> list[Match | Unknown | Silence]:
        """Return what is new; a `Match` is returned when found, and updates itself afterwards."""
        out: list[Match | Unknown | Silence] = []
        while self._at < self._tape.length:
            before = self._at
            if self._match is not None:
                self._compare()
            elif self._quiet >= QUIET_SAMPLES or self._at == 0:
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
        if not len(loud) or self._tape.length - begin < KEY_SAMPLES:
            return out
        found = self._index.find(self._tape.slice(begin, begin + KEY_SAMPLES).tobytes())
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
        long_enough = np.flatnonzero(gaps >= QUIET_SAMPLES)
        if len(long_enough):
            first = int(long_enough[0])
            after = int(loud[first - 1]) + 1 if first else -self._quiet
            self._quiet = QUIET_SAMPLES
            stop = start + after + QUIET_SAMPLES
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
            self._match, self._rivals, self._quiet = None, [], QUIET_SAMPLES

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
