"""What the scripted user does with what the target does: the middle of a call.

It owns tape, ear and director and ties them together. It sends through `transmit` and writes to
the capture through `journal`; connection, pacing and files belong to `call.py`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Interrupt,
    ResponseEnded,
    ResponseStarted,
    SpeechStarted,
    ToolCall,
)
from vakforge_eval.timeline.instant import NS_PER_S, Instant
from vakforge_eval.timeline.records import Flags, Kind
from vakforge_eval.timeline.script import (
    FLOOR_TAKING_KINDS,
    ScriptStep,
    StepKind,
    ToolSpec,
    is_one_turn,
)
from vakforge_probe.ear import Ear
from vakforge_probe.errors import TargetLimitExceeded
from vakforge_probe.guard import EchoGuard
from vakforge_probe.net.alarm import Handle
from vakforge_probe.net.shell import Sent
from vakforge_probe.protocol.base import (
    CancelResponse,
    ClientCodec,
    CommitAudio,
    EndSession,
    Intent,
    PressKey,
    StartSession,
    ToolResult,
    Truncate,
    Wire,
)
from vakforge_probe.scenario.compile import Compiled
from vakforge_probe.scenario.director import Action, Branch, Director, Fire, HangUp, Skip
from vakforge_probe.tape import Tape

__all__ = ["Conversation", "Transmit"]

_INTENT_NAMES: dict[type, str] = {
    StartSession: "start_session",
    ToolResult: "tool_result",
    Truncate: "truncate",
    CancelResponse: "cancel",
    CommitAudio: "commit",
    PressKey: "dtmf",
    EndSession: "end_session",
}


class Transmit(Protocol):
    """Sends one message, stamps and records it; `due` is None when nothing was planned."""

    def __call__(
        self, message: Wire, kind: Kind, due: int | None, flags: Flags = Flags.NONE
    ) -> Sent:
        """Send `message`."""
        ...


class Conversation:
    """Lives from the session's start to its end; all entry points run on the event loop."""

    def __init__(
        self,
        compiled: Compiled,
        codec: ClientCodec,
        *,
        transmit: Transmit,
        journal: Callable[[dict[str, Any]], None],
        hang_up: Callable[[str], None],
        now_ns: Callable[[], int],
        call_at: Callable[[int, Callable[[], None]], Handle],
        max_ahead_s: float,
    ) -> None:
        self._compiled = compiled
        self._codec = codec
        self._transmit = transmit
        self._journal = journal
        self._hang_up = hang_up
        self._now = now_ns
        self._call_at = call_at
        script = compiled.script
        self.tape = Tape(
            script.rate_hz,
            script.frame_samples,
            compiled.background,
            is_on_grid=bool(compiled.ahead),
        )
        self._latest_pcm = bytes(2 * script.frame_samples)
        self._max_ahead_s = max_ahead_s
        self._is_audio_apart = codec.signalling is not None
        self._guard = EchoGuard(script.rate_hz, script.frame_samples)
        self._ear = Ear(
            max_ahead_s=max_ahead_s,
            continuous=codec.capabilities.continuous_stream,
            guard=self._guard,
        )
        self._director = Director(compiled)
        self._tools = {tool.name: tool for tool in script.tools}
        self._laid: list[tuple[int, Fire]] = []
        self._by_hand: list[tuple[int, Callable[[], None]]] = []
        """What a caller does by a key once so many samples have been sent, in order."""
        self._active: dict[str | None, None] = {}
        """Responses that have begun and not ended, in order."""
        self._told_of: str | None = None
        """The response of the latest audio that the director knows of."""
        self._wake: Handle | None = None
        self._wake_ns: int | None = None
        self._timers: set[Handle] = set()
        self.reply_due_ns: int | None = None
        """Until when the reply to the user's first turn may come; None before that is spoken."""

    def start(self, first_due_ns: int) -> None:
        """Begin the user's stream with frame 0 due at `first_due_ns`."""
        self.tape.start(first_due_ns)
        self._journal(
            {"type": "stream_started", "due": first_due_ns, "frame_ns": self.tape.frame_ns}
        )
        self._director.ready(self.tape.spoken_ns(0))
        self._advance()

    def stop(self) -> None:
        """Cancel all timers."""
        for handle in (self._wake, *self._timers):
            if handle is not None:
                handle.cancel()

    # -- the user's side ----------------------------------------------------------------------

    def on_frame(self, frame: int, due_ns: int, flags: Flags) -> None:
        """Send frame number `frame` of the stream, planned for `due_ns`."""
        self._advance()
        pcm = self.tape.cut(frame)
        sent = self._transmit(self._coded(pcm), Kind.AUDIO, due_ns, flags)
        self._guard.said(pcm, sent.after)
        end = (frame + 1) * self.tape.frame_samples
        while self._laid and self._laid[0][0] < end:
            start, fire = self._laid.pop(0)
            self._journal_step(fire, start, sent.before)
            self._expect_reply(fire, start)
        while self._by_hand and self._by_hand[0][0] <= end:
            self._by_hand.pop(0)[1]()
        for edge in self._ear.tick(self._now()):
            self._director.heard(edge)

    def _coded(self, pcm: bytes) -> Wire:
        before, self._latest_pcm = self._latest_pcm, pcm
        found = self._compiled.ahead.find(before, pcm)
        return self._codec.audio_frame(pcm) if found is None else found

    def perform(self, intent: Intent, **facts: Any) -> None:
        """Send the messages of `intent`, if the protocol has any, and journal it once."""
        messages = self._codec.send(intent)
        if not messages:
            return
        sent = [self._transmit(m, Kind.CONTROL, None) for m in messages]
        self._journal(
            {
                "type": "sent",
                "what": _INTENT_NAMES[type(intent)],
                "before": sent[0].before,
                "after": sent[-1].after,
                **facts,
            }
        )

    def _advance(self) -> None:
        """Carry out what the director decides now, and arm the alarm for its next moment."""
        now_ns = self._now()
        if self._director.is_idle(now_ns):
            return
        for action in self._director.poll(now_ns):
            self._act(action)
        wake_ns = self._director.next_wake()
        if wake_ns == self._wake_ns:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_ns = wake_ns
        self._wake = None if wake_ns is None else self._call_at(wake_ns, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = self._wake_ns = None
        self._advance()

    def _act(self, action: Action) -> None:
        match action:
            case Fire():
                self._fire(action)
            case Skip():
                self._journal(
                    {"type": "step_skipped", "step": action.step, "reason": action.reason}
                )
            case Branch():
                self._journal({"type": "branch", "path": action.path, "taken": action.taken})
            case HangUp():
                self._hang_up(action.reason)

    def _fire(self, fire: Fire) -> None:
        step = self._compiled.script.steps[fire.step]
        pcm = self._compiled.pcm[fire.step]
        if pcm is None and step.kind is not StepKind.SHAM:
            self._journal_step(fire, None, None)
            return
        start = self.tape.position(fire.due_ns)
        if step.kind is StepKind.DTMF and self._codec.capabilities.dtmf:
            # Its tones are silent: the network takes them out and tells of them instead.
            self._press_keys(step, start)
        elif pcm is not None:
            self.tape.lay(start, pcm)
            if self._codec.capabilities.manual_commit and step.kind in FLOOR_TAKING_KINDS:
                self._push_to_talk(step, start)
        self._laid.append((start, fire))
        self._laid.sort(key=lambda laid: laid[0])

    def _press_keys(self, step: ScriptStep, start: int) -> None:
        """Tell of each key with the frame in which it is let go."""
        for key, (_, end) in zip(step.text, step.voiced, strict=True):
            tell = partial(self.perform, PressKey(key), key=key, step=step.index)
            self._by_hand.append((start + end, tell))
        self._by_hand.sort(key=lambda planned: planned[0])

    def _push_to_talk(self, step: ScriptStep, start: int) -> None:
        """Take the floor with the frame of the step's first voiced sample, give it with the last's.

        A turn that goes on after a scripted pause is neither given nor taken there.
        """
        first, last = (
            (step.voiced[0][0], step.voiced[-1][1]) if step.voiced else (0, step.n_samples)
        )
        commit = partial(self.perform, CommitAudio())
        steps = self._compiled.script.steps
        if not _goes_on(steps[: step.index + 1][::-1]):
            self._by_hand.append((start + first + 1, partial(self._if_manual, self._interrupt)))
        if not _goes_on(steps[step.index :]):
            self._by_hand.append((start + last, partial(self._if_manual, commit)))
        self._by_hand.sort(key=lambda planned: planned[0])

    def _if_manual(self, act: Callable[[], None]) -> None:
        if self._codec.capabilities.manual_commit:  # or the target has detected a turn
            act()

    def _interrupt(self) -> None:
        """Stop the agent as a client must that no server does it for: drop, tell, cancel."""
        at = Instant.exact(self._now())
        active = list(self._active)
        for response_id in (None, *active):
            self._flush(at, response_id)
        for response_id in active:
            self.perform(CancelResponse(response_id), response_id=response_id)

    def _expect_reply(self, fire: Fire, start: int) -> None:
        step = self._compiled.script.steps[fire.step]
        if self.reply_due_ns is None and step.kind in FLOOR_TAKING_KINDS:
            spoken_ns = self.tape.spoken_ns(start + step.n_samples)
            self.reply_due_ns = spoken_ns + round(step.reply_within_s * NS_PER_S)

    def _journal_step(self, fire: Fire, start: int | None, sent: int | None) -> None:
        self._journal(
            {
                "type": "step",
                "step": fire.step,
                "anchor": fire.anchor,
                "live": fire.live_ns,
                "confirmed": fire.confirmed_ns,
                "due": fire.due_ns,
                "start_sample": start,
                "sent": sent,
            }
        )

    # -- the target's side --------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """React to one protocol event that has just arrived."""
        now = event.at.hi
        match event:
            case AudioChunk():
                edges = self._ear.hear(event, now)
                for edge in edges:
                    self._director.heard(edge)
                if self._ear.is_flooded:
                    raise TargetLimitExceeded(
                        "audio is sent too far ahead of real time",
                        phase="call",
                        limit=f"max_ahead_s = {self._max_ahead_s:g}",
                    )
                if not edges and event.response_id == self._told_of:
                    # It tells the director nothing, and what is due by time rings by itself.
                    return
                self._told_of = event.response_id
            case SpeechStarted() if event.TYPE in self._codec.flush_on:
                self._flush(event.at, None)
            case Interrupt() if event.TYPE in self._codec.flush_on:
                self._flush(event.at, event.response_id)
            case ResponseStarted():
                self._active[event.response_id] = None
            case ResponseEnded() if self._is_audio_apart:
                # What was sent of it is still to be heard, or was long heard.
                self._active.pop(event.response_id, None)
            case ResponseEnded():
                self._active.pop(event.response_id, None)
                if event.status == "cancelled":
                    self._flush(event.at, event.response_id)
                for edge in self._ear.response_ended(event.response_id, now):
                    self._director.heard(edge)
            case ToolCall():
                self._answer(event)
            case _:
                pass
        self._director.event(event)
        self._advance()

    def _flush(self, at: Instant, response_id: str | None) -> None:
        edges, fact = self._ear.flush(at.hi, response_id)
        if fact is None:
            return
        self._director.revoke(at.hi)
        for edge in edges:
            self._director.heard(edge)
        self._journal(
            {
                "type": "flush",
                "lo": at.lo,
                "hi": at.hi,
                "response_id": response_id,
                "item_id": fact.item_id,
                "played_ms": fact.played_ms,
            }
        )
        if fact.item_id is not None and fact.played_ms is not None:
            self.perform(Truncate(fact.item_id, fact.played_ms), item_id=fact.item_id)

    def _answer(self, call: ToolCall) -> None:
        tool = self._tools.get(call.name)
        delay_s = tool.delay_s if tool is not None else 0.0

        def send_result() -> None:
            self._timers.discard(handle)
            self.perform(
                ToolResult(call.call_id, _output_of(tool)),
                call_id=call.call_id,
                name=call.name,
                delay_s=delay_s,
            )
            self._director.tool_answered(call.name, self._now())
            self._advance()

        handle = self._call_at(self._now() + round(delay_s * NS_PER_S), send_result)
        self._timers.add(handle)


def _goes_on(steps: Sequence[ScriptStep]) -> bool:
    """Whether the turn of the first of `steps` takes in another, with only pauses in between.

    They are told in either direction of time.
    """
    pauses = list(itertools.takewhile(lambda s: s.kind is StepKind.PAUSE, steps[1:]))
    other = steps[len(pauses) + 1 : len(pauses) + 2]
    whole = sorted((steps[0], *pauses, *other), key=lambda s: s.index)
    return bool(other) and is_one_turn(whole)


def _output_of(tool: ToolSpec | None) -> str:
    if tool is None:
        return json.dumps({"error": "unknown tool"})
    return json.dumps(tool.result, ensure_ascii=False, allow_nan=False)
