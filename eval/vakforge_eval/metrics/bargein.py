"""How fast an agent stops when the user speaks into its speech: by message, by arrival, as heard.

Each is signed and runs from the first voiced sample of a barge-in that met audible speech. How a
stop is told from a pause and from an end of its own: `reaction`.
"""

from __future__ import annotations

from collections.abc import Callable

from vakforge_eval.metrics import declare
from vakforge_eval.metrics.reaction import Fate, Reaction
from vakforge_eval.metrics.spec import AS_HEARD, BY_ARRIVAL, BY_MESSAGE, MetricSpec, TurnMetric
from vakforge_eval.metrics.view import TurnView
from vakforge_eval.timeline.instant import Edge, Instant, ns_to_s
from vakforge_eval.timeline.values import (
    Censored,
    Measured,
    MetricValue,
    Rate,
    Reason,
    Undefined,
)

__all__ = [
    "STOP_METRICS",
    "missed_interruption",
    "stop_heard",
    "stop_network",
    "stop_reaction",
    "void_barge_ins",
]

_Found = Edge | Instant | Undefined


def _stop(
    view: TurnView, found: Callable[[Reaction], _Found], *, is_heard: bool = False
) -> MetricValue:
    """Return the time from the user's onset to what `found` says of a stop."""
    reaction = view.reaction
    if reaction is None:
        return Undefined(Reason.NOT_APPLICABLE)
    if view.no_stop is not None:
        return view.no_stop
    gate = view.call.hearing.gate
    if isinstance(gate, Undefined):
        return gate
    if reaction.void is not None:
        return Undefined(reaction.void)
    if reaction.fate is Fate.AMBIGUOUS:
        return Undefined(Reason.STOP_AMBIGUOUS)
    if reaction.fate is Fate.INDETERMINATE:
        return Undefined(Reason.INDETERMINATE)
    is_told = reaction.fate is Fate.STOPPED or (reaction.evidence is not None and not is_heard)
    if not is_told:
        return _censored(view, reaction)
    stop = found(reaction)
    return stop if isinstance(stop, Undefined) else Measured.between(view.turn.start, stop)


def _censored(view: TurnView, reaction: Reaction) -> MetricValue:
    last = reaction.last
    is_over = reaction.fate is not Fate.NEVER_STOPPED
    if is_over and last is not None and last.end_fault is not None:
        return Undefined(last.end_fault)
    # A bound has no error of its own: so long, at least, it surely had not stopped.
    start = view.turn.start.hi
    return Censored(ns_to_s(max(0, (reaction.until or start) - start)))


def _silence(reaction: Reaction) -> _Found:
    if reaction.silence is None:
        return Undefined(Reason.NOT_OBSERVABLE)
    if reaction.last is not None and reaction.last.end_fault is not None:
        return Undefined(reaction.last.end_fault)
    return reaction.silence


def stop_heard(view: TurnView) -> MetricValue:
    """Time until the agent is silent, as heard (s).

    **Anchor**: user_start -> end of the agent's audible speech in the playout model, once the stop
    is confirmed by a message that tells of a cut or by 1.5 s without that response. Another
    response does not undo it.

    Returns
    -------
    MetricValue
        Censored where the reply came to its own end (there), where the agent never stopped (at the
        budget, the user's next turn or the end of watching) and where watching ended before the
        silence was confirmed (at the silence); where an error hangs on it, at the earliest that it
        can have been. A protocol that does not tell the end of a response
        cannot show that an end was the reply's own. Undefined: not_applicable if the turn is no
        barge-in, half_duplex, not_observable where the caller itself stops the agent
        (push-to-talk), agent_silent and anchor_missed if it was void, indeterminate if it may have
        been or the errors leave open whether the silence lasted 1.5 s, stop_ambiguous,
        noise_too_high, corrupt_audio.
    """
    return _stop(view, _silence, is_heard=True)


def stop_network(view: TurnView) -> MetricValue:
    """Time until no more of the interrupted speech arrives (s).

    **Anchor**: user_start -> end of the last audible sample of that response, by arrival: of its
    message + offset inside of it, heard or not. Negative if all had come before.

    Returns
    -------
    MetricValue
        Censored and Undefined as `stop_heard`; measured also where a message told of the cut and
        what had been sent was heard beyond the budget.
    """
    return _stop(view, lambda found: found.silence_arrival or Undefined(Reason.NOT_OBSERVABLE))


def stop_reaction(view: TurnView) -> MetricValue:
    """Time until the agent says that it was interrupted (s).

    **Anchor**: user_start -> arrival of the first message that interrupts, tells the client to
    drop audio or calls the response cancelled, even where nothing was left to cut.

    Returns
    -------
    MetricValue
        Censored and Undefined as `stop_heard`, but not corrupt_audio; also not_observable if the
        agent stopped without any such message. Measured also where what had been sent was heard
        beyond the budget.
    """
    return _stop(view, lambda found: found.reacted or Undefined(Reason.NOT_OBSERVABLE))


def missed_interruption(view: TurnView) -> MetricValue | Rate:
    """Share of barge-ins that the agent talked through.

    **Anchor**: the agent is still heard 1.0 s after the interrupting user_end and has not stopped.

    Returns
    -------
    Rate
        Hits and barge-ins in which that was decided. Undefined, and outside of the total: as
        `stop_heard`, natural_end where the reply was over by then by itself, cut_off where
        watching ended before.
    """
    missed = view.is_missed_interruption
    if missed is None:
        return Undefined(Reason.NOT_APPLICABLE)
    return missed if isinstance(missed, Undefined) else Rate(int(missed), 1)


def void_barge_ins(view: TurnView) -> MetricValue | Rate:
    """Share of barge-ins that show nothing, because they did not surely meet audible speech.

    **Anchor**: user_start of a barge-in -> the agent's speech as heard at that moment; also void is
    one whose anchor was heard live > 100 ms from where it is found off line.

    Returns
    -------
    Rate
        Hits and all barge-ins. Undefined: not_applicable if the turn is no barge-in,
        noise_too_high.
    """
    if view.reaction is None:
        return Undefined(Reason.NOT_APPLICABLE)
    gate = view.call.hearing.gate
    return gate if isinstance(gate, Undefined) else Rate(int(view.reaction.void is not None), 1)


def _stop_metric(function: TurnMetric, stop: str, detector: str) -> MetricSpec:
    """Return a time to stop, which stopping for anything, or seldom, would improve."""
    return MetricSpec(
        unit="s",
        better="lower",
        span=("user_start of a barge-in", stop),
        detector=detector,
        group="duplex",
        on_turn=function,
        has_competing_end=True,
        bought_by=("missed_interruption", *declare.FALSE_INTERRUPTIONS),
    )


STOP_METRICS = declare.titled(
    "Stops",
    declare.detail(_stop_metric(stop_reaction, "first message that tells of it", BY_MESSAGE)),
    declare.detail(_stop_metric(stop_network, "last audible sample, by arrival", BY_ARRIVAL)),
    declare.sliced(_stop_metric(stop_heard, "silence of the agent, as heard", AS_HEARD)),
    declare.barge_ins(
        missed_interruption,
        "agent still heard 1.0 s after user_end",
        "lower",
        bought_by=declare.FALSE_INTERRUPTIONS,
    ),
    declare.void(declare.barge_ins(void_barge_ins, "barge-ins that met no speech for sure", None)),
)
