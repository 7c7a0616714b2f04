"""What is known of each response: when it began, what it said, how it ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from vakforge_eval.signal.playout import Placed
from vakforge_eval.timeline.call import AgentAudio, CallTimeline
from vakforge_eval.timeline.events import (
    Interrupt,
    ResponseEnded,
    ResponseStarted,
    TextDelta,
)
from vakforge_eval.timeline.instant import Instant

__all__ = ["Response", "collect_responses"]


@dataclass(slots=True)
class Response:
    """One response of the agent; audio and text without an id make up the response None.

    Attributes
    ----------
    messages, texts
        Its messages that hold audio and its non-empty pieces of text, in order of arrival.
    ended
        When the server called it ended.
    cancelled
        First evidence that it was cut: a cancelled status, an interrupt, a flush of its audio.
    is_cut
        Whether a flush took some of its audio away.
    """

    response_id: str | None
    started: Instant | None = None
    ended: Instant | None = None
    cancelled: Instant | None = None
    is_cut: bool = False
    messages: list[AgentAudio] = field(default_factory=list)
    texts: list[TextDelta] = field(default_factory=list)

    @property
    def born(self) -> Instant | None:
        """The first sign of it: its start, else its first text or audio."""
        first = [m.arrival for m in self.messages[:1]] + [t.at for t in self.texts[:1]]
        return self.started or min(first, key=lambda at: at.at, default=None)

    def cancel(self, at: Instant) -> None:
        """Note evidence of a cut; the earliest stands."""
        # Messages of one read share their stamp; what came before the last one is less well known.
        if self.cancelled is None or (at.at, at.lo) < (self.cancelled.at, self.cancelled.lo):
            self.cancelled = at


def collect_responses(
    timeline: CallTimeline, placed: Sequence[Placed]
) -> dict[str | None, Response]:
    """Return the call's responses by id, in order of their first sign."""
    found: dict[str | None, Response] = {}
    for event in sorted(timeline.events, key=lambda e: e.at.at):
        match event:
            case ResponseStarted():
                response = _of(found, event.response_id)
                response.started = response.started or event.at
            case TextDelta() if event.text:
                _of(found, event.response_id).texts.append(event)
            case ResponseEnded():
                _end(_of(found, event.response_id), event)
            case _:
                pass
    for message in timeline.audio:
        response = _of(found, message.response_id)
        # A message without a sample is no audio: it would make a late reply look early.
        if len(message.pcm) or message.is_corrupt:
            response.messages.append(message)
    for piece in placed:
        if piece.is_cut:
            _of(found, piece.audio.response_id).is_cut = True
    _note_cuts(timeline, found)
    return dict(sorted(found.items(), key=_first_sign))


def _of(found: dict[str | None, Response], response_id: str | None) -> Response:
    return found.setdefault(response_id, Response(response_id))


def _end(response: Response, event: ResponseEnded) -> None:
    if response.ended is None:
        response.ended = event.at
    if event.status == "cancelled":
        response.cancel(event.at)


def _note_cuts(timeline: CallTimeline, found: dict[str | None, Response]) -> None:
    """Note interrupts by name, and flushes that cost a response some of its audio."""
    told = [(e.at, e.response_id) for e in timeline.events if isinstance(e, Interrupt)]
    told += [(flush.at, flush.response_id) for flush in timeline.flushes]
    for at, response_id in told:
        if response_id is not None and response_id in found:
            found[response_id].cancel(at)
    of_all = sorted((at for at, response_id in told if response_id is None), key=_at)
    for response in found.values():
        if response.is_cut and response.born is not None:
            first = bisect_left(of_all, response.born.at, key=_at)
            if first < len(of_all):
                response.cancel(of_all[first])


def _at(instant: Instant) -> int:
    return instant.at


def _first_sign(item: tuple[str | None, Response]) -> tuple[int, str]:
    born = item[1].born
    return (0 if born is None else born.at, item[0] or "")
