"""Turns and calls in the form of a report."""

from __future__ import annotations

from typing import Any

from vakforge_eval.scoring.scores import ScoreSet

__all__ = ["call_rows", "turn_rows"]


def turn_rows(scores: ScoreSet) -> list[dict[str, Any]]:
    """Return one row a turn, spoilt ones included, in the order of the set."""
    return [
        {
            "system": turn.system,
            "call": turn.call,
            "scenario": turn.scenario,
            "turn": turn.turn,
            "kind": turn.kind,
            "valid": turn.valid,
            "flags": [flag.value for flag in turn.flags],
            "metrics": {name: value.to_json() for name, value in turn.metrics.items()},
        }
        for turn in scores.turns
    ]


def call_rows(scores: ScoreSet) -> list[dict[str, Any]]:
    """Return one row a call, failed ones included, in the order of the set."""
    return [
        {
            "system": call.system,
            "call": call.call,
            "scenario": call.scenario,
            "valid": call.valid,
            "failure": call.failure,
            "metrics": {
                name: value.to_json() for name, value in {**call.values, **call.rates}.items()
            },
            "facts": call.facts,
        }
        for call in scores.calls
    ]
