"""Whether a stretch of the agent's speech came to its own end or was cut, and who says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from vakforge_eval.metrics.hearing import Hearing
from vakforge_eval.metrics.segments import Segment, last_audible
from vakforge_eval.signal.activity import find_spans
from vakforge_eval.timeline.call import AgentAudio, CallTimeline
from vakforge_eval.timeline.events import Interrupt, ResponseEnded
from vakforge_eval.timeline.instant import Edge, Instant
from vakforge_eval.timeline.values import Undefined

__all__ = ["Stretch"]

_CANCELLED = "cancelled"


@dataclass(frozen=True)
class Stretch:
    """A segment with what became of its response until that is heard again.

    `following` is that next segment of the same response; where there are no response ids, of
    anything.
    """

    timeline: CallTimeline
    hearing: Hearing
    segment: Segment
    following: Segment | None

    @classmethod
    def of(cls, timeline: CallTimeline, hearing: Hearing, segment: Segment) -> Stretch:
        """Return the stretch of `segment`."""
        same = [s for s in hearing.segments if s.response_id == segment.response_id]
        later = same[_place(same, segment) + 1 :]
        return cls(timeline, hearing, segment, later[0] if later else None)

    @cached_property
    def messages(self) -> tuple[AgentAudio, ...]:
        """All audio of the response from the segment on, heard or not, until it is heard again."""
        same = [m for m in self.timeline.audio if m.response_id == self.segment.response_id]
        first = _place(same, self.segment.messages[0])
        after = self.following
        return tuple(same[first : None if after is None else _place(same, after.messages[0])])

    @cached_property
    def ended(self) -> ResponseEnded | None:
        """What the server said of the end of the response, if it lies in this stretch."""
        name = self.segment.response_id
        ends = (
            e
            for e in self.timeline.events
            if isinstance(e, ResponseEnded) and e.response_id == name
        )
        if name is not None:
            return next(ends, None)
        # Ends without a name are told apart by the audio before and after them.
        since = self.segment.messages[-1].arrival.at
        until = None if self.following is None else self.following.messages[0].arrival.at
        return next(
            (e for e in ends if since <= e.at.at and (until is None or e.at.at < until)), None
        )

    @cached_property
    def is_cut(self) -> bool:
        """Whether a flush took some of it away, heard or not."""
        return any(len(pcm) for pcm, _ in self._lost)

    @cached_property
    def is_sound_lost(self) -> bool:
        """Whether something audible was taken away: trailing silence is no loss."""
        gate = self.hearing.gate
        if isinstance(gate, Undefined):
            return False
        lost = groupby(self._lost, key=lambda part: part[1])
        return any(
            find_spans(np.concatenate([pcm for pcm, _ in parts]), rate_hz, gate)
            for rate_hz, parts in lost
        )

    @property
    def is_natural_end(self) -> bool:
        """Whether the response ended uncancelled and all of it was heard, this being its last."""
        ended = self.ended
        is_last = self.following is None or self.segment.response_id is None
        is_own = ended is not None and ended.status != _CANCELLED
        return is_last and is_own and not self.is_sound_lost

    def evidence(self, since: int, until: int) -> Instant | None:
        """Return the first message in ``[since, until]`` (ns) that tells of a cut of the response.

        That is a cancelled status, an interrupt of it or of all, or a flush that took some of it.
        What comes after an end of its own, and takes nothing audible, cut nothing.
        """
        if self.ended is not None and self.is_natural_end:
            until = min(until, self.ended.at.at)
        signs = self._signs(with_flushes=self.is_cut)
        return _first(signs, since, until)

    def reacted(self, since: int, until: int) -> Instant | None:
        """Return the first message in ``[since, until]`` (ns) that tells of an interruption.

        It counts even where nothing was left to cut.
        """
        return _first(self._signs(with_flushes=True), since, until)

    def last_arrival(self) -> Edge | Undefined | None:
        """Return when its last audible sample arrived, whether that was heard or not.

        Undefined(corrupt_audio) where it could not be decoded; None if there is none.
        """
        gate = self.hearing.gate
        if isinstance(gate, Undefined):
            return None
        return last_audible([self.hearing.clean(message) for message in self.messages], gate)

    @property
    def _lost(self) -> Iterator[tuple[np.ndarray[tuple[int], np.dtype[np.int16]], int]]:
        own = {id(message) for message in self.messages}
        for piece in self.hearing.placed:
            if id(piece.audio) in own and piece.is_cut:
                pcm = self.hearing.clean(piece.audio).pcm
                yield pcm[piece.first + piece.n_played :], piece.audio.rate_hz

    def _signs(self, *, with_flushes: bool) -> Iterator[Instant]:
        name = self.segment.response_id
        for event in self.timeline.events:
            match event:
                case Interrupt() if event.response_id in (None, name):
                    yield event.at
                case ResponseEnded(status="cancelled") if event.response_id == name:
                    yield event.at
                case _:
                    pass
        if with_flushes:
            yield from (f.at for f in self.timeline.flushes if f.response_id in (None, name))


def _place(items: list[Segment] | list[AgentAudio], item: object) -> int:
    return next(i for i, other in enumerate(items) if other is item)


def _first(signs: Iterator[Instant], since: int, until: int) -> Instant | None:
    inside = (at for at in signs if at.hi >= since and at.at <= until)
    # Messages of one read share their stamp; what came before the last one is less well known.
    return min(inside, key=lambda at: (at.at, at.lo), default=None)
