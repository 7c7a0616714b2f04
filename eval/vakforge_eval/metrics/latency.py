"""Latencies of one turn, from the end of the user's speech. All are signed, none is clamped.

A reply that had not come within the turn's budget is censored there, whatever came later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vakforge_eval.metrics import declare
from vakforge_eval.metrics.anchors import results_of
from vakforge_eval.metrics.segments import Segment
from vakforge_eval.metrics.spec import (
    AS_HEARD,
    BY_ARRIVAL,
    BY_MESSAGE,
    Better,
    MetricSpec,
    TurnMetric,
)
from vakforge_eval.metrics.view import TurnView
from vakforge_eval.timeline.instant import NS_PER_S, Edge, Instant, ns_to_s
from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Reason, Undefined

__all__ = [
    "LATENCY_METRICS",
    "dead_air_max",
    "endpoint_delay",
    "endpoint_delay_claimed",
    "leading_silence",
    "rtf",
    "rtf_inverse",
    "tool_wait",
    "total_response",
    "ttf_answer",
    "ttfa",
    "ttfa_audible",
    "ttfa_heard",
    "ttfs",
    "ttft",
]


def _in_time(view: TurnView, stop: Edge | Instant | None, *, audible: bool) -> MetricValue:
    """Return the time from user_end to `stop`, censored at the budget."""
    if stop is None:
        return view.missing(audible=audible)
    at = stop.when if isinstance(stop, Edge) else stop
    if at.at > view.turn.deadline:
        return Censored(view.watched_s)
    return Measured.between(view.anchors.user_end, stop)


def ttft(view: TurnView) -> MetricValue:
    """Time to first text (s).

    **Anchor**: user_end -> arrival of the message with the first text token of the reply.

    Returns
    -------
    MetricValue
        Censored for a no-reply. Undefined: no_text if the reply came without text, call_failed,
        stop_ambiguous.
    """
    anchors = view.anchors
    if anchors.first_text is None and anchors.first_audio is not None:
        return Undefined(Reason.NO_TEXT)
    return _in_time(view, anchors.first_text, audible=False)


def ttfa(view: TurnView) -> MetricValue:
    """Time to first audio (s).

    **Anchor**: user_end -> arrival of the first audio message of the reply that is heard first;
    on a continuous stream its first audible sample (anchor: audible).

    Returns
    -------
    MetricValue
        Censored for a no-reply, also for one in text only. Undefined: call_failed,
        stop_ambiguous; on a continuous stream also noise_too_high.
    """
    if view.timeline.capabilities.continuous_stream:
        return ttfa_audible(view)
    return _in_time(view, view.anchors.first_audio, audible=False)


def ttfa_audible(view: TurnView) -> MetricValue:
    """Time to first audible sample, by arrival (s).

    **Anchor**: user_end -> arrival of the message with the reply's first audible sample + its
    offset in the message.

    Returns
    -------
    MetricValue
        Censored for a no-reply. Undefined: noise_too_high, not_audible, corrupt_audio,
        call_failed, stop_ambiguous.
    """
    return _in_time(view, view.anchors.first_audible, audible=True)


def ttfa_heard(view: TurnView) -> MetricValue:
    """Time to first audible sample, as heard (s).

    **Anchor**: user_end -> the reply's first audible sample in the playout model.

    Returns
    -------
    MetricValue
        Censored for a no-reply. Undefined: noise_too_high, not_audible, corrupt_audio,
        call_failed, stop_ambiguous.
    """
    return _in_time(view, view.anchors.first_heard, audible=True)


def ttfs(view: TurnView) -> MetricValue:
    """Time to first speech that goes on, as heard (s).

    **Anchor**: user_end -> start of the reply's first audible stretch of at least 400 ms, so that
    a short "mhm" before the answer is no answer.

    Returns
    -------
    MetricValue
        Censored for a no-reply. Undefined: no_speech_stretch if all stretches are shorter,
        noise_too_high, not_audible, corrupt_audio,
        call_failed, stop_ambiguous.
    """
    why = view.missing(audible=True)
    if view.has_reply and view.anchors.first_speech is None and isinstance(why, Censored):
        return Undefined(Reason.NO_SPEECH_STRETCH)
    return _in_time(view, view.anchors.first_speech, audible=True)


def ttf_answer(view: TurnView) -> MetricValue:
    """Time to the answer proper, as heard (s).

    **Anchor**: user_end -> start of the first segment that begins after the turn's last tool
    result was sent; equal to ttfa_heard in a turn without tools. Segments before it are filler.

    Returns
    -------
    MetricValue
        Censored if none came within the budget. Undefined: noise_too_high, not_audible,
        corrupt_audio, call_failed, stop_ambiguous.
    """
    return _in_time(view, view.anchors.answer, audible=True)


def tool_wait(view: TurnView) -> MetricValue:
    """Scripted delay of the turn's tool results (s), which is the probe's own doing.

    **Anchor**: tool call -> tool result, as the script says; several add up.

    Returns
    -------
    MetricValue
        Undefined: not_applicable in a turn without a tool result.
    """
    sent = set(results_of(view.timeline, view.turn))
    delays = [r.delay_s for r in view.timeline.tool_results if r.at in sent]
    return Measured(sum(delays)) if delays else Undefined(Reason.NOT_APPLICABLE)


def leading_silence(view: TurnView) -> MetricValue:
    """Silence at the head of the reply (s).

    **Anchor**: arrival of its first audio message -> its first audible sample, by arrival.

    Returns
    -------
    MetricValue
        Undefined: continuous_stream, noise_too_high, no_audio if no reply came, not_audible,
        corrupt_audio, stop_ambiguous.
    """
    if view.timeline.capabilities.continuous_stream:
        return Undefined(Reason.CONTINUOUS_STREAM)
    anchors = view.anchors
    if view.is_untold:
        return Undefined(Reason.STOP_AMBIGUOUS)
    if anchors.first_audio is None:
        return Undefined(Reason.NO_AUDIO)
    if anchors.first_audible is None:
        why = view.missing(audible=True)
        return why if isinstance(why, Undefined) else Undefined(Reason.NOT_AUDIBLE)
    return Measured.between(anchors.first_audio, anchors.first_audible)


def total_response(view: TurnView) -> MetricValue:
    """Time until the reply is over (s).

    **Anchor**: user_end -> the reply's last audible sample as heard. Unsolicited segments do not
    extend it; a reply that was cut ends with the cut.

    Returns
    -------
    MetricValue
        Censored for a no-reply. Undefined: cut_off if watching ended before the reply did,
        call_failed if the call failed before, noise_too_high, not_audible, corrupt_audio,
        stop_ambiguous.
    """
    if not view.has_reply:
        return view.missing(audible=True)
    last = _end_of_reply(view)
    return last if isinstance(last, Undefined) else Measured.between(view.anchors.user_end, last)


def _end_of_reply(view: TurnView) -> Edge | Undefined:
    """Return the reply's last audible moment, or why it is not known."""
    if view.is_untold or view.turn.is_end_untold:
        return Undefined(Reason.STOP_AMBIGUOUS)
    if view.is_open:
        return Undefined(Reason.CALL_FAILED if view.is_failed else Reason.CUT_OFF)
    last = view.anchors.last_heard
    if last is None:
        fault = max(view.turn.reply, key=lambda s: s.end.when.at).end_fault
        return Undefined(fault or Reason.CORRUPT_AUDIO)
    return last


def dead_air_max(view: TurnView) -> MetricValue:
    """Longest silence of the agent from user_end to the end of its reply (s).

    **Anchor**: user_end or the end of an audible stretch -> start of the next one, as heard.
    Silences of less than 350 ms are part of speech.

    Returns
    -------
    MetricValue
        0 if the agent spoke all the time. Censored for a no-reply, at the longest silence that was
        watched. Undefined: cut_off, call_failed, noise_too_high, not_audible, corrupt_audio,
        stop_ambiguous.
    """
    begin = view.turn.end
    if not view.has_reply:
        why = view.missing(audible=True)
        if isinstance(why, Undefined):
            return why
        silences = _silences(view, Edge(Instant.exact(view.watched_until)))
        longest = max((b.when.at - a.when.at for a, b in silences), default=0)
        return Censored(ns_to_s(max(0, longest)))
    last = _end_of_reply(view)
    if isinstance(last, Undefined):
        return last
    for fault in (f for s in view.turn.reply for f in (s.start_fault, s.end_fault)):
        if fault is not None:
            return Undefined(fault)
    longest_pair = max(
        _silences(view, last),
        key=lambda pair: pair[1].when.at - pair[0].when.at,
        default=(begin, begin),
    )
    return Measured.between(*longest_pair)


def _silences(view: TurnView, until: Edge) -> Iterable[tuple[Edge, Edge]]:
    """Yield the agent's silences from user_end to `until`, which ends the last one."""
    after = Edge(view.turn.end)
    for segment in _sounds(view, until):
        if segment.start.when.at > after.when.at:
            yield after, segment.start
        if segment.end.when.at > after.when.at:
            after = segment.end
    if until.when.at > after.when.at:
        yield after, until


def _sounds(view: TurnView, until: Edge) -> Iterable[Segment]:
    return (
        s
        for s in view.call.hearing.segments
        if s.end.when.at > view.turn.end.at and s.start.when.at < until.when.at
    )


def _stream_rate(view: TurnView) -> tuple[float, int, int, int] | Undefined:
    """Return seconds of audio after the first message, and the wall time's (lo, at, hi) in ns."""
    if view.timeline.capabilities.continuous_stream:
        return Undefined(Reason.CONTINUOUS_STREAM)
    if view.is_untold:
        return Undefined(Reason.STOP_AMBIGUOUS)
    messages = view.anchors.messages
    if not messages:
        return Undefined(Reason.NO_AUDIO)
    first, last = messages[0].arrival, messages[-1].arrival
    # Messages that cannot be told apart in time are one message to the clock.
    if len(messages) == 1 or last.lo <= first.hi:
        return Undefined(Reason.SINGLE_MESSAGE)
    if any(m.is_corrupt for m in messages[1:]):
        return Undefined(Reason.CORRUPT_AUDIO)
    audio_s = sum(len(m.pcm) / m.rate_hz for m in messages[1:])
    return audio_s, last.lo - first.hi, last.at - first.at, last.hi - first.lo


def rtf(view: TurnView) -> MetricValue:
    """Real-time factor of the reply's stream: audio seconds / wall seconds; > 1 is faster.

    **Anchor**: first -> last audio message of the response, by arrival; the audio is that of all
    messages but the first.

    Returns
    -------
    MetricValue
        Undefined: single_message (also when all came at one instant), no_audio, corrupt_audio,
        stop_ambiguous, continuous_stream.

    Notes
    -----
    The speech literature mostly calls the inverse by this name; that is `rtf_inverse`.
    """
    found = _stream_rate(view)
    if isinstance(found, Undefined):
        return found
    audio_s, low, at, high = found
    value = audio_s * NS_PER_S / at
    return Measured(value, u=(value - audio_s * NS_PER_S / high, audio_s * NS_PER_S / low - value))


def rtf_inverse(view: TurnView) -> MetricValue:
    """Wall seconds / audio seconds of the reply's stream; < 1 is faster than real time.

    **Anchor**: as `rtf`.

    Returns
    -------
    MetricValue
        Undefined: as `rtf`, and no_audio if the later messages hold no samples.
    """
    found = _stream_rate(view)
    if isinstance(found, Undefined):
        return found
    audio_s, low, at, high = found
    if audio_s == 0:
        return Undefined(Reason.NO_AUDIO)
    value = ns_to_s(at) / audio_s
    return Measured(value, u=(value - ns_to_s(low) / audio_s, ns_to_s(high) / audio_s - value))


def endpoint_delay(view: TurnView) -> MetricValue:
    """How long after the user's end the server says so, by arrival (s).

    **Anchor**: user_end -> arrival of the server's end-of-speech event that closed the turn;
    negative if it closed the turn too early.

    Returns
    -------
    MetricValue
        Undefined: not_observable if the protocol or the server sends no such event.
    """
    event = view.anchors.endpoint
    if event is None:
        return Undefined(Reason.NOT_OBSERVABLE)
    return Measured.between(view.anchors.user_end, event.at)


def endpoint_delay_claimed(view: TurnView) -> MetricValue:
    """How long after the user's end speech ended by the server's own offset (s).

    **Anchor**: user_end -> the moment at which the sample that the end-of-speech event names was
    spoken (microphone model). Many servers count their silence window into that offset.

    Returns
    -------
    MetricValue
        Undefined: not_observable without the event or its offset, or if the offset lies outside
        of the user's stream.
    """
    event = view.anchors.endpoint
    spoken = None
    if event is not None and event.offset_ms is not None:
        spoken = view.timeline.spoken(event.offset_ms)
    if spoken is None:
        return Undefined(Reason.NOT_OBSERVABLE)
    return Measured.between(view.anchors.user_end, spoken)


def _stream_metric(function: TurnMetric, better: Better, formula: str) -> MetricSpec:
    span = (declare.FIRST_MESSAGE, f"last audio message; {formula}")
    return declare.of_turn(function, "ratio", better, span, BY_MESSAGE)


LATENCY_METRICS = (
    declare.sliced(declare.first_of(ttft, "first text token of the reply", BY_MESSAGE)),
    replace(
        declare.sliced(declare.first_of(ttfa, f"{declare.FIRST_MESSAGE} of the reply", BY_MESSAGE)),
        has_anchor=True,
    ),
    declare.first_of(ttfa_audible, f"{declare.FIRST_AUDIBLE}, by arrival", BY_ARRIVAL),
    declare.sliced(declare.first_of(ttfa_heard, f"{declare.FIRST_AUDIBLE}, as heard", AS_HEARD)),
    declare.first_of(ttfs, "first stretch of speech >= 400 ms", AS_HEARD),
    declare.first_of(ttf_answer, "first segment after the last tool result", AS_HEARD),
    declare.detail(
        declare.of_turn(tool_wait, "s", None, ("tool call", "scripted tool result"), "the script")
    ),
    declare.of_turn(
        leading_silence,
        "s",
        "lower",
        (declare.FIRST_MESSAGE, f"{declare.FIRST_AUDIBLE}, by arrival"),
        BY_ARRIVAL,
    ),
    declare.from_end(dead_air_max, "end of the reply; longest silence on the way", AS_HEARD),
    declare.sliced(declare.from_end(total_response, "last audible sample of the reply", AS_HEARD)),
    _stream_metric(rtf, "higher", "audio s / wall s"),
    declare.detail(_stream_metric(rtf_inverse, "lower", "wall s / audio s")),
    declare.from_end(endpoint_delay, "the server's end-of-speech event", BY_MESSAGE),
    declare.detail(
        declare.from_end(
            endpoint_delay_claimed,
            "the end of speech that the server names",
            "offset in the user's stream, microphone model",
        )
    ),
)
