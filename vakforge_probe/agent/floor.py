"""Whose turn it is: what the agent does when the caller begins and ends to speak.

The caller's onset while a reply is heard is a barge-in or a backchannel, as the behaviour says;
while a reply is only being thought of it takes that reply back. The caller's end commits the turn
and opens the reply. A stop that is still to come when the turn ends goes first, so that clients see
``speech_started`` before ``speech_stopped``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vakforge_eval.timeline.instant import NS_PER_S, samples_to_ns
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clips import NOISE_GROUP, RATE_HZ
from vakforge_probe.agent.closing import Turn
from vakforge_probe.agent.dialogue import Dialogue, Move
from vakforge_probe.agent.ears import Ears, Heard, Utterance
from vakforge_probe.agent.outbox import Outbox, Posted
from vakforge_probe.agent.speaker import Reply, Speaker
from vakforge_probe.agent.truth import Ledger
from vakforge_probe.agent.voice import compose
from vakforge_probe.protocol.server import ServerCodec

__all__ = ["Floor", "Parts"]

HEARING_S = 0.05
"""So long after a sample was spoken the ears have surely judged it: a frame and a block."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a floor works with."""

    behaviour: Behaviour
    server: ServerCodec
    outbox: Outbox
    speaker: Speaker
    dialogue: Dialogue
    ledger: Ledger
    ears: Ears
    now_ns: Callable[[], int]
    note: Callable[[dict[str, Any]], None]


class Floor:
    """Turn-taking of one call."""

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._knobs = parts.behaviour
        self._active: Reply | None = None
        self._turn: Turn | None = None
        self._early: Reply | None = None
        self._n_turns = 0
        self._item = ""
        self._is_ignoring = False
        self._is_stop_due = False
        self._n_overlaps = 0
        self._deferred: Heard | None = None
        self._uncommitted: list[Utterance] = []
        self._tool_outputs: list[str] = []
        self._make_odd = False

    # What the caller does

    def hear(self, heard: Heard) -> None:
        """Act on what the ears made out."""
        if self._p.server.is_manual:
            if heard.kind == "endpoint":
                self._uncommitted += heard.utterances
        elif heard.kind == "onset":
            self._onset(heard)
        elif self._is_stop_due:
            self._deferred = heard
        else:
            self._endpoint(heard)

    def _onset(self, heard: Heard) -> None:
        utterance = heard.utterances[0]
        self._is_ignoring = False
        is_talking = self._p.speaker.is_talking(self._p.now_ns())
        if is_talking or self._active is not None:
            self._overlap(utterance, is_talking=is_talking)
            return
        self._open(utterance)

    def _open(self, utterance: Utterance) -> None:
        self._speech_started(utterance)
        if self._knobs.early_talk and utterance.clip is not None:
            self._talk_early(utterance)
        elif self._knobs.own_backchannel:
            self._nod_later(utterance, 1)

    def _overlap(self, utterance: Utterance, *, is_talking: bool) -> None:
        seconds = None
        if utterance.clip is not None:
            seconds = (utterance.end - utterance.start) / self._p.ears.tape.rate_hz
        is_backchannel = self._knobs.is_backchannel(utterance.n_words, seconds)
        onset = self._p.ears.tape.spoken_start(utterance.start)[0].at
        if not is_talking:
            # A thought is given up at once: nobody hears a delay there.
            if is_backchannel and self._knobs.on_backchannel in ("hold", "pause"):
                self._ignore(utterance, "backchannel")
            else:
                self._stop(utterance)
        elif self._knobs.half_duplex:
            self._ignore(utterance, "half_duplex")
        elif self._knobs.stop_delay == "never":
            self._ignore(utterance, "never_stops")
        elif is_backchannel is None:
            after = round((self._knobs.backchannel_seconds + HEARING_S) * NS_PER_S)
            self._ignore(utterance, "undecided")
            self._p.outbox.call(onset + after, lambda: self._decide(utterance, onset))
        elif is_backchannel and self._knobs.on_backchannel != "interrupt":
            self._backchannel(utterance, onset)
        else:
            self._interrupted(utterance, onset)

    def _interrupted(self, utterance: Utterance, onset: int) -> None:
        self._n_overlaps += 1
        if self._n_overlaps < self._knobs.stop_on:
            self._ignore(utterance, "not_yet")
        else:
            self._stop_later(utterance, onset)

    def _decide(self, utterance: Utterance, onset: int) -> None:
        lasted = (utterance.end - utterance.start) / self._p.ears.tape.rate_hz
        if self._p.ears.is_turn_open and lasted >= self._knobs.backchannel_seconds:
            self._is_ignoring = False
            self._interrupted(utterance, onset)

    def _backchannel(self, utterance: Utterance, onset: int) -> None:
        kind = self._knobs.on_backchannel
        self._ignore(utterance, f"backchannel_{kind}")
        at = onset + self._stop_delay
        if kind == "pause":
            gap = round(self._knobs.resume_delay * NS_PER_S)
            self._p.outbox.call(at, lambda: self._pause(gap))
        elif kind == "stop":
            self._p.outbox.call(at, lambda: self._stop(utterance))

    def _pause(self, gap_ns: int) -> None:
        if self._active is not None:
            self._p.speaker.pause(self._active, gap_ns)
            self._p.note({"type": "pause", "response": self._active.tag, "gap_ns": gap_ns})

    @property
    def _stop_delay(self) -> int:
        delay = self._knobs.stop_delay
        return 0 if delay == "never" else round(delay * NS_PER_S)

    def _stop_later(self, utterance: Utterance, onset: int) -> None:
        self._is_stop_due = True
        self._p.outbox.call(onset + self._stop_delay, lambda: self._stop(utterance))

    def _stop(self, utterance: Utterance) -> None:
        """Stop talking; clients that must flush learn it by the same message as on real servers."""
        self._is_stop_due = False
        stopped = self._active
        if stopped is not None:
            self._p.outbox.drop(stopped.tag)
        self._speech_started(utterance, is_interruption=True)
        self._p.note({"type": "stop", "response": stopped.tag if stopped else None,
                      "onset_sample": utterance.start})  # fmt: skip
        rule = "backchannel_stop" if self._is_ignoring else "stop"
        self._p.ledger.reaction(utterance, rule)
        if stopped is not None:
            self.finish(stopped, "cancelled", "turn_detected", onset=utterance.start)
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            self._endpoint(deferred)

    def _speech_started(self, utterance: Utterance, *, is_interruption: bool = False) -> None:
        self._item = self._p.server.new_id("item")
        flushes = self._p.server.interrupts

        def posted(p: Posted) -> None:
            if flushes:
                self._p.ledger.flush(p.at, p.late_ns, utterance.start)

        start_ms = utterance.start * 1000 // self._p.ears.tape.rate_hz
        told = self._p.server.speech_started(start_ms, self._item, is_interruption=is_interruption)
        self._p.outbox.say(told, posted)

    def _ignore(self, utterance: Utterance, rule: str) -> None:
        self._is_ignoring = True
        self._p.ledger.reaction(utterance, rule)
        self._p.note({"type": "ignored", "rule": rule, "onset_sample": utterance.start})

    def _nod_later(self, utterance: Utterance, n: int) -> None:
        onset = self._p.ears.tape.spoken_start(utterance.start)[0].at
        at = onset + round(n * self._knobs.own_backchannel * NS_PER_S)
        self._p.outbox.call(at, lambda: self._nod(utterance, n))

    def _nod(self, utterance: Utterance, n: int) -> None:
        now, ears = self._p.now_ns(), self._p.ears
        move = self._p.dialogue.backchannel()
        ends = now + samples_to_ns(len(move.clips[0].pcm), RATE_HZ)
        # One that outlasts the caller would be taken for an answer, by people too.
        if ears.is_turn_open and not self._is_ignoring and ends < ears.tape.expected(ears.turn_end):
            if self._active is None:
                self._say(move, now, "backchannel")
            self._nod_later(utterance, n + 1)

    def _endpoint(self, heard: Heard) -> None:
        if self._is_ignoring:
            self._is_ignoring = False
            if not self._hears_rest(heard):
                return
            self._speech_started(heard.utterances[0])
        early, self._early = self._early, None
        self._commit(heard.position, heard.utterances)
        if early is not None:
            self._attach(early, "early")
        else:
            self._answer()

    def _hears_rest(self, heard: Heard) -> bool:
        """Whether an agent that is deaf while it talks still heard the end of this turn."""
        ended, _ = self._p.ears.tape.spoken_end(heard.position)
        return self._knobs.half_duplex and self._p.ledger.talks_until < ended.at

    def _commit(self, end: int, utterances: tuple[Utterance, ...]) -> None:
        server, rate = self._p.server, self._p.ears.tape.rate_hz
        said = [] if server.is_manual else server.speech_stopped(end * 1000 // rate, self._item)
        said += server.committed(self._item)
        text = _text(utterances)
        if self._knobs.transcript and text:
            seconds = (end - utterances[0].start) / rate
            said += server.transcript(self._item, text, seconds)
        self._p.outbox.say(said)
        self._turn = Turn(self._n_turns, utterances, end)
        self._n_turns += 1

    # What the agent does

    def _answer(self) -> None:
        turn = self._turn
        if turn is None:
            return
        every = self._knobs.no_reply
        if every and (turn.index + 1) % every == 0:
            self._log(turn, "no_reply")
        elif all(u.clip and u.clip.group == NOISE_GROUP for u in turn.utterances):
            self._log(turn, "noise")
        else:
            due = self._p.ears.tape.spoken_end(turn.user_end)[0].at
            move = self._p.dialogue.reply(_text(turn.utterances), self._p.server.tools)
            self._log(turn, move.rule)
            self._do(move, due + round(self._knobs.reply_delay * NS_PER_S), turn)

    def _log(self, turn: Turn, rule: str) -> None:
        turn.rule = rule
        self._p.ledger.turn(turn)

    def _attach(self, reply: Reply, rule: str) -> None:
        if self._turn is not None:
            self._turn.tags.append(reply.tag)
            self._log(self._turn, rule)

    def _do(self, move: Move, at: int, turn: Turn | None) -> None:
        if self._active is not None:
            self.finish(self._active, "cancelled", "turn_detected")
        if move.tool is None:
            self._say(move, at, move.rule, turn)
            return
        reply = self._begin(move.rule, turn)
        name, arguments = move.tool

        def call_tool() -> None:
            said = reply.writer.end_message()
            said += reply.writer.tool_call(self._p.server.new_id("call"), name, arguments)
            self._p.outbox.say(said)
            self.finish(reply)

        if not self._knobs.filler:
            call_tool()
            return
        filler = self._p.dialogue.filler()
        self._p.speaker.say(reply, compose(self._knobs.plain(), filler.clips, ()), at, call_tool)

    def _begin(self, kind: str, turn: Turn | None) -> Reply:
        reply = self._p.speaker.begin(kind)
        self._active, self._n_overlaps = reply, 0
        if turn is not None:
            turn.tags.append(reply.tag)
        return reply

    def _say(self, move: Move, at: int, kind: str, turn: Turn | None = None) -> Reply:
        reply = self._begin(kind, turn)
        reply.loses_byte, self._make_odd = self._make_odd, False
        knobs = self._knobs.plain() if kind in ("backchannel", "greeting") else self._knobs
        speech = compose(knobs, move.clips, self._p.dialogue.spare)
        self._p.note({"type": "reply", "response": reply.tag, "rule": kind,
                      "turn": turn.index if turn else None, "text": speech.text})  # fmt: skip
        self._p.speaker.say(reply, speech, at, lambda: self.finish(reply))
        return reply

    def finish(
        self,
        reply: Reply,
        status: str = "completed",
        reason: str | None = None,
        *,
        onset: int | None = None,
    ) -> None:
        """End `reply`; `onset` is where the caller began to say what ended it, if that did."""
        self._p.speaker.end(reply, status, reason, onset=onset)
        if self._active is reply:
            self._active = None

    def _talk_early(self, utterance: Utterance) -> None:
        at = self._p.ears.tape.expected(utterance.end)
        at -= round(self._knobs.early_talk * NS_PER_S)
        move = self._p.dialogue.reply(_text((utterance,)), ())
        self._early = self._say(move, at, move.rule)

    # What the client asks for

    def greet(self) -> None:
        """Say the greeting, unless the caller was faster."""
        if not self._p.ears.is_turn_open and self._active is None and not self._n_turns:
            self._say(self._p.dialogue.greeting(), self._p.now_ns(), "greeting")

    def commit(self) -> None:
        """Close the caller's turn by hand."""
        utterances = tuple(self._uncommitted)
        self._uncommitted = []
        open_now = tuple(u for u in self._p.ears.open_turn if u not in utterances)
        utterances += open_now
        end = min(utterances[-1].end, self._p.ears.tape.length) if utterances else 0
        self._item = self._p.server.new_id("item")
        if utterances:
            self._commit(end, utterances)
        else:
            self._p.outbox.say(self._p.server.committed(self._item))

    def tool_output(self, output: str) -> None:
        """Take a tool's result; the answer waits until the client asks for a response."""
        self._tool_outputs.append(output)

    def respond(self) -> None:
        """Make a response because the client asks for one."""
        if self._active is not None:
            code = "conversation_already_has_active_response"
            text = f"Conversation already has an active response: {self._active.tag}"
            self._p.outbox.say(self._p.server.error(code, text))
            return
        soon = self._p.now_ns() + round(self._knobs.answer_delay * NS_PER_S)
        if self._tool_outputs:
            output, self._tool_outputs = self._tool_outputs[-1], []
            self._do(self._p.dialogue.after_tool(output), soon, self._turn)
        elif self._turn is not None and not self._turn.rule:
            self._answer()
        else:
            self._do(self._p.dialogue.unprompted(), soon, None)

    def cancel(self, response_id: str | None) -> None:
        """Stop the response that the client names."""
        active = self._active
        if active is None or response_id not in (None, active.tag):
            text = "Cancellation failed: no active response found"
            self._p.outbox.say(self._p.server.error("response_cancel_not_active", text))
            return
        self._p.note({"type": "cancelled_by_client", "response": active.tag})
        self.finish(active, "cancelled", "client_cancelled")

    def make_next_odd(self) -> None:
        """Fault: let the next reply's audio end inside a sample."""
        self._make_odd = True


def _text(utterances: tuple[Utterance, ...]) -> str:
    return " ".join(u.clip.text for u in utterances if u.clip and u.clip.text)
