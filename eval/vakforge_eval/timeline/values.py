"""What a metric can return: a measured value with its error, a bound, or a reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vakforge_eval.timeline.instant import Edge, Instant, ns_to_s

__all__ = [
    "VOID_REASONS",
    "Censored",
    "Flag",
    "Measured",
    "MetricValue",
    "Rate",
    "Reason",
    "Undefined",
]


class Reason(StrEnum):
    """The closed list of why a number does not exist."""

    NOT_APPLICABLE = "not_applicable"
    """The metric has no meaning for this turn (e.g. no tool call in it)."""
    NOT_OBSERVABLE = "not_observable"
    """The protocol does not show the event that the metric starts or stops at."""
    NO_TEXT = "no_text"
    """The reply came without any text token."""
    NO_AUDIO = "no_audio"
    """The agent sent no audio at all where some was needed."""
    NOT_AUDIBLE = "not_audible"
    """Audio came, but none of it rose above the gate."""
    NOISE_TOO_HIGH = "noise_too_high"
    """The agent's noise floor puts the gate above -25 dBFS."""
    UNNAMED_AUDIO = "unnamed_audio"
    """Some audio names its response and some, too loud for silence, does not: noise or speech."""
    NO_SPEECH_STRETCH = "no_speech_stretch"
    """No stretch of speech of the needed length was heard."""
    SINGLE_MESSAGE = "single_message"
    """A response of one message has no streaming rate."""
    CONTINUOUS_STREAM = "continuous_stream"
    """The agent streams silence too, so the metric has no start or stop."""
    NO_GREETING = "no_greeting"
    """The agent waited for the user."""
    CALL_FAILED = "call_failed"
    """The call ended before the metric's stop could be seen."""
    CUT_OFF = "cut_off"
    """Watching ended while the reply was still being heard, or before it was over for sure."""
    CORRUPT_AUDIO = "corrupt_audio"
    """The audio at the edge could not be decoded."""
    HALF_DUPLEX = "half_duplex"
    """The agent does not listen while it speaks."""
    STOP_AMBIGUOUS = "stop_ambiguous"
    """Nothing tells whether the agent's next words go on with what it said or are new ones."""
    AGENT_SILENT = "agent_silent"
    """Void: the agent was not audible when the user began."""
    ANCHOR_MISSED = "anchor_missed"
    """Void: what the step hung on was more than 100 ms from where it was heard live."""
    NATURAL_END = "natural_end"
    """Void: the reply ended by itself before it could show whether the agent would have stopped."""
    INDETERMINATE = "indeterminate"
    """The error interval straddles the limit that decides."""
    ECHO = "echo"
    """What is at the edge may be the caller's own echo."""
    TOO_FEW = "too_few"
    """Not enough values for the statistic."""


VOID_REASONS = frozenset({Reason.AGENT_SILENT, Reason.ANCHOR_MISSED, Reason.NATURAL_END})
"""Reasons why what was meant to disturb the agent could not: neither passed nor failed."""


class Flag(StrEnum):
    """Marks on a turn or an event; those that invalidate it keep it out of statistics, counted."""

    INVALID_PACING = "invalid_pacing"
    PROBE_STALLED = "probe_stalled"
    BACK_PRESSURE = "back_pressure"
    CALL_FAILED = "call_failed"
    EARLY = "early"
    NO_REPLY = "no_reply"
    PREMATURE_ENDPOINT = "premature_endpoint"
    SOFT_EDGE = "soft_edge"
    ENDPOINTING_MANUAL = "endpointing_manual"
    NOT_AUDIBLE = "not_audible"
    VAD_DISAGREES = "vad_disagrees"
    VOID = "void"
    ECHO = "echo"
    ECHO_UNKNOWN = "echo_unknown"
    STUTTER = "stutter"
    MISSED_INTERRUPTION = "missed_interruption"

    @property
    def invalidates(self) -> bool:
        """Whether the probe spoilt this turn, so that it must be excluded and counted."""
        return self in _INVALIDATING


_INVALIDATING = frozenset({Flag.INVALID_PACING, Flag.PROBE_STALLED, Flag.BACK_PRESSURE})


@dataclass(frozen=True, slots=True)
class Undefined:
    """No number, and why."""

    reason: Reason

    def to_json(self) -> dict[str, Any]:
        """Return the report form ``{"undefined": reason}``."""
        return {"undefined": self.reason.value}


@dataclass(frozen=True, slots=True)
class Censored:
    """The event had not come by `bound` (s) after the start, when watching ended."""

    bound: float

    def to_json(self) -> dict[str, Any]:
        """Return the report form ``{"censored": seconds}``."""
        return {"censored": self.bound}


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with its worst-case error, in the metric's unit (s unless the metric says else).

    `u` is the stamp error and `u_detect` the detection error, each ``(minus, plus)``, both >= 0:
    the truth lies in ``[value - u[0] - u_detect[0], value + u[1] + u_detect[1]]``.
    """

    value: float
    u: tuple[float, float] = (0.0, 0.0)
    u_detect: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def between(cls, start: Edge | Instant, stop: Edge | Instant) -> Measured:
        """Return the signed time from `start` to `stop` in seconds, errors added worst-case."""
        a = start if isinstance(start, Edge) else Edge(start)
        b = stop if isinstance(stop, Edge) else Edge(stop)
        value = b.when.at - a.when.at
        return cls(
            value=ns_to_s(value),
            u=(
                ns_to_s(value - (b.when.lo - a.when.hi)),
                ns_to_s(b.when.hi - a.when.lo - value),
            ),
            u_detect=(
                ns_to_s(b.detect_minus + a.detect_plus),
                ns_to_s(b.detect_plus + a.detect_minus),
            ),
        )

    @property
    def lo(self) -> float:
        """Lower end of the whole error interval."""
        return self.value - self.u[0] - self.u_detect[0]

    @property
    def hi(self) -> float:
        """Upper end of the whole error interval."""
        return self.value + self.u[1] + self.u_detect[1]

    def to_json(self) -> dict[str, Any]:
        """Return the report form; nanosecond resolution, so that rescoring is byte-identical."""
        return {
            "value": round(self.value, 9),
            "u": [round(x, 9) for x in self.u],
            "u_detect": [round(x, 9) for x in self.u_detect],
        }


MetricValue = Measured | Censored | Undefined


@dataclass(frozen=True, slots=True)
class Rate:
    """A share as an object that adds up, so that pooled and sliced numbers agree."""

    hits: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.total:
            raise ValueError(f"rate of {self.hits} hits in {self.total}")

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.hits + other.hits, self.total + other.total)

    @property
    def value(self) -> float | None:
        """Share in [0, 1], or None when nothing was counted."""
        return self.hits / self.total if self.total else None

    def to_json(self) -> dict[str, Any]:
        """Return the report form with hits, total and value."""
        value = self.value
        return {
            "hits": self.hits,
            "total": self.total,
            "value": None if value is None else round(value, 9),
        }
