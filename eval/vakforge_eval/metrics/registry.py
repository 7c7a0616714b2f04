"""All metrics. Adding one is one file and one line here."""

from __future__ import annotations

from dataclasses import replace

from vakforge_eval.metrics import bargein, interruption, latency, overlap, setup, transport
from vakforge_eval.metrics.hearing import PLAYOUT
from vakforge_eval.metrics.spec import (
    AS_HEARD,
    BY_ARRIVAL,
    BY_MESSAGE,
    Better,
    CallMetric,
    EventMetric,
    Group,
    MetricSpec,
    TurnMetric,
)

__all__ = ["METRICS", "definitions"]

_CLOCK = "the probe's monotonic clock"
_MESSAGE = "first audio message"
_AUDIBLE = "first audible sample"
_TALK = (
    f"agent: gate as for its segments, playout model {PLAYOUT}; user: voiced samples of the clips; "
    "gaps < 200 ms joined"
)
_BOUGHT_BY = ("early_rate", "no_reply_rate")
"""Early and missing replies both shorten a p50 at the caller's cost."""
_FALSE = (
    "false_interruption",
    "false_interruption_noise",
    "false_interruption_side_talk",
)
_SCRIPT = "the script's words and tools, against text and tool calls"


def _sliced(spec: MetricSpec) -> MetricSpec:
    """Return a metric that breakdowns and samples show too."""
    return replace(spec, is_sliced=True)


def _detail(spec: MetricSpec) -> MetricSpec:
    """Return a part or another form of a metric that is in the summary."""
    return replace(spec, is_headline=False)


def _from_end(
    function: TurnMetric, stop: str, detector: str, *, skips_early: bool = False
) -> MetricSpec:
    """Return a latency from the end of the user's speech, which the user's next words may end."""
    span = ("user_end", stop)
    spec = _of_turn(function, "s", "lower", span, detector, skips_early=skips_early)
    return replace(spec, has_competing_end=True)


def _first(function: TurnMetric, stop: str, detector: str) -> MetricSpec:
    """Return a latency that talking over the user would improve."""
    return _from_end(function, stop, detector, skips_early=True)


def _streamed(function: TurnMetric, better: Better, formula: str) -> MetricSpec:
    span = (_MESSAGE, f"last audio message; {formula}")
    return _of_turn(function, "ratio", better, span, BY_MESSAGE)


def _of_turn(
    function: TurnMetric,
    unit: str,
    better: Better,
    span: tuple[str, str],
    detector: str,
    *,
    skips_early: bool = False,
) -> MetricSpec:
    return MetricSpec(
        unit=unit,
        better=better,
        span=span,
        detector=detector,
        group="latency",
        on_turn=function,
        skips_early=skips_early,
        bought_by=_BOUGHT_BY,
    )


def _phase(function: CallMetric, name: str) -> MetricSpec:
    """Return a part of the call's setup."""
    span = (f"begin of {name}", f"end of {name}")
    return _detail(_of_call(function, "s", "lower", span, _CLOCK, "latency"))


def _share(function: CallMetric, what: str, group: Group = "turns") -> MetricSpec:
    """Return a share of turns, calls or frames."""
    return _of_call(function, "rate", "lower", (what, "hits / total"), _CLOCK, group)


def _lateness(function: CallMetric) -> MetricSpec:
    return _of_call(function, "s", "lower", ("due", "sent"), _CLOCK, "transport")


def _of_call(
    function: CallMetric,
    unit: str,
    better: Better,
    span: tuple[str, str],
    detector: str,
    group: Group,
) -> MetricSpec:
    return MetricSpec(
        unit=unit,
        better=better,
        span=span,
        detector=detector,
        group=group,
        on_call=function,
        bought_by=_BOUGHT_BY if group in ("latency", "turns") else (),
    )


def _talk(function: CallMetric, whole: str, better: Better = None) -> MetricSpec:
    """Return a share of who talks when; a mute agent overlaps nobody."""
    span = ("begin of the user's stream", f"its end; {whole}")
    spec = _of_call(function, "share", better, span, _TALK, "duplex")
    return replace(spec, bought_by=("no_reply_rate",))


def _event_count(function: CallMetric, what: str) -> MetricSpec:
    """Return how often the agent did something in a call."""
    span = ("first turn of the user", f"end of watching; {what}")
    return _of_call(function, "count", "lower", span, AS_HEARD, "duplex")


def _titled(table: str, *specs: MetricSpec) -> tuple[MetricSpec, ...]:
    """Return metrics that a report shows in a table of their own."""
    return tuple(replace(spec, table=table) for spec in specs)


def _stop(function: TurnMetric, stop: str, detector: str) -> MetricSpec:
    """Return a time to stop, which stopping for anything, or seldom, would improve."""
    return MetricSpec(
        unit="s",
        better="lower",
        span=("user_start of a barge-in", stop),
        detector=detector,
        group="duplex",
        on_turn=function,
        has_competing_end=True,
        bought_by=("missed_interruption", *_FALSE),
    )


def _barge_ins(
    function: TurnMetric,
    what: str,
    better: Better,
    detector: str = AS_HEARD,
    bought_by: tuple[str, ...] = (),
) -> MetricSpec:
    """Return a share of the barge-ins."""
    return MetricSpec(
        unit="rate",
        better=better,
        span=(what, "hits / total"),
        detector=detector,
        group="duplex",
        on_turn=function,
        bought_by=bought_by,
    )


def _false(function: EventMetric, what: str) -> MetricSpec:
    """Return a share of false interruptions, which an agent that is deaf would improve."""
    spec = _events(function, what, "missed_interruption")
    return replace(spec, control="false_alarm")


def _void(spec: MetricSpec) -> MetricSpec:
    """Return a share of what showed nothing: it tells of the script and of chance."""
    return replace(_detail(spec), better=None, is_of_probe=True)


def _events(function: EventMetric, what: str, *bought_by: str) -> MetricSpec:
    """Return a share of the utterances that open no turn."""
    return MetricSpec(
        unit="rate",
        better="lower",
        span=(what, "hits / total"),
        detector=AS_HEARD,
        group="duplex",
        on_event=function,
        bought_by=bought_by,
    )


_LATENCY = (
    _sliced(_first(latency.ttft, "first text token of the reply", BY_MESSAGE)),
    replace(_sliced(_first(latency.ttfa, f"{_MESSAGE} of the reply", BY_MESSAGE)), has_anchor=True),
    _first(latency.ttfa_audible, f"{_AUDIBLE}, by arrival", BY_ARRIVAL),
    _sliced(_first(latency.ttfa_heard, f"{_AUDIBLE}, as heard", AS_HEARD)),
    _first(latency.ttfs, "first stretch of speech >= 400 ms", AS_HEARD),
    _first(latency.ttf_answer, "first segment after the last tool result", AS_HEARD),
    _detail(
        _of_turn(latency.tool_wait, "s", None, ("tool call", "scripted tool result"), "the script")
    ),
    _of_turn(
        latency.leading_silence, "s", "lower", (_MESSAGE, f"{_AUDIBLE}, by arrival"), BY_ARRIVAL
    ),
    _from_end(latency.dead_air_max, "end of the reply; longest silence on the way", AS_HEARD),
    _sliced(_from_end(latency.total_response, "last audible sample of the reply", AS_HEARD)),
    _streamed(latency.rtf, "higher", "audio s / wall s"),
    _detail(_streamed(latency.rtf_inverse, "lower", "wall s / audio s")),
    _from_end(latency.endpoint_delay, "the server's end-of-speech event", BY_MESSAGE),
    _detail(
        _from_end(
            latency.endpoint_delay_claimed,
            "the end of speech that the server names",
            "offset in the user's stream, microphone model",
        )
    ),
)

_SETUP = (
    _of_call(setup.setup, "s", "lower", ("dial", "session ready"), _CLOCK, "latency"),
    _phase(setup.setup_resolve, "resolve"),
    _phase(setup.setup_connect, "connect"),
    _phase(setup.setup_tls, "tls"),
    _phase(setup.setup_handshake, "handshake"),
    _phase(setup.setup_ready, "ready"),
    _of_call(
        setup.greeting_latency,
        "s",
        "lower",
        ("session ready", f"{_AUDIBLE}, as heard"),
        AS_HEARD,
        "latency",
    ),
)

_TURNS = (
    _share(setup.early_rate, "turns with a reply before user_end"),
    _share(setup.no_reply_rate, "turns without a reply in time"),
    replace(_share(setup.invalid_turns, "turns that the probe spoilt"), is_of_probe=True),
    _share(setup.failed_calls, "calls that failed"),
)

_TRANSPORT = (
    _lateness(transport.send_lateness_p50),
    _lateness(transport.send_lateness_p99),
    _lateness(transport.send_lateness_max),
    _share(transport.frames_late, "frames > 10 ms late", "transport"),
    _of_call(
        transport.interarrival_jitter,
        "s",
        "lower",
        ("arrival", "next arrival, less the audio between"),
        BY_MESSAGE,
        "transport",
    ),
    _of_call(
        transport.underruns,
        "count",
        "lower",
        ("end of a message as heard", "begin of the next, > 10 ms later"),
        AS_HEARD,
        "transport",
    ),
    _of_call(
        transport.clock_skew_ppm,
        "ppm",
        None,
        ("audio sent", "slope over arrival, less 1"),
        BY_MESSAGE,
        "transport",
    ),
)

_SELF = (
    _of_call(
        transport.cpu_share,
        "share",
        "lower",
        ("begin of the call", "end of the call"),
        "CPU time of the process",
        "self",
    ),
    _of_call(
        transport.loop_lag_max,
        "s",
        "lower",
        ("planned wake-up", "real wake-up"),
        _CLOCK,
        "self",
    ),
    _of_call(
        setup.vad_disagreements,
        "rate",
        "lower",
        ("replies whose start webrtcvad puts > 100 ms elsewhere", "hits / total"),
        "webrtcvad, beside the gate",
        "self",
    ),
)

_STOPS = _titled(
    "Stops",
    _detail(_stop(bargein.stop_reaction, "first message that tells of it", BY_MESSAGE)),
    _detail(_stop(bargein.stop_network, "last audible sample, by arrival", BY_ARRIVAL)),
    _sliced(_stop(bargein.stop_heard, "silence of the agent, as heard", AS_HEARD)),
    _barge_ins(
        bargein.missed_interruption,
        "agent still heard 1.0 s after user_end",
        "lower",
        bought_by=_FALSE,
    ),
    _void(_barge_ins(bargein.void_barge_ins, "barge-ins that met no speech for sure", None)),
)

_RESPONSES = _titled(
    "Interruption response",
    replace(
        _first(interruption.interruption_response, f"{_AUDIBLE} of the reply, as heard", AS_HEARD),
        span=("user_end of a barge-in", f"{_AUDIBLE} of the reply, as heard"),
        group="duplex",
        bought_by=(*_BOUGHT_BY, "relevant_reply"),
        is_sliced=True,
    ),
    _barge_ins(
        interruption.relevant_reply, "replies to what was said, of those checked", "higher", _SCRIPT
    ),
)

_DISTURBANCES = (
    *_titled(
        "False interruptions",
        _sliced(
            _false(
                interruption.false_interruption, "backchannels that stopped the agent within 1.0 s"
            )
        ),
        _detail(
            _false(
                interruption.false_interruption_noise, "noises that stopped the agent within 1.0 s"
            )
        ),
        _detail(
            _false(
                interruption.false_interruption_side_talk,
                "words to others that stopped the agent within 1.0 s",
            )
        ),
        _detail(
            _events(interruption.false_alarm, "shams after which the agent seems to have stopped")
        ),
        _void(_events(interruption.void_events, "events that met no speech that goes on for sure")),
    ),
    *_titled(
        "Stutters",
        MetricSpec(
            unit="s",
            better="lower",
            span=("silence within 1.0 s of a disturbance", "the same response goes on"),
            detector=AS_HEARD,
            group="duplex",
            on_event=interruption.stutter_gap,
            bought_by=_FALSE,
            is_headline=False,
        ),
    ),
)

_FLOOR = _titled(
    "Overlap and floor",
    _talk(overlap.overlap_rate, "both talk / total time"),
    _detail(_talk(overlap.overlap_share_of_speech, "both talk / anybody talks")),
    _detail(
        _talk(overlap.agent_overlap_rate, "both talk, the agent began last / total time", "lower")
    ),
    _detail(_talk(overlap.talk_ratio, "agent's talk / all talk")),
    MetricSpec(
        unit="s",
        # Neither end of it is good: people answer 0.1 s after, and now and then before the end.
        better=None,
        span=("user_end", f"{_AUDIBLE} of the reply, as heard, signed"),
        detector=AS_HEARD,
        group="duplex",
        on_turn=overlap.floor_transfer_offset,
        is_headline=False,
    ),
    _detail(_event_count(overlap.reprompts, "the agent spoke up unasked")),
    _detail(_event_count(overlap.agent_interruptions, "replies begun before user_end")),
)

METRICS: tuple[MetricSpec, ...] = (
    *_LATENCY,
    *_SETUP,
    *_TURNS,
    *_STOPS,
    *_RESPONSES,
    *_DISTURBANCES,
    *_FLOOR,
    *_TRANSPORT,
    *_SELF,
)


def definitions() -> dict[str, str]:
    """Return the definition version of every metric by name."""
    return {spec.name: spec.definition for spec in METRICS}
