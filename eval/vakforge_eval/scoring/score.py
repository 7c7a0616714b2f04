"""Calls in, scores out: every metric of the registry on every turn and call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vakforge_eval.metrics.registry import METRICS, definitions
from vakforge_eval.metrics.turns import Turn
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.scoring.clusters import clustered
from vakforge_eval.scoring.scores import CallScore, PairKey, ScoreSet, TurnScore
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.values import Flag, MetricValue, Rate

__all__ = ["score_call", "score_calls"]

_FACTS = ("stamp_source", "scheduling", "protocol", "profile")


def score_calls(calls: Iterable[CallView], system: str | None = None) -> ScoreSet:
    """Return the scores of one system's calls, in the order of scenario, seed, repeat and call.

    Parameters
    ----------
    calls
        The calls, in any order.
    system
        The name to score them under; by default that of the first call.

    Raises
    ------
    ValueError
        If the calls belong to more than one system and no name is given.
    """
    calls = list(calls)
    names = sorted({call.timeline.system for call in calls})
    if system is None and len(names) > 1:
        raise ValueError(f"calls of several systems ({', '.join(names)}) need one name")
    name = system or (names[0] if names else "")
    scored = sorted(
        (score_call(call, name) for call in calls),
        key=lambda pair: (pair[0].pair_key, pair[0].call),
    )
    turns = tuple(turn for _, turns in scored for turn in turns)
    whole = ScoreSet(name, turns, tuple(call for call, _ in scored), definitions())
    return clustered(whole)[0]


def score_call(view: CallView, system: str) -> tuple[CallScore, list[TurnScore]]:
    """Return the scores of one call and of its turns."""
    timeline = view.timeline
    turns = [_score_turn(turn, system) for turn in view.turn_views]
    values: dict[str, MetricValue] = {}
    rates: dict[str, Rate] = {}
    for spec in METRICS:
        if spec.on_call is None:
            continue
        value = spec.on_call(view)
        if isinstance(value, Rate):
            rates[spec.name] = value
        else:
            values[spec.name] = value
    call = CallScore(
        system=system,
        call=timeline.call_id,
        scenario=timeline.script.id,
        script_hash=timeline.script.content_hash,
        cluster="",
        speaker=timeline.script.speaker,
        valid=all(turn.valid for turn in turns),
        failure=timeline.failure,
        values=values,
        rates=rates,
        slices=_slices(timeline),
        facts={name: timeline.header[name] for name in _FACTS if name in timeline.header},
        pair_key=_pair_key(timeline, -1),
    )
    return call, turns


def _score_turn(view: TurnView, system: str) -> TurnScore:
    timeline, turn = view.timeline, view.turn
    flags = view.flags
    by_hand = Flag.ENDPOINTING_MANUAL in flags
    return TurnScore(
        system=system,
        call=timeline.call_id,
        scenario=timeline.script.id,
        cluster="",
        speaker=timeline.script.speaker,
        turn=turn.index,
        kind=str(turn.kind),
        valid=not any(flag.invalidates for flag in flags),
        flags=flags,
        metrics={spec.name: spec.on_turn(view) for spec in METRICS if spec.on_turn is not None},
        slices={**_slices(timeline), "endpointing": "manual" if by_hand else "server"},
        user_text=" ".join(u.step.text for u in turn.utterances if u.step.text),
        agent_text=_agent_text(view),
        expected=_expected(turn),
        pair_key=_pair_key(timeline, turn.step),
    )


def _pair_key(timeline: CallTimeline, step: int) -> PairKey:
    return (timeline.script.id, _count(timeline, "seed"), _count(timeline, "repeat"), step)


def _count(timeline: CallTimeline, name: str) -> int:
    value = timeline.header.get(name)
    return value if isinstance(value, int) else 0


def _slices(timeline: CallTimeline) -> dict[str, str]:
    script = timeline.script
    is_streamed = timeline.capabilities.continuous_stream
    return {
        "scenario": script.id,
        "locale": script.locale,
        "condition": script.condition,
        "language": script.language.primary,
        "source": script.source,
        "anchor": "audible" if is_streamed else "message",
    }


def _agent_text(view: TurnView) -> str:
    """Return the text of the turn's reply, whether it was heard or not."""
    turn, responses = view.turn, view.call.hearing.responses
    names = dict.fromkeys(
        [s.response_id for s in turn.reply] + [r.response_id for r in turn.unheard]
    )
    spoken = (
        "".join(
            text.text
            for text in responses[name].texts
            if name is not None or turn.start.at <= text.at.at < turn.closes
        ).strip()
        for name in names
    )
    return " ".join(text for text in spoken if text)


def _expected(turn: Turn) -> dict[str, Any]:
    steps = [u.step for u in turn.utterances]
    tools = [s.expect_tool.model_dump() for s in steps if s.expect_tool is not None]
    return {
        "tools": tools,
        "entities": [entity.model_dump() for s in steps for entity in s.entities],
        "relevant_words": [word for s in steps for word in s.relevant_words],
    }
