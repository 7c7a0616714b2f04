"""Live hearing: what a caller would hear, for the director. Metrics never read these edges.

Audio goes through the playout queue and, in the order in which it will be heard, through the
activity tracker. So edges are known as soon as the audio is here, also when it plays later; a
flush drops what has not been heard. Speech is never joined across response ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import (
    END_SILENCE_MS,
    HYSTERESIS_DB,
    Gate,
    Transition,
    gate_for,
    noise_floor,
    stream_floor,
)
from vakforge_eval.signal.pcm import PcmDecoder
from vakforge_eval.signal.playout import Live, Piece
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant, samples_to_ns
from vakforge_eval.timeline.values import Undefined
from vakforge_probe.guard import EchoGuard, GuardedTracker
from vakforge_probe.scenario.edges import HeardEdge

__all__ = ["Ear", "FlushFact", "HeardEdge"]

Pcm = npt.NDArray[np.int16]

_END_SILENCE_NS = END_SILENCE_MS * NS_PER_MS
_LEARN_S = (1, 2, 4, 8)
"""The floor is taken again when so much audio outside responses was heard; then it stands."""


@dataclass(frozen=True, slots=True)
class FlushFact:
    """What a flush took away.

    Attributes
    ----------
    item_id
        The item that was being heard, or was to be heard next.
    played_ms
        How far into this item its last heard sample lies (whole ms), so that silence which the
        playout dropped before it counts once; None if no audio was queued, and only what would
        still have come of a response is lost.
    """

    item_id: str | None
    played_ms: int | None


class _Message(NamedTuple):
    """The audio of one message, and where in its item it begins (ns)."""

    pcm: Pcm
    rate_hz: int
    item_id: str | None
    response_id: str | None
    begin_ns: int


class _Queued(NamedTuple):
    """A stretch of one message in the queue; `begin_ns` is its place in its item."""

    start_ns: int
    end_ns: int
    begin_ns: int
    item_id: str | None
    response_id: str | None


class _Stretch:
    """Audio of one response that is heard without a longer break, and its tracker."""

    def __init__(
        self,
        start_ns: int,
        rate_hz: int,
        response_id: str | None,
        gate: Gate,
        guard: EchoGuard | None,
    ) -> None:
        self.rate_hz = rate_hz
        self.response_id = response_id
        self.gate = gate
        self._start_ns = start_ns
        self._n_samples = 0
        self._tracker = GuardedTracker(rate_hz, gate, guard)
        self.end_ns = start_ns
        """When what was pushed so far has been heard."""

    def heard_ns(self, sample: int) -> int:
        """Return when a sample is heard."""
        return self._start_ns + samples_to_ns(sample, self.rate_hz)

    def goes_on(self, message: _Message, start_ns: int) -> bool:
        """Whether a message that is heard from `start_ns` belongs to it."""
        return (
            self.response_id == message.response_id
            and self.rate_hz == message.rate_hz
            and start_ns - self.end_ns < _END_SILENCE_NS
        )

    def push(self, start_ns: int, pcm: Pcm, now_ns: int) -> list[Transition]:
        """Add audio that is heard from `start_ns`; a gap before it is silence."""
        before: list[Transition] = []
        if start_ns > self.end_ns:
            n_gap = (start_ns - self.end_ns) * self.rate_hz // NS_PER_S
            before = self._tracker.push(np.zeros(n_gap, dtype=np.int16), now_ns)
            self._n_samples += n_gap
        self._n_samples += len(pcm)
        self.end_ns = self.heard_ns(self._n_samples)
        return before + self._tracker.push(pcm, now_ns)

    def finish(self, now_ns: int) -> list[Transition]:
        """End here."""
        return self._tracker.finish(now_ns)


class Ear:
    """Hears one call.

    Parameters
    ----------
    max_ahead_s : float
        Audio queued beyond this is a flood: `is_flooded` becomes and stays true.
    buffer_ns : int
        Buffer of the playout model.
    continuous : bool
        Whether the agent streams silence too: the playout drops silence when it holds too much,
        and the noise floor can be learnt from audio without a response id. Without it the floor is
        learnt only where responses have ids, from what lies outside of them.
    guard : EchoGuard or None
        Knows what the user says, so that an echo of it is not taken for the agent; None: it is.
    """

    def __init__(
        self,
        *,
        max_ahead_s: float = 60.0,
        buffer_ns: int = 0,
        continuous: bool = False,
        guard: EchoGuard | None = None,
    ) -> None:
        self._guard = guard
        self.is_flooded = False
        self._max_ahead_ns = round(max_ahead_s * NS_PER_S)
        self._gate = _gate(None)
        self._live: Live[_Message] | None = Live(self._gate, buffer_ns) if continuous else None
        self._buffer_ns = buffer_ns
        self._drained_ns = 0
        """When the queue runs empty if nothing more comes."""
        self._queue: deque[_Queued] = deque()
        self._item: tuple[str | None, int] = (None, 0)
        """The item heard last, and how far into it (ns)."""
        self._received: dict[str | None, int] = {}
        """How much audio has come of each item (ns)."""
        self._begun: set[str] = set()
        self._open: set[str] = set()
        """Those begun responses of which audio may still come."""
        self._silenced: set[str] = set()
        self._decoder: PcmDecoder | None = None
        self._decoding: tuple[str, str | None, str | None] | None = None
        self._floor = _Floor(is_stream=continuous)
        self._stretch: _Stretch | None = None
        self._told: deque[HeardEdge] = deque()

    def hear(self, chunk: AudioChunk, arrival_ns: int) -> list[HeardEdge]:
        """Take in a message of audio; return the edges that it tells, past or ahead.

        Audio of a response that was flushed is dropped.
        """
        response_id = chunk.response_id
        if response_id in self._silenced:
            return []
        pcm = self._decoded(chunk)
        n = len(pcm)
        if n == 0:
            return []
        edges: list[HeardEdge] = []
        if response_id is None or response_id not in self._begun:
            edges = self._learn(chunk, pcm, arrival_ns)
        if self._queue and self._queue[0].end_ns <= arrival_ns:
            self._let_play(arrival_ns)
        duration_ns, item_id = samples_to_ns(n, chunk.rate_hz), chunk.item_id
        begin_ns = self._received.get(item_id, 0)
        self._received[item_id] = begin_ns + duration_ns
        message = _Message(pcm, chunk.rate_hz, item_id, response_id, begin_ns)
        if self._live is None:
            # The model `Fifo` with an arrival that is known exactly.
            start_ns = max(arrival_ns + self._buffer_ns, self._drained_ns)
            edges += self._place(
                message, pcm, begin_ns, start_ns, start_ns + duration_ns, arrival_ns
            )
        else:
            arrival = Instant.exact(arrival_ns)
            pieces = self._live.push(message, arrival, pcm, chunk.rate_hz)
            edges += self._place_all(pieces, arrival_ns)
        if self._drained_ns - arrival_ns > self._max_ahead_ns:
            self.is_flooded = True
        return edges

    def response_ended(self, response_id: str | None, at_ns: int) -> list[HeardEdge]:
        """Note that a response holds no more audio: its speech ends where its audio ends."""
        self._open.discard(response_id or "")
        stretch = self._stretch
        if stretch is None:
            return []
        # A protocol may name the response in one place and not in the other.
        is_other = None not in (response_id, stretch.response_id)
        if is_other and response_id != stretch.response_id:
            return []
        return self._close(at_ns)

    def tick(self, now_ns: int) -> list[HeardEdge]:
        """Note the time; return an end that 350 ms without any audio confirm."""
        if self._stretch is None or now_ns - self._drained_ns < _END_SILENCE_NS:
            return []
        return self._settle(now_ns) + self._close(now_ns)

    def flush(
        self, at_ns: int, response_id: str | None
    ) -> tuple[list[HeardEdge], FlushFact | None]:
        """Drop all queued audio, and whatever still comes of this response (None: of any so far).

        Returns the end of what was being heard, and what is lost; None if that is nothing. Edges
        told of `at_ns` or later are void.
        """
        edges = [edge for edge in self._settle(at_ns) if edge.heard_ns < at_ns]
        self._let_play(at_ns)
        expected = self._open if response_id is None else {response_id}
        if not self._queue and expected <= self._silenced:
            return edges, None
        self._silenced |= self._begun if response_id is None else {response_id}
        if not self._queue:
            return edges, FlushFact(None, None)
        self._silenced |= {q.response_id for q in self._queue if q.response_id is not None}
        item_id, played_ns = self._queue[0].item_id, self._played_ns(at_ns)
        self._queue.clear()
        self._drained_ns = min(self._drained_ns, at_ns)
        if self._live is not None:
            self._live.flush(Instant.exact(at_ns))
        self._stretch = None
        return edges + self._cut_speech(at_ns), FlushFact(item_id, played_ns // NS_PER_MS)

    def _played_ns(self, at_ns: int) -> int:
        """Return how far into the item at the head of the queue its last heard sample lies."""
        head = self._queue[0]
        if at_ns > head.start_ns:
            return head.begin_ns + at_ns - head.start_ns
        item_id, heard_ns = self._item
        return heard_ns if item_id == head.item_id else 0

    # -- inside -------------------------------------------------------------------------------

    def _decoded(self, chunk: AudioChunk) -> Pcm:
        decoding = (chunk.codec, chunk.response_id, chunk.item_id)
        decoder = self._decoder
        if decoder is None or decoding != self._decoding:
            # Half a sample of one item is not the first half of another's.
            decoder = self._decoder = PcmDecoder(chunk.codec)
            self._decoding = decoding
        return decoder.feed(chunk.data)

    def _settle(self, now_ns: int) -> list[HeardEdge]:
        """Place what the playout holds back."""
        return [] if self._live is None else self._place_all(self._live.settle(), now_ns)

    def _place_all(self, pieces: Sequence[Piece[_Message]], now_ns: int) -> list[HeardEdge]:
        edges: list[HeardEdge] = []
        for message, first, n, start in pieces:
            pcm, begin_ns = message.pcm, message.begin_ns
            if n < len(pcm):
                pcm = pcm[first : first + n]
                begin_ns += samples_to_ns(first, message.rate_hz)
            end_ns = start.at + samples_to_ns(n, message.rate_hz)
            edges += self._place(message, pcm, begin_ns, start.at, end_ns, now_ns)
        return edges

    def _place(
        self, message: _Message, pcm: Pcm, begin_ns: int, start_ns: int, end_ns: int, now_ns: int
    ) -> list[HeardEdge]:
        """Queue `pcm` of a message, `begin_ns` into its item; return the edges that it tells."""
        self._drained_ns = end_ns
        self._queue.append(
            _Queued(start_ns, end_ns, begin_ns, message.item_id, message.response_id)
        )
        stretch, edges = self._stretch, []
        if stretch is None or not stretch.goes_on(message, start_ns):
            edges = self._close(now_ns)
            stretch = self._stretch = _Stretch(
                start_ns, message.rate_hz, message.response_id, self._gate, self._guard
            )
        found = stretch.push(start_ns, pcm, now_ns)
        return edges + self._edges(stretch, found, now_ns) if found else edges

    def _let_play(self, now_ns: int) -> None:
        """Take out of the queue what has been heard whole by now."""
        while self._queue and self._queue[0].end_ns <= now_ns:
            done = self._queue.popleft()
            self._item = (done.item_id, done.begin_ns + done.end_ns - done.start_ns)

    def _close(self, now_ns: int) -> list[HeardEdge]:
        stretch, self._stretch = self._stretch, None
        return [] if stretch is None else self._edges(stretch, stretch.finish(now_ns), now_ns)

    def _edges(
        self, stretch: _Stretch, found: Sequence[Transition], now_ns: int
    ) -> list[HeardEdge]:
        edges = [
            HeardEdge(t.kind, stretch.heard_ns(t.sample), now_ns, stretch.response_id)
            for t in found
        ]
        self._told.extend(edges)
        while len(self._told) > 1 and self._told[1].heard_ns <= now_ns:
            self._told.popleft()
        return edges

    def _cut_speech(self, at_ns: int) -> list[HeardEdge]:
        """Return the end of speech that a flush cuts; forget what would have come later."""
        while self._told and self._told[-1].heard_ns >= at_ns:
            self._told.pop()
        if not self._told or self._told[-1].kind == "end":
            return []
        end = HeardEdge("end", at_ns, at_ns, self._told[-1].response_id)
        self._told.append(end)
        return [end]

    def _learn(self, chunk: AudioChunk, pcm: Pcm, now_ns: int) -> list[HeardEdge]:
        """Learn the noise floor; a new gate begins a new stretch.

        A gate that moves by less than half its hysteresis is no other one. A lower one waits for a
        pause, since what is speech stays speech; a higher one does not, since it may be noise that
        is taken for speech.
        """
        if chunk.response_id is not None:
            self._floor.is_listening = True
        elif self._floor.hear(pcm, chunk.rate_hz):
            gate = _gate(self._floor.dbfs)
            if abs(gate.on_dbfs - self._gate.on_dbfs) >= HYSTERESIS_DB / 2:
                self._gate = gate
                if self._live is not None:
                    self._live.gate = gate
        stretch = self._stretch
        if stretch is None or stretch.gate == self._gate:
            return []
        is_speaking = bool(self._told) and self._told[-1].kind == "onset"
        if is_speaking and self._gate.on_dbfs < stretch.gate.on_dbfs:
            return []
        return self._close(now_ns)


class _Floor:
    """The agent's noise floor in dBFS, learnt from audio outside responses; None until known.

    `is_stream`: there speech is among that audio.
    """

    def __init__(self, *, is_stream: bool) -> None:
        self.is_listening = is_stream
        self._of = stream_floor if is_stream else noise_floor
        self.dbfs: float | None = None
        self._heard: list[Pcm] = []
        self._n_heard = 0
        self._rate_hz = 0
        self._lessons = list(_LEARN_S)

    def hear(self, pcm: Pcm, rate_hz: int) -> bool:
        """Take in audio; return whether the floor was taken anew."""
        if not self.is_listening or not self._lessons:
            return False
        if rate_hz != self._rate_hz:
            self._rate_hz, self._heard, self._n_heard = rate_hz, [], 0
        self._heard.append(pcm)
        self._n_heard += len(pcm)
        if self._n_heard < self._lessons[0] * rate_hz:
            return False
        self._lessons.pop(0)
        # One stretch: messages shorter than a 10 ms block would give no block at all.
        self._heard = [np.concatenate(self._heard)]
        self.dbfs = self._of(self._heard, rate_hz)
        if not self._lessons:
            self._heard = []
        return True


def _gate(floor_dbfs: float | None) -> Gate:
    gate = gate_for(floor_dbfs)
    if isinstance(gate, Undefined):
        # Off line such a call is not measurable; live it must still be walked through.
        gate = gate_for(None)
    assert isinstance(gate, Gate)  # noqa: S101 - without a floor there is always a gate
    return gate
