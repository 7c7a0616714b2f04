"""Interruptions, disturbances and overlap beside the agent's own account of them.

What a user's step did is found in the truth log by the name of the connection and the stream
position at which the step's voice begins. Nothing of a sham reaches the agent: there the truth is
what was heard of it after that moment, by its own player.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from vakforge_eval.metrics.bargein import stop_heard, stop_network, stop_reaction
from vakforge_eval.metrics.interruption import interruption_response, stutter_gap
from vakforge_eval.metrics.overlap import agent_overlap_rate, overlap_rate
from vakforge_eval.metrics.reaction import Fate, Reaction
from vakforge_eval.metrics.view import CallView, EventView, TurnView
from vakforge_eval.timeline.call import CallTimeline, Utterance
from vakforge_eval.timeline.instant import NS_PER_S, ns_to_s
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Flag, Measured, MetricValue
from vakforge_probe.agent.overlaps import Outcome, outcome_at
from vakforge_probe.calibrate.latency import start_samples, user_end_sample
from vakforge_probe.calibrate.log import EventLine, OverlapLine, Truth, TruthValue, TurnLine
from vakforge_probe.calibrate.rows import Row

__all__ = ["DUPLEX", "STOPS", "Duplex", "Verdict", "compare_duplex"]

STOPS: dict[str, Callable[[TurnView], MetricValue]] = {
    "stop_reaction": stop_reaction,
    "stop_network": stop_network,
    "stop_heard": stop_heard,
}
OVERLAPS: dict[str, Callable[[CallView], MetricValue]] = {
    "overlap_rate": overlap_rate,
    "agent_overlap_rate": agent_overlap_rate,
}
DUPLEX = (*STOPS, "interruption_response", "stutter_gap", *OVERLAPS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the agent's speech after one step of the user, truly and as measured.

    Attributes
    ----------
    kind
        What the user did.
    truth
        By the agent's account; None where the agent does not know.
    found
        A `Fate` by its name.
    is_flagged
        Whether the probe says that the caller's echo may be at the edge.
    is_void
        Whether the probe says that its own step missed what it hung on, so that it shows nothing.
    counts
        Whether neither side spoilt it; an agent's word is enough here, however late it was.
    """

    condition: str
    call: str
    step: int
    kind: StepKind
    truth: str | None
    found: str
    is_flagged: bool
    is_void: bool
    counts: bool

    @property
    def is_right(self) -> bool:
        """Whether both say the same."""
        return self.truth == self.found

    @property
    def is_alarm(self) -> bool:
        """Whether a stop was found that was none."""
        stops = (Fate.STOPPED, Fate.RESTARTED)
        return self.found in stops and self.truth not in stops


@dataclass(frozen=True, slots=True)
class Duplex:
    """All that was compared."""

    rows: list[Row]
    verdicts: list[Verdict]


def compare_duplex(timelines: Iterable[CallTimeline], truth: Truth) -> Duplex:
    """Return rows for all times, and a verdict for each step that met the agent's speech."""
    rows: list[Row] = []
    verdicts: list[Verdict] = []
    for timeline in timelines:
        call = _Call(timeline, truth)
        rows += call.rows()
        verdicts += call.verdicts()
    return Duplex(rows, verdicts)


class _Call:
    def __init__(self, timeline: CallTimeline, truth: Truth) -> None:
        self._timeline, self._truth = timeline, truth
        self._view = CallView(timeline)
        self._starts = start_samples(timeline)
        views = self._view.turn_views
        self._barge_ins = [view for view in views if view.turn.kind is StepKind.BARGE_IN]

    def rows(self) -> Iterator[Row]:
        for view in self._barge_ins:
            known = self._known(view.turn.utterances[0])
            for name, metric in STOPS.items():
                yield self._stop(view, name, metric(view), known)
            yield self._response(view, known)
        for event in self._view.event_views:
            if event.kind is not StepKind.SHAM:
                known = self._known(event.utterance)
                truth = None if known is None else known.gap_s
                step = event.utterance.step.index
                yield self._row("stutter_gap", event, step, stutter_gap(event), known, truth)
        yield from self._overlaps()

    def verdicts(self) -> Iterator[Verdict]:
        for view in self._barge_ins:
            reaction, known = view.reaction, self._known(view.turn.utterances[0])
            if reaction is not None:
                fate = None if known is None else self._fate(view, known)
                yield self._verdict(view, view.turn.utterances[0], reaction, fate, known)
        for event in self._view.event_views:
            known = self._known(event.utterance)
            if event.kind is StepKind.SHAM:
                outcome = self._sham(event)
            else:
                outcome = None if known is None else known.outcome
            yield self._verdict(event, event.utterance, event.reaction, outcome, known)

    def _known(self, utterance: Utterance) -> EventLine | None:
        """Return the agent's line about what the user uttered."""
        step = utterance.step
        if step.index not in self._starts or not step.voiced:
            return None
        start = self._starts[step.index] + step.voiced[0][0]
        timeline = self._timeline
        return self._truth.event_at(timeline.call_id, start, timeline.script.rate_hz)

    def _fate(self, view: TurnView, known: EventLine) -> Fate:
        """Return what became of an interrupted speech, for as long as the probe watched it."""
        if known.outcome is Outcome.SILENT:
            return Fate.SILENT
        stop = known.microphone.get("stop_heard")
        over = stop or known.microphone.get("natural_end")
        until = min(view.watched_until, self._timeline.ended.at)
        if over is not None and over.value < ns_to_s(until - view.turn.start.at):
            return Fate.ENDED if stop is None else Fate.STOPPED
        return Fate.UNCONFIRMED if self._leaves_in_pause(known, until) else Fate.NEVER_STOPPED

    def _leaves_in_pause(self, known: EventLine, until: int) -> bool:
        """Whether watching ended while the agent drew breath, so that nobody knows it goes on.

        The pause began before `until` (ns), until which a stop is looked for.
        """
        left = self._timeline.ended.at
        heard = self._truth.heard.get(self._timeline.call_id, ())
        spans = next((v.spans for v in heard if v.response == known.response), ())
        is_heard = any(start <= left < end for start, end in spans)
        return not is_heard and max((end for _, end in spans if end <= left), default=left) < until

    def _sham(self, event: EventView) -> Outcome | None:
        """Return what the agent did by itself at a moment at which the user did nothing."""
        starts = (turn.start.at for turn in self._view.turns.turns)
        moment = event.utterance.start.at
        until = min((at for at in starts if at > moment), default=None)
        outcome, _ = outcome_at(self._truth.heard.get(self._timeline.call_id, ()), moment, until)
        return outcome

    def _stop(
        self, view: TurnView, name: str, measured: MetricValue, known: EventLine | None
    ) -> Row:
        truth = end = None
        if known is not None:
            truth, end = known.microphone.get(name), known.microphone.get("natural_end")
        return self._row(name, view, view.turn.step, measured, known, truth, end)

    def _response(self, view: TurnView, known: EventLine | None) -> Row:
        timeline, end = self._timeline, user_end_sample(view.turn, self._starts)
        line = self._truth.turn_at(timeline.call_id, end, timeline.script.rate_hz)
        name = "interruption_response"
        # Words that the agent ignores are no turn of it and have no answer; words into its silence
        # are no interruption.
        is_void = known is not None and known.outcome is Outcome.SILENT
        truth = None if line is None or is_void else line.microphone.get("ttfa_heard")
        witness = known if line is None else line
        return self._row(name, view, view.turn.step, interruption_response(view), witness, truth)

    def _row(
        self,
        name: str,
        view: TurnView | EventView,
        step: int,
        measured: MetricValue,
        known: EventLine | TurnLine | None,
        truth: TruthValue | None,
        natural_end: TruthValue | None = None,
    ) -> Row:
        return Row(
            metric=name,
            condition=self._timeline.system,
            call=self._timeline.call_id,
            turn=view.turn.index,
            step=step,
            is_matched=known is not None,
            truth=truth,
            measured=measured,
            valid=_is_valid(view.flags),
            flags=view.flags,
            agent_late_ns=0 if known is None else known.late_ns(),
            natural_end=natural_end,
        )

    def _verdict(
        self,
        view: TurnView | EventView,
        utterance: Utterance,
        reaction: Reaction,
        truth: str | None,
        known: EventLine | None,
    ) -> Verdict:
        is_known = known is not None or utterance.kind is StepKind.SHAM
        is_void = reaction.fate is Fate.ANCHOR_MISSED
        return Verdict(
            condition=self._timeline.system,
            call=self._timeline.call_id,
            step=utterance.step.index,
            kind=utterance.kind,
            truth=None if truth is None else str(truth),
            found=str(reaction.fate),
            is_flagged=Flag.ECHO in view.flags,
            is_void=is_void,
            counts=is_known and truth is not None and not is_void and _is_valid(view.flags),
        )

    def _overlaps(self) -> Iterator[Row]:
        """Yield the shares of the call, as the seconds that they stand for by the agent's total."""
        line = self._truth.overlaps.get(self._timeline.call_id)
        views: list[TurnView | EventView] = [*self._view.turn_views, *self._view.event_views]
        flags = tuple(sorted({flag for view in views for flag in view.flags}))
        for name, metric in OVERLAPS.items():
            truth = None if line is None else _seconds(line, name)
            yield Row(
                metric=name,
                condition=self._timeline.system,
                call=self._timeline.call_id,
                turn=-1,
                step=-1,
                is_matched=line is not None,
                truth=truth,
                measured=_in_seconds(metric(self._view), line),
                valid=_is_valid(flags),
                flags=flags,
                agent_late_ns=0 if truth is None else round((truth.hi - truth.lo) * 1e9),
            )


def _is_valid(flags: Iterable[Flag]) -> bool:
    return not any(flag.invalidates for flag in flags)


def _seconds(line: OverlapLine, name: str) -> TruthValue:
    value = line.overlap_s if name == "overlap_rate" else line.agent_overlap_s
    # A share of what may have been longer or shorter, where the ends of the stream came late.
    most, least = (line.total_s * NS_PER_S / max(1, ns) for ns in _lengths(line))
    return TruthValue(
        value=value, lo=(value - line.error_s) * least, hi=(value + line.error_s) * most
    )


def _lengths(line: OverlapLine) -> tuple[int, int]:
    """Return the least and the most that the caller's stream lasted (ns)."""
    return line.end[0] - line.begin[1], line.end[1] - line.begin[0]


def _in_seconds(share: MetricValue, line: OverlapLine | None) -> MetricValue:
    if not isinstance(share, Measured) or line is None:
        return share
    total = line.total_s
    scaled = [(lo * total, hi * total) for lo, hi in (share.u, share.u_detect)]
    return Measured(share.value * total, *scaled)
