"""Reading and naming the fields of Gemini Live, which come in camel or in snake case."""

from __future__ import annotations

import re
from typing import Any

from vakforge_probe.protocol.strict import StrictError

__all__ = ["Part", "get", "items", "key_in", "mapping", "rate_of", "text"]

_RATE = re.compile(r"rate=(\d{1,6})\b")
_UPPER = re.compile(r"[A-Z]")

Part = dict[str, Any]


def key_in(message: Part, name: str) -> str:
    """Return the key by which `message` holds the field of camel-case `name`, if it does."""
    snake = _UPPER.sub(lambda letter: f"_{letter[0].lower()}", name)
    return snake if snake in message and name not in message else name


def get(message: Part, name: str) -> Any:
    """Return the field of camel-case `name`; None if it is not there."""
    return message.get(key_in(message, name))


def mapping(message: Part, name: str) -> Part:
    """Return an object's field; an empty one if it is not there.

    Raises
    ------
    StrictError
        If it is something else.
    """
    value = get(message, name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise StrictError(f"{name} is not an object")
    return value


def items(message: Part, name: str) -> list[Part]:
    """Return a list of objects; an empty one if it is not there.

    Raises
    ------
    StrictError
        If it is something else.
    """
    value = get(message, name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise StrictError(f"{name} is not a list of objects")
    return value


def text(message: Part, name: str) -> str:
    """Return a text field; an empty one if it is not there.

    Raises
    ------
    StrictError
        If it is something else.
    """
    value = get(message, name)
    if value is not None and not isinstance(value, str):
        raise StrictError(f"{name} is not text")
    return value or ""


def rate_of(mime_type: str, usual_hz: int) -> int:
    """Return the rate that a MIME type such as ``audio/pcm;rate=24000`` names."""
    found = _RATE.search(mime_type[:200])
    return usual_hz if found is None else int(found[1])
