"""One call in two lanes of text: what the user said, what a caller heard, and what came when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_letters

from vakforge_eval.metrics.reaction import Fate, Reaction
from vakforge_eval.metrics.view import CallView
from vakforge_eval.report.safe import clean_text
from vakforge_eval.timeline.call import Utterance
from vakforge_eval.timeline.instant import NS_PER_S, ns_to_s
from vakforge_eval.timeline.script import FLOOR_TAKING_KINDS
from vakforge_eval.timeline.values import Undefined

__all__ = ["draw_call"]

_LABEL = 7
_MIN_WIDTH = 40
_MARK_ROWS = 4
_TICKS_S = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_TICK_COLUMNS = 8
_QUOTED = 60
_KEY = "# speech, + backchannel, noise or side talk, x cut off by a flush"


@dataclass(frozen=True, slots=True)
class _Mark:
    """Something that happened, `at` ns of the call's clock."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where an instant stands in a lane."""

    zero: int
    span_ns: int
    columns: int

    def column(self, at: int) -> int:
        return min(max((at - self.zero) * self.columns // self.span_ns, 0), self.columns - 1)

    def seconds(self, at: int) -> float:
        return ns_to_s(at - self.zero)


def draw_call(view: CallView, width: int = 100) -> list[str]:
    """Return a call as lines of text: a scale in s, a lane for each side, and marks with a key.

    Time starts with the user's stream, or with the call where there was none. The agent's lane is
    what a caller hears, by the playout model of the metrics; every instant is that of the metrics,
    to the width of a column in the lanes and to 10 ms in the key.

    Parameters
    ----------
    view
        The call.
    width
        Columns to fill, at least 40. The key's lines are cut to it.
    """
    width = max(width, _MIN_WIDTH)
    scale = _scale(view, width - _LABEL)
    marks = sorted(_marks(view), key=lambda mark: mark.at)
    named = list(zip(ascii_letters, marks, strict=False))
    lines = [
        _row("s", _ticks(scale)),
        _row("user", _user(view, scale)),
        _row("agent", _agent(view, scale)),
    ]
    lines += [_row("", row) for row in _letters(named, scale)]
    lines += [f"{name} {scale.seconds(mark.at):7.2f} s  {mark.text}" for name, mark in named]
    if n_more := len(marks) - len(named):
        lines.append(f"… and {n_more} more")
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in [*lines, _KEY]]


def _scale(view: CallView, columns: int) -> _Scale:
    timeline = view.timeline
    starts = [int(f["due"]) - timeline.frame_ns for f in timeline.stream[:1]]
    starts += [start for start, _ in timeline.phases.values()]
    zero = starts[0] if starts else timeline.ended.at
    return _Scale(zero, max(timeline.ended.at - zero, NS_PER_S), columns)


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}".rstrip()


def _ticks(scale: _Scale) -> str:
    span_s = scale.span_ns / NS_PER_S
    fitting = (t for t in _TICKS_S if scale.columns * t / span_s >= _TICK_COLUMNS)
    tick_s = next(fitting, _TICKS_S[-1])
    row = ""
    for n in range(int(span_s / tick_s) + 1):
        column = scale.column(scale.zero + round(n * tick_s * NS_PER_S))
        label = f"{n * tick_s:g}"
        if column >= len(row) and column + len(label) <= scale.columns:
            row = f"{row:<{column}}{label} "
    return row


def _user(view: CallView, scale: _Scale) -> str:
    lane = ["."] * scale.columns
    for utterance in view.timeline.utterances:
        sign = "#" if utterance.kind in FLOOR_TAKING_KINDS else "+"
        for start, end in utterance.voiced:
            _fill(lane, scale, start.at, end.at, sign)
    return "".join(lane)


def _agent(view: CallView, scale: _Scale) -> str:
    if isinstance(view.hearing.gate, Undefined):
        return "(the noise is too high to tell speech from it)"[: scale.columns]
    lane = ["."] * scale.columns
    for start, end in view.hearing.sounds:
        _fill(lane, scale, start.when.at, end.when.at, "#")
    for segment in view.hearing.segments:
        if segment.is_cut:
            lane[scale.column(segment.end.when.at)] = "x"
    return "".join(lane)


def _fill(lane: list[str], scale: _Scale, start: int, end: int, sign: str) -> None:
    first, last = scale.column(start), scale.column(max(end - 1, start))
    lane[first : last + 1] = sign * (last + 1 - first)


def _letters(named: Sequence[tuple[str, _Mark]], scale: _Scale) -> list[str]:
    """Return rows with each mark's letter under its instant; beside it where that is taken."""
    rows: list[dict[int, str]] = []
    for name, mark in named:
        column = scale.column(mark.at)
        row = next((row for row in rows if column not in row), None)
        if row is None and len(rows) < _MARK_ROWS:
            rows.append(row := {})
        if row is not None:
            row[column] = name
    return ["".join(row.get(i, " ") for i in range(scale.columns)) for row in rows]


def _marks(view: CallView) -> Iterator[_Mark]:
    reactions = {t.turn.utterances[0].step.index: t.reaction for t in view.turn_views}
    reactions |= {e.utterance.step.index: e.reaction for e in view.event_views}
    for utterance in view.timeline.utterances:
        yield from _spoken(utterance, reactions.get(utterance.step.index))
    yield from _heard(view)
    for flush in view.timeline.flushes:
        yield _Mark(flush.at.at, "flush: what is queued of the agent's audio is dropped")
    yield _Mark(view.timeline.ended.at, _end(view))


def _spoken(utterance: Utterance, reaction: Reaction | None) -> Iterator[_Mark]:
    step, start = utterance.step, utterance.start
    said = f' "{clean_text(step.text, _QUOTED)}"' if step.text else ""
    fate = f": agent {reaction.fate.value.replace('_', ' ')}" if reaction is not None else ""
    yield _Mark(start.at, f"step {step.index} {step.kind.value}{said}{fate}")
    if reaction is None or reaction.silence is None:
        return
    if reaction.fate in (Fate.STOPPED, Fate.RESTARTED, Fate.STUTTERED):
        after = ns_to_s(reaction.silence.when.at - start.at)
        yield _Mark(
            reaction.silence.when.at,
            f"agent falls silent, {after:.2f} s after step {step.index} began",
        )


def _heard(view: CallView) -> Iterator[_Mark]:
    firsts = {
        id(turn.turn.first_reply.segment): turn.turn
        for turn in view.turn_views
        if turn.turn.first_reply is not None
    }
    for segment in view.hearing.segments:
        at = segment.start.when.at
        turn = firsts.get(id(segment))
        if turn is None:
            yield _Mark(at, "agent speaks")
        else:
            yield _Mark(
                at, f"agent answers, {ns_to_s(at - turn.end.at):.2f} s after turn {turn.index}"
            )


def _end(view: CallView) -> str:
    failure = view.timeline.failure
    if failure is not None:
        kind, phase = str(failure.get("kind")), str(failure.get("phase"))
        return clean_text(f"call failed: {kind} in phase {phase}", _QUOTED)
    lines = (o for o in view.timeline.journal if o.get("type") == "call_ended")
    return clean_text(f"call ended: {next(lines, {}).get('reason', 'cut off')}", _QUOTED)
