"""Calls in, scores out: every metric of the registry on every turn, event and call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from vakforge_eval.metrics.claimed import claims
from vakforge_eval.metrics.expectations import Verdict, judge, judge_left_out
from vakforge_eval.metrics.interruption import relevance
from vakforge_eval.metrics.registry import METRICS, definitions
from vakforge_eval.metrics.spec import Scope
from vakforge_eval.metrics.turns import Turn
from vakforge_eval.metrics.view import CallView, EventView, TurnView
from vakforge_eval.scoring.clusters import clustered
from vakforge_eval.scoring.scores import (
    CallScore,
    EventScore,
    LeftOut,
    PairKey,
    ScoreSet,
    TurnScore,
)
from vakforge_eval.timeline.call import CallTimeline, Utterance
from vakforge_eval.timeline.instant import ns_to_s
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
        key=lambda scores: (scores[0].pair_key, scores[0].call),
    )
    held, turns, events = zip(*scored, strict=True) if scored else ((), (), ())
    whole = ScoreSet(
        system=name,
        turns=tuple(chain.from_iterable(turns)),
        calls=held,
        definitions=definitions(),
        events=tuple(chain.from_iterable(events)),
    )
    return clustered(whole)[0]


def score_call(view: CallView, system: str) -> tuple[CallScore, list[TurnScore], list[EventScore]]:
    """Return the scores of one call, of its turns and of its background utterances."""
    timeline = view.timeline
    turns = [_score_turn(turn, system) for turn in view.turn_views]
    events = [_score_event(event, system) for event in view.event_views]
    values, rates = _computed("call", view)
    call = CallScore(
        system=system,
        call=timeline.call_id,
        scenario=timeline.script.id,
        script_hash=timeline.script.content_hash,
        cluster="",
        speaker=timeline.script.speaker,
        valid=all(t.valid for t in turns) and all(e.valid for e in events),
        failure=timeline.failure,
        values=values,
        rates=rates,
        slices=_slices(timeline),
        facts={
            **{name: timeline.header[name] for name in _FACTS if name in timeline.header},
            "playout": view.hearing.playout,
            "noise_floor_dbfs": _floor(view),
            **_echo(view),
        },
        pair_key=_pair_key(timeline, -1),
        claims=claims(view),
        left_out=_left_out(timeline),
    )
    return call, turns, events


def _left_out(timeline: CallTimeline) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(
            skipped.step.index,
            skipped.step.kind.value,
            skipped.reason,
            tuple(judge_left_out(expected, skipped.reason) for expected in skipped.step.expect),
        )
        for skipped in timeline.skipped
    )


def _floor(view: CallView) -> int | None:
    """Return the agent's noise floor in whole dB; None where there is none."""
    floor = view.hearing.floor_dbfs
    return None if floor is None else round(floor)


def _echo(view: CallView) -> dict[str, Any]:
    """Return what is known of the caller's echo in the agent's audio, if there is one."""
    echo = view.hearing.echo
    if echo is None:
        return {}
    return {
        "echo": {
            "delay_s": round(ns_to_s(echo.delay_ns), 6),
            "level_db": round(echo.level_db, 3),
            "correlation": round(echo.correlation, 3),
        }
    }


def _computed(scope: Scope, view: Any) -> tuple[dict[str, MetricValue], dict[str, Rate]]:
    """Return a scope's metrics of a view, the shares apart; one that is undefined is a value."""
    found = {spec.name: spec.compute(view) for spec in METRICS if spec.scope == scope}
    rates = {name: value for name, value in found.items() if isinstance(value, Rate)}
    values = {name: value for name, value in found.items() if not isinstance(value, Rate)}
    return values, rates


def _score_turn(view: TurnView, system: str) -> TurnScore:
    timeline, turn = view.timeline, view.turn
    flags = view.flags
    by_hand = Flag.ENDPOINTING_MANUAL in flags
    values, rates = _computed("turn", view)
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
        metrics=values,
        slices={**_slices(timeline), "endpointing": "manual" if by_hand else "server"},
        user_text=_text(turn.utterances),
        agent_text=view.reply_text,
        expected=_expected(turn),
        pair_key=_pair_key(timeline, turn.step),
        rates=rates,
        outcome=None if view.reaction is None else view.reaction.fate.value,
        relevance=relevance(view),
        expectations=_judged(turn.utterances, view),
    )


def _score_event(view: EventView, system: str) -> EventScore:
    timeline, utterance = view.timeline, view.utterance
    values, rates = _computed("event", view)
    return EventScore(
        system=system,
        call=timeline.call_id,
        scenario=timeline.script.id,
        cluster="",
        speaker=timeline.script.speaker,
        turn=view.turn.index,
        step=utterance.step.index,
        kind=str(view.kind),
        valid=not any(flag.invalidates for flag in view.flags),
        flags=view.flags,
        values=values,
        rates=rates,
        outcome=view.reaction.fate.value,
        slices=_slices(timeline),
        user_text=_text((utterance,)),
        pair_key=_pair_key(timeline, utterance.step.index),
        expectations=_judged((utterance,), view),
    )


def _text(utterances: Iterable[Utterance]) -> str:
    return " ".join(u.step.text for u in utterances if u.step.text)


def _judged(utterances: Iterable[Utterance], view: TurnView | EventView) -> tuple[Verdict, ...]:
    found = tuple(judge(expected, view) for u in utterances for expected in u.step.expect)
    if not any(flag.invalidates for flag in view.flags):
        return found
    # What the probe spoilt tells nothing of the agent.
    why = "was spoilt by the probe"
    return tuple(replace(verdict, status="not_measurable", why=why) for verdict in found)


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


def _expected(turn: Turn) -> dict[str, Any]:
    steps = [u.step for u in turn.utterances]
    tools = [s.expect_tool.model_dump() for s in steps if s.expect_tool is not None]
    return {
        "tools": tools,
        "entities": [entity.model_dump() for s in steps for entity in s.entities],
        "relevant_words": [word for s in steps for word in s.relevant_words],
    }
