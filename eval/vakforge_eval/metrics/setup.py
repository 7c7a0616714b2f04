"""What a call is measured by as a whole: its setup, its greeting, the shares of its turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vakforge_eval.metrics import declare
from vakforge_eval.metrics.spec import AS_HEARD, CallMetric, MetricSpec
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.values import Flag, Measured, MetricValue, Rate, Reason, Undefined

__all__ = [
    "SETUP_METRICS",
    "TURN_METRICS",
    "WITNESS_METRICS",
    "early_rate",
    "failed_calls",
    "greeting_latency",
    "invalid_turns",
    "no_reply_rate",
    "setup",
    "setup_channel",
    "setup_connect",
    "setup_dtls",
    "setup_gather",
    "setup_handshake",
    "setup_ice",
    "setup_ready",
    "setup_resolve",
    "setup_signal",
    "setup_tls",
    "setup_webhook",
    "vad_disagreements",
]


def setup(view: CallView) -> MetricValue:
    """Time to set the call up (s).

    **Anchor**: dial, i.e. the begin of the first phase -> session ready.

    Returns
    -------
    MetricValue
        Undefined: call_failed if the session never became ready, not_observable without phases.
    """
    timeline = view.timeline
    if timeline.ready is None:
        return Undefined(Reason.CALL_FAILED)
    if not timeline.phases:
        return Undefined(Reason.NOT_OBSERVABLE)
    dial = min(start for start, _ in timeline.phases.values())
    return Measured.between(Instant.exact(dial), timeline.ready)


def _phase(view: CallView, name: str) -> MetricValue:
    timeline = view.timeline
    if name in timeline.phases:
        start, end = timeline.phases[name]
        return Measured.between(Instant.exact(start), Instant.exact(end))
    if timeline.ready is None:
        return Undefined(Reason.CALL_FAILED)
    return Undefined(Reason.NOT_APPLICABLE)


def _phase_function(name: str, what: str) -> CallMetric:
    def measured(view: CallView) -> MetricValue:
        return _phase(view, name)

    measured.__name__ = measured.__qualname__ = f"setup_{name}"
    measured.__doc__ = f"""Time {what} (s).

    **Anchor**: begin -> end of the phase.

    Returns
    -------
    MetricValue
        Undefined: not_applicable if the call had no such phase, call_failed if it ended before.
    """
    return measured


setup_webhook = _phase_function("webhook", "to ask the voice webhook where to connect")
setup_resolve = _phase_function("resolve", "to resolve the target's name")
setup_connect = _phase_function("connect", "to open the connection")
setup_tls = _phase_function("tls", "of the TLS handshake")
setup_handshake = _phase_function("handshake", "of the protocol's handshake")
setup_gather = _phase_function("gather", "to find our own addresses (WebRTC)")
setup_signal = _phase_function("signal", "to exchange offer and answer (WebRTC)")
setup_ice = _phase_function("ice", "to find a way between the two (WebRTC)")
setup_dtls = _phase_function("dtls", "to secure that way (WebRTC)")
setup_channel = _phase_function("channel", "to open the data channel (WebRTC)")
setup_ready = _phase_function("ready", "from the open connection to the accepted session")

_PHASES = (
    setup_webhook,
    setup_resolve,
    setup_connect,
    setup_tls,
    setup_handshake,
    setup_gather,
    setup_signal,
    setup_ice,
    setup_dtls,
    setup_channel,
    setup_ready,
)


def greeting_latency(view: CallView) -> MetricValue:
    """Time to the agent's greeting (s).

    **Anchor**: session ready -> first audible sample as heard, before the user's first word.

    Returns
    -------
    MetricValue
        Undefined: no_greeting if the agent waited for the user, call_failed, noise_too_high,
        corrupt_audio.
    """
    if view.timeline.ready is None:
        return Undefined(Reason.CALL_FAILED)
    if isinstance(view.hearing.gate, Undefined):
        return view.hearing.gate
    heard = view.turns.greeting.segments
    if heard:
        first = heard[0].segment
        if first.start_fault is not None:
            return Undefined(first.start_fault)
        return Measured.between(view.timeline.ready, first.start)
    is_cut_short = view.timeline.failure is not None and not view.turns.turns
    return Undefined(Reason.CALL_FAILED if is_cut_short else Reason.NO_GREETING)


def _share(view: CallView, hits: Callable[[TurnView], bool]) -> Rate:
    """Return the share of the turns that the probe did not spoil."""
    valid = [turn for turn in view.turn_views if not any(f.invalidates for f in turn.flags)]
    return Rate(sum(map(hits, valid)), len(valid))


def early_rate(view: CallView) -> Rate:
    """Share of turns whose reply began before the user's end.

    **Anchor**: reply segments that start in the user's turn and are no backchannel.

    Returns
    -------
    Rate
        Hits and valid turns, failed ones included. Undefined (no value) if no turn is valid.
    """
    return _share(view, lambda turn: Flag.EARLY in turn.flags)


def no_reply_rate(view: CallView) -> Rate:
    """Share of turns that got no reply in time.

    **Anchor**: user_end -> budget of the turn, next turn or end of watching.

    Returns
    -------
    Rate
        Hits and valid turns, failed ones included. Undefined (no value) if no turn is valid.
    """
    return _share(view, lambda turn: Flag.NO_REPLY in turn.flags)


def vad_disagreements(view: CallView) -> Rate:
    """Share of replies whose start the second detector puts more than 100 ms elsewhere.

    **Anchor**: first audible sample by the gate -> start of speech by webrtcvad.

    Returns
    -------
    Rate
        Hits and the first replies of valid turns that both were asked about. Undefined (no value)
        if there are none.
    """
    valid = [turn for turn in view.turn_views if not any(f.invalidates for f in turn.flags)]
    firsts = [turn.turn.first_reply for turn in valid]
    asked = [f.segment.is_witnessed for f in firsts if f is not None]
    return Rate(asked.count(False), sum(answer is not None for answer in asked))


def invalid_turns(view: CallView) -> Rate:
    """Share of turns that the probe itself spoilt; they are in no other number.

    **Anchor**: late frames, a stall or back-pressure inside of the turn.

    Returns
    -------
    Rate
        Hits and all turns. Undefined (no value) in a call without turns.
    """
    turns = view.turn_views
    spoilt = sum(any(flag.invalidates for flag in turn.flags) for turn in turns)
    return Rate(spoilt, len(turns))


def failed_calls(view: CallView) -> Rate:
    """Share of calls that failed; what they left stays in the other numbers.

    **Anchor**: dial -> end of the call.

    Returns
    -------
    Rate
        1 or 0 hits in one call. Undefined: never.
    """
    return Rate(int(view.timeline.failure is not None), 1)


def _phase_metric(function: CallMetric) -> MetricSpec:
    """Return a part of the call's setup."""
    name = function.__name__.removeprefix("setup_")
    span = (f"begin of {name}", f"end of {name}")
    return declare.detail(declare.of_call(function, "s", "lower", span, declare.CLOCK, "latency"))


SETUP_METRICS = (
    declare.of_call(setup, "s", "lower", ("dial", "session ready"), declare.CLOCK, "latency"),
    *map(_phase_metric, _PHASES),
    declare.of_call(
        greeting_latency,
        "s",
        "lower",
        ("session ready", f"{declare.FIRST_AUDIBLE}, as heard"),
        AS_HEARD,
        "latency",
    ),
)

TURN_METRICS = (
    declare.share(early_rate, "turns with a reply before user_end"),
    declare.share(no_reply_rate, "turns without a reply in time"),
    replace(declare.share(invalid_turns, "turns that the probe spoilt"), is_of_probe=True),
    declare.share(failed_calls, "calls that failed"),
)

WITNESS_METRICS = (
    declare.of_call(
        vad_disagreements,
        "rate",
        "lower",
        ("replies whose start webrtcvad puts > 100 ms elsewhere", "hits / total"),
        "webrtcvad, beside the gate",
        "self",
    ),
)
