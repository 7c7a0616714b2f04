"""What a metric declares of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vakforge_eval.metrics.hearing import DETECTOR, PLAYOUT
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.values import MetricValue, Rate

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
    """A metric: its name, what it runs from and to, and the function that computes it.

    Attributes
    ----------
    definition
        ``name/version``; values of different versions are never compared.
    start, stop, detector
        From which event to which, and how the moments are found, in words for the report.
    group
        Where a report shows it.
    on_turn, on_call
        The function; exactly one is set. Its docstring is the definition in full.
    skips_early
        Whether early turns stay out of its percentiles: talking over the user would improve them.
    """

    name: str
    unit: str
    better: Better
    definition: str
    start: str
    stop: str
    detector: str
    group: Group
    on_turn: TurnMetric | None = None
    on_call: CallMetric | None = None
    skips_early: bool = False

    def __post_init__(self) -> None:
        if (self.on_turn is None) == (self.on_call is None):
            raise ValueError(f"metric {self.name} needs one function, of a turn or of a call")

    @classmethod
    def of_turn(
        cls,
        function: TurnMetric,
        unit: str,
        better: Better,
        span: tuple[str, str],
        detector: str,
        *,
        group: Group = "latency",
        version: int = 1,
        skips_early: bool = False,
    ) -> MetricSpec:
        """Return a metric with one value a turn, named as its function."""
        name = function.__name__
        return cls(
            name=name,
            unit=unit,
            better=better,
            definition=f"{name}/{version}",
            start=span[0],
            stop=span[1],
            detector=detector,
            group=group,
            on_turn=function,
            skips_early=skips_early,
        )

    @classmethod
    def of_call(
        cls,
        function: CallMetric,
        unit: str,
        better: Better,
        span: tuple[str, str],
        detector: str,
        group: Group,
        *,
        version: int = 1,
    ) -> MetricSpec:
        """Return a metric with one value a call, named as its function."""
        name = function.__name__
        return cls(
            name=name,
            unit=unit,
            better=better,
            definition=f"{name}/{version}",
            start=span[0],
            stop=span[1],
            detector=detector,
            group=group,
            on_call=function,
        )

    @property
    def scope(self) -> Literal["turn", "call"]:
        """What one value of it belongs to."""
        return "turn" if self.on_turn is not None else "call"

    @property
    def compute(self) -> TurnMetric | CallMetric:
        """The function that computes it."""
        function = self.on_turn or self.on_call
        assert function is not None  # noqa: S101 - checked when the spec was made
        return function
