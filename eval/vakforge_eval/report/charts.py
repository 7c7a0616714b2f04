"""Geometry of the pictures: where each dot, mark and bar lies; writers only draw them.

Coordinates are SVG user units with two decimals, so that a picture is the same bytes every time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vakforge_eval.report import phrases
from vakforge_eval.report.safe import cut
from vakforge_eval.timeline.values import Flag, Reason

__all__ = [
    "Dot",
    "Lanes",
    "Mark",
    "Span",
    "Strip",
    "StripRow",
    "distribution",
    "lanes",
    "text_strip",
]

Row = Mapping[str, Any]

WIDTH = 1080.0
_LEFT, _RIGHT = 170.0, 990.0
_EARLY_X, _LATE_X = 124.0, 1050.0
_BESIDE = {"early": _EARLY_X, "censored": _LATE_X, "beyond": _LATE_X}
"""Where the kinds of dots lie that have no place on the scale."""
_ROW_HEIGHT, _AXIS_HEIGHT, _TOP = 54.0, 22.0, 10.0
_DOT_PITCH, _DOT_STEP, _STACK = 7.0, 6.0, 5
_TEXT_CELLS = 40
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Dot:
    """One turn or event: measured (on the scale), early (left of it) or censored (right of it).

    Where something else may end the wait, a censored one is "open": on the scale, at its bound, or
    "beyond" where that is right of the scale.

    Early is a turn that was answered before the user had ended. A negative value of any other
    turn (an endpoint that the server claims too soon) is a measured one.
    """

    kind: str
    x: float
    y: float
    lo: float
    hi: float
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A percentile with its interval, or a tick: position, ends, words."""

    x: float
    lo: float | None
    hi: float | None
    label: str


@dataclass(frozen=True, slots=True)
class StripRow:
    """One system's dots; `role` is "base" or "tuned", which decides colour and shape."""

    system: str
    role: str
    y: float
    dots: Sequence[Dot]
    percentiles: Sequence[Mark]
    counts: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """One metric's distribution, a row a system on one common scale."""

    metric: str
    caption: str
    width: float
    height: float
    rows: Sequence[StripRow]
    ticks: Sequence[Mark]
    bottom_s: float
    top_s: float
    early_x: float = _EARLY_X
    late_x: float = _LATE_X


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of speech in a lane."""

    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """A call's stretch of time: who spoke when, and a metric's instants."""

    width: float
    height: float
    user: Sequence[Span]
    agent: Sequence[Span]
    marks: Sequence[Mark]
    ticks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class _Point:
    value: float
    lo: float
    hi: float
    kind: str
    title: str


def _point(row: Row, metric: str, *, has_competing_end: bool) -> _Point | None:
    """Return a turn's or call's point, or None where it has no number or was spoilt."""
    value = row.get("metrics", {}).get(metric)
    is_spoilt = "turn" in row and not row["valid"]
    if value is None or is_spoilt:
        return None
    turn = f", turn {row['turn']}" if "turn" in row else ""
    where = f"{cut(str(row.get('scenario') or row['call']), 60)}{turn}"
    title = f"{where}: {phrases.metric_value(value, 's')}"
    if "censored" in value:
        bound = value["censored"]
        if has_competing_end and Flag.NO_REPLY.value not in row.get("flags", ()):
            return _Point(bound, bound, bound, "open", title)
        return _Point(bound, 0.0, 0.0, "censored", title)
    if "value" not in value or "hits" in value:
        return None
    number = value["value"]
    u, detect = value.get("u", (0.0, 0.0)), value.get("u_detect", (0.0, 0.0))
    kind = "early" if number < 0 and "early" in row.get("flags", ()) else "measured"
    return _Point(number, number - u[0] - detect[0], number + u[1] + detect[1], kind, title)


def _nice_step(top: float, wanted: int) -> float:
    """Return a tick step of 1, 2 or 5 times a power of ten for about `wanted` ticks."""
    raw = top / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * k for k in (1, 2, 5, 10) if power * k >= raw * 0.999)


@dataclass(frozen=True, slots=True)
class _Axis:
    """A scale from `bottom` (0, or below it for negative values) to `top`, both in s."""

    bottom: float
    top: float
    left: float = _LEFT
    right: float = _RIGHT

    def x_of(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        return round(self.left + (self.right - self.left) * min(max(share, 0.0), 1.0), 2)

    def ticks(self, wanted: int) -> list[Mark]:
        step = _nice_step(self.top - self.bottom, wanted)
        first = math.ceil(self.bottom / step - 1e-9)
        last = math.floor(self.top / step + 1e-9)
        at = (round(i * step, 9) for i in range(first, last + 1))
        return [Mark(self.x_of(s), None, None, phrases.quantity(s, "s")) for s in at]


def _axis_of(points: Sequence[_Point]) -> _Axis:
    """Return a scale that holds 0 and a little more than all values; it is never empty."""
    highest = max(0.0, *(p.hi for p in points)) if points else 0.0
    is_signed = any(p.value < 0 for p in points)
    lowest = min(0.0, *(p.lo for p in points)) if is_signed else 0.0
    if highest == lowest:
        return _Axis(0.0, 0.001)
    step = _nice_step(highest - lowest, 8)
    bottom, top = (
        round(step * math.ceil(end / step + 0.05), 9) if end else 0.0 for end in (-lowest, highest)
    )
    return _Axis(-bottom, top)


def _stack(slot: int) -> float:
    """Return the height of the n-th dot at the same place; a full place starts anew, on top."""
    place = slot % _STACK
    return _DOT_STEP * ((place + 1) // 2) * (1 if place % 2 else -1)


def _place(points: Sequence[_Point], y: float, axis: _Axis) -> list[Dot]:
    """Return the dots of one row; dots that would cover each other are stacked."""
    taken: Counter[tuple[str, int]] = Counter()
    dots = []
    for point in sorted(points, key=lambda p: (p.kind, p.value, p.title)):
        kind = "beyond" if point.kind == "open" and point.value > axis.top else point.kind
        x = _BESIDE.get(kind, axis.x_of(point.value))
        slot = (kind, round(x / _DOT_PITCH))
        height = _stack(taken[slot])
        taken[slot] += 1
        low, high = axis.x_of(point.lo), axis.x_of(point.hi)
        dots.append(Dot(kind, x, round(y + height, 2), low, high, point.title))
    return dots


def _percentiles(cell: Row | None, axis: _Axis) -> list[Mark]:
    marks = []
    for name in ("p50", "p95"):
        value = (cell or {}).get(name)
        if not isinstance(value, int | float):
            continue
        label = (cell or {}).get("p95_label", name) if name == "p95" else name
        ends = (cell or {}).get(f"{name}_ci") or (None, None)
        low, high = (None if end is None else axis.x_of(end) for end in ends)
        marks.append(Mark(axis.x_of(value), low, high, label))
    return marks


def _counts(points: Sequence[_Point], n_rows: int) -> str:
    kinds = Counter(point.kind for point in points)
    words = (
        ("measured", "measured"),
        ("early", "early"),
        ("censored", "never came"),
        ("open", "censored"),
    )
    parts = [f"{kinds[kind]} {word}" for kind, word in words if kinds[kind] or kind == "measured"]
    missing = n_rows - len(points)
    return ", ".join([*parts, *([f"{missing} without a number"] if missing else [])])


def _is_meant(row: Row, metric: str) -> bool:
    """Whether a metric has a meaning for a turn, event or call."""
    value = row.get("metrics", {}).get(metric)
    return value is not None and value.get("undefined") != Reason.NOT_APPLICABLE.value


def distribution(
    row: Row, turns: Sequence[Row], calls: Sequence[Row], systems: Sequence[str], caption: str
) -> Strip | None:
    """Return a time metric's distribution, or None if no turn or call has a point.

    Turns that the probe spoilt and those that the metric does not apply to are left out; early ones
    and those that never came have their own places at the edges, outside the scale.
    """
    metric = row["metric"]
    holders = [item for item in (*turns, *calls) if _is_meant(item, metric)]
    by_system = {name: [h for h in holders if h["system"] == name] for name in systems}
    ends = bool(row.get("competing_end"))
    points = {
        name: [p for holder in held if (p := _point(holder, metric, has_competing_end=ends))]
        for name, held in by_system.items()
    }
    if not any(points.values()):
        return None
    found = [p for own in points.values() for p in own]
    # A wait that ended late must not press all measured values into a corner.
    axis = _axis_of(
        [p for p in found if p.kind == "measured"] or [p for p in found if p.kind == "open"]
    )
    roles = ("tuned",) if len(systems) == 1 else ("base", "tuned")
    rows = []
    for i, (name, role) in enumerate(zip(systems, roles, strict=True)):
        y = _TOP + _ROW_HEIGHT * (i + 0.5)
        rows.append(
            StripRow(
                system=name,
                role=role,
                y=y,
                dots=_place(points[name], y, axis),
                percentiles=_percentiles(row["systems"].get(name), axis),
                counts=_counts(points[name], len(by_system[name])),
                values=tuple(p.value for p in points[name] if p.kind == "measured"),
            )
        )
    height = _TOP + _ROW_HEIGHT * len(rows) + _AXIS_HEIGHT
    return Strip(metric, caption, WIDTH, height, rows, axis.ticks(8), axis.bottom, axis.top)


def text_strip(values: Sequence[float], top_s: float, bottom_s: float = 0.0) -> str:
    """Return the same distribution in one line of block characters, in equal steps."""
    cells = (int((value - bottom_s) / (top_s - bottom_s) * _TEXT_CELLS) for value in values)
    counts = Counter(min(max(cell, 0), _TEXT_CELLS - 1) for cell in cells)
    most = max(counts.values(), default=1)
    return "".join(
        _BLOCKS[math.ceil(counts[i] / most * len(_BLOCKS)) - 1] if counts[i] else "·"
        for i in range(_TEXT_CELLS)
    )


def lanes(timeline: Row | None, duration: float) -> Lanes | None:
    """Return a sample's two lanes over `duration` s, or None without a timeline.

    `timeline` holds ``user`` and ``agent`` (lists of [start, end] in s) and ``marks`` (list of
    {"name", "at"}), all from the start of the stretch shown.
    """
    if not timeline or duration <= 0:
        return None
    left, right = 56.0, 486.0

    def at(seconds: float) -> float:
        return round(left + (right - left) * min(max(seconds / duration, 0.0), 1.0), 2)

    def spans(name: str) -> list[Span]:
        return [
            Span(
                at(start),
                round(max(at(end) - at(start), 1.0), 2),
                f"{name} {phrases.quantity(start, 's')} – {phrases.quantity(end, 's')}",
            )
            for start, end in timeline[name]
        ]

    marks = [
        Mark(at(mark["at"]), None, None, f"{mark['name']} at {phrases.quantity(mark['at'], 's')}")
        for mark in timeline.get("marks", [])
    ]
    ticks = _Axis(0.0, duration, left, right).ticks(4)
    return Lanes(508.0, 74.0, spans("user"), spans("agent"), marks, ticks)
