"""Whether the names that audio carries are those of responses.

A name that is none would mislead every rule that goes by the response: what goes on and what is
new, what is late, what is cut. Audio with such names is taken for audio without any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from vakforge_eval.signal.activity import END_SILENCE_MS
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.events import Event, ResponseEnded, ResponseStarted
from vakforge_eval.timeline.instant import NS_PER_MS

__all__ = ["with_response_names"]

_PAUSE_NS = END_SILENCE_MS * NS_PER_MS
_SHARE = 0.75


def with_response_names(timeline: CallTimeline) -> CallTimeline:
    """Return `timeline`, without the names of responses where they are names of something else.

    That is a continuous stream all of whose audio has one name, which is the stream's; and audio
    three quarters of whose names hold less than 350 ms, each with the next name less than 350 ms
    behind it, and none of them told to begin or to end: those are names of messages.
    """
    if not (_is_one_stream(timeline) or _are_of_messages(timeline)):
        return timeline
    return replace(
        timeline,
        capabilities=replace(timeline.capabilities, response_ids=False),
        audio=tuple(replace(message, response_id=None) for message in timeline.audio),
        events=tuple(_unnamed(event) for event in timeline.events),
        flushes=tuple(replace(flush, response_id=None) for flush in timeline.flushes),
    )


def _is_one_stream(timeline: CallTimeline) -> bool:
    names = {message.response_id for message in timeline.audio}
    return (
        timeline.capabilities.continuous_stream
        and len(names) == 1
        and None not in names
        # What came of a response after it was called cancelled is late.
        and not any(
            isinstance(event, ResponseEnded)
            and event.status == "cancelled"
            and event.response_id in names
            and event.at.at < timeline.audio[-1].arrival.at
            for event in timeline.events
        )
    )


@dataclass(slots=True)
class _Name:
    """How long the audio of a name lasts, and when its first and last message came (ns)."""

    first: int
    last: int
    lasts: int = 0


def _are_of_messages(timeline: CallTimeline) -> bool:
    found: dict[str, _Name] = {}
    for message in timeline.audio:
        if message.response_id is not None and len(message.pcm):
            at = message.arrival.at
            name = found.setdefault(message.response_id, _Name(at, at))
            name.last = at
            name.lasts += message.duration_ns
    short = [
        name
        for name, after in pairwise(found.values())
        if name.lasts < _PAUSE_NS and after.first - name.last < _PAUSE_NS
    ]
    # What is told to begin or to end is a response, however short.
    is_told = any(
        isinstance(event, (ResponseStarted, ResponseEnded)) and event.response_id in found
        for event in timeline.events
    )
    return bool(short) and len(short) >= _SHARE * len(found) and not is_told


def _unnamed(event: Event) -> Event:
    # Only some kinds of events have the field.
    if getattr(event, "response_id", None) is None:
        return event
    fields: dict[str, Any] = {"response_id": None}
    return replace(event, **fields)
