"""What a metric declares of itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from vakforge_eval.metrics.hearing import DETECTOR, PLAYOUT
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.values import Flag, Measured, MetricValue, Rate

__all__ = [
    "AS_HEARD",
    "BY_ARRIVAL",
    "BY_MESSAGE",
    "Better",
    "CallMetric",
    "Group",
    "MetricSpec",
    "TurnMetric",
]

BY_MESSAGE = "arrival of the whole message"
BY_ARRIVAL = f"{DETECTOR}; time: arrival of the message + offset inside of it"
AS_HEARD = f"{DETECTOR}; time: playout model {PLAYOUT}"

TurnMetric = Callable[[TurnView], MetricValue]
CallMetric = Callable[[CallView], MetricValue | Rate]
Better = Literal["lower", "higher"] | None
Group = Literal["latency", "turns", "transport", "self"]


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
    on_turn, on_call
        The function; exactly one is set. The metric has its name, and its docstring is the
        definition in full.
    version
        Of the definition; values of different versions are never compared.
    skips_early
        Whether early turns stay out of its percentiles: talking over the user would improve them.
    has_competing_end
        Whether something else may end the wait for it (a reply that ends by itself before the
        agent stops): such values are censored at bounds that say nothing of the metric, and its
        percentiles are Kaplan-Meier's.
    bought_by
        Names of the rates whose rise makes an improvement of this metric no gain.
    is_headline
        Whether the summary shows it; else only the section of its group does.
    is_sliced
        Whether breakdowns and samples show it.
    has_anchor
        Whether the protocol decides where it stops: what stops elsewhere is not compared.
    """

    unit: str
    better: Better
    span: tuple[str, str]
    detector: str
    group: Group
    on_turn: TurnMetric | None = None
    on_call: CallMetric | None = None
    version: int = 1
    skips_early: bool = False
    has_competing_end: bool = False
    bought_by: tuple[str, ...] = ()
    is_headline: bool = True
    is_sliced: bool = False
    has_anchor: bool = False

    def __post_init__(self) -> None:
        if (self.on_turn is None) == (self.on_call is None):
            raise ValueError("a metric needs one function, of a turn or of a call")

    def is_early(self, value: MetricValue | None, flags: Collection[Flag]) -> bool:
        """Whether a turn's `value` stays out of the percentiles because the agent was early.

        Either the turn is, or the moment itself surely came before the user's end: sound that
        nobody hears, sent while the user speaks, must not improve them either.
        """
        if not self.skips_early:
            return False
        return Flag.EARLY in flags or (isinstance(value, Measured) and value.hi < 0)

    @property
    def compute(self) -> TurnMetric | CallMetric:
        """The function that computes it."""
        function = self.on_turn or self.on_call
        assert function is not None  # noqa: S101 - checked when the spec was made
        return function

    @property
    def name(self) -> str:
        """The metric's name everywhere."""
        return self.compute.__name__

    @property
    def definition(self) -> str:
        """``name/version``."""
        return f"{self.name}/{self.version}"

    @property
    def scope(self) -> Literal["turn", "call"]:
        """What one value of it belongs to."""
        return "turn" if self.on_turn is not None else "call"
