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
    "PairKey",
    "ScoreSet",
    "TurnScore",
    "playout_text",
]

PairKey = tuple[str, int, int, int]
"""Scenario, seed, repeat, and the index of the script's step that opened the turn."""


@dataclass(frozen=True, slots=True)
class TurnScore:
    """One turn of one call.

    Attributes
    ----------
    cluster
        The unit of chance: the conversation, or the speaker who holds several.
    valid
        False if the probe spoilt the turn: it is in no statistic, but counted.
    slices
        Dimension -> value.
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

    system: str
    call: str
    scenario: str
    cluster: str
    speaker: str | None
    turn: int
    kind: str
    valid: bool
    flags: tuple[Flag, ...]
    metrics: dict[str, MetricValue]
    slices: dict[str, str]
    user_text: str
    agent_text: str
    expected: dict[str, Any]
    pair_key: PairKey
    rates: dict[str, Rate] = field(default_factory=dict)
    outcome: str | None = None
    relevance: Relevance | None = None
    expectations: tuple[Verdict, ...] = ()

    @property
    def conversation(self) -> str:
        """The conversation, named alike in every system that held it."""
        return conversation_name(self.pair_key)


@dataclass(frozen=True, slots=True)
class EventScore:
    """One utterance that opens no turn (backchannel, noise, side talk, sham) and its effect.

    Attributes
    ----------
    cluster
        The unit of chance: the conversation, or the speaker who holds several.
    turn
        The turn it fell into, -1 for the greeting.
    step
        Index of the script's step that played it.
    valid
        False if the probe spoilt the event: it is in no statistic, but counted.
    values, rates
        Metrics of the event, those that are shares apart because they add up.
    outcome
        What became of the agent's speech that it met.
    expectations
        What the script expected of the event, judged.
    """

    system: str
    call: str
    scenario: str
    cluster: str
    speaker: str | None
    turn: int
    step: int
    kind: str
    valid: bool
    flags: tuple[Flag, ...]
    values: dict[str, MetricValue]
    rates: dict[str, Rate]
    outcome: str
    slices: dict[str, str]
    user_text: str
    pair_key: PairKey
    expectations: tuple[Verdict, ...] = ()

    @property
    def conversation(self) -> str:
        """The conversation, named alike in every system that held it."""
        return conversation_name(self.pair_key)


@dataclass(frozen=True, slots=True)
class CallScore:
    """One call: its own metrics, and the shares of its turns.

    Attributes
    ----------
    values, rates
        Metrics of the call as a whole, those that are shares apart because they add up.
    facts
        What the probe says of how it measured: stamp source, scheduling, …
    claims
        What the server said of turns and of its own latency, with what was heard.
    """

    system: str
    call: str
    scenario: str
    script_hash: str
    cluster: str
    speaker: str | None
    valid: bool
    failure: dict[str, Any] | None
    values: dict[str, MetricValue]
    rates: dict[str, Rate]
    slices: dict[str, str]
    facts: dict[str, Any]
    pair_key: PairKey
    claims: tuple[Claimed, ...] = ()

    @property
    def conversation(self) -> str:
        """The conversation, named alike in every system that held it."""
        return conversation_name(self.pair_key)


def conversation_name(key: PairKey) -> str:
    """Return the name of the conversation in a pair key."""
    scenario, seed, repeat, _ = key
    return f"{scenario}/{seed}/{repeat}"


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
