"""What the agent did after the user spoke into its speech, from what was heard.

The *target* is what is audible at the user's onset. A barge-in is followed from there:

- The target falls silent where its segment ends. If its response is heard again within 1.5 s, that
  was a pause for breath, and the next segment is followed by the same rules.
- The silence is a *stop* if a message between the onset and 0.5 s after it tells of a cut of that
  response (a cancelled status, an interrupt, a flush that took some of it), or if the response
  is not heard for 1.5 s. While a tool call waits for its result, that time does not run.
- It is none if the response ended uncancelled and all of it was heard: it came to its own end.
- Audio without response ids: after a message that tells of a cut, new audio is a new response.
  Without one, audio that follows within 1.5 s is the old response if the user still speaks; if not,
  nothing tells.
- Where the errors of both edges leave open whether 1.5 s passed, so does the fate.
- A new response never undoes a stop. What watching did not last to confirm is not confirmed.

What meets a disturbance that should not stop the agent is followed alike, but judged by its silence
within 1.0 s of the onset: the same response resumed within 3.0 s is a stutter.

Source: metrics definition "Duplex".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from vakforge_eval.metrics.cuts import Stretch
from vakforge_eval.metrics.hearing import Hearing
from vakforge_eval.metrics.resuming import (
    CONFIRM_NS,
    EVIDENCE_NS,
    Sequel,
    bounds,
    find_sequel,
    is_after,
    quiet_from,
)
from vakforge_eval.metrics.segments import SOFT_EDGE_NS, Segment
from vakforge_eval.metrics.turns import Turn
from vakforge_eval.timeline.call import CallTimeline, Utterance
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Edge, Instant
from vakforge_eval.timeline.script import BACKGROUND_KINDS, StepKind
from vakforge_eval.timeline.values import Reason, Undefined

if TYPE_CHECKING:
    from vakforge_eval.metrics.view import CallView

__all__ = [
    "ANCHOR_NS",
    "MISSED_NS",
    "RESUME_NS",
    "WINDOW_NS",
    "Fate",
    "Reaction",
    "find_reaction",
]

WINDOW_NS = NS_PER_S
"""An agent that falls silent later did not do so because of the disturbance."""
RESUME_NS = 3 * NS_PER_S
"""An agent that goes on within this time has stuttered."""
MISSED_NS = NS_PER_S
"""An agent still heard so long after the interrupting words has missed them."""
ANCHOR_NS = 100 * NS_PER_MS
"""A live anchor may be so far from where it is found off line."""


class Fate(StrEnum):
    """What became of the agent's speech."""

    SILENT = "silent"
    """The agent was not audible when the user began."""
    HELD = "held"
    """It talked on through the time in which it would have had to stop."""
    STUTTERED = "stuttered"
    """It fell silent and went on with the same response."""
    STOPPED = "stopped"
    RESTARTED = "restarted"
    """It stopped, and began a new response before the user took the floor again."""
    ENDED = "ended"
    """It came to its own end."""
    AMBIGUOUS = "ambiguous"
    """It fell silent, and nothing tells whether what followed was the same response."""
    NEVER_STOPPED = "never_stopped"
    """It talked on for as long as it was watched."""
    UNCONFIRMED = "unconfirmed"
    """Watching ended before a silence could be told from a pause, or a hold was over."""
    ANCHOR_MISSED = "anchor_missed"
    """What the step hung on was not where it had been heard live."""
    INDETERMINATE = "indeterminate"
    """The error interval straddles the moment that decides."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """The fate of the agent's speech from the user's onset on.

    Attributes
    ----------
    segment
        What was audible when the user began (indeterminate: may have been).
    silence
        When it fell silent as heard, for good or (stuttered) for the first time.
    silence_arrival
        When the last audible sample of its response had arrived, whether it was ever heard or not;
        Undefined where that could not be decoded.
    resumed
        When it went on, or what may be the same response did.
    evidence
        First message that tells of a cut of this response, up to 0.5 s after the silence.
    reacted
        First message that tells of an interruption, even where nothing was left to cut.
    until
        Until when (ns) it surely had not stopped, where no stop is known.
    last
        The segment that `silence` ended.
    void
        Why the event shows nothing, if it does not.
    """

    fate: Fate
    segment: Segment | None = None
    silence: Edge | None = None
    silence_arrival: Edge | Undefined | None = None
    resumed: Edge | None = None
    evidence: Instant | None = None
    reacted: Instant | None = None
    until: int | None = None
    last: Segment | None = None
    void: Reason | None = None

    def edges(self) -> Iterator[Edge]:
        """Yield the moments in audio that decided."""
        if self.segment is not None and self.fate is Fate.INDETERMINATE:
            yield from (self.segment.start, self.segment.end)
        for edge in (self.silence, self.silence_arrival, self.resumed):
            if isinstance(edge, Edge):
                yield edge

    def instants(self) -> Iterator[Instant]:
        """Yield all moments that decided, without their detection error."""
        yield from (edge.when for edge in self.edges())
        yield from (at for at in (self.evidence, self.reacted) if at is not None)

    @property
    def has_soft_edge(self) -> bool:
        """Whether a moment that decided moves by more than 50 ms with the gate."""
        return any(e.detect_minus + e.detect_plus > SOFT_EDGE_NS for e in self.edges())

    def is_missed(self, limit: Instant) -> bool | Undefined:
        """Whether the agent was heard at `limit` without having stopped.

        Undefined: natural_end if its reply was over by then, indeterminate where the errors leave
        it open, stop_ambiguous, cut_off if it was not watched so long, and what hides the end of
        what was heard.
        """
        if self.silence is None:
            is_late: bool | None = self.until is not None and self.until >= limit.at
        else:
            is_late = is_after(self.silence, limit)
        if is_late:
            return True
        if self.last is not None and self.last.end_fault is not None:
            return Undefined(self.last.end_fault)
        match self.fate:
            case Fate.STOPPED | Fate.ENDED if is_late is None:
                return Undefined(Reason.INDETERMINATE)
            case Fate.STOPPED:
                return False
            case Fate.ENDED:
                return Undefined(Reason.NATURAL_END)
            case Fate.AMBIGUOUS:
                return Undefined(Reason.STOP_AMBIGUOUS)
            case Fate.INDETERMINATE:
                return Undefined(Reason.INDETERMINATE)
            case _:
                return Undefined(Reason.CUT_OFF)


def find_reaction(call: CallView, utterance: Utterance) -> Reaction:
    """Return what the agent did after a barge-in or a background utterance of `call`.

    Where the noise is too high to hear anything, the fate is indeterminate without a segment or a
    reason to be void.

    Raises
    ------
    ValueError
        If the utterance is of a kind that does not mean to meet the agent's speech.
    """
    is_disturbance = utterance.kind in BACKGROUND_KINDS
    if not is_disturbance and utterance.kind is not StepKind.BARGE_IN:
        raise ValueError(f"no reaction to {utterance.kind} is looked for")
    timeline, hearing = call.timeline, call.hearing
    if isinstance(hearing.gate, Undefined):
        return Reaction(Fate.INDETERMINATE)
    if _is_anchor_missed(hearing, utterance, call.live_anchors.get(utterance.step.index)):
        return Reaction(Fate.ANCHOR_MISSED, void=Reason.ANCHOR_MISSED)
    target, is_sure = _audible_at(hearing, utterance.start)
    if target is None:
        return Reaction(Fate.SILENT, void=Reason.AGENT_SILENT)
    if not is_sure:
        return Reaction(Fate.INDETERMINATE, target, void=Reason.INDETERMINATE)
    scene = _Scene(timeline, hearing, utterance, call.turns.at(utterance.start.at), target)
    return scene.hold() if is_disturbance else scene.stop()


def _is_anchor_missed(hearing: Hearing, utterance: Utterance, live: int | None) -> bool:
    """Whether the agent's onset or end that the step hung on lies > 100 ms from the live one."""
    anchor = utterance.step.anchor
    if anchor.endswith("after agent onset"):
        found = [segment.start.when.at for segment in hearing.segments]
    elif anchor.endswith(("after agent end", "after greeting")):
        found = [segment.end.when.at for segment in hearing.segments]
    else:
        return False
    return live is not None and all(abs(at - live) > ANCHOR_NS for at in found)


def _audible_at(hearing: Hearing, at: Instant) -> tuple[Segment | None, bool]:
    """Return the segment audible at an instant, and whether it surely is that one."""
    doubtful: Segment | None = None
    for segment in hearing.segments:
        start, end = bounds(segment.start), bounds(segment.end)
        if at.hi < start.lo or at.lo >= end.hi:
            continue
        if at.lo >= start.hi and at.hi < end.lo:
            return segment, True
        doubtful = segment
    return doubtful, False


@dataclass(frozen=True)
class _Scene:
    """One disturbance of the agent's speech."""

    timeline: CallTimeline
    hearing: Hearing
    utterance: Utterance
    turn: Turn
    target: Segment

    @property
    def _since(self) -> int:
        return self.utterance.start.lo

    @cached_property
    def _watched_until(self) -> int:
        """When the user took the floor (again), or watching ended (ns)."""
        return min(self.turn.closes, self.timeline.ended.at)

    def stop(self) -> Reaction:
        """Return what a barge-in led to."""
        budget = min(self._watched_until, self.turn.deadline)
        segment = self.target
        while True:
            stretch = self._stretch(segment)
            silence = segment.end
            if silence.when.at >= budget:
                return self._never_stopped(stretch, budget)
            found = self._judge_stop(stretch)
            if found is not None:
                return found
            assert stretch.following is not None  # noqa: S101 - only what resumed is not judged
            segment = stretch.following

    def _judge_stop(self, stretch: Stretch) -> Reaction | None:
        """Return what the silence after a stretch means; None: a pause, the response goes on."""
        silence, following = stretch.segment.end, stretch.following
        if following is not None:
            match self._sequel(stretch, following):
                case Sequel.INDETERMINATE:
                    return self._found(Fate.INDETERMINATE, stretch, resumed=following.start)
                case Sequel.REST:
                    return None
                case Sequel.UNTOLD if following.start.when.at < self._watched_until:
                    return self._found(Fate.AMBIGUOUS, stretch, resumed=following.start)
                case _:
                    pass
        evidence = stretch.evidence(self._since, silence.when.at + EVIDENCE_NS)
        stopped = self._found(Fate.STOPPED, stretch, evidence=evidence)
        if evidence is not None:
            return stopped
        if stretch.is_natural_end:
            return self._ended(stretch)
        if self._quiet_from(stretch.segment) + CONFIRM_NS <= self._watched_until:
            return stopped
        return self._found(Fate.UNCONFIRMED, stretch, until=bounds(silence).lo)

    def _sequel(self, stretch: Stretch, following: Segment) -> Sequel:
        return find_sequel(
            stretch,
            following,
            since=self._since,
            until=self._watched_until,
            is_speaking=self.turn.is_speaking(following.start.when.at),
        )

    def hold(self) -> Reaction:
        """Return what a disturbance that should not stop the agent led to."""
        limit = self.utterance.start.shifted(WINDOW_NS)
        segment, stutter = self.target, None
        while True:
            stretch = self._stretch(segment)
            late = is_after(segment.end, limit)
            if late is None:
                return self._found(Fate.INDETERMINATE, stretch)
            if late:
                return self._held(stutter, limit)
            found = self._judge_hold(stretch)
            if found.fate is not Fate.STUTTERED:
                return found
            assert stretch.following is not None  # noqa: S101 - it resumed
            stutter = stutter or found
            segment = stretch.following

    def _held(self, stutter: Reaction | None, limit: Instant) -> Reaction:
        if self._watched_until < limit.at:
            return Reaction(Fate.UNCONFIRMED, self.target, until=self._watched_until)
        return stutter or Reaction(Fate.HELD, self.target)

    def _judge_hold(self, stretch: Stretch) -> Reaction:
        """Return what a silence within the window means."""
        silence, following = stretch.segment.end, stretch.following
        has_name = stretch.segment.response_id is not None
        quiet_from = self._quiet_from(stretch.segment)
        evidence = stretch.evidence(self._since, silence.when.at + EVIDENCE_NS)
        resumed = None if following is None else following.start
        is_new = resumed is not None and not has_name and evidence is not None
        if stretch.is_natural_end and evidence is None:
            return self._found(Fate.ENDED, stretch, void=Reason.NATURAL_END)
        if resumed is not None and not is_new:
            shift = quiet_from - silence.when.at + RESUME_NS
            gone = is_after(resumed, bounds(silence).shifted(shift))
            if gone is None:
                return self._found(Fate.INDETERMINATE, stretch, resumed=resumed)
            if not gone:
                fate = Fate.STUTTERED if has_name else Fate.AMBIGUOUS
                return self._found(fate, stretch, resumed=resumed)
        if self._is_new_response(stretch, is_new=is_new):
            return self._found(Fate.RESTARTED, stretch, evidence=evidence)
        if evidence is not None or quiet_from + RESUME_NS <= self._watched_until:
            return self._found(Fate.STOPPED, stretch, evidence=evidence)
        return self._found(Fate.UNCONFIRMED, stretch, until=bounds(silence).lo)

    def _is_new_response(self, stretch: Stretch, *, is_new: bool) -> bool:
        """Whether another response began before the user took the floor again."""
        name, silence = stretch.segment.response_id, stretch.segment.end.when.at
        return any(
            silence <= s.start.when.at < self._watched_until
            and (s.response_id != name or (is_new and name is None))
            for s in self.hearing.segments
        )

    def _stretch(self, segment: Segment) -> Stretch:
        return Stretch.of(self.timeline, self.hearing, segment)

    def _quiet_from(self, segment: Segment) -> int:
        return quiet_from(self.timeline, segment, self._watched_until)

    def _ended(self, stretch: Stretch) -> Reaction:
        return self._found(Fate.ENDED, stretch, until=bounds(stretch.segment.end).lo)

    def _never_stopped(self, stretch: Stretch, budget: int) -> Reaction:
        """Return what is known of an agent that was heard to the last, told to stop or not."""
        evidence = stretch.evidence(self._since, budget)
        found = Reaction(Fate.NEVER_STOPPED, self.target, until=budget, last=stretch.segment)
        if evidence is None:
            return found
        return replace(
            found,
            silence_arrival=stretch.last_arrival(),
            evidence=evidence,
            reacted=stretch.reacted(self._since, budget),
        )

    def _found(
        self,
        fate: Fate,
        stretch: Stretch,
        *,
        resumed: Edge | None = None,
        evidence: Instant | None = None,
        until: int | None = None,
        void: Reason | None = None,
    ) -> Reaction:
        segment = stretch.segment
        reaction = Reaction(
            fate,
            self.target,
            silence=segment.end,
            resumed=resumed,
            evidence=evidence,
            until=until,
            last=segment,
            void=void,
        )
        if fate not in (Fate.STOPPED, Fate.RESTARTED):
            return reaction
        told_by = min(segment.end.when.at + CONFIRM_NS, self._watched_until)
        return replace(
            reaction,
            silence_arrival=stretch.last_arrival(),
            reacted=stretch.reacted(self._since, told_by),
        )
