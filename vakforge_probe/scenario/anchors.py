"""Anchors: when a step begins, told by what is *heard*.

::

    4.0 s                          from the start of the user's stream
    [OFFSET ]after greeting        end of the agent's first words; the user opens if none come
    [OFFSET ]after agent onset     the agent is heard to begin
    [OFFSET ]after agent end       the agent's reply has been heard to its end
    [OFFSET ]after previous        end of the previous step
    [OFFSET ]after tool call NAME  the agent called a tool

OFFSET is a duration; it may be negative (``-300 ms``) only after the agent's end, where audio that
is queued ahead tells the end before it is heard.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from vakforge_eval.timeline.script import BACKGROUND_KINDS, StepKind
from vakforge_probe.scenario.units import DURATION, parse_duration

__all__ = ["Anchor", "AnchorField", "AnchorKind", "default_anchor", "parse_anchor"]


class AnchorKind(StrEnum):
    """What an anchor hangs on."""

    STREAM = "stream"
    GREETING = "greeting"
    ONSET = "agent onset"
    END = "agent end"
    PREVIOUS = "previous"
    TOOL = "tool call"

    @property
    def is_agent_end(self) -> bool:
        """Whether it waits until the agent has been heard to its end."""
        return self in (AnchorKind.END, AnchorKind.GREETING)


TOOL_NAME = r"[A-Za-z0-9_-]{1,64}"
_AFTER = rf"(?:(?P<offset>-?{DURATION}) )?after (?P<what>greeting|agent onset|agent end|previous)"
_TOOL = rf"(?:(?P<tool_offset>-?{DURATION}) )?after tool call (?P<tool>{TOOL_NAME})"
_ANCHOR = re.compile(rf"(?P<absolute>{DURATION})|{_AFTER}|{_TOOL}")
_PATTERN = re.sub(r"\?P<\w+>", "?:", f"^(?:{_ANCHOR.pattern})$")


@dataclass(frozen=True, slots=True)
class Anchor:
    """A parsed anchor; `offset_ns` is the absolute time for `AnchorKind.STREAM`."""

    kind: AnchorKind
    offset_ns: int
    text: str
    tool: str | None = None


def parse_anchor(text: object) -> Anchor:
    """Return the anchor that `text` says.

    Raises
    ------
    ValueError
        If `text` does not follow the grammar, or a negative offset makes no sense.
    """
    match = _ANCHOR.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            "is not an anchor: write '600 ms after agent onset', '500 ms after agent end', "
            "'after greeting', '200 ms after previous', 'after tool call NAME' or '4.0 s'"
        )
    if match["absolute"]:
        return Anchor(AnchorKind.STREAM, parse_duration(match["absolute"]), match[0])
    kind = AnchorKind(match["what"] or "tool call")
    offset = match["offset"] or match["tool_offset"] or "0 ms"
    sign = -1 if offset.startswith("-") else 1
    if sign < 0 and kind is not AnchorKind.END:
        raise ValueError("a negative offset makes sense only after the agent's end")
    offset_ns = sign * parse_duration(offset.removeprefix("-"))
    return Anchor(kind, offset_ns, match[0], match["tool"])


AnchorField = Annotated[
    Anchor, PlainValidator(parse_anchor), WithJsonSchema({"type": "string", "pattern": _PATTERN})
]
"""An anchor, written as text."""

_OPENING = {
    StepKind.PAUSE: "0 s",
    StepKind.WAIT: "after greeting",
}
_LATER = {
    StepKind.CORRECTION: "500 ms after previous",
    StepKind.BARGE_IN: "600 ms after agent onset",
    StepKind.PAUSE: "after previous",
    StepKind.WAIT: "after agent end",
}


def default_anchor(kind: StepKind, *, is_opening: bool) -> Anchor:
    """Return when a step of `kind` begins if the scenario does not say.

    Parameters
    ----------
    kind : StepKind
        What the step does.
    is_opening : bool
        Whether nothing precedes it in the call.
    """
    if kind in BACKGROUND_KINDS:
        return parse_anchor("1 s after agent onset")
    if is_opening and kind is not StepKind.BARGE_IN:
        return parse_anchor(_OPENING.get(kind, "500 ms after greeting"))
    return parse_anchor(_LATER.get(kind, "500 ms after agent end"))
