"""What scoring a call leaves: values by turn and call, and what these are sliced and paired by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from vakforge_eval.metrics.claimed import Claimed
from vakforge_eval.metrics.expectations import Verdict
from vakforge_eval.metrics.interruption import Relevance
from vakforge_eval.timeline.values import Flag, MetricValue, Rate

__all__ = [
    "CallScore",
    "EventScore",
    "LeftOut",
    "PairKey",
    "ScoreSet",
    "TurnScore",
    "playout_text",
]

PairKey = tuple[str, int, int, int]
"""Scenario, seed, repeat, and the index of the script's step that opened the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What every score says of where it was held.

    Attributes
    ----------
    cluster
        The unit of chance: the conversation, or the speaker who holds several.
    valid
        False if the probe spoilt it: it is in no statistic, but counted.
    slices
        Dimension -> value.
    """

    system: str
    call: str
    scenario: str
    cluster: str
    speaker: str | None
    valid: bool
    slices: dict[str, str]
    pair_key: PairKey

    @property
    def conversation(self) -> str:
        """The conversation, named alike in every system that held it."""
        scenario, seed, repeat, _ = self.pair_key
        return f"{scenario}/{seed}/{repeat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScore(_Held):
    """One turn of one call.

    Attributes
    ----------
    expected
        What the script asks for: tool call, entities, words that make a reply relevant.
    rates
        Metrics of the turn that are shares.
    outcome
        What became of the agent's speech that the turn interrupted; None if it is no barge-in.
    relevance
        Whether the reply to a barge-in is one to what was said, by the script; None if there is no
        such reply.
    expectations
        What the script expected of the turn, judged.
    """

    turn: int
    kind: str
    flags: tuple[Flag, ...]
    metrics: dict[str, MetricValue]
    user_text: str
    agent_text: str
    expected: dict[str, Any]
    rates: dict[str, Rate] = field(default_factory=dict)
    outcome: str | None = None
    relevance: Relevance | None = None
    expectations: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventScore(_Held):
    """One utterance that opens no turn (backchannel, noise, side talk, sham) and its effect.

    Attributes
    ----------
    turn
        The turn it fell into, -1 for the greeting.
    step
        Index of the script's step that played it.
    values, rates
        Metrics of the event, those that are shares apart because they add up.
    outcome
        What became of the agent's speech that it met.
    expectations
        What the script expected of the event, judged.
    """

    turn: int
    step: int
    kind: str
    flags: tuple[Flag, ...]
    values: dict[str, MetricValue]
    rates: dict[str, Rate]
    outcome: str
    user_text: str
    expectations: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A step that was not played, since what it was to meet did not come.

    Attributes
    ----------
    expectations
        What the script expected of it: void.
    """

    step: int
    kind: str
    reason: str
    expectations: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScore(_Held):
    """One call: its own metrics, and the shares of its turns.

    Attributes
    ----------
    values, rates
        Metrics of the call as a whole, those that are shares apart because they add up.
    facts
        What the probe says of how it measured: stamp source, scheduling, …
    claims
        What the server said of turns and of its own latency, with what was heard.
    left_out
        The steps that were not played, in the order in which that was decided.
    """

    script_hash: str
    failure: dict[str, Any] | None
    values: dict[str, MetricValue]
    rates: dict[str, Rate]
    facts: dict[str, Any]
    claims: tuple[Claimed, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreSet:
    """The scores of one system; `definitions` says by which version of each metric."""

    system: str
    turns: tuple[TurnScore, ...]
    calls: tuple[CallScore, ...]
    definitions: dict[str, str] = field(default_factory=dict)
    events: tuple[EventScore, ...] = ()

    def where(self, keep: Callable[[TurnScore | CallScore | EventScore], bool]) -> ScoreSet:
        """Return the part of the set whose turns, calls and events `keep` accepts."""
        return replace(
            self,
            turns=tuple(t for t in self.turns if keep(t)),
            calls=tuple(c for c in self.calls if keep(c)),
            events=tuple(e for e in self.events if keep(e)),
        )


def playout_text(*sets: ScoreSet) -> str | None:
    """Return the playout model that the sets were heard by, by system where they differ."""
    models = {
        scores.system: "; ".join(sorted({c.facts.get("playout", "not told") for c in scores.calls}))
        for scores in sets
    }
    if len(set(models.values())) <= 1:
        return next(iter(models.values())) or None
    return " | ".join(f"{system}: {text}" for system, text in models.items())
