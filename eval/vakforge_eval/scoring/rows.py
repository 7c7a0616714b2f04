"""Turns, events and calls in the form of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vakforge_eval.scoring.scores import CallScore, EventScore, LeftOut, ScoreSet, TurnScore
from vakforge_eval.timeline.values import MetricValue, Rate

__all__ = ["call_rows", "turn_rows"]


def turn_rows(scores: ScoreSet) -> list[dict[str, Any]]:
    """Return one row a turn and one a background utterance, spoilt ones included.

    They stand call by call in the order of the set, in a call in the order of the script's steps.
    """
    places = {call.call: place for place, call in enumerate(scores.calls)}
    rows = [
        *(_turn_row(turn) for turn in scores.turns),
        *(_event_row(event) for event in scores.events),
    ]
    return sorted(rows, key=lambda row: (places.get(row["call"], len(places)), row["step"]))


def _turn_row(turn: TurnScore) -> dict[str, Any]:
    _, _, _, step = turn.pair_key
    return {
        **_row(turn, step),
        "relevance": turn.relevance,
        "metrics": _metrics(turn.metrics, turn.rates),
    }


def _event_row(event: EventScore) -> dict[str, Any]:
    return {
        **_row(event, event.step),
        "relevance": None,
        "metrics": _metrics(event.values, event.rates),
    }


def _row(score: TurnScore | EventScore, step: int) -> dict[str, Any]:
    return {
        "system": score.system,
        "call": score.call,
        "scenario": score.scenario,
        "turn": score.turn,
        "step": step,
        "kind": score.kind,
        "valid": score.valid,
        "flags": [flag.value for flag in score.flags],
        "outcome": score.outcome,
        "expectations": _expectations(score),
    }


def _expectations(score: TurnScore | EventScore | LeftOut) -> list[dict[str, str]]:
    return [
        {"expect": verdict.text, "status": verdict.status, "why": verdict.why}
        for verdict in score.expectations
    ]


def _metrics(values: Mapping[str, MetricValue], rates: Mapping[str, Rate]) -> dict[str, Any]:
    return {name: value.to_json() for name, value in {**values, **rates}.items()}


def call_rows(scores: ScoreSet) -> list[dict[str, Any]]:
    """Return one row a call, failed ones included, in the order of the set."""
    return [
        {
            "system": call.system,
            "call": call.call,
            "scenario": call.scenario,
            "valid": call.valid,
            "failure": call.failure,
            "metrics": _metrics(call.values, call.rates),
            "facts": {**call.facts, **_left_out(call)},
        }
        for call in scores.calls
    ]


def _left_out(call: CallScore) -> dict[str, Any]:
    """Return what was left out of a call; nothing if nothing was."""
    steps = [
        {
            "step": one.step,
            "kind": one.kind,
            "reason": one.reason,
            "expectations": _expectations(one),
        }
        for one in call.left_out
    ]
    return {"skipped": steps} if steps else {}
