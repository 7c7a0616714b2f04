"""The compiled scenario: all that scoring needs to know of what was meant to happen.

It is written whole into each capture as ``scenario.json``, so that a capture is scored alone. All
lengths are samples at `rate_hz`, relative to the step's first sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "BACKGROUND_KINDS",
    "FLOOR_TAKING_KINDS",
    "Entity",
    "Expectation",
    "ExpectedToolCall",
    "Language",
    "Script",
    "ScriptStep",
    "StepKind",
    "ToolSpec",
    "is_one_turn",
]


class StepKind(StrEnum):
    """What the scripted user does in a step."""

    SAY = "say"
    CORRECTION = "correction"
    BARGE_IN = "barge_in"
    BACKCHANNEL = "backchannel"
    NOISE = "noise"
    SIDE_TALK = "side_talk"
    SHAM = "sham"
    PAUSE = "pause"
    DTMF = "dtmf"
    WAIT = "wait"
    HANG_UP = "hang_up"


FLOOR_TAKING_KINDS = frozenset(
    {StepKind.SAY, StepKind.CORRECTION, StepKind.BARGE_IN, StepKind.DTMF}
)
"""Steps that open a turn."""

BACKGROUND_KINDS = frozenset(
    {StepKind.BACKCHANNEL, StepKind.NOISE, StepKind.SIDE_TALK, StepKind.SHAM}
)
"""Steps that never open a turn."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Language(_Model):
    """Languages of the user's side, as in the vakforge manifest."""

    primary: str
    mix: list[str] = []


class Entity(_Model):
    """An entity in a step's text, as in the vakforge manifest."""

    type: str
    text: str
    normalized: str | None = None


class ExpectedToolCall(_Model):
    """The tool call that a step should lead to; `tool_class` is vakforge's class of it."""

    name: str
    arguments: dict[str, Any] = {}
    tool_class: Literal["tool_match", "tool_miss", "non_tool", "tool_result_speak"] = "tool_match"


class ToolSpec(_Model):
    """A tool that the agent may call, with its scripted result and how long it takes."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    result: Any = None
    delay_s: float = 0.0


class Expectation(_Model):
    """What a step must lead to, as the scenario says it (`text`).

    ``stop``: the agent stops, within `within_s` after the barge-in begins (None: at all). ``hold``:
    it talks on. ``reply``: its reply is heard within `within_s` after the user ends. ``mentions``:
    its reply holds at least one of `words`.
    """

    text: str
    kind: Literal["stop", "hold", "reply", "mentions"]
    within_s: float | None = None
    words: list[str] = []


class ScriptStep(_Model):
    """One step as compiled; `index` is its place in the flattened scenario."""

    index: int
    kind: StepKind
    path: str
    anchor: str
    text: str = ""
    lang: str | None = None
    entities: list[Entity] = []
    expect_tool: ExpectedToolCall | None = None
    expect: list[Expectation] = []
    relevant_words: list[str] = []
    n_samples: int = Field(0, ge=0)
    voiced: list[tuple[int, int]] = []
    """Voiced spans [start, end) in samples of the step; empty when nothing is played."""
    pauses: list[tuple[int, int]] = []
    """Scripted pauses inside the step, [start, end)."""
    clips: list[str] = []
    reply_within_s: float = 10.0
    """How long a reply is waited for before the turn counts as a no-reply."""


class Script(_Model):
    """A compiled scenario."""

    script_version: Literal[1] = 1
    id: str
    content_hash: str
    title: str = ""
    locale: str
    language: Language
    condition: str = "clean"
    source: str = "synthetic"
    speaker: str | None = None
    conversation_id: str | None = None
    domain: str | None = None
    system_prompt: str | None = None
    tools: list[ToolSpec] = []
    checklist: list[str] = []
    persona: list[str] = []
    user_dictionary: list[str] = []
    rate_hz: int
    frame_samples: int
    steps: list[ScriptStep]
    max_call_s: float = 120.0


def is_one_turn(steps: Sequence[ScriptStep]) -> bool:
    """Whether the last of `steps` goes on with the turn of the first.

    Parameters
    ----------
    steps
        At least two, in the order of the script, with all that lie between.

    Notes
    -----
    It does where both take the floor and all between are pauses that do not wait for the agent. A
    barge-in never does: it interrupts what the agent says in the pause.
    """
    first, *between, last = steps
    return (
        bool(between)
        and all(step.kind is StepKind.PAUSE for step in between)
        and {first.kind, last.kind} <= FLOOR_TAKING_KINDS
        and last.kind is not StepKind.BARGE_IN
        and all(step.anchor.endswith("after previous") for step in (*between, last))
    )
