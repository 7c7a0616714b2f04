"""A small rule dialogue: what the agent says or looks up for what it understood."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vakforge_probe.agent.clips import Clip, ClipStore

__all__ = ["NEEDED", "Dialogue", "Move"]

NEEDED = (
    "greeting",
    "generic_1",
    "filler",
    "order_status",
    "booking_done",
    "sorry",
    "goodbye",
    "backchannel",
)
"""Clips of the agent's voice without which it does not start."""

NUMBERS = {
    word: value
    for value, words in enumerate(
        (
            "zero oh",
            "one ek",
            "two do",
            "three teen",
            "four char",
            "five paanch",
            "six chhe",
            "seven saat",
            "eight aath",
            "nine nau",
            "ten",
            "eleven",
            "twelve",
        )
    )
    for word in words.split()
}
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True)
class Topic:
    """What the agent can do: say `clip` once the tool whose name has one of `hints` answered."""

    name: str
    pattern: str
    clip: str
    hints: tuple[str, ...]
    slots: tuple[str, ...]


TOPICS = (
    Topic(
        "booking",
        r"\b(book|booking|table|appointment|reserv\w*)\b",
        "booking_done",
        ("book", "reserv", "appoint"),
        ("day", "time", "people"),
    ),
    Topic(
        "order",
        r"\b(order|parcel|delivery|package|delivered)\b",
        "order_status",
        ("order", "parcel", "track"),
        ("order_id",),
    ),
)
GOODBYE = r"\b(good ?bye|bye|that is all|that's all|namaste)\b"
CORRECTION = r"\b(meant|sorry|no|not)\b"


@dataclass(frozen=True, slots=True)
class Move:
    """What to do next: say `clips`, or call `tool` (name, JSON arguments) first."""

    rule: str
    clips: tuple[Clip, ...]
    tool: tuple[str, str] | None = None


class Dialogue:
    """State of one conversation: the topic, and the slots filled so far.

    Parameters
    ----------
    say
        Name of the clip that answers everything; None lets the rules choose.

    Raises
    ------
    ConfigError
        If a clip that a rule needs is missing.
    """

    def __init__(self, store: ClipStore, *, has_tools: bool, say: str | None = None) -> None:
        store.require((*NEEDED, say) if say else NEEDED)
        self._store, self._has_tools, self._say = store, has_tools, say
        self.spare = [store.voice(name) for name in store.voices("generic_")]
        self._generic = itertools.cycle(self.spare)
        self._topic: Topic | None = None
        self._slots: dict[str, Any] = {}

    def greeting(self) -> Move:
        """Return the opening."""
        return Move("greeting", (self._store.voice("greeting"),))

    def filler(self) -> Move:
        """Return what is said while a tool runs."""
        return Move("filler", (self._store.voice("filler"),))

    def backchannel(self) -> Move:
        """Return the agent's own sign of listening."""
        return Move("backchannel", (self._store.voice("backchannel"),))

    def unprompted(self) -> Move:
        """Return the move when a client asks for a response by itself."""
        return self._answer("asked")

    def reply(self, text: str, tools: Sequence[dict[str, Any]]) -> Move:
        """Return the move after the caller said `text` (empty: not understood)."""
        if re.search(GOODBYE, text, re.IGNORECASE):
            return self._answer("goodbye", "goodbye")
        topic = next((t for t in TOPICS if re.search(t.pattern, text, re.IGNORECASE)), None)
        if topic is None and self._topic and re.search(CORRECTION, text, re.IGNORECASE):
            topic = self._topic
        if topic is None:
            return self._answer("generic" if text else "not_understood")
        if topic is not self._topic:
            self._topic, self._slots = topic, {}
        said = {name: SLOTS[name](text) for name in topic.slots}
        self._slots |= {name: value for name, value in said.items() if value is not None}
        tool = self._tool(topic, tools) if self._has_tools else None
        if tool is None:
            return self._answer(f"{topic.name}_without_tool")
        if any(name not in self._slots for name in _required(tool, topic)):
            return self._answer(f"{topic.name}_incomplete")
        call = (str(tool["name"]), json.dumps(self._slots))
        return Move(f"{topic.name}_looked_up", (), call)

    def after_tool(self, output: str) -> Move:
        """Return the move after a tool answered with `output` (JSON text)."""
        if self._topic is None:
            return self._answer("tool_unknown")
        if _is_error(output):
            return self._answer(f"{self._topic.name}_failed", "sorry")
        return self._answer(f"{self._topic.name}_told", self._topic.clip)

    def _answer(self, rule: str, clip: str | None = None) -> Move:
        name = self._say or clip
        return Move(rule, (self._store.voice(name) if name else next(self._generic),))

    @staticmethod
    def _tool(topic: Topic, tools: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        named = (t for t in tools if isinstance(t.get("name"), str))
        return next((t for t in named if any(h in t["name"].lower() for h in topic.hints)), None)


def _required(tool: dict[str, Any], topic: Topic) -> list[str]:
    """Return the slots without which `tool` is not called, as its schema says."""
    parameters = tool.get("parameters")
    required = parameters.get("required") if isinstance(parameters, dict) else None
    names = required if isinstance(required, list) else topic.slots
    return [name for name in names if name in topic.slots]


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def _order_id(text: str) -> str | None:
    digits = [w if w.isdigit() else str(NUMBERS.get(w, "")) for w in _words(text)]
    joined = "".join(digits)
    return joined if len(joined) >= 3 else None


def _day(text: str) -> str | None:
    return next((w.capitalize() for w in _words(text) if w in DAYS), None)


def _people(text: str) -> int | None:
    found = re.search(r"\b(\w+) people\b|\bfor (\w+)\b", text.lower())
    return NUMBERS.get(found[1] or found[2]) if found else None


def _time(text: str) -> str | None:
    found = re.search(r"\b(half past|at) (?!half\b)(\w+)\b", text.lower())
    hour = NUMBERS.get(found[2]) if found else None
    if found is None or hour is None:
        return None
    # A table is for the evening unless somebody says otherwise.
    return f"{hour % 12 + 12:02}:{'30' if found[1] == 'half past' else '00'}"


SLOTS: dict[str, Callable[[str], Any]] = {
    "order_id": _order_id,
    "day": _day,
    "time": _time,
    "people": _people,
}


def _is_error(output: str) -> bool:
    try:
        value = json.loads(output)
    except ValueError:
        return False
    return value is None or (isinstance(value, dict) and bool(value.get("error")))
