"""What a metric is computed from: a call, a turn or an event of it, all derived once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from vakforge_eval.metrics.anchors import Anchors, find_anchors
from vakforge_eval.metrics.hearing import Hearing, hear
from vakforge_eval.metrics.naming import with_response_names
from vakforge_eval.metrics.reaction import MISSED_NS, Fate, Reaction, find_reaction
from vakforge_eval.metrics.turns import Turn, Turns, find_turns
from vakforge_eval.signal.echo import MAX_DELAY_S
from vakforge_eval.timeline.call import CallTimeline, Utterance
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant, ns_to_s
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Censored, Flag, Reason, Undefined

__all__ = ["MAX_LATE_NS", "MAX_STAMP_NS", "CallView", "EventView", "TurnView"]

MAX_LATE_NS = 10 * NS_PER_MS
"""A frame of an utterance later than this spoils the turn."""
MAX_STAMP_NS = 10 * NS_PER_MS
"""An instant known no better than this was taken while the probe stalled."""


class CallView:
    """A call with what was heard in it and its turns."""

    def __init__(self, timeline: CallTimeline) -> None:
        self.timeline = with_response_names(timeline)

    @cached_property
    def hearing(self) -> Hearing:
        """What was heard of the agent."""
        return hear(self.timeline)

    @cached_property
    def turns(self) -> Turns:
        """The call's turns."""
        return find_turns(self.timeline, self.hearing)

    @cached_property
    def live_anchors(self) -> dict[int, int]:
        """Step -> its anchor as heard live (ns), for the steps whose anchor was heard."""
        lines = (o for o in self.timeline.journal if o.get("type") == "step")
        return {o["step"]: o["live"] for o in lines if isinstance(o.get("live"), int)}

    @cached_property
    def turn_views(self) -> tuple[TurnView, ...]:
        """A view of each turn, the greeting left out."""
        turns, responses = self.turns.turns, self.hearing.responses
        return tuple(
            TurnView(self, turn, find_anchors(self.timeline, turn, responses), turn is turns[-1])
            for turn in turns
        )

    @cached_property
    def event_views(self) -> tuple[EventView, ...]:
        """A view of each utterance that opens no turn, in order of start."""
        background = sorted(self.turns.background, key=lambda u: u.start.at)
        return tuple(EventView(self, u, self.turns.at(u.start.at)) for u in background)


@dataclass(frozen=True)
class TurnView:
    """One turn of a call; `is_last` is where a failure of the call shows."""

    call: CallView
    turn: Turn
    anchors: Anchors
    is_last: bool

    @property
    def timeline(self) -> CallTimeline:
        """The call's timeline."""
        return self.call.timeline

    @cached_property
    def reaction(self) -> Reaction | None:
        """What the agent did when the turn interrupted it; None if it is no barge-in."""
        if self.turn.kind is not StepKind.BARGE_IN:
            return None
        return find_reaction(self.call, self.turn.utterances[0])

    @property
    def watched_until(self) -> int:
        """Until when (ns) a reply was waited for: budget, next turn or end of watching."""
        return min(self.turn.deadline, self.turn.closes)

    @property
    def watched_s(self) -> float:
        """For how long after user_end a reply was waited for; the censoring bound."""
        return ns_to_s(max(0, self.watched_until - self.turn.end.at))

    @property
    def has_reply(self) -> bool:
        """Whether a reply was heard within the budget."""
        first = self.turn.first_reply
        return first is not None and first.segment.start.when.at <= self.turn.deadline

    @property
    def is_untold(self) -> bool:
        """Whether nothing tells the reply from the rest of what the user spoke into."""
        first = self.turn.first_reply
        return first is not None and first.is_untold

    @property
    def is_open(self) -> bool:
        """Whether watching ended before the server or the silence showed the reply's end."""
        timeline, reply = self.timeline, self.turn.reply
        if not self.is_last or not reply:
            return False
        if max(segment.end.when.at for segment in reply) > timeline.ended.at:
            return True
        if not timeline.capabilities.response_end:
            return False
        names = {segment.response_id for segment in self.turn.reply}
        return any(
            r.ended is None and r.cancelled is None
            for name, r in self.call.hearing.responses.items()
            if name in names
        )

    @property
    def is_cut_short(self) -> bool:
        """Whether watching ended before the reply's time was over.

        Who waits until then hangs up by the plan, which valid frames may lag by `MAX_LATE_NS`.
        """
        return self.is_last and self.timeline.ended.at < self.turn.deadline - MAX_LATE_NS

    @property
    def is_failed(self) -> bool:
        """Whether the call failed before this turn was over."""
        if self.timeline.failure is None or not self.is_last:
            return False
        if self.has_reply:
            return self.is_open or (self.is_cut_short and self.anchors.answer is None)
        return self.is_cut_short

    @property
    def no_stop(self) -> Undefined | None:
        """Why no stop can be the agent's own: it does not listen, or the caller stops it."""
        if not self.timeline.capabilities.barge_in:
            return Undefined(Reason.HALF_DUPLEX)
        is_by_hand = self.timeline.capabilities.manual_commit or bool(self.timeline.commits)
        return Undefined(Reason.NOT_OBSERVABLE) if is_by_hand else None

    @cached_property
    def is_missed_interruption(self) -> bool | Undefined | None:
        """Whether the agent was still heard 1.0 s after the interrupting words, not having stopped.

        Undefined where that is not known, None where the turn is no barge-in.
        """
        if self.reaction is None:
            return None
        if self.no_stop is not None:
            return self.no_stop
        gate = self.call.hearing.gate
        if isinstance(gate, Undefined):
            return gate
        if self.reaction.void is not None:
            return Undefined(self.reaction.void)
        return self.reaction.is_missed(self.turn.end.shifted(MISSED_NS))

    @property
    def is_unheard(self) -> bool:
        """Whether audio of a reply came and none of it was audible."""
        return not self.has_reply and any(r.messages for r in self.turn.unheard)

    def missing(self, *, audible: bool) -> Censored | Undefined:
        """Return why a moment of the reply does not exist.

        Parameters
        ----------
        audible
            Whether the moment is one of heard or audible sound, not of a message.
        """
        gate = self.call.hearing.gate
        if audible and isinstance(gate, Undefined):
            return gate
        if self.is_untold:
            return Undefined(Reason.STOP_AMBIGUOUS)
        if audible:
            for fault in (s.start_fault for s in self.turn.reply):
                if fault is not None:
                    return Undefined(fault)
        if self.is_failed:
            return Undefined(Reason.CALL_FAILED)
        if audible and self.is_unheard:
            return Undefined(Reason.NOT_AUDIBLE)
        return Censored(self.watched_s)

    @property
    def reply_text(self) -> str:
        """Text of the turn's reply, whether it was heard or not."""
        turn, responses = self.turn, self.call.hearing.responses
        names = dict.fromkeys(
            [s.response_id for s in turn.reply] + [r.response_id for r in turn.unheard]
        )
        spoken = (
            "".join(
                text.text
                for text in responses[name].texts
                if name is not None or turn.start.at <= text.at.at < turn.closes
            ).strip()
            for name in names
        )
        return " ".join(text for text in spoken if text)

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """The turn's marks, in the order of their names."""
        first, reaction = self.turn.first_reply, self.reaction
        found = {
            **_spoilt(self.turn.utterances, self._instants),
            Flag.CALL_FAILED: self.is_failed,
            Flag.EARLY: first is not None and first.is_early and not first.is_untold,
            Flag.PREMATURE_ENDPOINT: any(
                h.is_premature and not h.is_untold for h in self.turn.segments
            ),
            Flag.NO_REPLY: self._is_no_reply(),
            Flag.NOT_AUDIBLE: self.is_unheard,
            Flag.SOFT_EDGE: any(s.has_soft_edge for s in self.turn.reply)
            or (reaction is not None and reaction.has_soft_edge),
            Flag.VAD_DISAGREES: first is not None and first.segment.is_witnessed is False,
            Flag.ENDPOINTING_MANUAL: self._is_committed_by_hand(),
            Flag.VOID: reaction is not None and reaction.void is not None,
            Flag.MISSED_INTERRUPTION: self.is_missed_interruption is True,
            Flag.ECHO: self.call.hearing.has_echo(self.turn.start.at, self.turn.closes),
            Flag.ECHO_UNKNOWN: self.call.hearing.may_have_echo(
                self.turn.start.at, self.turn.closes
            ),
        }
        return _those_set(found)

    @property
    def _instants(self) -> Iterator[Instant]:
        """Yield all moments that a metric of this turn may use."""
        yield self.turn.start
        yield from self.anchors.instants()
        for segment in self.turn.reply:
            yield from (segment.start.when, segment.end.when)
        if self.reaction is not None:
            yield from self.reaction.instants()

    def _is_no_reply(self) -> bool:
        """Whether the agent had its time and did not use it.

        A correction that follows within the budget takes the floor back by script: the turn is
        censored there, but the agent was not mute.
        """
        if self.has_reply or self.is_unheard or self.is_cut_short:
            return False
        if isinstance(self.call.hearing.gate, Undefined):
            return False
        is_taken_back = self.turn.successor is StepKind.CORRECTION
        return not (is_taken_back and self.turn.closes < self.turn.deadline)

    def _is_committed_by_hand(self) -> bool:
        """Whether the probe itself told the server that the user was done."""
        turn = self.turn
        return any(turn.start.at <= at.lo < turn.closes for at in self.timeline.commits)


@dataclass(frozen=True)
class EventView:
    """An utterance that opens no turn: backchannel, noise, side talk or sham.

    `turn` is the one it fell into, maybe the greeting.
    """

    call: CallView
    utterance: Utterance
    turn: Turn

    @property
    def timeline(self) -> CallTimeline:
        """The call's timeline."""
        return self.call.timeline

    @property
    def kind(self) -> StepKind:
        """The step's kind."""
        return self.utterance.kind

    @cached_property
    def reaction(self) -> Reaction:
        """What the agent did when it met the event."""
        return find_reaction(self.call, self.utterance)

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """The event's marks, in the order of their names."""
        reaction = self.reaction
        instants = (self.utterance.start, *reaction.instants())
        heard = self.utterance.start.at, self.utterance.end.at + round(MAX_DELAY_S * NS_PER_S)
        found = {
            **_spoilt((self.utterance,), instants),
            Flag.SOFT_EDGE: reaction.has_soft_edge,
            Flag.VOID: reaction.void is not None,
            Flag.STUTTER: reaction.fate is Fate.STUTTERED,
            Flag.ECHO: self.call.hearing.has_echo(*heard),
            Flag.ECHO_UNKNOWN: self.call.hearing.may_have_echo(*heard),
        }
        return _those_set(found)


def _spoilt(utterances: Iterable[Utterance], instants: Iterable[Instant]) -> dict[Flag, bool]:
    """Return what the probe may have spoilt in what it said and stamped."""
    said = tuple(utterances)
    return {
        Flag.INVALID_PACING: any(u.late_ns > MAX_LATE_NS or u.is_reanchored for u in said),
        Flag.BACK_PRESSURE: any(u.has_back_pressure for u in said),
        Flag.PROBE_STALLED: any(instant.width > MAX_STAMP_NS for instant in instants),
    }


def _those_set(found: dict[Flag, bool]) -> tuple[Flag, ...]:
    return tuple(sorted(flag for flag, is_set in found.items() if is_set))
