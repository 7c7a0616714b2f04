"""Whether a step led to what its script expected, with the error of the measurement counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vakforge_eval.metrics.bargein import stop_heard
from vakforge_eval.metrics.interruption import (
    false_alarm,
    false_interruption,
    false_interruption_noise,
    false_interruption_side_talk,
    interruption_response,
    mentions,
)
from vakforge_eval.metrics.latency import ttfa_heard
from vakforge_eval.metrics.reaction import Fate
from vakforge_eval.metrics.view import EventView, TurnView
from vakforge_eval.metrics.whys import why
from vakforge_eval.timeline.script import Expectation, StepKind
from vakforge_eval.timeline.values import (
    VOID_REASONS,
    Censored,
    Flag,
    Measured,
    MetricValue,
    Rate,
    Reason,
    Undefined,
)

__all__ = ["Status", "Verdict", "judge", "judge_left_out"]

Status = Literal["pass", "fail", "indeterminate", "void", "not_measurable"]

_OPEN = frozenset({Reason.INDETERMINATE, Reason.STOP_AMBIGUOUS, Reason.CUT_OFF, Reason.ECHO})
"""Reasons that leave both answers possible."""
_HOLDS = {
    StepKind.BACKCHANNEL: false_interruption,
    StepKind.NOISE: false_interruption_noise,
    StepKind.SIDE_TALK: false_interruption_side_talk,
    StepKind.SHAM: false_alarm,
}

_Judged = tuple[Status, str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one expectation.

    Attributes
    ----------
    text
        The expectation as the scenario states it.
    status
        "indeterminate": the measurement's error leaves both answers possible. "void": what was
        to be tested did not happen. "not_measurable": it did, and cannot be seen.
    why
        The number, outcome or reason behind the status, in words.
    """

    text: str
    status: Status
    why: str


def judge(expected: Expectation, view: TurnView | EventView) -> Verdict:
    """Return the verdict on one expectation of a turn or of a background utterance.

    Parameters
    ----------
    expected
        What the script says of the step; the grammar lets a kind of step expect only what it can
        show, and anything else is not measurable.
    view
        The turn that the step opened or belongs to, or the event that it was.

    Notes
    -----
    ``stop within`` and ``reply within`` compare `stop_heard` and `interruption_response` or
    `ttfa_heard`: passed if the whole error interval lies within the limit, failed if it lies
    beyond. A wait that was watched beyond the limit failed; a reply that came to its own end
    before it is void. A reply that begins before the user has ended is no reply in time.
    ``hold`` passes where the agent stuttered: it is no stop, and its gap is measured apart.
    """
    if isinstance(view, EventView):
        status, words = _hold(view) if expected.kind == "hold" else _out_of_place()
    elif expected.kind == "stop":
        status, words = _stop(view, expected.within_s)
    elif expected.kind == "reply" and expected.within_s is not None:
        status, words = _reply(view, expected.within_s)
    elif expected.kind == "mentions":
        status, words = _mentions(view, expected.words)
    else:
        status, words = _out_of_place()
    return Verdict(expected.text, status, words)


def judge_left_out(expected: Expectation, reason: str) -> Verdict:
    """Return the verdict on an expectation of a step that was never played, for this `reason`."""
    return Verdict(expected.text, "void", why(reason))


def _out_of_place() -> _Judged:
    return "not_measurable", "a step of this kind cannot show it"


def _undefined(value: Undefined) -> _Judged:
    words = why(value.reason)
    if value.reason in VOID_REASONS:
        return "void", words
    return ("indeterminate" if value.reason in _OPEN else "not_measurable"), words


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


def _within(value: Measured, limit: float, words: str) -> _Judged:
    told = f"{words} {_time(value.value)}"
    if value.hi <= limit:
        return "pass", told
    if value.lo > limit:
        return "fail", told
    return "indeterminate", f"{told}, which may be {_time(value.lo)} to {_time(value.hi)}"


def _stop(view: TurnView, limit: float | None) -> _Judged:
    value = stop_heard(view)
    if isinstance(value, Undefined):
        return _undefined(value)
    if isinstance(value, Measured):
        words = "stopped after"
        return (
            ("pass", f"{words} {_time(value.value)}")
            if limit is None
            else _within(value, limit, words)
        )
    return _unstopped(view, value.bound, limit)


def _unstopped(view: TurnView, bound: float, limit: float | None) -> _Judged:
    """Return the verdict on an agent that was not seen to stop up to `bound`."""
    fate = None if view.reaction is None else view.reaction.fate
    told = f"still talking after {_time(bound)}"
    is_beyond = bound >= limit if limit is not None else fate is Fate.NEVER_STOPPED
    if is_beyond:
        return "fail", told
    if fate is Fate.ENDED:
        return "void", f"the reply ended by itself after {_time(bound)}"
    return "indeterminate", f"{told}, and not watched any longer"


def _hold(view: EventView) -> _Judged:
    found = _HOLDS[view.kind](view)
    if not isinstance(found, Rate):
        return _undefined(found) if isinstance(found, Undefined) else _out_of_place()
    if found.hits:
        return "fail", f"the agent {view.reaction.fate.value}"
    return "pass", "stuttered" if view.reaction.fate is Fate.STUTTERED else "talked on"


def _reply_time(view: TurnView) -> MetricValue:
    return ttfa_heard(view) if view.reaction is None else interruption_response(view)


def _reply(view: TurnView, limit: float) -> _Judged:
    value = _reply_time(view)
    if isinstance(value, Undefined):
        return _undefined(value)
    if isinstance(value, Censored):
        told = f"no reply for {_time(value.bound)}"
        return ("fail", told) if value.bound >= limit else ("indeterminate", told)
    if value.value < 0:
        return "fail", f"replied {_time(-value.value)} before the user had ended"
    return _within(value, limit, "replied after")


def _mentions(view: TurnView, words: list[str]) -> _Judged:
    if view.reaction is not None and view.reaction.void is not None:
        return _undefined(Undefined(view.reaction.void))
    text = view.reply_text
    if mentions(text, words):
        return "pass", "the reply holds it"
    if view.is_failed or view.is_open:
        return "indeterminate", "the call ended before the reply did"
    if text:
        return "fail", "the reply does not hold it"
    if Flag.NO_REPLY in view.flags:
        return "fail", "no reply"
    return _undefined(Undefined(Reason.NO_TEXT))
