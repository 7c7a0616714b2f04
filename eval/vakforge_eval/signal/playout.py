"""When the caller hears what arrived: playout models, the same code live and off line.

An arrival is an interval, and so is all that follows from it: a model moves the early bound, the
late bound and the estimate of its playhead side by side. Live an arrival is exact, and the three
are one.

`Fifo` never drops anything. `Live` drops silence while it holds too much, so that one stall does
not delay the rest of a call that never pauses. Whether its queue was too long can depend on where
in its interval an arrival lay. The estimate then decides what is heard, and the bounds cover both
ways: a later arrival makes no later playhead more than one block earlier (a block that it drops
and the other does not), so they neither miss the truth nor grow with the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.gate import Gate
from vakforge_eval.signal.pcm import FULL_SCALE
from vakforge_eval.timeline.call import AgentAudio, Flush
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant, samples_to_ns

__all__ = ["Fifo", "Live", "Piece", "Placed", "PlayoutModel", "place"]

Pcm = npt.NDArray[np.int16]
S = TypeVar("S")

BLOCK_MS = 10
SURPLUS_NS = 60 * NS_PER_MS
"""What a live player holds beyond its buffer before it drops silence."""
LONGEST_FRAME_NS = 500 * NS_PER_MS
"""A message up to this is one frame of its sender, and no surplus by its own length alone."""


class Piece(NamedTuple, Generic[S]):
    """Samples ``[first, first + n)`` of what was pushed as `source`, heard in one go."""

    source: S
    first: int
    n: int
    start: Instant


class PlayoutModel(Protocol[S]):
    """A queue in front of a loudspeaker.

    Attributes
    ----------
    text
        The model in words, for whoever reads a number that depends on it.
    """

    text: ClassVar[str]

    @property
    def drained_at(self) -> int:
        """When the queue runs empty if nothing more comes (ns)."""
        ...

    def push(self, source: S, arrival: Instant, pcm: Pcm, rate_hz: int) -> list[Piece[S]]:
        """Queue audio that arrived; return what can be placed now, of it or of what came before."""
        ...

    def settle(self) -> list[Piece[S]]:
        """Place what was held back, as if nothing more came."""
        ...

    def flush(self, at: Instant) -> None:
        """Empty the queue: what plays later than `at` is gone. Settle first."""
        ...


class _Playhead:
    """Where the next audio begins: ``max(arrival + buffer, end of what was placed last)``."""

    def __init__(self, buffer_ns: int) -> None:
        self.buffer_ns = buffer_ns
        self.end: Instant | None = None

    def next(self, arrival: Instant) -> Instant:
        due = arrival.shifted(self.buffer_ns) if self.buffer_ns else arrival
        return due if self.end is None else _later(due, self.end)

    def take(self, arrival: Instant, duration_ns: int) -> Instant:
        start = self.next(arrival)
        self.end = start.shifted(duration_ns)
        return start

    def add(self, duration_ns: int) -> None:
        if self.end is not None:
            self.end = self.end.shifted(duration_ns)

    def flush(self, at: Instant) -> None:
        if self.end is not None:
            self.end = _sooner(self.end, at)


class Fifo(Generic[S]):
    """First in, first out: ``playhead = max(arrival + buffer, end of the previous chunk)``.

    Parameters
    ----------
    buffer_ns
        Fixed delay of the caller's device; 0 plays at once.
    """

    text: ClassVar[str] = "fifo, buffer 0 ms, emptied by a flush"

    def __init__(self, buffer_ns: int = 0) -> None:
        self._head = _Playhead(buffer_ns)

    @property
    def drained_at(self) -> int:
        """When the queue runs empty (ns); 0 before the first audio, which is always past."""
        return self._head.end.at if self._head.end is not None else 0

    def push(self, source: S, arrival: Instant, pcm: Pcm, rate_hz: int) -> list[Piece[S]]:
        """Queue audio that arrived; return it as one piece."""
        return [
            Piece(source, 0, len(pcm), self._head.take(arrival, samples_to_ns(len(pcm), rate_hz)))
        ]

    def settle(self) -> list[Piece[S]]:
        """Return nothing: no audio is ever held back."""
        return []

    def flush(self, at: Instant) -> None:
        """Empty the queue: what plays later than `at` is gone."""
        self._head.flush(at)


@dataclass(frozen=True, slots=True)
class _Part(Generic[S]):
    """What one push brought of a block."""

    source: S
    first: int
    pcm: Pcm
    arrival: Instant


class Live(Generic[S]):
    """First in, first out, but silence is dropped while more than buffer + 60 ms wait.

    The stream is cut into blocks of 10 ms, wherever its messages end. A block is dropped if its
    level is below the gate at which speech may end, and if so much was still to be played when its
    last sample came; speech never is. A message longer than 60 ms counts as what its sender sends
    at a time: up to 0.5 s of it is no surplus. The part of a block that came first is held back
    while the block may still be dropped, which is long before it is due.

    Parameters
    ----------
    gate
        May be set anew at any time; audio above it is kept.
    buffer_ns
        Fixed delay of the caller's device; 0 plays at once.

    Source: metrics definition "Heard".
    """

    text: ClassVar[str] = (
        "live, buffer 0 ms, 10 ms blocks below the gate dropped while more than 60 ms wait, "
        "emptied by a flush"
    )

    def __init__(self, gate: Gate, buffer_ns: int = 0) -> None:
        self.gate = gate
        self._head = _Playhead(buffer_ns)
        self._rate_hz = 0
        self._block = 1
        self._n_seen = 0
        """Samples of the current block that have come."""
        self._is_kept = False
        """Whether the first of them have been placed, so that the rest is too."""
        self._held: list[_Part[S]] = []
        self._limit_ns = 0
        """How much may wait without the held block being too much."""

    @property
    def drained_at(self) -> int:
        """When what was placed so far has been heard (ns); 0 before the first audio."""
        return self._head.end.at if self._head.end is not None else 0

    def push(self, source: S, arrival: Instant, pcm: Pcm, rate_hz: int) -> list[Piece[S]]:
        """Queue audio that arrived; return the pieces that are surely heard by now."""
        placed: list[Piece[S]] = []
        if rate_hz != self._rate_hz:
            placed += self.settle()
            self._rate_hz, self._block = rate_hz, round(BLOCK_MS * rate_hz / 1000)
            self._n_seen, self._is_kept = 0, False
        duration = samples_to_ns(len(pcm), rate_hz)
        limit = self.surplus_ns(duration)
        if not self._held and self._waits(arrival) + duration <= limit:
            self._n_seen = (self._n_seen + len(pcm)) % self._block
            self._is_kept = self._n_seen > 0
            if len(pcm):
                start = self._head.take(arrival, duration)
                placed.append(Piece(source, 0, len(pcm), start))
            return placed
        first = 0
        while first < len(pcm):
            n = min(self._block - self._n_seen, len(pcm) - first)
            part = _Part(source, first, pcm[first : first + n], arrival)
            placed += self._take(part, limit)
            first += n
        return _joined(placed, rate_hz)

    @property
    def is_holding(self) -> bool:
        """Whether audio is held back."""
        return bool(self._held)

    def surplus_ns(self, duration_ns: int) -> int:
        """Return how much may wait, a message that lasts so long included, before any is dropped.

        Up to this a message is queued whole, if nothing is held back.
        """
        return self._head.buffer_ns + max(SURPLUS_NS, min(duration_ns, LONGEST_FRAME_NS))

    def add_whole(self, n_samples: int, duration_ns: int) -> None:
        """Note audio that was queued whole, each message right behind what waited."""
        self._n_seen = (self._n_seen + n_samples) % self._block
        self._is_kept = self._n_seen > 0
        self._head.add(duration_ns)

    def settle(self) -> list[Piece[S]]:
        """Place what was held back."""
        held, self._held = self._held, []
        self._limit_ns = 0
        self._is_kept = self._is_kept or bool(held)
        return [self._place(part) for part in held]

    def flush(self, at: Instant) -> None:
        """Empty the queue: what plays later than `at` is gone."""
        self._head.flush(at)

    def _waits(self, arrival: Instant) -> int:
        """Return how long at most it takes until what arrives can begin to be heard (ns)."""
        end, buffer_ns = self._head.end, self._head.buffer_ns
        return buffer_ns if end is None else max(buffer_ns, end.hi - arrival.lo)

    def _take(self, part: _Part[S], limit: int) -> list[Piece[S]]:
        """Take in a part of the current block, which ends in it or goes on after it."""
        self._n_seen = (self._n_seen + len(part.pcm)) % self._block
        self._held.append(part)
        self._limit_ns = max(self._limit_ns, limit)
        placed: list[Piece[S]] = []
        if self._is_kept or self._waits(part.arrival) <= self._limit_ns:
            placed = self.settle()
        elif self._n_seen == 0:
            placed = self._judge()
        if self._n_seen == 0:
            self._is_kept = False
        return placed

    def _judge(self) -> list[Piece[S]]:
        """Drop or place the whole block that is held and may be too much."""
        end, came, limit = self._head.end, self._held[-1].arrival, self._limit_ns
        block = np.concatenate([part.pcm for part in self._held])
        if end is None or not _is_below(block, self.gate.off_dbfs):
            return self.settle()
        if end.lo - came.hi > limit:
            self._held, self._limit_ns = [], 0
            return []
        # It may have been kept, if no more waited than allowed, or dropped, if more did.
        most = min(end.hi, came.hi + limit)
        self._head.end = Instant(end.lo, most, min(end.at, most))
        placed = self.settle()
        kept = self._head.end
        is_dropped = end.at - came.at > limit
        self._head.end = Instant(
            min(kept.lo, max(end.lo, came.lo + limit)),
            max(kept.hi, end.hi),
            end.at if is_dropped else kept.at,
        )
        return [] if is_dropped else placed

    def _place(self, part: _Part[S]) -> Piece[S]:
        n = len(part.pcm)
        start = self._head.take(part.arrival, samples_to_ns(n, self._rate_hz))
        return Piece(part.source, part.first, n, start)


def _is_below(block: Pcm, dbfs: float) -> bool:
    """Whether the RMS level of `block`, its mean removed, is below `dbfs`; exact, on integers."""
    x = block.astype(np.int64)
    energy = len(x) * int(x @ x) - int(np.sum(x)) ** 2
    return energy < (len(x) * FULL_SCALE) ** 2 * 10 ** (dbfs / 10)


def _joined(pieces: Sequence[Piece[S]], rate_hz: int) -> list[Piece[S]]:
    """Return the pieces with those made one that are heard without a seam."""
    out: list[Piece[S]] = []
    for piece in pieces:
        if out and _follows(out[-1], piece, rate_hz):
            last = out.pop()
            piece = Piece(last.source, last.first, last.n + piece.n, last.start)
        out.append(piece)
    return out


def _follows(last: Piece[S], piece: Piece[S], rate_hz: int) -> bool:
    is_next = last.source is piece.source and last.first + last.n == piece.first
    return is_next and last.start.shifted(samples_to_ns(last.n, rate_hz)) == piece.start


@dataclass(frozen=True, slots=True)
class Placed:
    """A stretch of one message of agent audio as heard.

    Samples ``[first, first + n_played)`` of it are heard, from `start` to `end`. A model that
    drops silence can place a message in several pieces. One that is not heard at all has
    ``n_played == 0`` and starts and ends where it would have begun.

    Attributes
    ----------
    is_cut
        Whether a flush took some of it away.
    """

    audio: AgentAudio
    start: Instant
    end: Instant
    n_played: int
    first: int = 0
    is_cut: bool = False

    @property
    def pcm(self) -> Pcm:
        """The samples that are heard."""
        return self.audio.pcm[self.first : self.first + self.n_played]

    @property
    def arrival(self) -> Instant:
        """When its first sample came: the arrival of the message + the offset inside of it."""
        return self.audio.arrival.shifted(samples_to_ns(self.first, self.audio.rate_hz))


def place(
    audio: Sequence[AgentAudio],
    flushes: Sequence[Flush],
    model: Callable[[], PlayoutModel[AgentAudio]] = Fifo,
) -> list[Placed]:
    """Return when each message of `audio` (in order of arrival) is heard.

    A flush empties the whole queue at its instant. After it no more audio is heard of the response
    it names, nor of one whose queued audio it cut; a flush that names none (None) silences every
    response that had begun to arrive. Audio without a response id plays again after a flush, since
    nothing tells whether it is late. What came first, flush or message, is told by the order of the
    wire, or where that is not known by arrival; at equal instants the flush is first.

    Source: metrics definition "Heard".
    """
    room = _Room(model())
    waiting = sorted(flushes, key=lambda flush: flush.at.at)
    done = 0
    for message in audio:
        while done < len(waiting) and _is_first(waiting[done], message):
            room.flush(waiting[done].at, waiting[done].response_id)
            done += 1
        room.push(message)
    for flush in waiting[done:]:
        room.flush(flush.at, flush.response_id)
    room.settle()
    return room.placed


def _is_first(flush: Flush, message: AgentAudio) -> bool:
    if flush.seq is not None and message.seq >= 0:
        return flush.seq < message.seq
    return flush.at.at <= message.arrival.at


def _later(a: Instant, b: Instant) -> Instant:
    if a.lo >= b.lo and a.hi >= b.hi and a.at >= b.at:
        return a
    if b.lo >= a.lo and b.hi >= a.hi and b.at >= a.at:
        return b
    return Instant(max(a.lo, b.lo), max(a.hi, b.hi), max(a.at, b.at))


def _sooner(a: Instant, b: Instant) -> Instant:
    return Instant(min(a.lo, b.lo), min(a.hi, b.hi), min(a.at, b.at))


class _Room:
    def __init__(self, model: PlayoutModel[AgentAudio]) -> None:
        self._model = model
        self._begun: set[str] = set()
        """Responses since the last flush of all, which silenced those before."""
        self._silenced: set[str] = set()
        self._queue: list[int] = []
        self.placed: list[Placed] = []

    def push(self, audio: AgentAudio) -> None:
        when, response = audio.arrival, audio.response_id
        if response in self._silenced:
            self.placed.append(Placed(audio, when, when, 0, is_cut=len(audio.pcm) > 0))
            return
        if response is not None:
            self._begun.add(response)
        pieces = self._model.push(audio, when, audio.pcm, audio.rate_hz)
        self._add(pieces)
        if audio.is_corrupt and all(piece.source is not audio for piece in pieces):
            # What could not be decoded spoils its neighbours, heard or not.
            self.placed.append(Placed(audio, when, when, 0))

    def settle(self) -> None:
        self._add(self._model.settle())

    def _add(self, pieces: Sequence[Piece[AgentAudio]]) -> None:
        for piece in pieces:
            end = piece.start.shifted(samples_to_ns(piece.n, piece.source.rate_hz))
            self._queue.append(len(self.placed))
            self.placed.append(Placed(piece.source, piece.start, end, piece.n, piece.first))

    def flush(self, at: Instant, response_id: str | None) -> None:
        self.settle()
        if response_id is None:
            self._silenced |= self._begun
            self._begun.clear()
        else:
            self._silenced.add(response_id)
        # Back to what had been heard whole; what is cut here is at its end by then, so each message
        # is looked at once or twice, however many flushes come.
        while self._queue and self.placed[self._queue[-1]].end.at > at.at:
            self._cut(self._queue.pop(), at)
        self._model.flush(at)

    def _cut(self, i: int, at: Instant) -> None:
        whole = self.placed[i]
        if whole.audio.response_id is not None:
            self._silenced.add(whole.audio.response_id)
        played_ns = max(0, at.at - whole.start.at)
        n = min(whole.n_played, played_ns * whole.audio.rate_hz // NS_PER_S)
        # The silence begins with the flush and has its error.
        end = at if n else whole.start
        is_cut = whole.is_cut or n < whole.n_played
        self.placed[i] = Placed(whole.audio, whole.start, end, n, whole.first, is_cut)
