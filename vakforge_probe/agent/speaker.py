"""Saying replies: each message of a response planned at its moment, paced, burst or streamed."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clips import RATE_HZ, Pcm
from vakforge_probe.agent.encoding import Behind, make_encoder
from vakforge_probe.agent.marks import Ending
from vakforge_probe.agent.outbox import Letter, Outbox, Posted
from vakforge_probe.agent.player import AudioSent
from vakforge_probe.agent.tape import Tape
from vakforge_probe.agent.truth import Ledger
from vakforge_probe.agent.voice import Noise, Speech
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.server import ResponseWriter, ServerCodec

__all__ = ["BurstSpeaker", "Reply", "Speaker", "StreamSpeaker", "make_speaker"]


@dataclass(slots=True, eq=False)
class Reply:
    """One response of the agent on its way out."""

    writer: ResponseWriter
    kind: str
    is_audible: bool = False
    """Its first audio message was sent."""
    is_over: bool = False
    """Its end was sent, or it was cancelled."""
    loses_byte: bool = False
    """Fault: the last byte of its audio is missing."""

    @property
    def tag(self) -> str:
        """The response's id."""
        return self.writer.id


class Echo:
    """The caller's own voice in the agent's stream, `delay` later and `gain` quieter."""

    def __init__(self, behaviour: Behaviour, tape: Tape) -> None:
        self._gain = None if behaviour.echo_db is None else 10 ** (behaviour.echo_db / 20)
        self._delay = round(behaviour.echo_delay * tape.rate_hz)
        self._tape = tape
        self._next: int | None = None

    def over(self, pcm: Pcm, now_ns: int) -> Pcm:
        """Return `pcm` (24 kHz) with the echo that sounds from `now_ns` on mixed in."""
        if self._gain is None or self._tape.started is None:
            return pcm
        n = -(-len(pcm) * self._tape.rate_hz // RATE_HZ)
        due = self._tape.heard_by(now_ns) - self._delay
        # The echo runs on by itself; it jumps only where the agent was silent in between.
        if self._next is None or abs(due - self._next) > self._tape.rate_hz // 10:
            self._next = due
        place = np.arange(len(pcm)) * self._tape.rate_hz // RATE_HZ
        heard = self._tape.slice(self._next, self._next + n)[place]
        self._next += n
        return np.clip(np.rint(pcm + self._gain * heard), -32768, 32767).astype(np.int16)


class Speaker(ABC):
    """Plans a reply's messages in the outbox and tells the ledger what was sent."""

    def __init__(
        self,
        behaviour: Behaviour,
        server: ServerCodec,
        outbox: Outbox,
        ledger: Ledger,
        tape: Tape,
        now_ns: Callable[[], int],
    ) -> None:
        self._behaviour, self._server, self._outbox = behaviour, server, outbox
        self._ledger, self._now_ns = ledger, now_ns
        self._encoder = make_encoder(*server.output_format)
        size = behaviour.chunk_bytes(self._encoder.rate_hz, self._encoder.width)
        self._size = self._encoder.chunk(size)
        is_stream = behaviour.stream == "continuous"
        self._behind = Behind(self._encoder.behind, self._encoder.n_skipped, is_stream=is_stream)
        self._noise = Noise(behaviour.noise_dbfs, behaviour.seed)
        self._echo = Echo(behaviour, tape)
        self._lead = round(behaviour.text_lead_ms * NS_PER_MS)
        self._rate = self._encoder.rate_hz * (1 + behaviour.skew_ppm * 1e-6)

    @abstractmethod
    def start(self) -> None:
        """Begin to stream, where the stream is continuous."""

    def begin(self, kind: str) -> Reply:
        """Open a response and return it."""
        reply = Reply(self._server.response(), kind)
        self._outbox.say(reply.writer.begin())
        return reply

    def say(self, reply: Reply, speech: Speech, audio_at: int, then: Callable[[], None]) -> None:
        """Say `speech` in `reply` from `audio_at` (ns) on; call `then` when all of it was sent."""
        # One reading of the clock: text of this instant must not end up behind its audio.
        now = self._now_ns()
        audio_at = max(audio_at, now)
        self._ledger.voice(reply.tag, self._encoder.spans(speech.voiced), audio_at)
        self._outbox.put(now, Letter(reply.writer.begin_message, reply.tag))
        self._plan_text(reply, speech.text, max(audio_at - self._lead, now))
        self._plan_audio(reply, speech, audio_at, then)

    def _plan_text(self, reply: Reply, text: str, at: int) -> None:
        def posted(p: Posted) -> None:
            self._ledger.text(reply.tag, p.at, p.late_ns)

        head, space, rest = text.partition(" ")
        for part in (head, space + rest):
            if part:
                write = functools.partial(reply.writer.text, part)
                self._outbox.put(at, Letter(write, reply.tag, posted))

    @abstractmethod
    def _plan_audio(
        self, reply: Reply, speech: Speech, audio_at: int, then: Callable[[], None]
    ) -> None:
        """Plan the audio messages, and `then` behind the last of them."""

    def end(
        self,
        reply: Reply,
        status: str = "completed",
        reason: str | None = None,
        *,
        onset: int | None = None,
    ) -> None:
        """End `reply`; what it had still planned is dropped.

        `onset` is where the caller began to say what ended it, if that did.
        """
        self._outbox.drop(reply.tag)
        self._forget(reply)

        if not reply.is_over:
            reply.is_over = True
            messages = reply.writer.end(status, reason)
            ended = self._posted_end(reply.tag, status, onset)
            if messages:
                self._outbox.say(messages[:-1])
                self._outbox.say(messages[-1:], ended)
            else:
                self._outbox.call(self._now_ns(), lambda: ended(None))

    def _posted_end(
        self, tag: str, status: str, onset: int | None
    ) -> Callable[[Posted | None], None]:
        def posted(p: Posted | None) -> None:
            if p is None:
                at = Instant.exact(self._now_ns())
                self._ledger.ended(tag, Ending(status, at, 0, onset, is_told=False))
            else:
                self._ledger.ended(tag, Ending(status, p.at, p.late_ns, onset))

        return posted

    def pause(self, reply: Reply, by_ns: int) -> None:
        """Hold the rest of `reply` back by `by_ns`."""
        self._outbox.move(reply.tag, by_ns)

    @abstractmethod
    def _forget(self, reply: Reply) -> None:
        """Drop what is queued of `reply` beside the outbox."""

    def is_talking(self, now: int) -> bool:
        """Whether a client that plays what it gets still hears a response at `now`."""
        return self._ledger.talks_until > now

    def _posted_audio(self, reply: Reply | None, first: int, n: int) -> Callable[[Posted], None]:
        def posted(p: Posted) -> None:
            if reply is not None:
                reply.is_audible = True
            tag = None if reply is None else reply.tag
            for part in self._behind.parts(AudioSent(p.at, tag, first, n, p.late_ns)):
                self._ledger.audio(part)

        return posted

    def _coded(self, pcm: Pcm, now: int) -> bytes:
        return self._encoder.encode(self._echo.over(self._noise.under(pcm), now))

    def _seconds_ns(self, n_samples: float) -> int:
        return round(n_samples / self._rate * NS_PER_S)


class BurstSpeaker(Speaker):
    """Turn protocol: audio only inside responses, sent at `speed` times real time."""

    def start(self) -> None:
        """Do nothing: between responses there is silence on the wire too."""

    def _forget(self, reply: Reply) -> None:
        """Do nothing: all of a reply is in the outbox."""

    def _plan_audio(
        self, reply: Reply, speech: Speech, audio_at: int, then: Callable[[], None]
    ) -> None:
        knobs, width = self._behaviour, self._encoder.width
        pcm = self._encoder.closed(speech.pcm)
        total = self._encoder.n_out(len(pcm)) * width - reply.loses_byte
        is_coded_late = self._encoder.is_stateful or knobs.echo_db is not None
        whole = None if is_coded_late else self._coded(pcm, audio_at)
        stall_from = knobs.stall_at * self._encoder.rate_hz * width if knobs.stall else math.inf
        at = audio_at
        for lo in range(0, total, self._size):
            hi = min(lo + self._size, total)
            first, n = lo // width, hi // width - lo // width
            at = audio_at + round(self._seconds_ns(lo / width) / knobs.speed)
            is_stall = lo >= stall_from
            if is_stall:
                stall_from = math.inf
            letter = Letter(
                self._writer(reply, whole, pcm, lo, hi, at),
                reply.tag,
                self._posted_audio(reply, first, n),
                round(knobs.stall * NS_PER_S) if is_stall else 0,
            )
            self._outbox.put(at, letter)
        self._outbox.call(max(at, audio_at - self._lead), then, reply.tag)

    def _writer(
        self, reply: Reply, whole: bytes | None, pcm: Pcm, lo: int, hi: int, at: int
    ) -> Callable[[], list[Wire]]:
        if whole is not None:
            return lambda: reply.writer.audio(whole[lo:hi])
        a, b = (self._encoder.n_in(edge // self._encoder.width) for edge in (lo, hi))
        return lambda: reply.writer.audio(self._coded(pcm[a:b], at))


@dataclass(slots=True, eq=False)
class _Queued:
    reply: Reply
    pcm: Pcm
    due: int
    then: Callable[[], None]
    at: int = 0
    has_stalled: bool = False


class StreamSpeaker(Speaker):
    """Continuous stream: a chunk every chunk's length, with noise or silence between replies."""

    def __init__(self, behaviour: Behaviour, *parts: Any) -> None:
        super().__init__(behaviour, *parts)
        self._n = self._encoder.whole(self._size // self._encoder.width)
        self._n_voice = self._encoder.n_in(self._n)
        self._queue: deque[_Queued] = deque()
        self._origin, self._ticks = 0, 0

    def start(self) -> None:
        """Begin the stream now."""
        self._origin, self._ticks = self._now_ns(), 0
        self._tick()

    def pause(self, reply: Reply, by_ns: int) -> None:
        """Hold the rest of `reply` back by `by_ns`; the stream itself goes on."""
        super().pause(reply, by_ns)
        for queued in self._queue:
            if queued.reply is reply:
                queued.due = self._now_ns() + by_ns

    def _plan_audio(
        self, reply: Reply, speech: Speech, audio_at: int, then: Callable[[], None]
    ) -> None:
        self._queue.append(_Queued(reply, self._encoder.closed(speech.pcm), audio_at, then))

    def _forget(self, reply: Reply) -> None:
        self._queue = deque(q for q in self._queue if q.reply is not reply)

    def _tick(self) -> None:
        planned = self._origin + self._seconds_ns(self._ticks * self._n)
        self._ticks += 1
        self._outbox.call(self._origin + self._seconds_ns(self._ticks * self._n), self._tick)
        queued = self._queue[0] if self._queue and self._queue[0].due <= planned else None
        pcm = np.zeros(self._n_voice, dtype=np.int16)
        first, stall = 0, 0
        if queued is not None:
            part = queued.pcm[queued.at : queued.at + self._n_voice]
            pcm[: len(part)] = part
            first = self._encoder.n_out(queued.at)
            stall = self._stall(queued)
            queued.at += self._n_voice
        reply = queued.reply if queued else None
        self._outbox.put(planned, self._letter(reply, pcm, planned, first, stall))
        if queued is not None and queued.at >= len(queued.pcm):
            self._queue.popleft()
            self._outbox.call(max(planned, queued.due - self._lead), queued.then, queued.reply.tag)

    def _letter(
        self, reply: Reply | None, pcm: Pcm, planned: int, first: int, stall: int
    ) -> Letter:
        def write() -> list[Wire]:
            data = self._coded(pcm, planned)
            if reply is None:
                return self._server.stream_audio(data)
            return reply.writer.audio(data)

        return Letter(write, None, self._posted_audio(reply, first, self._n), stall)

    def _stall(self, queued: _Queued) -> int:
        if not self._behaviour.stall or queued.has_stalled:
            return 0
        queued.has_stalled = queued.at >= self._behaviour.stall_at * RATE_HZ
        return round(self._behaviour.stall * NS_PER_S) if queued.has_stalled else 0


def make_speaker(
    behaviour: Behaviour,
    server: ServerCodec,
    outbox: Outbox,
    ledger: Ledger,
    tape: Tape,
    now_ns: Callable[[], int],
) -> Speaker:
    """Return the speaker for the behaviour's kind of stream."""
    kind = StreamSpeaker if behaviour.stream == "continuous" else BurstSpeaker
    return kind(behaviour, server, outbox, ledger, tape, now_ns)
