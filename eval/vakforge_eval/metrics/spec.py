"""What a metric declares of itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from vakforge_eval.metrics.hearing import DETECTOR, PLAYOUT
from vakforge_eval.metrics.view import CallView, EventView, TurnView
from vakforge_eval.timeline.values import Flag, Measured, MetricValue, Rate

__all__ = [
    "AS_HEARD",
    "BY_ARRIVAL",
    "BY_MESSAGE",
    "Better",
    "CallMetric",
    "EventMetric",
    "Group",
    "MetricSpec",
    "Scope",
    "TurnMetric",
]

BY_MESSAGE = "arrival of the whole message"
BY_ARRIVAL = f"{DETECTOR}; time: arrival of the message + offset inside of it"
AS_HEARD = f"{DETECTOR}; time: playout model {PLAYOUT}"

TurnMetric = Callable[[TurnView], MetricValue | Rate]
EventMetric = Callable[[EventView], MetricValue | Rate]
CallMetric = Callable[[CallView], MetricValue | Rate]
Better = Literal["lower", "higher"] | None
Group = Literal["latency", "turns", "duplex", "transport", "self"]
Scope = Literal["turn", "event", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """A metric: what it runs from and to, and the function that computes it.

    Attributes
    ----------
    span
        From which event to which, in words for the report.
    detector
        How these moments are found, in words for the report.
    group
        Where a report shows it.
    on_turn, on_event, on_call
        The function; exactly one is set. The metric has its name, and its docstring is the
        definition in full. An event is an utterance that opens no turn. A metric that is a share
        returns a `Rate` of what it counts in the one turn, event or call, and Undefined where
        that is outside of what it counts.
    version
        Of the definition; values of different versions are never compared.
    skips_early
        Whether early turns stay out of its percentiles: talking over the user would improve them.
    has_competing_end
        Whether something else may end the wait for it (a reply that ends by itself before the
        agent stops, a correction that follows by script before the agent answers): such values
        are censored at bounds that say nothing of the metric. Where they differ, percentiles are
        Kaplan-Meier's.
    bought_by
        Names of the shares that, where they get worse, make an improvement of this one no gain.
    is_headline
        Whether the summary shows it; else only the section of its group does.
    is_sliced
        Whether breakdowns and samples show it.
    is_of_probe
        Whether it tells of the probe itself: no change of it is one of the target.
    table
        Title of the table that shows it, for a group that has several.
    control
        Name of the share that would be counted if nothing had happened, to be read beside it.
    has_anchor
        Whether the protocol decides where it stops: what stops elsewhere is not compared.
    """

    unit: str
    better: Better
    span: tuple[str, str]
    detector: str
    group: Group
    on_turn: TurnMetric | None = None
    on_event: EventMetric | None = None
    on_call: CallMetric | None = None
    version: int = 1
    skips_early: bool = False
    has_competing_end: bool = False
    bought_by: tuple[str, ...] = ()
    is_headline: bool = True
    is_sliced: bool = False
    is_of_probe: bool = False
    table: str = ""
    control: str | None = None
    has_anchor: bool = False

    def __post_init__(self) -> None:
        functions = (self.on_turn, self.on_event, self.on_call)
        if sum(function is not None for function in functions) != 1:
            raise ValueError("a metric needs one function: of a turn, an event or a call")

    def is_early(self, value: MetricValue | Rate | None, flags: Collection[Flag]) -> bool:
        """Whether a turn's `value` stays out of the percentiles because the agent was early.

        Either the turn is, or the moment itself surely came before the user's end: sound that
        nobody hears, sent while the user speaks, must not improve them either.
        """
        if not self.skips_early:
            return False
        return Flag.EARLY in flags or (isinstance(value, Measured) and value.hi < 0)

    @property
    def compute(self) -> TurnMetric | EventMetric | CallMetric:
        """The function that computes it."""
        function = self.on_turn or self.on_event or self.on_call
        assert function is not None  # noqa: S101 - checked when the spec was made
        return function

    @property
    def name(self) -> str:
        """The metric's name everywhere."""
        return self.compute.__name__

    @property
    def is_share(self) -> bool:
        """Whether it is a `Rate`, pooled over a system, and no sample of values."""
        return self.unit == "rate"

    @property
    def definition(self) -> str:
        """``name/version``."""
        return f"{self.name}/{self.version}"

    @property
    def scope(self) -> Scope:
        """What one value of it belongs to."""
        if self.on_turn is not None:
            return "turn"
        return "event" if self.on_event is not None else "call"
