"""The moments of a turn between which its latencies run, each found once.

A moment that never came is None here; *why* is the business of `TurnView.missing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from vakforge_eval.metrics.responses import Response
from vakforge_eval.metrics.segments import Segment
from vakforge_eval.metrics.turns import Turn
from vakforge_eval.timeline.call import AgentAudio, CallTimeline
from vakforge_eval.timeline.events import SpeechStopped, TextDelta
from vakforge_eval.timeline.instant import NS_PER_MS, Edge, Instant

__all__ = ["SPEECH_STRETCH_NS", "Anchors", "find_anchors", "results_of"]

SPEECH_STRETCH_NS = 400 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Anchors:
    """Moments of one turn; ``*_audible`` by arrival, ``*_heard`` by the playout model.

    `messages` are the audio messages of the response that the latencies use.
    """

    user_end: Instant
    first_text: Instant | None = None
    first_audio: Instant | None = None
    last_audio: Instant | None = None
    first_audible: Edge | None = None
    first_heard: Edge | None = None
    first_speech: Edge | None = None
    answer: Edge | None = None
    last_heard: Edge | None = None
    endpoint: SpeechStopped | None = None
    messages: tuple[AgentAudio, ...] = ()

    def instants(self) -> Iterable[Instant]:
        """Return the moments that were found, without their detection error."""
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if isinstance(value, Instant):
                yield value
            elif isinstance(value, Edge):
                yield value.when
            elif isinstance(value, SpeechStopped):
                yield value.at


def find_anchors(
    timeline: CallTimeline, turn: Turn, responses: dict[str | None, Response]
) -> Anchors:
    """Return the anchors of `turn`; those of the reply use the response heard first.

    What may be the rest of older speech anchors nothing.
    """
    endpoint = _endpoint(timeline, turn)
    first = turn.first_reply
    if first is None:
        response = turn.unheard[0] if turn.unheard else None
        if response is None:
            return Anchors(turn.end, endpoint=endpoint)
        return _with_messages(turn, response, tuple(response.messages), endpoint)
    if first.is_untold:
        return Anchors(turn.end, endpoint=endpoint)
    segment = first.segment
    response = responses[segment.response_id]
    messages = tuple(response.messages)
    if segment.response_id is None:
        # Without ids a response is told by the silence around it and by when it came.
        since = (turn.start if first.is_early else turn.end).at
        messages = tuple(m for m in segment.messages if m.arrival.at >= since) or (
            segment.messages[-1],
        )
    base = _with_messages(turn, response, messages, endpoint, is_early=first.is_early)
    reply = turn.reply
    long_enough = (s for s in reply if s.duration_ns >= SPEECH_STRETCH_NS)
    return Anchors(
        user_end=turn.end,
        first_text=base.first_text,
        first_audio=base.first_audio,
        last_audio=base.last_audio,
        first_audible=None if segment.start_fault else segment.arrival_start,
        first_heard=_start(segment),
        first_speech=_start(next(long_enough, None)),
        answer=_start(_answer(timeline, turn, reply)),
        last_heard=_end(max(reply, key=lambda s: s.end.when.at)),
        endpoint=endpoint,
        messages=messages,
    )


def _with_messages(
    turn: Turn,
    response: Response,
    messages: tuple[AgentAudio, ...],
    endpoint: SpeechStopped | None,
    *,
    is_early: bool = False,
) -> Anchors:
    texts = response.texts
    if response.response_id is None:
        since = (turn.start if is_early else turn.end).at
        texts = [t for t in texts if since <= t.at.at < turn.closes]
    first_text: TextDelta | None = texts[0] if texts else None
    return Anchors(
        user_end=turn.end,
        first_text=first_text.at if first_text else None,
        first_audio=messages[0].arrival if messages else None,
        last_audio=messages[-1].arrival if messages else None,
        endpoint=endpoint,
        messages=messages,
    )


def results_of(timeline: CallTimeline, turn: Turn) -> list[Instant]:
    """Return when tool results of the turn were sent, in order."""
    inside = (r.at for r in timeline.tool_results if turn.start.at <= r.at.at < turn.closes)
    return sorted(inside, key=lambda at: at.at)


def _start(segment: Segment | None) -> Edge | None:
    return None if segment is None or segment.start_fault else segment.start


def _end(segment: Segment) -> Edge | None:
    return None if segment.end_fault else segment.end


def _answer(timeline: CallTimeline, turn: Turn, reply: list[Segment]) -> Segment | None:
    """Return the first segment after the last tool result; before it is filler."""
    results = results_of(timeline, turn)
    since = results[-1].at if results else None
    return next((s for s in reply if since is None or s.start.when.at > since), None)


def _endpoint(timeline: CallTimeline, turn: Turn) -> SpeechStopped | None:
    """Return the end-of-speech event that closed the turn.

    It is the first one after the user's last voiced stretch began; an endpoint taken in a pause
    before that counts only if none followed.
    """
    events = [
        e
        for e in timeline.events
        if isinstance(e, SpeechStopped) and turn.start.at <= e.at.at < turn.closes
    ]
    voiced = [span for u in turn.utterances for span in u.voiced]
    last_start = voiced[-1][0].at if voiced else turn.start.at
    final = next((e for e in events if e.at.at >= last_start), None)
    return final or (events[-1] if events else None)
