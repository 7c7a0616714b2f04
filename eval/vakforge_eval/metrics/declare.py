"""How kinds of metrics are declared; each is declared beside its function."""

from __future__ import annotations

from dataclasses import replace

from vakforge_eval.metrics.spec import (
    AS_HEARD,
    Better,
    CallMetric,
    Group,
    MetricSpec,
    TurnMetric,
)

__all__ = [
    "CLOCK",
    "FALSE_INTERRUPTIONS",
    "FIRST_AUDIBLE",
    "FIRST_MESSAGE",
    "REPLIES",
    "barge_ins",
    "detail",
    "first_of",
    "from_end",
    "of_call",
    "of_turn",
    "share",
    "sliced",
    "titled",
    "void",
]

CLOCK = "the probe's monotonic clock"
FIRST_MESSAGE = "first audio message"
FIRST_AUDIBLE = "first audible sample"
REPLIES = ("early_rate", "no_reply_rate")
"""Early and missing replies both shorten a p50 at the caller's cost."""
FALSE_INTERRUPTIONS = (
    "false_interruption",
    "false_interruption_noise",
    "false_interruption_side_talk",
)
"""What an agent that stops for anything gets more of."""


def sliced(spec: MetricSpec) -> MetricSpec:
    """Return a metric that breakdowns and samples show too."""
    return replace(spec, is_sliced=True)


def detail(spec: MetricSpec) -> MetricSpec:
    """Return a part or another form of a metric that is in the summary."""
    return replace(spec, is_headline=False)


def from_end(
    function: TurnMetric, stop: str, detector: str, *, skips_early: bool = False
) -> MetricSpec:
    """Return a latency from the end of the user's speech, which the user's next words may end."""
    span = ("user_end", stop)
    spec = of_turn(function, "s", "lower", span, detector, skips_early=skips_early)
    return replace(spec, has_competing_end=True)


def first_of(function: TurnMetric, stop: str, detector: str) -> MetricSpec:
    """Return a latency that talking over the user would improve."""
    return from_end(function, stop, detector, skips_early=True)


def of_turn(
    function: TurnMetric,
    unit: str,
    better: Better,
    span: tuple[str, str],
    detector: str,
    *,
    skips_early: bool = False,
) -> MetricSpec:
    """Return a latency of a turn; early and missing replies would improve it."""
    return MetricSpec(
        unit=unit,
        better=better,
        span=span,
        detector=detector,
        group="latency",
        on_turn=function,
        skips_early=skips_early,
        bought_by=REPLIES,
    )


def share(function: CallMetric, what: str, group: Group = "turns") -> MetricSpec:
    """Return a share of turns, calls or frames."""
    return of_call(function, "rate", "lower", (what, "hits / total"), CLOCK, group)


def of_call(
    function: CallMetric,
    unit: str,
    better: Better,
    span: tuple[str, str],
    detector: str,
    group: Group,
) -> MetricSpec:
    """Return a number of a call, maybe one that early and missing replies would improve."""
    return MetricSpec(
        unit=unit,
        better=better,
        span=span,
        detector=detector,
        group=group,
        on_call=function,
        bought_by=REPLIES if group in ("latency", "turns") else (),
    )


def titled(table: str, *specs: MetricSpec) -> tuple[MetricSpec, ...]:
    """Return metrics that a report shows in a table of their own."""
    return tuple(replace(spec, table=table) for spec in specs)


def barge_ins(
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


def void(spec: MetricSpec) -> MetricSpec:
    """Return a share of what showed nothing: it tells of the script and of chance."""
    return replace(detail(spec), better=None, is_of_probe=True)
