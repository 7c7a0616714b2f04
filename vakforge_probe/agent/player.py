"""What was sent, and when a caller's player sounds it: the playout model written a second time.

It is apart from the probe's on purpose, so that an error in either shows.
"""

from __future__ import annotations

from typing import NamedTuple

from vakforge_eval.timeline.instant import Instant, samples_to_ns

__all__ = ["AudioSent", "Playout", "TextSent"]


class AudioSent(NamedTuple):
    """One audio message: samples [first, first + n) of response `tag` (None: between responses).

    `late_ns` is how much later it was sent than the agent meant to.
    """

    at: Instant
    tag: str | None
    first: int
    n: int
    late_ns: int = 0


class TextSent(NamedTuple):
    """One text message."""

    at: Instant
    late_ns: int = 0


class Playout:
    """A player that plays what arrives in order, and drops all it holds on a flush."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._flushed: set[str] = set()
        self._known: set[str] = set()
        self.drained_at = 0
        self.played: list[tuple[AudioSent, int, int]] = []
        """Each message with when it began to sound and when it ended or was cut (ns)."""

    def push(self, sent: AudioSent, arrival: int) -> None:
        """Queue a message that arrived at `arrival`."""
        if sent.tag is not None:
            if sent.tag in self._flushed:
                return
            self._known.add(sent.tag)
        start = max(arrival, self.drained_at)
        self.drained_at = start + samples_to_ns(sent.n, self._rate_hz)
        self.played.append((sent, start, self.drained_at))

    def flush(self, at: int) -> None:
        """Drop what has not sounded by `at`; later audio of the same responses never sounds."""
        self._flushed |= self._known
        while self.played and self.played[-1][1] >= at:
            self.played.pop()
        if self.played and self.played[-1][2] > at:
            sent, start, _ = self.played[-1]
            self.played[-1] = (sent, start, at)
        self.drained_at = min(self.drained_at, at)
