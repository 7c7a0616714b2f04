"""Live hearing: what a caller would hear, for the director. Metrics never read these edges.

Audio goes through the playout queue and, in the order in which it will be heard, through the
activity tracker. So edges are known as soon as the audio is here, also when it plays later; a
flush drops what has not been heard. Speech is never joined across response ids, unless they are
those of messages too short to be heard by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import Transition
from vakforge_eval.signal.codecs import UNPARTED, Decoder, make_decoder
from vakforge_eval.signal.gate import HYSTERESIS_DB
from vakforge_eval.signal.pcm import CODECS
from vakforge_eval.signal.playout import Live, Piece
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant, samples_to_ns
from vakforge_probe.coast import Coast
from vakforge_probe.floor import Floor, usable_gate
from vakforge_probe.guard import EchoGuard
from vakforge_probe.scenario.edges import HeardEdge
from vakforge_probe.stretch import END_SILENCE_NS, Message, Stretch

__all__ = ["Ear", "FlushFact", "HeardEdge"]

Pcm = npt.NDArray[np.int16]


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


@dataclass(slots=True)
class _Queued:
    """Audio in the queue that is one stretch of one item; `begin_ns` is its place in it."""

    start_ns: int
    end_ns: int
    begin_ns: int
    item_id: str | None
    response_id: str | None


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
        self._gate = usable_gate(None)
        self._live: Live[Message] | None = Live(self._gate, buffer_ns) if continuous else None
        self._buffer_ns = buffer_ns
        self._drained_ns = 0
        """When the queue runs empty if nothing more comes."""
        self._queue: deque[_Queued] = deque()
        self._item: tuple[str | None, int] = (None, 0)
        """The item heard last, and how far into it (ns)."""
        self._received: dict[str | None, int] = {}
        """How much audio has come of each item (ns)."""
        self._begun: set[str] = set()
        self._has_unnamed = False
        """Whether audio came without a response id."""
        self._open: set[str] = set()
        """Those begun responses of which audio may still come."""
        self._silenced: set[str] = set()
        self._decoder: Decoder | None = None
        self._decoding: tuple[str, str | None, str | None] | None = None
        self._floor = Floor(is_stream=continuous)
        self._stretch: Stretch | None = None
        self._coast: Coast | None = None
        """Set while messages may go on like the latest; `_land` before anything else is done."""
        self._told: deque[HeardEdge] = deque()

    def hear(self, chunk: AudioChunk, arrival_ns: int) -> list[HeardEdge]:
        """Take in a message of audio; return the edges that it tells, past or ahead.

        Audio of a response that was flushed is dropped.
        """
        coast = self._coast
        if coast is not None and coast.fits(chunk, self._drained_ns - arrival_ns):
            self._drained_ns += coast.duration_ns
            found = coast.push(chunk.data, arrival_ns)
            if not found:
                return []
            # A stretch may have waited for this with its gate.
            self._land(arrival_ns)
            return self._edges(coast.stretch, found, arrival_ns)
        self._land(arrival_ns)
        # Also what is not played: what comes after it may build on it.
        pcm = self._decoded(chunk)
        if len(pcm) == 0 or chunk.response_id in self._silenced:
            return []
        edges = self._hear_one(chunk, pcm, arrival_ns)
        self._coast = self._coasting(chunk, len(pcm))
        return edges

    def _hear_one(self, chunk: AudioChunk, pcm: Pcm, arrival_ns: int) -> list[HeardEdge]:
        """Take in a message that has audio, whatever came before it."""
        response_id, item_id = chunk.response_id, chunk.item_id
        if response_id is None:
            self._has_unnamed = True
        elif response_id not in self._begun:
            self._begun.add(response_id)
            self._open.add(response_id)
        edges = self._learn(chunk, pcm, arrival_ns)
        self._let_play(arrival_ns)
        duration_ns = samples_to_ns(len(pcm), chunk.rate_hz)
        begin_ns = self._received.get(item_id, 0)
        self._received[item_id] = begin_ns + duration_ns
        message = Message(pcm, chunk.rate_hz, item_id, response_id, begin_ns)
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
        if self._stretch is None or now_ns - self._drained_ns < END_SILENCE_NS:
            return []
        self._land(now_ns)
        return self._settle(now_ns) + self._close(now_ns)

    def flush(
        self, at_ns: int, response_id: str | None
    ) -> tuple[list[HeardEdge], FlushFact | None]:
        """Drop all queued audio, and whatever still comes of this response (None: of any so far).

        Of a stream that has had one id all along, which names no response, only what is queued.

        Returns the end of what was being heard, and what is lost; None if that is nothing. Edges
        told of `at_ns` or later are void.
        """
        self._land(at_ns)
        edges = [edge for edge in self._settle(at_ns) if edge.heard_ns < at_ns]
        self._let_play(at_ns)
        expected = self._open if response_id is None else {response_id}
        lost = self._begun if response_id is None else {response_id}
        lost = lost | {q.response_id for q in self._queue if q.response_id is not None}
        if self._is_one_stream:
            expected, lost = expected - self._begun, lost - self._begun
        if not self._queue and expected <= self._silenced:
            return edges, None
        self._silenced |= lost
        if not self._queue:
            return edges, FlushFact(None, None)
        item_id, played_ns = self._queue[0].item_id, self._played_ns(at_ns)
        self._item = (item_id, played_ns)
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

    @property
    def _is_one_stream(self) -> bool:
        return self._live is not None and len(self._begun) == 1 and not self._has_unnamed

    # -- inside -------------------------------------------------------------------------------

    def _decoded(self, chunk: AudioChunk) -> Pcm:
        decoding = (chunk.codec, chunk.response_id, chunk.item_id)
        if chunk.codec in UNPARTED:
            decoding = (chunk.codec, None, None)
        decoder = self._decoder
        if decoder is None or decoding != self._decoding:
            # Half a sample of one item is not the first half of another's.
            decoder = self._decoder = make_decoder(chunk.codec)
            self._decoding = decoding
        return decoder.feed(chunk.data)

    def _coasting(self, chunk: AudioChunk, n: int) -> Coast | None:
        """Return what messages like `chunk` are, now that it is placed; None if each may differ."""
        stretch, decoder = self._stretch, self._decoder
        if chunk.codec not in CODECS:
            return None  # each message builds on the one before
        duration_ns, rest = divmod(n * NS_PER_S, chunk.rate_hz)
        if stretch is None or decoder is None or decoder.pending or rest or not self._queue:
            return None
        is_plain = self._keeps_gate(stretch) and stretch.follows(self._drained_ns)
        if not is_plain or not self._is_placed_whole(chunk):
            return None
        most_ns = self._max_ahead_ns - duration_ns
        if self._live is not None:
            most_ns = min(most_ns, self._live.surplus_ns(duration_ns) - duration_ns)
        is_lesson = chunk.response_id is None and self._floor.is_learning
        return Coast(
            chunk,
            n,
            stretch,
            decoder.feed,
            guard=self._guard,
            learn=partial(self._floor.hear, rate_hz=chunk.rate_hz) if is_lesson else None,
            ahead_ns=(self._buffer_ns, most_ns),
            # The message that completes a lesson may move the gate before it is heard itself.
            most=(self._floor.n_free(chunk.rate_hz) - 1) // n if is_lesson else None,
        )

    def _is_placed_whole(self, chunk: AudioChunk) -> bool:
        """Whether all audio of the item of `chunk` so far, which is its last, is in the queue."""
        tail, live = self._queue[-1], self._live
        is_all = tail.begin_ns + tail.end_ns - tail.start_ns == self._received[chunk.item_id]
        is_held = live is not None and (live.is_holding or live.drained_at != self._drained_ns)
        return tail.item_id == chunk.item_id and is_all and not is_held

    def _land(self, now_ns: int) -> None:
        """Bring up to date what messages changed that were alike."""
        coast, self._coast = self._coast, None
        if coast is None or not coast.n_taken:
            return
        n, lasts_ns = coast.n_taken * coast.n_samples, coast.n_taken * coast.duration_ns
        coast.settle(now_ns)
        self._queue[-1].end_ns += lasts_ns
        self._received[coast.like.item_id] += lasts_ns
        if self._live is not None:
            self._live.add_whole(n, lasts_ns)

    def _settle(self, now_ns: int) -> list[HeardEdge]:
        """Place what the playout holds back."""
        return [] if self._live is None else self._place_all(self._live.settle(), now_ns)

    def _place_all(self, pieces: Sequence[Piece[Message]], now_ns: int) -> list[HeardEdge]:
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
        self, message: Message, pcm: Pcm, begin_ns: int, start_ns: int, end_ns: int, now_ns: int
    ) -> list[HeardEdge]:
        """Queue `pcm` of a message, `begin_ns` into its item; return the edges that it tells."""
        self._drained_ns = end_ns
        self._queue.append(
            _Queued(start_ns, end_ns, begin_ns, message.item_id, message.response_id)
        )
        stretch, edges = self._stretch, []
        if stretch is None or not stretch.goes_on(message, start_ns):
            edges = self._close(now_ns)
            stretch = self._stretch = Stretch(
                start_ns, message.rate_hz, message.response_id, self._gate, self._guard
            )
        stretch.rename(message.response_id)
        found = stretch.push(start_ns, pcm, now_ns)
        return edges + self._edges(stretch, found, now_ns) if found else edges

    def _let_play(self, now_ns: int) -> None:
        """Take out of the queue what has been heard whole by now."""
        while self._queue and self._queue[0].end_ns <= now_ns:
            done = self._queue.popleft()
            self._item = (done.item_id, done.begin_ns + done.end_ns - done.start_ns)

    def _close(self, now_ns: int) -> list[HeardEdge]:
        self._land(now_ns)
        stretch, self._stretch = self._stretch, None
        return [] if stretch is None else self._edges(stretch, stretch.finish(now_ns), now_ns)

    def _edges(self, stretch: Stretch, found: Sequence[Transition], now_ns: int) -> list[HeardEdge]:
        edges = [HeardEdge(t.kind, stretch.heard_ns(t), now_ns, stretch.response_id) for t in found]
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
            gate = usable_gate(self._floor.dbfs)
            if abs(gate.on_dbfs - self._gate.on_dbfs) >= HYSTERESIS_DB / 2:
                self._gate = gate
                if self._live is not None:
                    self._live.gate = gate
        stretch = self._stretch
        return [] if stretch is None or self._keeps_gate(stretch) else self._close(now_ns)

    def _keeps_gate(self, stretch: Stretch) -> bool:
        """Whether `stretch` goes on as it is; this changes with an edge, or a floor learnt."""
        is_speaking = bool(self._told) and self._told[-1].kind == "onset"
        is_lower = self._gate.on_dbfs < stretch.gate.on_dbfs
        return stretch.gate == self._gate or (is_speaking and is_lower)
