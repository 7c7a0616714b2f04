"""Which agent audio belongs to which turn of the user.

A turn opens at the user_start of a floor-taking utterance; utterances split only by scripted
pauses are one turn. Each audible segment gets the first rule that fits (`Role`):

(a) its response was audible or cancelled before this turn opened: carry_over, of the old turn;
    without response ids, if it goes on with what was said before (`resuming`);
(b) it starts before the first turn: greeting (turn -1);
(c) it lies inside the user's turn and lasts < 1.0 s: agent_backchannel;
(d) it starts inside the user's turn: an early reply, in a scripted pause also premature;
(e) it starts between the user's end and the next turn: reply, or unsolicited when nothing was owed
    and it comes > 3.0 s after the agent's last word.

Audio without response ids that runs across a user_start belongs to the old turn by its start. Where
nothing tells whether it is the rest of that or the reply, it is a reply that `is_untold`.
Nothing is ever paired by index.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from vakforge_eval.metrics.cuts import Stretch
from vakforge_eval.metrics.hearing import Hearing
from vakforge_eval.metrics.responses import Response
from vakforge_eval.metrics.resuming import Sequel, find_sequel
from vakforge_eval.metrics.segments import Segment
from vakforge_eval.timeline.call import CallTimeline, SentResult, Utterance
from vakforge_eval.timeline.events import (
    SpeechStarted,
    SpeechStopped,
    ToolCall,
    TurnCommitted,
    UserTranscript,
)
from vakforge_eval.timeline.instant import NS_PER_S, Instant
from vakforge_eval.timeline.script import FLOOR_TAKING_KINDS, Script, StepKind, is_one_turn

__all__ = ["GREETING", "HeardSegment", "Role", "Turn", "Turns", "find_turns"]

GREETING = -1
_BACKCHANNEL_NS = NS_PER_S
_UNSOLICITED_NS = 3 * NS_PER_S


class Role(StrEnum):
    """What a segment is to its turn."""

    GREETING = "greeting"
    CARRY_OVER = "carry_over"
    AGENT_BACKCHANNEL = "agent_backchannel"
    REPLY = "reply"
    UNSOLICITED = "unsolicited"


@dataclass(frozen=True, slots=True)
class HeardSegment:
    """A segment with its role in the turn that it belongs to.

    `is_untold` marks a reply that may be the rest of what the user spoke into.
    """

    segment: Segment
    role: Role
    is_early: bool = False
    is_premature: bool = False
    is_untold: bool = False


@dataclass(slots=True)
class Turn:
    """One turn of the user with what the agent said to it; the greeting has no utterance.

    Attributes
    ----------
    index
        Order in the call, from 0; -1 for the greeting.
    step
        Index of the script's step that opened it: the same in every call of the scenario.
    start, end
        user_start of the first and user_end of the last utterance.
    closes
        Next turn's user_start, or the end of watching (ns).
    deadline
        When the reply's budget is over (ns).
    unheard
        Responses that belong here and of which nothing was heard.
    is_end_untold
        Whether what a later turn got as its reply may be the rest of what was said here.
    """

    index: int
    step: int
    kind: StepKind | None
    utterances: tuple[Utterance, ...]
    start: Instant
    end: Instant
    closes: int
    deadline: int
    successor: StepKind | None = None
    segments: list[HeardSegment] = field(default_factory=list)
    unheard: list[Response] = field(default_factory=list)
    is_end_untold: bool = False

    @property
    def pauses(self) -> tuple[tuple[Instant, Instant], ...]:
        """Scripted pauses inside the turn, those between its utterances included."""
        inner = [pause for u in self.utterances for pause in u.pauses]
        between = [(a.end, b.start) for a, b in pairwise(self.utterances)]
        return tuple(sorted((*inner, *between), key=lambda pause: pause[0].at))

    def is_speaking(self, ns: int) -> bool:
        """Whether the user speaks at a moment of the turn, which no scripted pause is."""
        return ns < self.end.at and not any(a.at <= ns < b.at for a, b in self.pauses)

    @property
    def reply(self) -> list[Segment]:
        """The segments of the reply, in order, with those that were carried over a later turn."""
        own = {h.segment.response_id for h in self.segments if h.role is Role.REPLY}
        return [
            h.segment
            for h in self.segments
            if h.role is Role.REPLY or (h.role is Role.CARRY_OVER and h.segment.response_id in own)
        ]

    @property
    def first_reply(self) -> HeardSegment | None:
        """The first reply segment heard, whenever it came."""
        return next((h for h in self.segments if h.role is Role.REPLY), None)


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a call.

    `background` are the utterances that never open a turn; `discarded` the responses of which
    nothing was played, because they were cancelled first.
    """

    greeting: Turn
    turns: tuple[Turn, ...]
    background: tuple[Utterance, ...]
    discarded: tuple[Response, ...]

    def at(self, ns: int) -> Turn:
        """Return the turn that is open at `ns`."""
        return _turn_at(self.greeting, self.turns, ns)


def find_turns(timeline: CallTimeline, hearing: Hearing) -> Turns:
    """Return the turns of `timeline` with every segment of `hearing` in exactly one of them."""
    turns = _open_turns(timeline)
    first_start = turns[0].start.at if turns else timeline.ended.at
    begin = timeline.ready or Instant.exact(min(first_start, timeline.ended.at))
    greeting = Turn(GREETING, GREETING, None, (), begin, begin, first_start, first_start)
    assigner = _Assigner(timeline, hearing, greeting, turns)
    for segment in hearing.segments:
        assigner.assign(segment)
    discarded = assigner.assign_unheard()
    background = tuple(u for u in timeline.utterances if u.kind not in FLOOR_TAKING_KINDS)
    return Turns(greeting, tuple(turns), background, tuple(discarded))


def _open_turns(timeline: CallTimeline) -> list[Turn]:
    groups: list[list[Utterance]] = []
    taking = (u for u in timeline.utterances if u.kind in FLOOR_TAKING_KINDS)
    for utterance in sorted(taking, key=lambda u: u.start.at):
        if groups and _is_continued(timeline.script, groups[-1][-1], utterance):
            groups[-1].append(utterance)
        else:
            groups.append([utterance])
    turns = []
    for index, group in enumerate(groups):
        later = groups[index + 1][0] if index + 1 < len(groups) else None
        last = group[-1]
        turns.append(
            Turn(
                index=index,
                step=group[0].step.index,
                kind=group[0].kind,
                utterances=tuple(group),
                start=group[0].start,
                end=last.end,
                closes=later.start.at if later else max(timeline.ended.at, last.end.at),
                deadline=last.end.at + round(last.step.reply_within_s * NS_PER_S),
                successor=later.kind if later else None,
            )
        )
    return turns


def _is_continued(script: Script, before: Utterance, after: Utterance) -> bool:
    """Whether only scripted pauses lie between two utterances, none waiting for the agent."""
    first, last = before.step.index, after.step.index
    between = [step for step in script.steps if first < step.index < last]
    return is_one_turn([before.step, *between, after.step])


def _turn_at(greeting: Turn, turns: Sequence[Turn], ns: int) -> Turn:
    place = bisect_right(turns, ns, key=lambda turn: turn.start.at) - 1
    return turns[place] if place >= 0 else greeting


class _Assigner:
    """Puts segments, in order of their start, into turns."""

    def __init__(
        self, timeline: CallTimeline, hearing: Hearing, greeting: Turn, turns: Sequence[Turn]
    ) -> None:
        self._timeline = timeline
        self._hearing = hearing
        self._responses = hearing.responses
        self._greeting = greeting
        self._turns = turns
        self._owner: dict[str, Turn] = {}
        self._spoken: dict[int, tuple[int, int]] = {}
        """Start of a turn's latest reply segment, and when its reply falls silent."""
        self._carried_until = 0
        """When what was carried over falls silent."""
        self._unnamed: tuple[Segment, Turn] | None = None
        """The latest segment without a response id, and its turn."""
        self._calls = [event for event in timeline.events if isinstance(event, ToolCall)]
        self._results = {result.call_id: result for result in timeline.tool_results}

    def _turn_at(self, ns: int) -> Turn:
        return _turn_at(self._greeting, self._turns, ns)

    def assign(self, segment: Segment) -> None:
        turn = self._turn_at(segment.start.when.at)
        before = self._unnamed
        sequel = self._sequel(segment, turn) if segment.response_id is None else None
        owner = self._old_owner(segment, turn, sequel)
        if segment.response_id is None:
            self._unnamed = segment, owner or turn
        if owner is not None:
            owner.segments.append(HeardSegment(segment, Role.CARRY_OVER))
            self._carried_until = max(self._carried_until, segment.end.when.at)
            return
        heard = self._judge(segment, turn)
        if before is not None and sequel in (Sequel.UNTOLD, Sequel.INDETERMINATE):
            before[1].is_end_untold = True
            heard = replace(heard, is_untold=heard.role is Role.REPLY)
        turn.segments.append(heard)
        if heard.role is Role.REPLY:
            _, until = self._last_word(turn)
            self._spoken[turn.index] = segment.start.when.at, max(until, segment.end.when.at)
        if segment.response_id is not None:
            self._owner[segment.response_id] = turn

    def _last_word(self, turn: Turn) -> tuple[int, int]:
        return self._spoken.get(turn.index, (turn.start.at, turn.end.at))

    def _sequel(self, segment: Segment, turn: Turn) -> Sequel | None:
        """Return what a segment without a response id is to what an older turn left unsaid.

        None where there is nothing of that kind. Speech that was over when the user began can only
        be gone on with under the user's words: after them comes the reply.
        """
        if self._unnamed is None or self._unnamed[1] is turn:
            return None
        before, start = self._unnamed[0], segment.start.when.at
        is_speaking = turn.is_speaking(start)
        if not is_speaking and before.end.when.at <= turn.start.at:
            return None
        return find_sequel(
            Stretch.of(self._timeline, self._hearing, before),
            segment,
            since=min(turn.start.lo, before.end.when.at),
            until=min(turn.closes, self._timeline.ended.at),
            is_speaking=is_speaking,
        )

    def _old_owner(self, segment: Segment, turn: Turn, sequel: Sequel | None) -> Turn | None:
        """Return the older turn that the segment's response belongs to, if there is one."""
        name = segment.response_id
        if sequel is Sequel.REST and self._unnamed is not None:
            return self._unnamed[1]
        if name is None or turn.index == GREETING:
            return None
        owner = self._owner.get(name)
        if owner is not None:
            return owner if owner is not turn else None
        response = self._responses[name]
        if response.cancelled is not None and response.cancelled.at < turn.start.at:
            born = response.born or response.cancelled
            return self._turn_at(min(born.at, turn.start.at - 1))
        return None

    def _judge(self, segment: Segment, turn: Turn) -> HeardSegment:
        start, end = segment.start.when.at, segment.end.when.at
        if turn.index == GREETING:
            return HeardSegment(segment, Role.GREETING)
        if end <= turn.end.at and end - start < _BACKCHANNEL_NS:
            return HeardSegment(segment, Role.AGENT_BACKCHANNEL)
        if start < turn.end.at:
            is_premature = any(a.at <= start < b.at for a, b in turn.pauses)
            return HeardSegment(segment, Role.REPLY, is_early=True, is_premature=is_premature)
        if self._is_unsolicited(segment, turn):
            return HeardSegment(segment, Role.UNSOLICITED)
        return HeardSegment(segment, Role.REPLY)

    def _is_unsolicited(self, segment: Segment, turn: Turn) -> bool:
        """Whether the agent spoke up after > 3.0 s in which it owed the user nothing."""
        start = segment.start.when.at
        born = self._born(segment)
        _, quiet_since = self._last_word(turn)
        if min(start, born) - max(quiet_since, self._carried_until) <= _UNSOLICITED_NS:
            return False
        if self._is_tool_pending(turn, born) or self._is_response_pending(segment, turn, born):
            return False
        return turn.index in self._spoken or self._was_not_noticed(turn, born)

    def _born(self, segment: Segment) -> int:
        """Return the first sign of the segment's response, its start where there are no ids."""
        name = segment.response_id
        born = None if name is None else self._responses[name].born
        return segment.start.when.at if born is None else born.at

    def _is_response_pending(self, segment: Segment, turn: Turn, at: int) -> bool:
        """Whether a response to this turn, other than the segment's, was still under way."""
        return any(
            response.response_id not in (None, segment.response_id)
            and response.started is not None
            and turn.start.at <= response.started.at <= at
            and self._is_open(response, at - _UNSOLICITED_NS)
            for response in self._responses.values()
        )

    def _is_open(self, response: Response, at: int) -> bool:
        """Whether a response had not ended by `at`; without a known end it is no evidence."""
        if response.ended is None:
            return self._timeline.capabilities.response_end
        return response.ended.at > at

    def _is_tool_pending(self, turn: Turn, at: int) -> bool:
        """Whether a tool call, or the answer to its result, was still owed."""
        last_word, _ = self._last_word(turn)
        return any(
            turn.start.at <= call.at.at <= at
            and _is_owed(self._results.get(call.call_id), last_word)
            for call in self._calls
        )

    def _was_not_noticed(self, turn: Turn, at: int) -> bool:
        """Whether a server that tells what it notices told nothing of this turn."""
        noticed = (SpeechStarted, SpeechStopped, TurnCommitted, UserTranscript)
        return self._timeline.capabilities.server_vad_events and not any(
            isinstance(e, noticed) and turn.start.at <= e.at.at <= at for e in self._timeline.events
        )

    def assign_unheard(self) -> list[Response]:
        """Put inaudible responses into their turns; return those cancelled before any sound."""
        heard = {h.segment.response_id for t in self._all() for h in t.segments}
        discarded = []
        for name, response in self._responses.items():
            born = response.born
            if name is None or name in heard or born is None:
                continue
            if response.cancelled is not None:
                discarded.append(response)
            elif response.messages or response.texts:
                self._turn_at(born.at).unheard.append(response)
        return discarded

    def _all(self) -> Iterable[Turn]:
        return (self._greeting, *self._turns)


def _is_owed(result: SentResult | None, last_word: int) -> bool:
    return result is None or result.at.at > last_word
