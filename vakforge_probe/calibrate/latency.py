"""Latencies beside the agent's.

A turn is found in the truth log by the name of its connection and by the stream position at which
the user's last utterance ended, never by order: an agent may make two turns of one, or miss one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote

from vakforge_eval.metrics.registry import METRICS
from vakforge_eval.metrics.turns import Turn
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.values import Rate
from vakforge_probe.calibrate.log import Truth, TurnLine
from vakforge_probe.calibrate.rows import Row
from vakforge_probe.call import CallPlan

__all__ = ["LATENCIES", "compare", "labelled", "start_samples", "user_end_sample"]

LATENCIES = ("ttft", "ttfa", "ttfa_audible", "ttfa_heard", "ttfs", "total_response")


def labelled(plan: CallPlan) -> CallPlan:
    """Return `plan` with its call's id in the URL, under which the agent logs the call."""
    url = plan.target.url
    joint = "&" if "?" in url else "?"
    target = replace(plan.target, url=f"{url}{joint}label={quote(plan.call_id, safe='')}")
    return replace(plan, target=target)


def compare(timelines: Iterable[CallTimeline], truth: Truth) -> list[Row]:
    """Return a row for each latency of each turn of `timelines`."""
    rows: list[Row] = []
    for timeline in timelines:
        starts = start_samples(timeline)
        for view in CallView(timeline).turn_views:
            end = user_end_sample(view.turn, starts)
            known = truth.turn_at(timeline.call_id, end, timeline.script.rate_hz)
            rows += _rows(view, known)
    return rows


def start_samples(timeline: CallTimeline) -> dict[int, int]:
    """Return where in the stream each step that was played begins."""
    return {
        int(line["step"]): int(line["start_sample"])
        for line in timeline.journal
        if line["type"] == "step" and line["start_sample"] is not None
    }


def user_end_sample(turn: Turn, starts: dict[int, int]) -> int:
    """Return where in the stream the last words of a turn end; `starts` of `start_samples`."""
    step = turn.utterances[-1].step
    return starts[step.index] + (step.voiced[-1][1] if step.voiced else step.n_samples)


def _rows(view: TurnView, known: TurnLine | None) -> Iterable[Row]:
    flags = view.flags
    for spec in METRICS:
        if spec.name in LATENCIES and spec.on_turn is not None:
            measured = spec.on_turn(view)
            if isinstance(measured, Rate):
                continue
            yield Row(
                metric=spec.name,
                condition=view.timeline.system,
                call=view.timeline.call_id,
                turn=view.turn.index,
                step=view.turn.step,
                is_matched=known is not None,
                truth=None if known is None else known.microphone.get(spec.name),
                measured=measured,
                valid=not any(flag.invalidates for flag in flags),
                flags=flags,
                agent_late_ns=0 if known is None else known.late_ns(),
            )
