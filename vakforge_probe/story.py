"""A call told in text for whoever has to see why it failed: drawn, in numbers, and judged."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Rate, Undefined
from vakforge_probe.results import CallResult, SideEvent, Turn
from vakforge_probe.text import clean

__all__ = ["tell_call"]

_SHOWN = (
    "ttfa_heard",
    "ttf_answer",
    "total_response",
    "stop_reaction",
    "stop_network",
    "stop_heard",
    "interruption_response",
    "stutter_gap",
)
"""What a scenario's expectations are about, and what a listener would notice."""


def tell_call(result: CallResult, width: int = 100) -> str:
    """Return a call as lines of text, folded to `width` columns (at least 40).

    The two lanes; then each turn and event with its outcome, marks and times (s) with their
    worst-case interval; then what the scenario expects, judged; last where the capture is.
    """
    lines: list[str] = []
    scored: tuple[Turn | SideEvent, ...] = (*result.turns, *result.events)
    for one in scored:
        lines += ["", *_scored(one)]
    for skipped in result.skipped:
        lines += ["", clean(skipped, 300)]
    if result.failure is not None:
        lines += ["", f"call failed: {result.failure}"]
    folded = [part for line in lines for part in _folded(line, width)]
    return "\n".join([result.draw(width), *folded, "", f"capture: {result.capture}"])


def _folded(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, max(width, 40), subsequent_indent="    ") or [""]


def _scored(one: Turn | SideEvent) -> Iterator[str]:
    place = f"turn {one.index}" if isinstance(one, Turn) else f"step {one.step}"
    marks = [one.outcome.replace("_", " ")] if one.outcome else []
    marks += [flag.replace("_", " ") for flag in one.flags]
    yield f"{place} ({one.kind}){': ' if marks else ''}{', '.join(marks)}"
    for name in _SHOWN:
        words = _number(one.values.get(name))
        if words:
            yield f"  {name:<24}{words}"
    for verdict in one.expectations:
        status = verdict.status.replace("_", " ")
        yield clean(f"  {status}: {verdict.text}: {verdict.why}", 300)


def _number(value: MetricValue | Rate | None) -> str:
    """Return a value with its error; nothing for what does not apply."""
    match value:
        case Measured():
            return f"{value.value:.3f} s  [{value.lo:.3f}, {value.hi:.3f}]"
        case Censored():
            return f"not within {value.bound:.3f} s"
        case Undefined() if value.reason.value != "not_applicable":
            return value.reason.value.replace("_", " ")
        case _:
            return ""
