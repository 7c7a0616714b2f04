"""The unit of chance: a conversation, or a speaker who holds several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from vakforge_eval.scoring.scores import CallScore, EventScore, ScoreSet, TurnScore

__all__ = ["clustered"]

_SYNTHETIC = "synthetic"

Score = TypeVar("Score", TurnScore, CallScore, EventScore)


def clustered(*sets: ScoreSet) -> tuple[ScoreSet, ...]:
    """Return the sets with their clusters, decided over all of them so that they agree.

    Notes
    -----
    A synthetic voice is no sample of anybody: what is said with it is clustered by conversation.
    Repeats of one scenario are conversations of their own.
    """
    scenarios: defaultdict[str, set[str]] = defaultdict(set)
    for scores in sets:
        for call in scores.calls:
            if call.speaker is not None and call.slices.get("source") != _SYNTHETIC:
                scenarios[call.speaker].add(call.scenario)
    several = {speaker for speaker, names in scenarios.items() if len(names) > 1}

    def name(score: TurnScore | CallScore | EventScore) -> str:
        if score.speaker in several and score.slices.get("source") != _SYNTHETIC:
            return f"speaker {score.speaker}"
        return score.conversation

    def named(scores: Iterable[Score]) -> tuple[Score, ...]:
        # Every table and chart asks anew: most often nothing is left to change.
        return tuple(
            score if score.cluster == (cluster := name(score)) else replace(score, cluster=cluster)
            for score in scores
        )

    return tuple(
        replace(
            scores,
            turns=named(scores.turns),
            calls=named(scores.calls),
            events=named(scores.events),
        )
        for scores in sets
    )
