"""What calls gave, in a form for plain asserts: a number, or an error that says why there is none.

Everything is computed from the captures by `vakforge_eval`, so an assert, a report and a later
rescoring cannot disagree.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.format import INDEX
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.expectations import Verdict
from vakforge_eval.metrics.registry import METRICS
from vakforge_eval.metrics.view import CallView
from vakforge_eval.metrics.whys import why
from vakforge_eval.report.ascii import draw_call
from vakforge_eval.report.build import make_report
from vakforge_eval.scoring.captures import score_captures
from vakforge_eval.scoring.cells import pooled_rate, sample_of
from vakforge_eval.scoring.scores import CallScore, EventScore, LeftOut, ScoreSet, TurnScore
from vakforge_eval.stats.percentiles import percentile
from vakforge_eval.timeline.values import (
    Censored,
    Measured,
    MetricValue,
    Rate,
    Reason,
    Undefined,
)
from vakforge_probe.call import CallOutcome
from vakforge_probe.errors import ProbeError
from vakforge_probe.text import nearest

__all__ = ["CallResult", "NotMeasured", "RunResult", "SideEvent", "Turn", "result_of"]

_SPECS = {spec.name: spec for spec in METRICS}


class NotMeasured(ProbeError):
    """A number was asked for that does not exist.

    Attributes
    ----------
    reason
        A reason of `vakforge_eval.timeline.values.Reason`, a flag of a spoilt or early turn, or
        ``censored``: what was waited for had not come.
    """

    def __init__(self, what: str, reason: str, words: str = "") -> None:
        self.reason = reason
        super().__init__(f"{what}: {words or reason.replace('_', ' ')}")


class _Scored:
    """What turns and events have in common."""

    _name: str

    def __init__(self, score: TurnScore | EventScore, values: dict[str, MetricValue]) -> None:
        self._score = score
        self._known: dict[str, MetricValue | Rate] = {**values, **score.rates}
        self.kind, self.valid, self.outcome = score.kind, score.valid, score.outcome
        self.flags = tuple(flag.value for flag in score.flags)
        self.user_text = score.user_text
        self.expectations = tuple(score.expectations)

    @property
    def values(self) -> dict[str, MetricValue | Rate]:
        """All metrics by name, whatever there is of each."""
        return dict(self._known)

    def metric(self, name: str) -> MetricValue | Rate:
        """Return a metric: `Measured` with its error, `Censored`, `Undefined`, or a share.

        Raises
        ------
        KeyError
            If there is no such metric of this; names the nearest one.
        """
        _require(name, self._known, f"metric of {self._name}")
        return self._known[name]

    def __getitem__(self, name: str) -> float:
        value = self.metric(name)
        what = f"{name} of {self._name}"
        spoilt = [flag for flag in self._score.flags if flag.invalidates]
        if spoilt or not self.valid:
            reason = spoilt[0].value if spoilt else "invalid"
            raise NotMeasured(what, reason, f"the probe spoilt this turn ({reason})")
        if _SPECS[name].is_early(value, self._score.flags):
            raise NotMeasured(what, "early", "the agent spoke before the user had ended")
        return _number(value, what)


class Turn(_Scored):
    """One turn of the user, and what the agent made of it.

    ``turn["ttfa"]`` is a number in the metric's unit (seconds for times); where there is none, or
    an assert on it would be a lie (the probe spoilt the turn; the agent did not wait for its end),
    it raises `NotMeasured`. `metric` returns whatever there is.

    Attributes
    ----------
    index
        0 for the first turn of the user.
    kind, user_text, agent_text
        What the user did and said, and the text of the reply as the protocol told it.
    flags
        Marks such as ``early``, ``no_reply``, ``invalid_pacing``.
    valid
        False if the probe spoilt the turn, so that it is in no statistic.
    outcome
        What became of the agent's speech that the turn interrupted (``stopped``, ``never_stopped``,
        …); None if it is no barge-in.
    relevance
        ``relevant``, ``irrelevant`` or ``unchecked``: the reply to a barge-in, by the script's
        words; None if there is none.
    expectations
        What the scenario expects of it, judged: each has `text`, `status` (``pass``, ``fail``,
        ``indeterminate``, ``void``, ``not_measurable``) and `why`.
    """

    def __init__(self, score: TurnScore) -> None:
        super().__init__(score, score.metrics)
        self.index, self.agent_text, self.relevance = score.turn, score.agent_text, score.relevance
        self._name = f"turn {self.index}"

    def __repr__(self) -> str:
        return f"<turn {self.index} of {self._score.call}: {self.user_text[:40]!r}>"


class SideEvent(_Scored):
    """A backchannel, noise, side talk or sham, and what became of the agent's speech that it met.

    It is asked for numbers like a turn: ``event["stutter_gap"]``, ``event["false_interruption"]``.

    Attributes
    ----------
    step
        The scenario's step that played it, counted from 0.
    turn
        The turn it fell into, -1 for the greeting.
    outcome
        ``held``, ``stuttered``, ``stopped``, ``restarted``, …; ``silent`` if it met no speech.
    kind, user_text, flags, valid, expectations
        As those of a turn.
    """

    def __init__(self, score: EventScore) -> None:
        super().__init__(score, score.values)
        self.step, self.turn = score.step, score.turn
        self._name = f"step {self.step} ({self.kind})"

    def __repr__(self) -> str:
        return f"<{self.kind} of {self._score.call}, step {self.step}: {self.outcome}>"


class CallResult:
    """What one call gave; ``result["setup"]`` is a number of the call as a whole.

    Attributes
    ----------
    capture
        The folder that all of it can be computed from again.
    turns
        The user's turns in order; what the agent says before them is ``greeting_latency``.
    events
        What was played to the agent and opens no turn, in order.
    failure
        None, or the typed error that ended the call; the turns up to there are measured.
    reason
        Why it ended: ``done``, ``hang_up``, ``budget``, ``target_closed``, ``failure``,
        ``stopped``.
    recorder_problem
        None, or why the capture holds less than the call.
    system
        ``tuned``, ``base`` or the name that was given.
    """

    def __init__(self, outcome: CallOutcome, call: CallScore, scores: ScoreSet) -> None:
        self._call, self._scores = call, scores
        self.turns = tuple(Turn(score) for score in scores.turns)
        self.events = tuple(SideEvent(score) for score in scores.events)
        self.capture, self.reason = outcome.capture, outcome.reason
        self.failure, self.recorder_problem = outcome.failure, outcome.recorder_problem
        self.system, self.scenario = outcome.plan.system, call.scenario

    def __repr__(self) -> str:
        return f"<call {self._call.call}: {self.reason}, {len(self.turns)} turns>"

    def metric(self, name: str) -> MetricValue | Rate:
        """Return the value of a call's metric, or a share of its turns.

        Raises
        ------
        KeyError
            If no call has such a metric; names the nearest one.
        """
        known = {**self._call.values, **self._call.rates}
        _require(name, known, "metric of a call")
        return known[name]

    def __getitem__(self, name: str) -> float:
        return _number(self.metric(name), f"{name} of the call")

    @property
    def expectations(self) -> tuple[Verdict, ...]:
        """What the scenario expects, judged: of the turns, of the events, of what was left out."""
        scored: tuple[Turn | SideEvent | LeftOut, ...] = (
            *self.turns,
            *self.events,
            *self._call.left_out,
        )
        return tuple(verdict for one in scored for verdict in one.expectations)

    @property
    def skipped(self) -> tuple[str, ...]:
        """What the scenario left out, since what it was to meet did not come: step and reason."""
        return tuple(
            f"step {one.step} ({one.kind}) {why(one.reason)}" for one in self._call.left_out
        )

    def draw(self, width: int = 100) -> str:
        """Return the call as text: a lane for each side and what happened when."""
        view = CallView(build_timeline(Capture.open(self.capture)))
        return "\n".join(draw_call(view, width))

    def p50(self, name: str) -> float:
        """Return the median (nearest rank) of a metric over the turns.

        Raises
        ------
        NotMeasured
            If too few values are known for it.
        """
        return _statistic(self._scores, name, 50)

    def p95(self, name: str) -> float:
        """Return the 95th percentile (nearest rank); of fewer than 20 values it is the largest."""
        return _statistic(self._scores, name, 95)

    def report(self, out: Path | None = None) -> dict[str, Any]:
        """Return the report document of this call, written to folder `out` if that is given."""
        return make_report([self.capture], out=out)


class RunResult:
    """What the calls of a run gave; without a `system` a statistic is the probed system's.

    Attributes
    ----------
    folder
        The run's folder.
    systems
        Names of the systems, the baseline first.
    calls
        The calls that left a complete capture, in the order in which they were planned.
    failures
        The errors that ended calls, in that order; also of those that left no capture.
    """

    def __init__(
        self, folder: Path, systems: Sequence[str], outcomes: Sequence[CallOutcome]
    ) -> None:
        kept = [outcome for outcome in outcomes if (outcome.capture / INDEX).is_file()]
        self._sets = {
            name: score_captures([o.capture for o in kept if o.plan.system == name], name)
            for name in systems
        }
        self.folder, self.systems = folder, tuple(systems)
        self.calls = tuple(_one(self._sets[o.plan.system], o) for o in kept)
        self.failures = tuple(o.failure for o in outcomes if o.failure is not None)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The user's turns of all calls of the probed system."""
        probed = (call for call in self.calls if call.system == self.systems[-1])
        return tuple(turn for call in probed for turn in call.turns)

    @property
    def events(self) -> tuple[SideEvent, ...]:
        """What opens no turn, of all calls of the probed system."""
        probed = (call for call in self.calls if call.system == self.systems[-1])
        return tuple(event for call in probed for event in call.events)

    @property
    def expectations(self) -> tuple[Verdict, ...]:
        """What the scenarios expect, judged, of all calls of the probed system."""
        probed = (call for call in self.calls if call.system == self.systems[-1])
        return tuple(verdict for call in probed for verdict in call.expectations)

    def p50(self, name: str, system: str | None = None) -> float:
        """Return the median (nearest rank) of a metric, or the pooled value of a share.

        Raises
        ------
        NotMeasured
            If too few values are known for it.
        """
        return _statistic(self._of(system), name, 50)

    def p95(self, name: str, system: str | None = None) -> float:
        """Return the 95th percentile (nearest rank); of fewer than 20 values it is the largest."""
        return _statistic(self._of(system), name, 95)

    def report(self, out: Path | None = None) -> dict[str, Any]:
        """Return the report document of the run, written to folder `out` if that is given."""
        return make_report([call.capture for call in self.calls], out=out)

    def _of(self, system: str | None) -> ScoreSet:
        name = self.systems[-1] if system is None else system
        _require(name, self._sets, "system")
        return self._sets[name]


def result_of(outcome: CallOutcome) -> CallResult:
    """Return the result of one call, computed from its capture.

    Raises
    ------
    CaptureError
        If the capture cannot be read.
    """
    return _one(score_captures([outcome.capture], outcome.plan.system), outcome)


def _one(scores: ScoreSet, outcome: CallOutcome) -> CallResult:
    call_id = outcome.plan.call_id
    own = scores.where(lambda score: score.call == call_id)
    return CallResult(outcome, own.calls[0], own)


def _statistic(scores: ScoreSet, name: str, percent: int) -> float:
    _require(name, _SPECS, "metric")
    what = f"p{percent} of {name}"
    sample = sample_of(scores, _SPECS[name])
    if _SPECS[name].is_share:
        return _number(pooled_rate(sample), what)
    return _number(percentile(sample.values, percent).value, what)


def _number(value: MetricValue | Rate, what: str) -> float:
    match value:
        case Measured():
            return value.value
        case Censored():
            words = f"had not come {value.bound:g} s after the start, when watching ended"
            raise NotMeasured(what, "censored", words)
        case Undefined():
            raise NotMeasured(what, value.reason.value)
        case Rate():
            if value.value is None:
                raise NotMeasured(what, Reason.TOO_FEW.value, "nothing was counted")
            return value.value


def _require(name: str, known: Collection[str], whose: str) -> None:
    if name not in known:
        near = nearest(name, known)
        hint = f"; did you mean {near!r}?" if near else f": {', '.join(known)}"
        raise KeyError(f"no {whose} {name!r}{hint}")
