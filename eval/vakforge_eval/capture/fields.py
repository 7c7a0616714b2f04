"""Reading typed fields out of JSON objects that a stranger wrote."""

from __future__ import annotations

import types
import typing
from dataclasses import fields
from functools import cache
from typing import Any

from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.format import MAX_NS
from vakforge_eval.timeline.events import EVENT_TYPES, Event, event_from_json
from vakforge_eval.timeline.instant import Instant

__all__ = ["Fields", "event_of"]


class Fields:
    """Typed access to the fields of `obj`; a wrong one is a CaptureError that names it."""

    def __init__(self, obj: Any, where: str) -> None:
        if not isinstance(obj, dict):
            raise CaptureError(f"{where}: not an object")
        self._obj: dict[str, Any] = obj
        self._where = where

    def integer(self, name: str) -> int:
        """Return an integer within ± `MAX_NS`."""
        value = self._obj.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= MAX_NS:
            raise self._wrong(name, "an integer")
        return value

    def optional_integer(self, name: str) -> int | None:
        """Return an integer, or None where it is null or absent."""
        return None if self._obj.get(name) is None else self.integer(name)

    def number(self, name: str) -> float:
        """Return a number."""
        value = self._obj.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        return float(value)

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._obj.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None where it is null or absent."""
        return None if self._obj.get(name) is None else self.text(name)

    def span(self, first: str, last: str) -> tuple[int, int]:
        """Return two integers of which the second is not smaller."""
        begin, end = self.integer(first), self.integer(last)
        if begin > end:
            raise self._wrong(last, f"not before {first}")
        return begin, end

    def _wrong(self, name: str, expected: str) -> CaptureError:
        return CaptureError(f"{self._where}: {name} must be {expected}")


def event_of(obj: dict[str, Any], where: str) -> tuple[Event, int | None]:
    """Return the protocol event of a journal object and the message that it came from.

    Raises
    ------
    CaptureError
        If a field is unknown or of the wrong type.
    """
    facts = Fields(obj, where)
    facts.span("lo", "hi")
    for name, hint in _hints(obj["type"]).items():
        if name in obj and not _fits(obj[name], hint):
            raise CaptureError(f"{where}: {name} is of the wrong type")
    try:
        return event_from_json(obj), facts.optional_integer("seq")
    except TypeError:
        raise CaptureError(f"{where}: a field that {obj['type']} does not have") from None


@cache
def _hints(event_type: str) -> dict[str, Any]:
    cls = EVENT_TYPES[event_type]
    hints = typing.get_type_hints(cls, localns={"Instant": Instant})
    return {f.name: hints[f.name] for f in fields(cls) if f.name != "at"}


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, part) for part in typing.get_args(hint))
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, typing.get_origin(hint) or hint)
