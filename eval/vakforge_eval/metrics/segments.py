"""Stretches of audio without a hole, the speech in them, and when each sample of it was heard.

Speech is searched in the native samples of each response (its *islands*: stretches without a hole
of 350 ms or more), before any resampling. A smaller hole is an underrun: it delays what comes after
it and is left out of the search, so that neither the 0.1 ms holes of an agent with a slow clock
nor a late second message change where speech is found. A found sample is then mapped back through
its own message: to when it is **heard**, and to when it **arrived**.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from vakforge_eval.metrics.unecho import LIKE_MS, Unechoed
from vakforge_eval.signal.activity import END_SILENCE_MS, Span, find_spans
from vakforge_eval.signal.codecs import SMEAR_MS
from vakforge_eval.signal.gate import Gate
from vakforge_eval.signal.playout import Placed
from vakforge_eval.signal.underlay import over_underlay
from vakforge_eval.timeline.call import AgentAudio, Flush
from vakforge_eval.timeline.instant import NS_PER_MS, Edge, Instant, samples_to_ns
from vakforge_eval.timeline.values import Reason, Undefined

__all__ = ["SOFT_EDGE_NS", "Island", "Segment", "find_islands", "last_audible"]

SOFT_EDGE_NS = 50 * NS_PER_MS
"""An edge that moves further with the gate is soft."""
_MAX_HOLE_NS = END_SILENCE_MS * NS_PER_MS
_VAD_TOLERANCE_NS = 100 * NS_PER_MS
_VAD_CONTEXT_S = 1.0
_WINDOW_NS = 10 * NS_PER_MS
_ROUNDING_NS = 1_000

Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Segment:
    """An audible stretch of one response.

    Attributes
    ----------
    start, end
        Its edges as heard.
    arrival_start
        When its first sample arrived: the arrival of its message + the offset inside of it.
    messages
        The messages that brought it, with the inaudible ones before it.
    is_cut
        Whether a flush ended it.
    is_start_corrupt, is_end_corrupt
        Whether audio at the edge, or right outside of it, could not be decoded.
    is_start_echo, is_end_echo
        Whether the caller's echo could not be told from the agent's speech there.
    is_witnessed
        Whether the second detector agrees on its start within 100 ms; None where not asked.
    """

    response_id: str | None
    start: Edge
    end: Edge
    arrival_start: Edge
    messages: tuple[AgentAudio, ...]
    is_cut: bool = False
    is_start_corrupt: bool = False
    is_end_corrupt: bool = False
    is_witnessed: bool | None = None
    is_start_echo: bool = False
    is_end_echo: bool = False

    @property
    def start_fault(self) -> Reason | None:
        """Why nothing can be said of its start; None where something can."""
        return _fault(is_corrupt=self.is_start_corrupt, is_echo=self.is_start_echo)

    @property
    def end_fault(self) -> Reason | None:
        """Why nothing can be said of its end; None where something can."""
        return _fault(is_corrupt=self.is_end_corrupt, is_echo=self.is_end_echo)

    @property
    def duration_ns(self) -> int:
        """How long it is heard."""
        return self.end.when.at - self.start.when.at

    @property
    def has_soft_edge(self) -> bool:
        """Whether an edge moves by more than 50 ms with the gate."""
        edges = (self.start, self.end)
        return any(e.detect_minus + e.detect_plus > SOFT_EDGE_NS for e in edges)


@dataclass(slots=True)
class Island:
    """Placed audio of one response without a hole.

    `offsets` are its pieces' first samples, `flush` is what took the rest of it away.
    """

    response_id: str | None
    rate_hz: int
    pieces: list[Placed] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    n_samples: int = 0
    drained_at: int = 0
    flush: Instant | None = None
    echoes: set[int] = field(default_factory=set)
    """Samples at which a run begins or ends because what lies beyond them may be an echo."""

    def takes(self, piece: Placed) -> bool:
        """Whether `piece` goes on where this one stops."""
        hole = piece.start.at - self.drained_at
        return piece.audio.rate_hz == self.rate_hz and hole < _MAX_HOLE_NS

    def add(self, piece: Placed) -> None:
        """Append `piece`."""
        self.offsets.append(self.n_samples)
        self.pieces.append(piece)
        self.n_samples = self.offsets[-1] + piece.n_played
        self.drained_at = piece.start.at + samples_to_ns(piece.n_played, self.rate_hz)

    def pcm(self) -> Pcm:
        """Return its samples without the holes between them."""
        return np.concatenate([piece.pcm for piece in self.pieces])

    def runs(self, gate: Gate) -> list[Span]:
        """Return where it is audible, with nothing joined."""
        pcm = self.pcm()
        runs = find_spans(pcm, self.rate_hz, gate, end_silence_ms=0)
        return [self._smeared(over_underlay(pcm, self.rate_hz, run)) for run in runs]

    def _smeared(self, run: Span) -> Span:
        """Return `run` with its true edges where they may have been before its codec had them."""
        before, after = SMEAR_MS.get(self.pieces[0].audio.codec, (0, 0))
        start, (start_lo, start_hi) = run.start, run.start_range
        start_hi = max(start_hi, min(start + before * self.rate_hz // 1000, run.end))
        end_lo = min(run.end_range[0], max(run.end - after * self.rate_hz // 1000, start))
        return replace(run, start_range=(start_lo, start_hi), end_range=(end_lo, run.end_range[1]))

    def without_echo(self, runs: Iterable[Span], unechoed: Unechoed) -> list[Span]:
        """Return the runs without what is left of the caller's echo at their ends."""
        step = LIKE_MS * self.rate_hz // 1000
        own: list[Span] = []
        for run in runs:
            start, end = run.start, run.end
            while start < end and self._is_echo(start, min(step, end - start), unechoed):
                start = min(end, start + step)
            while end > start and self._is_echo(max(start, end - step), step, unechoed):
                end = max(start, end - step)
            if start == end:
                continue
            if start != run.start:
                run = replace(run, start=start, start_range=(run.start_range[0], start))
                self.echoes.add(start)
            if end != run.end:
                run = replace(run, end=end, end_range=(end, run.end_range[1]))
                self.echoes.add(end)
            own.append(run)
        return own

    def _is_echo(self, sample: int, n: int, unechoed: Unechoed) -> bool:
        piece = self.pieces[self._piece_at(sample)]
        offset = piece.first + sample - self.offsets[self._piece_at(sample)]
        return unechoed.is_like_sent(piece.audio, offset, n)

    def sounds(self, runs: Iterable[Span]) -> list[tuple[Edge, Edge]]:
        """Return begin and end of each run as heard."""
        return [self._edges(run, self._piece_at(run.end - 1)) for run in runs]

    def segments(self, runs: Iterable[Span]) -> list[Segment]:
        """Return the segments that its runs make up."""
        pcm = self.pcm()
        found: list[Segment] = []
        first = 0
        for span in self._joined(runs):
            last = self._piece_at(span.end - 1)
            # Only the first stretch has a clean start for a detector that adapts to what it heard.
            witnessed = None if found else self._is_witnessed(pcm, span)
            found.append(self._segment(span, first, last, witnessed))
            first = last + 1
        return found

    def _joined(self, spans: Iterable[Span]) -> list[Span]:
        """Return the spans with gaps joined that are shorter than 350 ms *as heard*."""
        out: list[Span] = []
        for span in spans:
            if out and self._heard(span.start) - self._heard(out[-1].end - 1) < _MAX_HOLE_NS:
                last = out.pop()
                span = Span(last.start, span.end, last.start_range, span.end_range)
            out.append(span)
        return out

    def _heard(self, sample: int) -> int:
        piece = self._piece_at(sample)
        offset = samples_to_ns(sample - self.offsets[piece], self.rate_hz)
        return self.pieces[piece].start.at + offset

    def _piece_at(self, sample: int) -> int:
        return bisect_right(self.offsets, sample) - 1

    def _segment(self, span: Span, first: int, last: int, witnessed: bool | None) -> Segment:
        begin = self._piece_at(span.start)
        start, end = self._edges(span, last)
        return Segment(
            response_id=self.response_id,
            start=start,
            end=end,
            arrival_start=self._edge(_arrived_at, begin, span.start, span.start_range),
            messages=self._messages(min(first, begin), last),
            is_cut=self._cut_at(span, last) is not None,
            is_start_corrupt=self._is_corrupt(min(first, begin), begin),
            is_end_corrupt=self._is_corrupt(last, last + 1),
            is_witnessed=witnessed,
            is_start_echo=span.start in self.echoes,
            is_end_echo=span.end in self.echoes,
        )

    def _edges(self, span: Span, last: int) -> tuple[Edge, Edge]:
        """Return begin and end of a stretch as heard; piece `last` holds its end."""
        start = self._edge(_heard_at, self._piece_at(span.start), span.start, span.start_range)
        cut = self._cut_at(span, last)
        return start, cut or self._edge(_heard_at, last, span.end, span.end_range)

    def arrived_by(self, span: Span) -> Edge | Undefined:
        """Return when the last sample of `span` had arrived."""
        last = self._piece_at(span.end - 1)
        if self._is_corrupt(last, last + 1):
            return Undefined(Reason.CORRUPT_AUDIO)
        return self._edge(_arrived_at, last, span.end, span.end_range)

    def _messages(self, first: int, last: int) -> tuple[AgentAudio, ...]:
        """Return the messages of pieces `first` to `last`, each once."""
        audio = (piece.audio for piece in self.pieces[first : last + 1])
        return tuple(next(pieces) for _, pieces in groupby(audio, key=id))

    def _is_corrupt(self, first: int, last: int) -> bool:
        return any(piece.audio.is_corrupt for piece in self.pieces[first : last + 1])

    def _cut_at(self, span: Span, last: int) -> Edge | None:
        """Return the end that a flush made of a stretch, None if it ended by itself."""
        piece = self.pieces[last]
        silent_ns = samples_to_ns(self.offsets[last] + piece.n_played - span.end, self.rate_hz)
        if silent_ns > _WINDOW_NS or self.flush is None or last + 1 < len(self.pieces):
            return None
        end, flush = piece.end, self.flush
        if flush.lo > end.hi:
            return None
        # The sound stops with the flush, and has its error, or where it would have stopped anyway.
        when = Instant(min(end.lo, flush.lo), min(end.hi, flush.hi), min(end.at, flush.at))
        return Edge(when, max(0, silent_ns), 0)

    def _edge(
        self, base_of: Callable[[Placed], Instant], index: int, sample: int, limits: tuple[int, int]
    ) -> Edge:
        """Return the edge at `sample` of piece `index`; `base_of` is when a piece begins.

        An edge that may lie in a neighbouring piece has the time of that piece there: after a hole
        it is far off, and in a burst it comes before samples that precede it. It cannot lie where
        that piece is digital silence.
        """
        when = self._instant(base_of, index, sample)
        low, high = min(sample, limits[0]), max(sample, limits[1])
        first, last = (max(0, self._piece_at(end)) for end in (low, high - 1))
        lo, hi = when.lo, when.hi
        for i in range(min(first, index), max(last, index) + 1):
            begin = low if i <= first else self.offsets[i]
            end = high if i >= last else self.offsets[i + 1]
            if i != index and not self._has_sound(i, begin, end):
                continue
            lo = min(lo, self._instant(base_of, i, begin).lo)
            hi = max(hi, self._instant(base_of, i, end).hi)
        return Edge(when, when.lo - lo, hi - when.hi)

    def _has_sound(self, index: int, begin: int, end: int) -> bool:
        """Whether samples ``[begin, end)``, all in one piece, are anything but zeros."""
        offset = self.offsets[index]
        return bool(self.pieces[index].pcm[max(0, begin - offset) : end - offset].any())

    def _instant(self, base_of: Callable[[Placed], Instant], index: int, sample: int) -> Instant:
        offset = samples_to_ns(sample - self.offsets[index], self.rate_hz)
        return base_of(self.pieces[index]).shifted(offset)

    def _is_witnessed(self, pcm: Pcm, span: Span) -> bool:
        """Ask the second detector for the start of speech, on 1 s of context to both sides."""
        # Needed by nothing else, and costs an extension module.
        from vakforge_eval.signal.vad import first_speech

        context = round(_VAD_CONTEXT_S * self.rate_hz)
        begin = max(0, span.start - context)
        other = first_speech(pcm[begin : span.start + context], self.rate_hz)
        if other is None:
            return False
        return abs(samples_to_ns(begin + other - span.start, self.rate_hz)) <= _VAD_TOLERANCE_NS


def _fault(*, is_corrupt: bool, is_echo: bool) -> Reason | None:
    if is_corrupt:
        return Reason.CORRUPT_AUDIO
    return Reason.ECHO if is_echo else None


def _rate_of(message: AgentAudio) -> int:
    return message.rate_hz


def _heard_at(piece: Placed) -> Instant:
    return piece.start


def _arrived_at(piece: Placed) -> Instant:
    return piece.arrival


def find_islands(placed: Iterable[Placed], flushes: Iterable[Flush]) -> list[Island]:
    """Return the islands of each response, each in order of play."""
    flushed = sorted((flush.at for flush in flushes), key=_at)
    islands: list[Island] = []
    current: dict[str | None, Island] = {}
    for piece in placed:
        name = piece.audio.response_id
        island = current.get(name)
        if piece.n_played or (piece.audio.is_corrupt and not piece.is_cut):
            if island is None or not island.takes(piece):
                island = current[name] = Island(name, piece.audio.rate_hz)
                islands.append(island)
            # Without an id, what comes after a cut may go on with what was cut.
            island.flush = None
            island.add(piece)
        if piece.is_cut and island is not None and island.flush is None:
            island.flush = _flush_of(island, flushed)
    return islands


def _flush_of(island: Island, flushes: Sequence[Instant]) -> Instant | None:
    """Return the flush that ended an island: the first one at or after its last sound."""
    first = bisect_left(flushes, island.drained_at - _ROUNDING_NS, key=_at)
    return flushes[first] if first < len(flushes) else None


def _at(instant: Instant) -> int:
    return instant.at


def last_audible(messages: Sequence[AgentAudio], gate: Gate) -> Edge | Undefined | None:
    """Return when the last audible sample of `messages` had arrived, as if all had been played.

    Parameters
    ----------
    messages
        Audio of one response in order of arrival.

    Returns
    -------
    Edge | Undefined | None
        The arrival of the message + the offset inside of it; Undefined(corrupt_audio) where audio
        at that edge could not be decoded; None if nothing is audible.
    """
    for rate_hz, same_rate in reversed([(r, list(g)) for r, g in groupby(messages, _rate_of)]):
        island = Island(messages[0].response_id, rate_hz)
        for message in same_rate:
            end = message.arrival.shifted(message.duration_ns)
            island.add(Placed(message, message.arrival, end, len(message.pcm)))
        runs = island.runs(gate)
        if runs:
            return island.arrived_by(runs[-1])
    return None
