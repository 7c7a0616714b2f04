"""Decides what the scripted user does and when, on what is *heard*; owns no clock and no socket.

Edges, events and the time go in; actions come out. Nothing is ever scheduled and cancelled: what
comes next is worked out anew from what is known, so audio that is queued ahead fixes a moment
early, and a flush that revokes it unfixes it. Once the moment is `lead_ns` away it is given out as
a `Fire`, which is final.

The rules:

- A step's turn comes when the speech of the step before it has ended; speech of the user never
  overlaps speech of the user.
- *After the agent's end*: the reply to the user's last turn is over. It began in or after that
  turn, ends after it, and the agent is not busy (see `hearing`). A new onset before the step
  fires means that it was not over after all.
- *After the agent's onset*: the first onset from the step's turn on; one before it counts while
  the agent still speaks and the offset still lies ahead. What is meant to be heard over the
  agent's speech does not use an onset whose speech is known to end too early, unless the agent is
  heard again by then: it paused for breath.
- Where nothing tells the end of a response, an agent that falls silent within 1 s of a disturbance
  may go on: what comes after its end waits until that has been watched.
- When nothing comes for as long as the reply may take, what needs no agent goes on without it and
  the rest is skipped. A reply or a sign of life (a response begun, a tool at work) starts that
  time anew; after a finished reply it is 3 s.
- The script's end: the last reply is over, and disturbances have been watched for 4 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from vakforge_eval.timeline.events import Event
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S
from vakforge_eval.timeline.script import BACKGROUND_KINDS, FLOOR_TAKING_KINDS, StepKind
from vakforge_probe.scenario.anchors import AnchorKind
from vakforge_probe.scenario.edges import HeardEdge
from vakforge_probe.scenario.flow import Act, Choice, Condition, Flow, Node
from vakforge_probe.scenario.hearing import Hearing, Segment

__all__ = ["Action", "Branch", "Director", "Fire", "HangUp", "Skip"]

LEAD_NS = 40 * NS_PER_MS
"""Two frames: enough to lay a clip onto the stream to the sample."""

_AFTERTHOUGHT_NS = 3 * NS_PER_S
"""Speech that comes later after a finished reply was not asked for."""
_SILENCED_NS = NS_PER_S
_WATCH_NS = 4 * NS_PER_S
"""A disturbance may silence the agent within 1 s, and it may resume within 3 s."""
_LINGER_NS = 500 * NS_PER_MS
_OTHERWISE_NS = 500 * NS_PER_MS
"""Text may trail the audio it belongs to."""

_NEVER_NS = 1 << 63

_OVER_SPEECH = BACKGROUND_KINDS | {StepKind.BARGE_IN}
_UNHEARD = frozenset({StepKind.WAIT, StepKind.HANG_UP})


@dataclass(frozen=True, slots=True)
class Fire:
    """Do this step; `due_ns` is the planned moment of its first sample, as spoken.

    `live_ns` is the anchor's instant as heard live, `confirmed_ns` when it was known; both are
    None where the anchor is nothing heard, or nothing was heard in time.
    """

    step: int
    due_ns: int
    anchor: str
    live_ns: int | None
    confirmed_ns: int | None


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave this step out: ``no_agent_speech`` or ``no_tool_call``."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Branch:
    """The branch at `path` goes its way number `taken`."""

    path: str
    taken: int


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the call: ``done``, ``hang_up`` (scripted) or ``budget``."""

    reason: str


Action = Fire | Skip | Branch | HangUp


class HasFlow(Protocol):
    """What the director needs of a compiled scenario."""

    @property
    def flow(self) -> Flow:
        """The steps in time."""
        ...


@dataclass(frozen=True, slots=True)
class _Found:
    """An anchor's instant, and what is told of it."""

    at_ns: int
    live_ns: int | None = None
    confirmed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What comes next as things stand: `do(now)` is to be called once `at_ns` is reached."""

    at_ns: int
    do: Callable[[int], list[Action]]


class Director:
    """Walks one compiled scenario; use once.

    Parameters
    ----------
    compiled : Compiled
        The scenario; only its flow is used.
    lead_ns : int
        How long before a step's first sample its `Fire` is given.
    """

    def __init__(self, compiled: HasFlow, *, lead_ns: int = LEAD_NS) -> None:
        flow = compiled.flow
        self._lead_ns = lead_ns
        self._call_ns = flow.call_ns
        self._todo: deque[Node] = deque(flow.nodes)
        self._hearing = Hearing(flow.tool_delays_ns, tells_response_end=flow.tells_response_end)
        self._ready_ns: int | None = None
        self._is_over = False
        self._free_ns = 0
        """When the user's speech so far has ended."""
        self._floor_ns: int | None = None
        """Start of speech of the last floor-taking step."""
        self._asked_ns = 0
        """Its end: from here a reply is due."""
        self._patience_ns = flow.greeting_ns
        self._watch_until_ns = 0
        self._tells_end = flow.tells_response_end
        self._plan: _Plan | None = None
        self._is_planned = False
        """Whether `_plan` still follows from what is known."""
        self._wake_ns = 0

    # -- inputs -------------------------------------------------------------------------------

    def ready(self, at_ns: int) -> None:
        """The user's stream begins: the moment of its first sample."""
        self._ready_ns = self._free_ns = self._asked_ns = at_ns
        self._is_planned = False

    def heard(self, edge: HeardEdge) -> None:
        """The agent is, or will be, heard to begin or end."""
        self._hearing.edge(edge)
        self._is_planned = False

    def revoke(self, from_ns: int) -> None:
        """Queued audio was dropped: nothing told of `from_ns` or later will be heard."""
        self._hearing.revoke(from_ns)
        self._is_planned = False

    def event(self, event: Event) -> None:
        """The protocol told something."""
        if self._hearing.event(event):
            self._is_planned = False

    def tool_answered(self, name: str, at_ns: int) -> None:
        """The result of the oldest open call of this tool was sent."""
        self._hearing.answered(name, at_ns)
        self._is_planned = False

    # -- outputs ------------------------------------------------------------------------------

    def is_idle(self, now_ns: int) -> bool:
        """Whether nothing has changed since `next_wake` was asked, and its moment is to come.

        Messages and frames mostly change nothing, and there are 50 of each in a second of a call.
        """
        return self._is_planned and now_ns < self._wake_ns

    def poll(self, now_ns: int) -> list[Action]:
        """Return what is to be done now, in order; each action is given once."""
        actions: list[Action] = []
        while (plan := self._next()) is not None and plan.at_ns <= now_ns:
            self._is_planned = False
            actions += plan.do(now_ns)
        return actions

    def next_wake(self) -> int | None:
        """Return when to poll if nothing else comes before; a past moment means an action waits."""
        plan = self._plan if self._is_planned else self._next()
        return None if plan is None else plan.at_ns

    # -- what comes next ----------------------------------------------------------------------

    def _next(self) -> _Plan | None:
        if not self._is_planned:
            self._plan, self._is_planned = self._work_out(), True
            self._wake_ns = _NEVER_NS if self._plan is None else self._plan.at_ns
        return self._plan

    def _work_out(self) -> _Plan | None:
        if self._ready_ns is None or self._is_over:
            return None
        plan = self._next_by_script()
        budget_ns = self._ready_ns + self._call_ns
        if plan is None or plan.at_ns > budget_ns:
            return _Plan(budget_ns, partial(self._hang_up, "budget"))
        return plan

    def _next_by_script(self) -> _Plan | None:
        if not self._todo:
            return self._end()
        node = self._todo[0]
        return self._branch(node) if isinstance(node, Choice) else self._step(node)

    def _step(self, act: Act) -> _Plan | None:
        found = self._find(act)
        if found is None:
            return self._step_unanchored(act)
        start_ns = max(found.at_ns + act.anchor.offset_ns, self._free_ns)
        if act.anchor.kind.is_agent_end:
            start_ns = max(start_ns, self._may_go_on_until(found.at_ns))
        limit_ns = self._free_ns + act.limit_ns
        if act.kind is StepKind.WAIT and start_ns > limit_ns:
            return _Plan(limit_ns, partial(self._fire, act, _Found(limit_ns), limit_ns))
        due_ns = start_ns - act.lead_ns
        lead_ns = 0 if act.kind in _UNHEARD else self._lead_ns
        return _Plan(due_ns - lead_ns, partial(self._fire, act, found, due_ns))

    def _step_unanchored(self, act: Act) -> _Plan | None:
        if act.kind is StepKind.WAIT:
            limit_ns = self._free_ns + act.limit_ns
            return _Plan(limit_ns, partial(self._fire, act, None, limit_ns))
        given_up_ns = self._given_up_at()
        if given_up_ns is None:
            return None
        return _Plan(given_up_ns, partial(self._go_on, act, given_up_ns))

    def _branch(self, choice: Choice) -> _Plan | None:
        moments = [
            (at_ns, i)
            for i, way in enumerate(choice.ways)
            if (at_ns := self._true_at(way.when)) is not None
        ]
        if not moments:
            return None
        at_ns, taken = min(moments)
        return _Plan(at_ns, partial(self._take, choice, taken))

    def _end(self) -> _Plan | None:
        end = self._reply_end()
        over_ns = self._given_up_at() if end is None else end.heard_ns + _LINGER_NS
        if over_ns is None:
            return None
        at_ns = max(over_ns, self._watch_until_ns, self._free_ns)
        return _Plan(at_ns, partial(self._hang_up, "done"))

    # -- anchors ------------------------------------------------------------------------------

    def _find(self, act: Act) -> _Found | None:
        match act.anchor.kind:
            case AnchorKind.STREAM:
                return _Found(self._ready_ns or 0)
            case AnchorKind.PREVIOUS:
                return _Found(self._free_ns)
            case AnchorKind.TOOL:
                return self._find_call(act)
            case AnchorKind.ONSET:
                return self._find_onset(act)
            case AnchorKind.END | AnchorKind.GREETING:
                return _found(self._reply_end())

    def _find_call(self, act: Act) -> _Found | None:
        moments = (at_ns for name, at_ns in self._hearing.calls if name == act.anchor.tool)
        at_ns = next(moments, None)
        return None if at_ns is None else _Found(at_ns, at_ns, at_ns)

    def _find_onset(self, act: Act) -> _Found | None:
        for segment in self._hearing.segments:
            onset_ns = segment.onset.heard_ns
            start_ns = onset_ns + act.anchor.offset_ns
            end_ns = None if segment.end is None else segment.end.heard_ns
            is_past = end_ns is not None and end_ns < self._free_ns
            if onset_ns < self._free_ns and (is_past or start_ns < self._free_ns):
                continue
            if act.kind in _OVER_SPEECH and not self._speaks_at(start_ns, segment):
                continue
            return _found(segment.onset)
        return None

    def _speaks_at(self, at_ns: int, segment: Segment) -> bool:
        """Whether `segment`, or one after it, is or may be heard at a moment that lies ahead."""
        if segment.end is None or at_ns < segment.end.heard_ns:
            return True
        return any(
            later.onset.heard_ns <= at_ns
            and later.onset.confirmed_ns <= at_ns
            and (later.end is None or at_ns < later.end.heard_ns)
            for later in self._hearing.segments
            if later.onset.heard_ns > segment.onset.heard_ns
        )

    def _reply_end(self) -> HeardEdge | None:
        """Return the end of the reply to the user's last turn (or of the greeting), if over."""
        last = self._hearing.last
        if last is None or last.end is None or self._hearing.is_busy:
            return None
        is_reply = self._floor_ns is None or (
            last.onset.heard_ns >= self._floor_ns and last.end.heard_ns >= self._asked_ns
        )
        return last.end if is_reply else None

    def _may_go_on_until(self, end_ns: int) -> int:
        """Return until when speech that ended so may go on after all; 0 if nothing says so."""
        since_ns = end_ns - (self._watch_until_ns - _WATCH_NS)
        is_silenced = not self._tells_end and 0 <= since_ns <= _SILENCED_NS
        return self._watch_until_ns if is_silenced else 0

    def _given_up_at(self) -> int | None:
        """Return when waiting for the agent ends; None while it is heard to speak."""
        if self._hearing.is_speaking:
            return None
        since_ns = max(self._asked_ns, self._hearing.last_sign_ns)
        patience_ns = self._patience_ns
        if (end := self._reply_end()) is not None:
            since_ns = max(end.heard_ns, self._free_ns)
            patience_ns = min(patience_ns, _AFTERTHOUGHT_NS)
        return max(since_ns + patience_ns, self._free_ns)

    def _true_at(self, when: Condition) -> int | None:
        if when.timeout_ns is not None:
            return self._free_ns + when.timeout_ns
        if when.is_otherwise:
            end = self._reply_end()
            over_ns = self._given_up_at() if end is None else end.heard_ns + _OTHERWISE_NS
            return None if over_ns is None else max(over_ns, self._free_ns)
        called = any(name == when.tool for name, _ in self._hearing.calls)
        return self._free_ns if called or self._hearing.said_any(when.said) else None

    # -- acting -------------------------------------------------------------------------------

    def _fire(self, act: Act, found: _Found | None, due_ns: int, now_ns: int) -> list[Action]:
        self._todo.popleft()
        found = found or _Found(due_ns)
        speech_ns = max(due_ns, now_ns) + act.lead_ns
        lasts_ns = act.limit_ns if act.kind is StepKind.PAUSE else act.speech_ns
        self._free_ns = speech_ns + lasts_ns
        if act.kind in FLOOR_TAKING_KINDS:
            self._floor_ns, self._asked_ns = speech_ns, self._free_ns
            self._patience_ns = act.reply_within_ns
            self._hearing.user_took_floor(speech_ns)
        if act.kind in BACKGROUND_KINDS:
            self._watch_until_ns = speech_ns + _WATCH_NS
        fire = Fire(act.step, due_ns, act.anchor.text, found.live_ns, found.confirmed_ns)
        if act.kind is StepKind.HANG_UP:
            return [fire, *self._hang_up("hang_up", now_ns)]
        return [fire]

    def _go_on(self, act: Act, due_ns: int, now_ns: int) -> list[Action]:
        """Do without the agent what can be done without it; skip the rest."""
        self._hearing.give_up()
        if act.anchor.kind is not AnchorKind.TOOL and act.kind not in _OVER_SPEECH:
            return self._fire(act, None, due_ns, now_ns)
        self._todo.popleft()
        self._free_ns = max(self._free_ns, due_ns)
        is_tool = act.anchor.kind is AnchorKind.TOOL
        return [Skip(act.step, "no_tool_call" if is_tool else "no_agent_speech")]

    def _take(self, choice: Choice, taken: int, now_ns: int) -> list[Action]:
        self._todo.popleft()
        self._todo.extendleft(reversed(choice.ways[taken].then))
        self._free_ns = max(self._free_ns, now_ns)
        return [Branch(choice.path, taken)]

    def _hang_up(self, reason: str, now_ns: int) -> list[Action]:
        self._is_over = True
        return [HangUp(reason)]


def _found(edge: HeardEdge | None) -> _Found | None:
    if edge is None:
        return None
    return _Found(edge.heard_ns, edge.heard_ns, edge.confirmed_ns)
