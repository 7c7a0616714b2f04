"""The stream in both directions, and the probe's own behaviour, of one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import isfinite, sqrt

import numpy as np

from vakforge_eval.metrics import declare
from vakforge_eval.metrics.hearing import Hearing
from vakforge_eval.metrics.spec import AS_HEARD, BY_MESSAGE, CallMetric, MetricSpec
from vakforge_eval.metrics.view import MAX_LATE_NS, CallView
from vakforge_eval.stats.percentiles import nearest_rank
from vakforge_eval.stats.values import Floats
from vakforge_eval.timeline.call import AgentAudio
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, ns_to_s, samples_to_ns
from vakforge_eval.timeline.records import Flags
from vakforge_eval.timeline.values import Measured, MetricValue, Rate, Reason, Undefined

__all__ = [
    "SELF_METRICS",
    "TRANSPORT_METRICS",
    "clock_skew_ppm",
    "cpu_share",
    "frames_late",
    "interarrival_jitter",
    "loop_lag_max",
    "receiver_delay",
    "send_lateness_max",
    "send_lateness_p50",
    "send_lateness_p99",
    "underruns",
]

_UNDERRUN_NS = 10 * NS_PER_MS
"""Shorter holes in the playout are below the detector's window: nobody hears them as a hole."""
_PACED_RTF = (0.9, 1.1)
_PACED_MESSAGES = 10
_SKEW_AUDIO_S = 2.0
_TWO_SIGMA = 1.96


def _lateness(view: CallView) -> tuple[Floats, Floats]:
    """Return how late each planned frame of the user's stream began and had been sent (s)."""
    stream = view.timeline.stream
    planned = stream[(stream["flags"] & Flags.NO_DUE) == 0]
    due = planned["due"]
    return (planned["before"] - due) / NS_PER_S, (planned["after"] - due) / NS_PER_S


def _lateness_at(view: CallView, percent: int) -> MetricValue:
    before, after = _lateness(view)
    if not len(before):
        return Undefined(Reason.TOO_FEW)
    value = nearest_rank((before + after) / 2, percent)
    low, high = nearest_rank(before, percent), nearest_rank(after, percent)
    return Measured(value, u=(value - low, high - value))


def send_lateness_p50(view: CallView) -> MetricValue:
    """Median lateness of the user's frames (s).

    **Anchor**: planned moment of a frame -> moment at which it was written.

    Returns
    -------
    MetricValue
        Undefined: too_few if no frame was sent.
    """
    return _lateness_at(view, 50)


def send_lateness_p99(view: CallView) -> MetricValue:
    """99th percentile of the lateness of the user's frames (s).

    **Anchor**: planned moment of a frame -> moment at which it was written.

    Returns
    -------
    MetricValue
        Undefined: too_few if no frame was sent.
    """
    return _lateness_at(view, 99)


def send_lateness_max(view: CallView) -> MetricValue:
    """Largest lateness of the user's frames (s).

    **Anchor**: planned moment of a frame -> moment at which it was written.

    Returns
    -------
    MetricValue
        Undefined: too_few if no frame was sent.
    """
    return _lateness_at(view, 100)


def frames_late(view: CallView) -> Rate:
    """Share of the user's frames that were more than 10 ms late.

    **Anchor**: planned moment of a frame -> moment by which it had been written.

    Returns
    -------
    Rate
        Hits and planned frames. Undefined (no value) if no frame was sent.
    """
    _, after = _lateness(view)
    return Rate(int(np.count_nonzero(after > ns_to_s(MAX_LATE_NS))), len(after))


def _paced(hearing: Hearing) -> Iterator[list[AgentAudio]]:
    """Yield the audio messages of each response that was sent in real time.

    One with audio that could not be decoded is left out: nobody knows how long that was.
    """
    for response in hearing.responses.values():
        messages = response.messages
        if len(messages) < _PACED_MESSAGES or any(m.is_corrupt for m in messages):
            continue
        wall = messages[-1].arrival.at - messages[0].arrival.at
        audio = sum(m.duration_ns for m in messages[:-1])
        if wall > 0 and _PACED_RTF[0] <= audio / wall <= _PACED_RTF[1]:
            yield messages


def interarrival_jitter(view: CallView) -> MetricValue:
    """Mean jitter between the agent's audio messages (s).

    **Anchor**: arrival -> arrival of the next message of a response, less the audio between them;
    the mean of the absolute difference, i.e. what the running estimate of RFC 3550, section
    6.4.1, smooths.

    Returns
    -------
    MetricValue
        Undefined: not_applicable if no response is sent in real time (RTF 0.9 to 1.1 over at least
        10 messages).
    """
    differences: list[int] = []
    widths: list[int] = []
    for messages in _paced(view.hearing):
        for a, b in pairwise(messages):
            differences.append(abs(b.arrival.at - a.arrival.at - a.duration_ns))
            widths.append(a.arrival.width + b.arrival.width)
    if not differences:
        return Undefined(Reason.NOT_APPLICABLE)
    value = ns_to_s(sum(differences)) / len(differences)
    error = ns_to_s(sum(widths)) / len(widths)
    return Measured(value, u=(min(value, error), error))


def underruns(view: CallView) -> MetricValue:
    """How often the playout ran dry inside of a response.

    **Anchor**: end of a message's audio as heard -> begin of the next one of the same response,
    more than 10 ms later.

    Returns
    -------
    MetricValue
        Undefined: no_audio if none was heard.
    """
    ends: dict[str | None, int] = {}
    count, n_played = 0, 0
    for piece in view.hearing.placed:
        if not piece.n_played:
            continue
        n_played += 1
        name = piece.audio.response_id
        before = ends.get(name)
        is_marked = name is not None or view.timeline.capabilities.continuous_stream
        if is_marked and before is not None and piece.start.at - before > _UNDERRUN_NS:
            count += 1
        ends[name] = piece.start.at + samples_to_ns(piece.n_played, piece.audio.rate_hz)
    return Measured(float(count)) if n_played else Undefined(Reason.NO_AUDIO)


def clock_skew_ppm(view: CallView) -> MetricValue:
    """How much faster the agent's audio clock runs than the probe's (parts per million).

    **Anchor**: slope of the audio that had been sent over arrival, less 1; responses share the
    slope, each with its own origin.

    Returns
    -------
    MetricValue
        Undefined: not_applicable if no response is sent in real time, too_few below 2 s of it.

    Notes
    -----
    The error is 1.96 standard errors of the slope (jitter counts as noise), plus what the stamps'
    widths can tilt it.
    """
    x_parts, y_parts, width = [], [], 0
    for messages in _paced(view.hearing):
        arrival = np.array([m.arrival.at - messages[0].arrival.at for m in messages])
        audio = np.cumsum([0, *(m.duration_ns for m in messages[:-1])])
        x_parts.append((arrival - arrival.mean()) / NS_PER_S)
        y_parts.append((audio - audio.mean()) / NS_PER_S)
        width = max(width, max(m.arrival.width for m in messages))
    if not x_parts:
        return Undefined(Reason.NOT_APPLICABLE)
    x, y = np.concatenate(x_parts), np.concatenate(y_parts)
    if _reach(x_parts) < _SKEW_AUDIO_S:
        return Undefined(Reason.TOO_FEW)
    spread = float(x @ x)
    slope = float(x @ y) / spread
    freedom = len(x) - len(x_parts) - 1
    sigma = sqrt(float(np.sum((y - slope * x) ** 2)) / freedom / spread)
    tilt = ns_to_s(width) * float(np.sum(np.abs(x))) / spread
    error = (_TWO_SIGMA * sigma + tilt) * 1e6
    return Measured((slope - 1) * 1e6, u=(error, error))


def _reach(parts: Iterable[Floats]) -> float:
    return sum(float(part[-1] - part[0]) for part in parts)


def _told(view: CallView, name: str) -> float | None:
    """Return a finite number that the probe noted of itself."""
    value = view.timeline.probe.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        return None
    return float(value)


def cpu_share(view: CallView) -> MetricValue:
    """Share of one core that the probe's process used during the call.

    **Anchor**: begin -> end of the call.

    Returns
    -------
    MetricValue
        Undefined: not_observable if the capture does not tell.
    """
    cpu, wall = _told(view, "cpu_s"), _told(view, "wall_s")
    if cpu is None or wall is None or wall <= 0:
        return Undefined(Reason.NOT_OBSERVABLE)
    return Measured(cpu / wall)


def receiver_delay(view: CallView) -> MetricValue:
    """How much later a receiver's jitter buffer gives the agent's audio than it arrived (s).

    No other number has it in it: a caller behind such a receiver hears everything so much later.

    **Anchor**: arrival of a packet -> its audio at the WebRTC library's track, median of the call.

    Returns
    -------
    MetricValue
        Undefined: not_applicable if the capture does not tell, as of all but WebRTC.
    """
    delay = _told(view, "receiver_delay_median_ns")
    return Undefined(Reason.NOT_APPLICABLE) if delay is None else Measured(delay / NS_PER_S)


def loop_lag_max(view: CallView) -> MetricValue:
    """Longest time that the probe's event loop was busy or held up (s).

    **Anchor**: planned -> real wake-up of the loop, the largest of the call.

    Returns
    -------
    MetricValue
        Undefined: not_observable if the capture does not tell.
    """
    lag = _told(view, "loop_lag_max_ns")
    return Undefined(Reason.NOT_OBSERVABLE) if lag is None else Measured(lag / NS_PER_S)


def _lateness_metric(function: CallMetric) -> MetricSpec:
    return declare.of_call(function, "s", "lower", ("due", "sent"), declare.CLOCK, "transport")


TRANSPORT_METRICS = (
    _lateness_metric(send_lateness_p50),
    _lateness_metric(send_lateness_p99),
    _lateness_metric(send_lateness_max),
    declare.share(frames_late, "frames > 10 ms late", "transport"),
    declare.of_call(
        interarrival_jitter,
        "s",
        "lower",
        ("arrival", "next arrival, less the audio between"),
        BY_MESSAGE,
        "transport",
    ),
    declare.of_call(
        underruns,
        "count",
        "lower",
        ("end of a message as heard", "begin of the next, > 10 ms later"),
        AS_HEARD,
        "transport",
    ),
    declare.of_call(
        clock_skew_ppm,
        "ppm",
        None,
        ("audio sent", "slope over arrival, less 1"),
        BY_MESSAGE,
        "transport",
    ),
    declare.of_call(
        receiver_delay,
        "s",
        None,
        ("arrival", "at the receiver's track"),
        "jitter buffer of the WebRTC library",
        "transport",
    ),
)

SELF_METRICS = (
    declare.of_call(
        cpu_share,
        "share",
        "lower",
        ("begin of the call", "end of the call"),
        "CPU time of the process",
        "self",
    ),
    declare.of_call(
        loop_lag_max,
        "s",
        "lower",
        ("planned wake-up", "real wake-up"),
        declare.CLOCK,
        "self",
    ),
)
