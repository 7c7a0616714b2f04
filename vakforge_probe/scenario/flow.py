"""What the director walks: steps in order, with branches where the scenario has them."""

from __future__ import annotations

from dataclasses import dataclass

from vakforge_eval.timeline.script import StepKind
from vakforge_probe.scenario.anchors import Anchor

__all__ = ["Act", "Choice", "Condition", "Flow", "Node", "Way"]


@dataclass(frozen=True, slots=True)
class Act:
    """One step, as far as time goes; all durations in ns.

    Anchors speak of *speech*: it begins `lead_ns` after the first sample of the step's audio and
    lasts `speech_ns`; both are 0 without audio. `limit_ns` is how long a pause lasts, or a wait at
    most.
    """

    step: int
    kind: StepKind
    anchor: Anchor
    reply_within_ns: int
    lead_ns: int = 0
    speech_ns: int = 0
    limit_ns: int = 0


@dataclass(frozen=True, slots=True)
class Condition:
    """When a way is taken: exactly one of these."""

    said: tuple[str, ...] = ()
    tool: str | None = None
    timeout_ns: int | None = None

    @property
    def is_otherwise(self) -> bool:
        """Whether it is what holds when nothing else came true."""
        return not self.said and self.tool is None and self.timeout_ns is None


@dataclass(frozen=True, slots=True)
class Way:
    """One arm of a branch."""

    when: Condition
    then: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A branch; `path` is its place in the scenario."""

    path: str
    ways: tuple[Way, ...]


Node = Act | Choice


@dataclass(frozen=True, slots=True)
class Flow:
    """A whole script in time.

    Attributes
    ----------
    tool_delays_ns
        How long each declared tool takes to answer.
    tells_response_end
        Whether the protocol says when a response has ended; if not, only silence tells.
    """

    nodes: tuple[Node, ...]
    call_ns: int
    greeting_ns: int
    tool_delays_ns: dict[str, int]
    tells_response_end: bool
