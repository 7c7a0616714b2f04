"""When the caller hears what arrived: playout models, live and off line.

A model works on plain nanoseconds. Off line an arrival is an interval, and three copies of the
model run side by side, fed with all early bounds, all estimates and all late bounds: a model whose
starts never get earlier when an arrival gets later turns bounds into bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vakforge_eval.timeline.call import AgentAudio, Flush
from vakforge_eval.timeline.instant import NS_PER_S, Instant

__all__ = ["Fifo", "Placed", "PlayoutModel", "place"]


class PlayoutModel(Protocol):
    """A queue in front of a loudspeaker, monotone in its arrivals."""

    @property
    def drained_at(self) -> int:
        """When the queue runs empty if nothing more comes (ns)."""
        ...

    def push(self, arrival_ns: int, duration_ns: int) -> int:
        """Queue audio that arrived; return when it begins to play (ns)."""
        ...

    def flush(self, at_ns: int) -> None:
        """Empty the queue: what plays later than `at_ns` is gone."""
        ...


class Fifo:
    """First in, first out: ``playhead = max(arrival + buffer, end of the previous chunk)``.

    Parameters
    ----------
    buffer_ns
        Fixed delay of the caller's device; 0 plays at once.
    """

    def __init__(self, buffer_ns: int = 0) -> None:
        self._buffer_ns = buffer_ns
        self._playhead: int | None = None

    @property
    def drained_at(self) -> int:
        """When the queue runs empty (ns); 0 before the first audio, which is always past."""
        return self._playhead or 0

    def push(self, arrival_ns: int, duration_ns: int) -> int:
        """Queue audio that arrived; return when it begins to play (ns)."""
        start = arrival_ns + self._buffer_ns
        if self._playhead is not None:
            start = max(start, self._playhead)
        self._playhead = start + duration_ns
        return start

    def flush(self, at_ns: int) -> None:
        """Empty the queue: what plays later than `at_ns` is gone."""
        if self._playhead is not None:
            self._playhead = min(self._playhead, at_ns)


@dataclass(frozen=True, slots=True)
class Placed:
    """One message of agent audio as heard.

    The first `n_played` samples are heard, from `start` to `end`; the rest was flushed. A message
    that is not heard at all has ``n_played == 0`` and starts and ends where it would have begun.
    """

    audio: AgentAudio
    start: Instant
    end: Instant
    n_played: int

    @property
    def is_cut(self) -> bool:
        """Whether a flush took some of it away."""
        return self.n_played < len(self.audio.pcm)


def place(
    audio: Sequence[AgentAudio],
    flushes: Sequence[Flush],
    model: Callable[[], PlayoutModel] = Fifo,
) -> list[Placed]:
    """Return when each message of `audio` (in order of arrival) is heard.

    A flush empties the whole queue at its instant. After it no more audio is heard of the response
    it names, nor of one whose queued audio it cut; a flush that names none (None) silences every
    response that had begun to arrive. Audio without a response id plays again after a flush, since
    nothing tells whether it is late. What came first, flush or message, is told by the order of the
    wire, or where that is not known by arrival; at equal instants the flush is first.

    Source: metrics definition "Heard".
    """
    room = _Room(model)
    waiting = sorted(flushes, key=lambda flush: flush.at.at)
    done = 0
    for message in audio:
        while done < len(waiting) and _is_first(waiting[done], message):
            room.flush(waiting[done].at, waiting[done].response_id)
            done += 1
        room.push(message)
    for flush in waiting[done:]:
        room.flush(flush.at, flush.response_id)
    return room.placed


def _is_first(flush: Flush, message: AgentAudio) -> bool:
    if flush.seq is not None and message.seq >= 0:
        return flush.seq < message.seq
    return flush.at.at <= message.arrival.at


class _Room:
    def __init__(self, model: Callable[[], PlayoutModel]) -> None:
        self._lo, self._hi, self._at = model(), model(), model()
        self._begun: set[str] = set()
        self._silenced: set[str] = set()
        self._queue: list[int] = []
        self.placed: list[Placed] = []

    def push(self, audio: AgentAudio) -> None:
        when, response = audio.arrival, audio.response_id
        if response in self._silenced:
            self.placed.append(Placed(audio, when, when, 0))
            return
        if response is not None:
            self._begun.add(response)
        length = audio.duration_ns
        start = Instant(
            self._lo.push(when.lo, length),
            self._hi.push(when.hi, length),
            self._at.push(when.at, length),
        )
        self._queue.append(len(self.placed))
        self.placed.append(Placed(audio, start, start.shifted(length), len(audio.pcm)))

    def flush(self, at: Instant, response_id: str | None) -> None:
        self._silenced |= self._begun if response_id is None else {response_id}
        # Back to what had been heard whole; what is cut here is at its end by then, so each message
        # is looked at once or twice, however many flushes come.
        while self._queue and self.placed[self._queue[-1]].end.at > at.at:
            self._cut(self._queue.pop(), at)
        self._lo.flush(at.lo)
        self._hi.flush(at.hi)
        self._at.flush(at.at)

    def _cut(self, i: int, at: Instant) -> None:
        whole = self.placed[i]
        if whole.audio.response_id is not None:
            self._silenced.add(whole.audio.response_id)
        played_ns = max(0, at.at - whole.start.at)
        n = min(whole.n_played, played_ns * whole.audio.rate_hz // NS_PER_S)
        # The silence begins with the flush and has its error.
        end = at if n else whole.start
        self.placed[i] = Placed(whole.audio, whole.start, end, n)
