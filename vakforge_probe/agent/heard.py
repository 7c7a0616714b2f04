"""What of the agent's voice was heard, by one player: stretches of each response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, samples_to_ns
from vakforge_probe.agent.player import AudioSent, Piece, Playout

__all__ = ["JOIN_NS", "Heard", "Span", "Stretch", "joined", "voiced_parts"]

JOIN_NS = 350 * NS_PER_MS
"""A shorter silence inside a response parts nothing."""

Span = tuple[int, int]


class Stretch(NamedTuple):
    """An audible stretch of one response as heard, from `start` to `end` (ns).

    `sample` is its first sample and `until` where it ends, both in the response; `first` and `last`
    are the messages that hold them.
    """

    start: int
    end: int
    tag: str
    sample: int
    until: int
    first: AudioSent
    last: AudioSent


def voiced_parts(voiced: Iterable[Span], begin: int, end: int) -> list[Span]:
    """Return what of the spans `voiced` lies in [begin, end)."""
    cut = ((max(a, begin), min(b, end)) for a, b in voiced)
    return [(a, b) for a, b in cut if a < b]


def joined(spans: Iterable[Span], gap_ns: int) -> list[Span]:
    """Return the union of `spans`, with gaps shorter than `gap_ns` closed, in order."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start - out[-1][1] < gap_ns:
            start, end = out[-1][0], max(end, out.pop()[1])
        out.append((start, end))
    return out


class Heard:
    """The agent as one player sounds it.

    Parameters
    ----------
    voiced
        Audible spans of each response, in its samples.

    Attributes
    ----------
    stretches
        Of each response that was heard, in order; gaps < 350 ms joined.
    sounds
        When there was voice, nothing joined.
    """

    def __init__(self, player: Playout, voiced: Mapping[str, tuple[Span, ...]], rate: int) -> None:
        self.player, self._voiced, self._rate = player, voiced, rate
        self.stretches: dict[str, list[Stretch]] = {}
        self.sounds: list[Span] = []
        for piece in player.played:
            if piece.sent.tag is not None:
                self._add(piece, piece.sent.tag)

    def _add(self, piece: Piece, tag: str) -> None:
        sent = piece.sent
        for a, b in voiced_parts(self._voiced.get(tag, ()), piece.first, sent.first + sent.n):
            start = piece.start + samples_to_ns(a - piece.first, self._rate)
            end = piece.start + samples_to_ns(b - piece.first, self._rate)
            if end > piece.stop:
                end = piece.stop
                b = a + (end - start) * self._rate // NS_PER_S
            if start >= end:
                continue
            self.sounds.append((start, end))
            known = self.stretches.setdefault(tag, [])
            stretch = Stretch(start, end, tag, a, b, sent, sent)
            if known and start - known[-1].end < JOIN_NS:
                stretch = known.pop()._replace(end=end, until=b, last=sent)
            known.append(stretch)

    def of(self, tags: Iterable[str]) -> list[Stretch]:
        """Return the stretches of the responses `tags`, in order."""
        return sorted(s for tag in tags for s in self.stretches.get(tag, ()))

    def at(self, ns: int) -> Stretch | None:
        """Return the stretch that is heard at `ns`."""
        every = (s for known in self.stretches.values() for s in known)
        return next((s for s in every if s.start <= ns < s.end), None)
