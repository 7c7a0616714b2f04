"""One call: connection, pacer, recorder and conversation, one deadline, one verdict.

Nothing here computes a number. Each message is stamped and recorded before it is looked at. A
failure of the target is an outcome of the call, never an exception out of it; a bug is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vakforge_eval.timeline.events import (
    AudioChunk,
    Closed,
    Event,
    Fault,
    Ready,
    ServerError,
    Unknown,
    event_to_json,
)
from vakforge_eval.timeline.instant import NS_PER_S, Instant
from vakforge_eval.timeline.records import Flags, Kind
from vakforge_probe.conversation import Conversation
from vakforge_probe.errors import (
    ProbeError,
    ProbeFault,
    TargetClosed,
    TargetError,
    TargetLimitExceeded,
    TargetProtocolError,
    TargetRefused,
    TargetTimeout,
)
from vakforge_probe.header import header
from vakforge_probe.heap import frozen_heap
from vakforge_probe.limits import Limits
from vakforge_probe.net.alarm import Alarm, Handle
from vakforge_probe.net.clock import is_virtual, now_ns_of
from vakforge_probe.net.pacer import Pacer
from vakforge_probe.net.shell import Sent
from vakforge_probe.net.stamps import ArrivalStamp
from vakforge_probe.protocol.base import EndSession, SessionConfig, StartSession, Wire
from vakforge_probe.protocol.recognise import MAX_RECOGNISED_BYTES, looks_like
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.recorder.mask import Mask
from vakforge_probe.recorder.writer import CaptureWriter
from vakforge_probe.scenario.compile import Compiled
from vakforge_probe.shells import Listeners, make_shell
from vakforge_probe.target import Target

__all__ = ["Call", "CallOutcome", "CallPlan"]

_N_STRANGE = 8
_FIRST_FRAME_LEAD_NS = 5_000_000
"""From ready to the first frame: enough to arm the alarm, too little to be a pause."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Everything that is known of a call before it is dialled."""

    call_id: str
    system: str
    target: Target
    compiled: Compiled
    folder: Path
    seed: int = 0
    repeat: int = 0
    order: int = 0
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What became of a call.

    Attributes
    ----------
    capture
        Its folder, complete whatever happened, unless the recorder could not even begin or end.
    reason
        ``done``, ``hang_up`` (scripted), ``budget``, ``target_closed``, ``failure`` or ``stopped``.
    recorder_problem
        Why recording stopped before the call did.
    """

    plan: CallPlan
    capture: Path
    reason: str
    failure: ProbeError | None
    recorder_problem: str | None


class Call:
    """Runs one `CallPlan`; use once, on a running loop.

    Parameters
    ----------
    on_event
        Called with each protocol event after the call has reacted to it; what it raises is a bug.

    Raises
    ------
    ConfigError
        If the target's URL or certificates cannot be used.
    CaptureFault
        If the capture cannot be begun.
    """

    def __init__(self, plan: CallPlan, *, on_event: Callable[[Event], None] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.plan = plan
        self._on_event = on_event
        self._virtual = is_virtual(loop)
        self._now = now_ns_of(loop)
        self._alarm = Alarm.of(loop)
        self._codec = make_client(plan.target.protocol, plan.limits)
        self._hide = Mask(plan.target.secrets)
        self._pacer: Pacer | None = None
        self._next_flags = Flags.NONE
        self._ready: asyncio.Future[None] = loop.create_future()
        self._over: asyncio.Future[str] = loop.create_future()
        self._failure: ProbeError | None = None
        self._bug: Exception | None = None
        self._phase = "ready"
        self._has_audio = False
        self._strange: list[Wire] = []
        """The first messages that the codec does not know; what they are is asked at a failure."""
        self._reply: Handle | None = None
        self._reply_ns: int | None = None
        self._n_received_bytes = 0
        self._cpu0, self._wall0 = time.process_time(), self._now()
        # Before the writer: what it refuses must leave nothing on the disk.
        self._shell = make_shell(
            plan.target,
            self._codec,
            self._codec.dial_url(plan.target.url, _session_of(plan)),
            plan.limits,
            Listeners(self._on_message, self._on_closed, self._fail),
        )
        self._writer = CaptureWriter(
            plan.folder,
            self._header(),
            plan.compiled.script,
            inline=self._virtual,
            limits=plan.limits,
            secrets=plan.target.secrets,
        )
        self._conversation = Conversation(
            plan.compiled,
            self._codec,
            transmit=self._transmit,
            journal=self._writer.event,
            hang_up=self.stop,
            now_ns=self._now,
            call_at=self._call_at,
            max_ahead_s=plan.limits.max_ahead_s,
        )

    def _header(self) -> dict[str, Any]:
        plan = self.plan
        return header(
            call_id=plan.call_id,
            system=plan.system,
            target=plan.target.label,
            codec=self._codec,
            seed=plan.seed,
            repeat=plan.repeat,
            order=plan.order,
            monotonic_ns=self._now(),
            is_virtual=self._virtual,
            limits=plan.limits,
            hardware=plan.target.hardware,
            clips=list(plan.compiled.clips),
        )

    # -- life cycle ---------------------------------------------------------------------------

    async def run(self) -> CallOutcome:
        """Dial, play the script, record, hang up.

        A bug and a cancellation come out of it as they are, but only once the connection and the
        capture have been closed.
        """
        with frozen_heap():
            return await self._run()

    async def _run(self) -> CallOutcome:
        interruption: BaseException | None = None
        try:
            await self._open()
            if await self._is_ready_in_time():
                self._start_stream()
            await self._until_over()
            self._note_muteness()
        except ProbeError as error:
            self._fail(error)
        except BaseException as error:
            interruption = error
            self.stop()
        if self._pacer is not None:
            self._pacer.stop()
        if self._reply is not None:
            self._reply.cancel()
        self._conversation.stop()
        outcome = await self._closed()
        if interruption is not None:
            raise interruption
        if self._bug is not None:
            raise self._bug
        return outcome

    def stop(self, reason: str = "stopped") -> None:
        """End the call, closing connection and capture properly; later calls do nothing."""
        if not self._over.done():
            self._over.set_result(reason)

    async def _open(self) -> None:
        """Connect; return as soon as the call is over, whatever the target does meanwhile."""
        opening = asyncio.ensure_future(self._shell.open())
        self._over.add_done_callback(lambda over: opening.cancel())
        try:
            await opening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._over.done() or (task is not None and task.cancelling()):
                raise
        finally:
            for name, (start, end) in self._shell.phases.items():
                self._writer.event({"type": "phase", "name": name, "start": start, "end": end})

    async def _is_ready_in_time(self) -> bool:
        """Configure the session; return False if the call is over before it is ready.

        Raises
        ------
        TargetTimeout
            If the target takes longer than it may.
        """
        if self._over.done():
            return False
        begun = self._now()
        self._conversation.perform(StartSession(_session_of(self.plan)))
        if self._codec.is_ready_at_once:
            ready = Ready(at=Instant.exact(self._now()))
            self._writer.event(event_to_json(ready, None))
            self._react(ready)
        limit_s = self.plan.limits.ready_s
        awaited: set[asyncio.Future[Any]] = {self._ready, self._over}
        await asyncio.wait(awaited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if self._over.done():
            return False
        if not self._ready.done():
            text = f"no session within {limit_s:g} s"
            if hint := self._dialect_hint():
                raise TargetProtocolError(f"{text}: {hint}", phase="ready")
            raise TargetTimeout(text, phase="ready")
        self._writer.event({"type": "phase", "name": "ready", "start": begun, "end": self._now()})
        return True

    def _start_stream(self) -> None:
        first = self._now() + _FIRST_FRAME_LEAD_NS
        first += self.plan.compiled.phase_ns(self.plan.seed)
        self._conversation.start(first)
        self._pacer = Pacer(
            self._alarm,
            self._now,
            self._conversation.tape.frame_ns,
            first,
            on_frame=self._on_frame,
            on_reanchor=self._on_reanchor,
        )

    async def _until_over(self) -> None:
        budget_s = min(self.plan.compiled.script.max_call_s, self.plan.limits.max_call_s)
        deadline = self._call_at(
            self._now() + round(budget_s * NS_PER_S), lambda: self.stop("budget")
        )
        try:
            # Shielded: a cancellation of the task would cancel the future too.
            await asyncio.shield(self._over)
        finally:
            deadline.cancel()

    async def _closed(self) -> CallOutcome:
        """Close connection and capture, however often that is cancelled meanwhile.

        It takes no longer than `close_s` and the disk, and a capture must not be torn by whoever
        loses patience.
        """
        closing = asyncio.ensure_future(self._close())
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return closing.result()

    async def _close(self) -> CallOutcome:
        reason = self._over.result()
        if self._failure is not None:
            reason = "target_closed" if isinstance(self._failure, TargetClosed) else "failure"
            self._writer.event({"type": "failure", **_facts_of(self._failure)})
        else:
            with suppress(TargetClosed):
                self._conversation.perform(EndSession())
        self._writer.event({"type": "self", **self._self_facts()})
        self._writer.event({"type": "call_ended", "at": self._now(), "reason": reason})
        await self._shell.close()
        if self._virtual:
            capture = self._writer.finish()
        else:
            capture = await asyncio.to_thread(self._writer.finish)
        return CallOutcome(self.plan, capture, reason, self._failure, self._writer.problem)

    def _self_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"wall_s": (self._now() - self._wall0) / NS_PER_S}
        if not self._virtual:
            # Of the whole process: with several calls at once it is what the gate must see.
            facts["cpu_s"] = time.process_time() - self._cpu0
        return facts | self._shell.self_facts()

    # -- how it ends --------------------------------------------------------------------------

    def _fail(self, error: ProbeError) -> None:
        if self._over.done():
            return
        if isinstance(error, TargetError) and error.phase == "call":
            # Whoever noticed it may not know that the session was not ready yet.
            error.phase = self._phase
        self._failure = error
        self.stop("failure")

    def _note_muteness(self) -> None:
        """Make a call that went to its end without a sample from the target a failed one.

        The user spoke and waited; a script that hangs up earlier proves nothing.
        """
        due = self._conversation.reply_due_ns
        reason = self._over.result()
        if self._has_audio or due is None or reason not in ("done", "hang_up", "budget"):
            return
        if reason != "hang_up" or self._now() >= due:
            text = "no audio in the whole call"
            hint = self._dialect_hint()
            self._failure = (
                TargetProtocolError(f"{text}: {hint}", phase="first_audio")
                if hint
                else TargetTimeout(text, phase="first_audio")
            )

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do `work` of a callback while the call lives; what goes wrong in it ends the call.

        Out of a callback an exception would reach nobody, and the call would hang on silently.
        """
        if self._over.done():
            return
        try:
            work()
        except ProbeError as error:
            self._fail(error)
        except Exception as error:
            self._bug = error
            self._fail(ProbeFault(f"{type(error).__name__}: {self._masked(str(error))}"))

    def _call_at(self, ns: int, callback: Callable[[], None]) -> Handle:
        return self._alarm.call_at(ns, lambda: self._guarded(callback))

    def _masked(self, text: str) -> str:
        return str(self._hide.value(text))

    # -- the two directions -------------------------------------------------------------------

    def _on_frame(self, frame: int, due_ns: int) -> None:
        flags, self._next_flags = self._next_flags, Flags.NONE
        self._guarded(lambda: self._conversation.on_frame(frame, due_ns, flags))

    def _on_reanchor(self, frame: int, shift_frames: int, late_ns: int) -> None:
        self._conversation.tape.shift(shift_frames)
        self._next_flags = Flags.REANCHORED
        self._writer.event(
            {"type": "reanchor", "frame": frame, "shift_frames": shift_frames, "late_ns": late_ns}
        )

    def _transmit(
        self, message: Wire, kind: Kind, due: int | None, flags: Flags = Flags.NONE
    ) -> Sent:
        sent = self._shell.send(message)
        if due is None:
            due, flags = 0, flags | Flags.NO_DUE
        if sent.back_pressure:
            flags |= Flags.BACK_PRESSURE
        payload, form = _as_bytes(message)
        self._writer.sent(kind, flags | form, due, sent.before, sent.after, payload)
        return sent

    def _on_message(self, data: Wire, stamp: ArrivalStamp) -> None:
        # What comes after the end was not part of the call, and nobody would hear it.
        if self._over.done():
            return
        payload, flags = _as_bytes(data)
        self._n_received_bytes += len(payload)
        if self._n_received_bytes > self.plan.limits.max_received_bytes:
            error = TargetLimitExceeded("sends too much", phase="call", limit="max_received_bytes")
            self._fail(error)
            return
        if stamp.coalesced:
            flags |= Flags.COALESCED
        if stamp.kernel is None:
            flags |= Flags.NO_KERNEL
        seq = self._writer.received(
            flags, stamp.kernel or 0, stamp.before, stamp.after, stamp.lo, stamp.hi, payload
        )
        self._guarded(lambda: self._take(data, Instant.arrival(stamp.lo, stamp.hi), seq))

    def _dialect_hint(self) -> str:
        """Return which other protocol the target seems to speak; nothing where none is known."""
        names = (looks_like(data) for data in self._strange)
        name = next((name for name in names if name not in (None, self._codec.name)), None)
        return "" if name is None else f"the target seems to speak {name}, not {self._codec.name}"

    def _take(self, data: Wire, at: Instant, seq: int) -> None:
        events = self._codec.receive(data, at)
        has_room = len(self._strange) < _N_STRANGE and len(data) <= MAX_RECOGNISED_BYTES
        if has_room and any(isinstance(event, Fault | Unknown) for event in events):
            self._strange.append(data)
        for event in events:
            self._writer.event(event_to_json(event, seq))
            self._react(event)
            if self._on_event is not None:
                self._on_event(event)
        self._send_replies()

    def _send_replies(self) -> None:
        """Send what the codec has to say by itself, and come back when it will have more."""
        for reply in self._codec.take_replies(self._now()):
            if not self._over.done():
                self._transmit(reply, Kind.CONTROL, None)
        next_ns = self._codec.next_reply_ns
        if next_ns == self._reply_ns:
            return
        if self._reply is not None:
            self._reply.cancel()
        self._reply_ns = next_ns
        self._reply = None if next_ns is None else self._call_at(next_ns, self._on_reply_due)

    def _on_reply_due(self) -> None:
        self._reply = self._reply_ns = None
        self._send_replies()

    def _react(self, event: Event) -> None:
        match event:
            case Ready() if not self._ready.done():
                self._phase = "call"
                self._ready.set_result(None)
            case Fault(is_fatal=True, limit=str(limit)):
                raise TargetLimitExceeded(event.what, phase=self._phase, limit=limit)
            case Fault(is_fatal=True):
                hint = self._dialect_hint()
                raise TargetProtocolError(
                    self._masked(event.what) + (f"; {hint}" if hint else ""),
                    phase=self._phase,
                    excerpt=self._masked(event.excerpt),
                )
            case ServerError(is_fatal=True):
                said = ": ".join(filter(None, (event.code, event.message)))
                raise TargetRefused(
                    self._masked(said or "an error without a reason"), phase=self._phase
                )
            case AudioChunk():
                self._has_audio |= bool(event.data)
        if not self._over.done():
            self._conversation.on_event(event)

    def _on_closed(self, code: int, reason: str) -> None:
        now = Instant.exact(self._now())
        by = "probe" if self._over.done() else "target"
        self._writer.event(
            event_to_json(Closed(at=now, code=code, reason=reason[:200], by=by), None)
        )
        words = f": {self._masked(reason)}" if reason else ""
        self._fail(TargetClosed(f"connection closed, code {code}{words}", phase=self._phase))


def _session_of(plan: CallPlan) -> SessionConfig:
    script = plan.compiled.script
    return SessionConfig(
        model=plan.target.model,
        instructions=script.system_prompt,
        tools=tuple(script.tools),
    )


def _as_bytes(message: Wire) -> tuple[bytes, Flags]:
    if isinstance(message, str):
        return message.encode(), Flags.NONE
    return message, Flags.BINARY


def _facts_of(error: ProbeError) -> dict[str, Any]:
    if isinstance(error, TargetError):
        return {"kind": error.kind, "phase": error.phase, "message": error.message}
    return {"kind": "probe_fault", "phase": "call", "message": str(error)}
