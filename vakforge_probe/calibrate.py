"""The probe measured against the reference agent: each scored turn beside the agent's truth.

A turn is found in the truth log by the name of its connection and by the stream position at which
the user's last utterance ended, never by order: an agent may make two turns of one, or miss one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from vakforge_eval.capture import strict_json
from vakforge_eval.metrics.registry import METRICS
from vakforge_eval.metrics.turns import Turn
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.stats.percentiles import nearest_rank
from vakforge_eval.stats.rates import covers_at_least
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.values import Censored, Flag, Measured, MetricValue, Rate
from vakforge_probe.call import CallPlan
from vakforge_probe.errors import ConfigError

__all__ = [
    "AGENT_LATE_NS",
    "LATENCIES",
    "Row",
    "Summary",
    "Truth",
    "TruthValue",
    "compare",
    "labelled",
    "read_truth",
    "summarize",
]

LATENCIES = ("ttft", "ttfa", "ttfa_audible", "ttfa_heard", "ttfs", "total_response")
AGENT_LATE_NS = 2_000_000
"""An agent that sent a message of interest later than this, or cannot tell better when it did, is
no witness of that turn."""


class TruthValue(BaseModel, frozen=True):
    """A latency by the agent's account, with the error of that account (s)."""

    value: float
    lo: float
    hi: float


class _TurnLine(BaseModel):
    connection: str
    user_end_sample: int
    rule: str
    microphone: dict[str, TruthValue | None]
    marks_late_ns: dict[str, int]


class _LabelLine(BaseModel):
    connection: str
    behaviour: dict[str, object] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Truth:
    """The agent's account of all calls: turns by label of the call and position of user_end."""

    turns: dict[tuple[str, int], _TurnLine]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one turn, as it was and as it was measured.

    Attributes
    ----------
    condition
        Name of the system, which is what the agent was set to.
    step
        Index of the script's step that opened the turn.
    is_matched
        Whether the agent knows of this turn.
    truth
        None where what the metric runs to did not happen.
    valid, flags
        The probe's own opinion of the turn.
    agent_late_ns
        How late the agent was with the messages that this turn's truth stands on, at worst, or
        how wide its account is, whichever is more.
    """

    metric: str
    condition: str
    call: str
    turn: int
    step: int
    is_matched: bool
    truth: TruthValue | None
    measured: MetricValue
    valid: bool
    flags: tuple[Flag, ...]
    agent_late_ns: int

    @property
    def is_agent_late(self) -> bool:
        """Whether the agent itself spoilt the turn."""
        return self.agent_late_ns > AGENT_LATE_NS

    @property
    def counts(self) -> bool:
        """Whether neither side spoilt the turn."""
        return self.is_matched and self.valid and not self.is_agent_late

    @property
    def error(self) -> float | None:
        """Measured minus true value (s); None unless both exist."""
        if self.truth is None or not isinstance(self.measured, Measured):
            return None
        return self.measured.value - self.truth.value

    @property
    def width(self) -> float | None:
        """Width of the stated interval (s); None where nothing was measured."""
        return self.measured.hi - self.measured.lo if isinstance(self.measured, Measured) else None

    @property
    def covered(self) -> bool | None:
        """Whether what was stated is true; None where nothing was stated.

        A measured value states an interval, which must meet that of the truth. A censored one
        states that nothing happened up to its bound.
        """
        match self.measured:
            case Measured() as found:
                if self.truth is None:
                    return False
                return found.lo <= self.truth.hi and self.truth.lo <= found.hi
            case Censored(bound):
                return self.truth is None or self.truth.hi >= bound
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Summary:
    """How well a class of conditions was measured; all times in s, None where nothing counted.

    Attributes
    ----------
    n_turns
        Turns that count. The next three are those that do not, each in one of them.
    measured
        Values measured, of those that happened.
    covered, covered_at_least
        Statements that were true, and the one-sided 95 % Clopper-Pearson bound of that share.
    """

    n_turns: int
    n_invalid: int
    n_agent_late: int
    n_unmatched: int
    measured: Rate
    error_p50: float | None
    error_p99: float | None
    error_max: float | None
    covered: Rate
    covered_at_least: float | None
    width_p50: float | None


def labelled(plan: CallPlan) -> CallPlan:
    """Return `plan` with its call's id in the URL, under which the agent logs the call."""
    url = plan.target.url
    joint = "&" if "?" in url else "?"
    target = replace(plan.target, url=f"{url}{joint}label={quote(plan.call_id, safe='')}")
    return replace(plan, target=target)


def read_truth(path: Path) -> Truth:
    """Return what a truth log says of its labelled calls.

    Raises
    ------
    ConfigError
        If a line is not one of a truth log, or two connections carry one label.
    """
    labels: dict[str, str] = {}
    turns: dict[tuple[str, int], _TurnLine] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                obj = strict_json.loads(line)
                kind = obj["type"]
                if kind == "connected":
                    connected = _LabelLine.model_validate(obj)
                    labels[connected.connection] = str(connected.behaviour.get("label", ""))
                elif kind == "turn":
                    turn = _TurnLine.model_validate(obj)
                    turns[labels[turn.connection], turn.user_end_sample] = turn
            except (ValueError, KeyError, TypeError, ValidationError):
                raise ConfigError("not a truth log", file=str(path), line=number) from None
    named = [label for label in labels.values() if label]
    if len(set(named)) < len(named):
        raise ConfigError("two connections carry one label", file=str(path))
    return Truth({key: turn for key, turn in turns.items() if key[0]})


def compare(timelines: Iterable[CallTimeline], truth: Truth) -> list[Row]:
    """Return a row for each latency of each turn of `timelines`."""
    rows: list[Row] = []
    for timeline in timelines:
        starts = _start_samples(timeline)
        for view in CallView(timeline).turn_views:
            known = truth.turns.get((timeline.call_id, _user_end_sample(view.turn, starts)))
            rows += _rows(view, known)
    return rows


def _start_samples(timeline: CallTimeline) -> dict[int, int]:
    """Return where in the stream each step that was played begins."""
    return {
        int(line["step"]): int(line["start_sample"])
        for line in timeline.journal
        if line["type"] == "step" and line["start_sample"] is not None
    }


def _user_end_sample(turn: Turn, starts: dict[int, int]) -> int:
    step = turn.utterances[-1].step
    return starts[step.index] + (step.voiced[-1][1] if step.voiced else step.n_samples)


def _rows(view: TurnView, known: _TurnLine | None) -> Iterable[Row]:
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
                agent_late_ns=0 if known is None else _agent_late_ns(known),
            )


def _agent_late_ns(known: _TurnLine) -> int:
    stated = (t for t in known.microphone.values() if t is not None)
    widths = (round((t.hi - t.lo) * 1e9) for t in stated)
    return max([*known.marks_late_ns.values(), *widths], default=0)


def summarize(rows: Sequence[Row]) -> Summary:
    """Return how well `rows` were measured."""
    used = [row for row in rows if row.counts]
    errors = [abs(row.error) for row in used if row.error is not None]
    happened = [row for row in used if row.truth is not None]
    stated = [row.covered for row in used if row.covered is not None]
    covered = Rate(sum(stated), len(stated))
    n_matched = _n_turns(rows, lambda row: row.is_matched)
    n_valid = _n_turns(rows, lambda row: row.is_matched and row.valid)
    return Summary(
        n_turns=_n_turns(used, lambda row: True),
        n_invalid=n_matched - n_valid,
        n_agent_late=n_valid - _n_turns(used, lambda row: True),
        n_unmatched=_n_turns(rows, lambda row: True) - n_matched,
        measured=Rate(sum(row.error is not None for row in happened), len(happened)),
        error_p50=_rank(errors, 50),
        error_p99=_rank(errors, 99),
        error_max=max(errors, default=None),
        covered=covered,
        covered_at_least=covers_at_least(covered),
        width_p50=_rank([row.width for row in used if row.width is not None], 50),
    )


def _n_turns(rows: Iterable[Row], keep: Callable[[Row], bool]) -> int:
    return len({(row.call, row.turn) for row in rows if keep(row)})


def _rank(values: Sequence[float], percent: int) -> float | None:
    return nearest_rank(np.asarray(values), percent) if values else None
