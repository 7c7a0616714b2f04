"""What every client codec does with what it is sent: bounds it, and ends at the first breach."""

from __future__ import annotations

from collections.abc import Callable

from vakforge_eval.signal.pcm import CODECS
from vakforge_eval.timeline.events import AudioChunk, Event, Fault, TextDelta, UserTranscript
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.strict import LimitExceeded, StrictError, excerpt

__all__ = ["Intake"]


class Intake:
    """Takes the messages of one call, within its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._n_events = self._n_chars = 0
        self._audio_s = 0.0
        self._is_dead = False

    def take(
        self, data: Wire, at: Instant, read: Callable[[Wire, Instant], list[Event]]
    ) -> list[Event]:
        """Return the events that `read` finds in one message.

        A breach, which `read` raises as a `StrictError`, is a `Fault`, after which nothing comes.
        """
        if self._is_dead:
            return []
        try:
            events = read(data, at)
            self._count(events)
        except StrictError as error:
            self._is_dead = True
            limit = error.limit if isinstance(error, LimitExceeded) else None
            return [Fault(at=at, what=error.what, excerpt=excerpt(data), limit=limit)]
        return events

    def _count(self, events: list[Event]) -> None:
        self._n_events += max(1, len(events))
        for event in events:
            if isinstance(event, TextDelta | UserTranscript):
                self._n_chars += len(event.text)
            elif isinstance(event, AudioChunk) and event.codec in CODECS:
                # Of a codec without samples of a fixed size only the bytes of a call are bounded.
                self._audio_s += len(event.data) / (CODECS[event.codec][0] * event.rate_hz)
        if self._n_events > self._limits.max_events:
            raise LimitExceeded("max_events")
        if self._n_chars > self._limits.max_text_chars:
            raise LimitExceeded("max_text_chars")
        if self._audio_s > self._limits.max_audio_s:
            raise LimitExceeded("max_audio_s")
