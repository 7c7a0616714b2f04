"""One call at the agent's end: wire messages in, ears, floor and speaker behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from vakforge_eval.timeline.instant import NS_PER_S, Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clipbook import ClipBook
from vakforge_probe.agent.clips import ClipStore
from vakforge_probe.agent.decoding import decode_of
from vakforge_probe.agent.dialogue import Dialogue
from vakforge_probe.agent.ears import Ears, Utterance
from vakforge_probe.agent.faults import FAULTS
from vakforge_probe.agent.floor import Floor, Parts
from vakforge_probe.agent.outbox import Outbox
from vakforge_probe.agent.speaker import make_speaker
from vakforge_probe.agent.truth import Ledger
from vakforge_probe.net.alarm import Alarm
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer
from vakforge_probe.protocol.server import (
    AudioAppended,
    AudioCleared,
    AudioCommitted,
    CancelRequested,
    ClientEvent,
    HungUp,
    KeyPressed,
    ResponseRequested,
    ServerCodec,
    SessionUpdated,
    ToolOutput,
    TruncateRequested,
)
from vakforge_probe.text import clean

__all__ = ["AgentCall", "Link", "World"]

N_LATEST = 100


class Link(Protocol):
    """The connection as a call sees it."""

    def send_now(self, message: Wire) -> None:
        """Write one message at once; nothing when the peer is gone."""
        ...

    def n_unsent(self) -> int:
        """Return how many bytes of what was written have not left this machine's socket."""
        ...

    def close_now(self) -> None:
        """Close properly."""
        ...

    def abort_now(self) -> None:
        """Reset the connection."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What all calls of a process share."""

    store: ClipStore
    callers: ClipBook
    alarm: Alarm
    now_ns: Callable[[], int]


class _Stage:
    """What exists once the audio formats are settled."""

    def __init__(
        self,
        world: World,
        behaviour: Behaviour,
        server: ServerCodec,
        outbox: Outbox,
        note: Callable[[dict[str, Any]], None],
    ) -> None:
        server.is_format_fixed = True
        rate = server.output_format[1]
        codec, heard_hz = server.input_format
        self.decode = decode_of(codec)
        self.ears = Ears(behaviour, world.callers.index(codec, heard_hz), heard_hz)
        self.ledger = Ledger(
            self.ears.tape,
            rate,
            note,
            is_live=behaviour.playout == "live",
            names_responses=server.names_responses,
        )
        self.speaker = make_speaker(
            behaviour, server, outbox, self.ledger, self.ears.tape, world.now_ns
        )
        dialogue = Dialogue(world.store, has_tools=behaviour.tools, say=behaviour.say)
        self.floor = Floor(
            Parts(
                behaviour=behaviour,
                server=server,
                outbox=outbox,
                speaker=self.speaker,
                dialogue=dialogue,
                ledger=self.ledger,
                ears=self.ears,
                now_ns=world.now_ns,
                note=note,
            )
        )
        self.n_logged = 0


class AgentCall:
    """One connection.

    Parameters
    ----------
    note
        Takes each object of the truth log.
    server
        Speaks the protocol that the client asked for.
    """

    def __init__(
        self,
        world: World,
        behaviour: Behaviour,
        link: Link,
        note: Callable[[dict[str, Any]], None],
        server: ServerCodec,
    ) -> None:
        self._world, self._knobs, self._link, self._note = world, behaviour, link, note
        self._server = server
        self._outbox = Outbox(
            world.alarm,
            world.now_ns,
            link.send_now,
            link.n_unsent,
            jitter_ns=round(behaviour.jitter_ms * 1_000_000),
            seed=behaviour.seed,
        )
        self._stage: _Stage | None = None
        self._has_greeted = False
        self._is_closed = False

    def start(self) -> None:
        """Speak first, as this protocol's servers do."""
        self._note({"type": "connected", "at": self._world.now_ns(),
                    "behaviour": self._knobs.model_dump(exclude_defaults=True)})  # fmt: skip
        if not self._knobs.mute:
            self._outbox.say(self._server.created())

    def on_message(self, data: Wire, arrival: Instant) -> None:
        """Take one message of the client."""
        if self._is_closed:
            return
        events = self._server.receive(data)
        if self._knobs.mute:
            return
        self._outbox.say(self._server.take_replies())
        for event in events:
            self._on_event(event, arrival)

    def _on_event(self, event: ClientEvent, arrival: Instant) -> None:
        match event:
            case SessionUpdated():
                self._greet_later()
            case AudioAppended(data):
                self._greet_later()
                self._on_audio(data, arrival)
            case TruncateRequested(item_id, audio_end_ms):
                self._note({"type": "truncated", "item": item_id, "audio_end_ms": audio_end_ms,
                            "at": arrival.at})  # fmt: skip
            case AudioCleared():
                pass
            case AudioCommitted():
                self._settled().floor.commit()
            case ToolOutput(call_id, output):
                self._note({"type": "tool_output", "call": call_id, "at": arrival.at})
                self._settled().floor.tool_output(output)
            case ResponseRequested():
                self._settled().floor.respond()
            case CancelRequested(response_id):
                self._settled().floor.cancel(response_id)
            case KeyPressed(key):
                self._note({"type": "dtmf", "key": clean(key, 8), "at": arrival.at})
            case HungUp():
                self._link.close_now()

    def _settled(self) -> _Stage:
        if self._stage is None:
            self._stage = _Stage(self._world, self._knobs, self._server, self._outbox, self._note)
            self._stage.speaker.start()
        return self._stage

    def _greet_later(self) -> None:
        if self._has_greeted:
            return
        self._has_greeted = True

        def greet() -> None:
            stage = self._settled()
            if self._knobs.greeting:
                stage.floor.greet()

        delay = round(self._knobs.greeting_delay * NS_PER_S)
        self._outbox.call(self._world.now_ns() + delay, greet)

    def _on_audio(self, data: bytes, arrival: Instant) -> None:
        stage = self._settled()
        if stage.ears.tape.started is None:
            self._note({"type": "stream_started", "lo": arrival.lo, "hi": arrival.hi,
                        "rate_hz": stage.ears.tape.rate_hz})  # fmt: skip
            self._plan_faults(arrival.at)
        for heard in stage.ears.feed(stage.decode(data), arrival):
            self._note({"type": heard.kind, "sample": heard.position})
            stage.floor.hear(heard)
        self._log_utterances(stage)

    def _log_utterances(self, stage: _Stage, *, is_end: bool = False) -> None:
        utterances = stage.ears.utterances
        while stage.n_logged < len(utterances):
            utterance = utterances[stage.n_logged]
            if not is_end and not _is_heard_out(utterance, stage.ears):
                return
            if utterance.start < utterance.end:
                stage.ledger.utterance(stage.n_logged, utterance)
            stage.n_logged += 1

    def _plan_faults(self, start: int) -> None:
        knobs = self._knobs
        for after, act in (
            (knobs.close_at, self._link.close_now),
            (knobs.abort_at, self._link.abort_now),
        ):
            if after is not None:
                self._outbox.call(start + round(after * NS_PER_S), act)
        if knobs.fault is not None:
            at = start + round(knobs.fault_at * NS_PER_S)
            self._outbox.call(at, lambda: self._commit_fault(str(knobs.fault)))

    def _commit_fault(self, name: str) -> None:
        self._note({"type": "fault", "name": name, "at": self._world.now_ns()})
        if name == "odd_audio":
            self._settled().floor.make_next_odd()
        elif isinstance(self._server, OpenAIRealtimeServer):
            self._outbox.say(FAULTS[name](self._server))

    def closed(self) -> None:
        """Close the books; harmless when repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        self._outbox.close()
        latest: list[list[int]] = []
        if self._stage is not None:
            self._stage.ears.finish()
            self._log_utterances(self._stage, is_end=True)
            self._stage.ledger.close()
            frames = self._stage.ears.tape.latest(N_LATEST)
            latest = [[stop, arrival.lo, arrival.hi] for stop, arrival in frames]
        # The last frames: by them what a killed probe lost can be told.
        self._note({"type": "closed", "at": self._world.now_ns(), "latest_frames": latest})


def _is_heard_out(utterance: Utterance, ears: Ears) -> bool:
    if utterance.match is not None:
        return ears.tape.length >= utterance.end
    return utterance not in ears.open_turn and utterance is not ears.going_on
