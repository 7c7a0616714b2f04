"""JSON messages with holes, read both ways: one shape builds a message and recognises it.

In a shape a text that is ``$name`` is a hole for any value, and one that holds ``${name}`` is text
with a value in it, so that ``"${seq}"`` is a number written as text. ``$name?`` may be missing.
Everything else must be there as it stands; what a message holds beyond its shape does not matter.
A list has the shape of its first element, and only that one is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from vakforge_eval.capture.strict_json import pointed

__all__ = ["Template"]

_HOLE = re.compile(r"\$([a-z_]+)(\??)")
_INSIDE = re.compile(r"\$\{([a-z_]+)\}")
_MISSING = object()


class Template:
    """One shape.

    Parameters
    ----------
    shape
        A JSON value, mostly an object.

    Raises
    ------
    ValueError
        If a text has two holes: where one ends and the other begins would be a guess.
    """

    def __init__(self, shape: Any) -> None:
        self._shape = shape
        self.holes: Mapping[str, str] = dict(_holes(shape, ""))
        """JSON pointer to each hole, by its name."""

    def fit(self, message: Any) -> int:
        """Return how many constants and holes `message` has of it; 0 if it has another shape."""
        values = self.read(message)
        if values is None:
            return 0
        return _n_leaves(self._shape) - len(self.holes) + len(values)

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return the message with its holes filled; what may be missing and is None is left out.

        Raises
        ------
        KeyError
            If a value is missing that must be there.
        """
        return _build(self._shape, values)

    def read(self, message: Any) -> dict[str, Any] | None:
        """Return what is in the holes of `message`; None if it has another shape."""
        values: dict[str, Any] = {}
        return values if _read(self._shape, message, values) else None

    def glean(self, message: Any) -> dict[str, Any] | None:
        """Return what is in the holes that `message` has, if its plain fields are those of here.

        A client of somebody else says the same in other words: only the constants at the top, which
        name the message, have to be right.
        """
        if not isinstance(self._shape, dict) or not isinstance(message, dict):
            return None
        names = {key: value for key, value in self._shape.items() if not _has_holes(value)}
        plain = {key: value for key, value in names.items() if not isinstance(value, dict | list)}
        if not plain:
            return self.read(message)
        if not _read(plain, message, {}):
            return None
        found: dict[str, Any] = {}
        for name, pointer in self.holes.items():
            with suppress(LookupError, TypeError, ValueError):
                found[name] = pointed(message, pointer)
        return {name: value for name, value in found.items() if value is not None}


def _n_leaves(shape: Any) -> int:
    if isinstance(shape, dict):
        return sum(map(_n_leaves, shape.values()))
    return sum(map(_n_leaves, shape)) if isinstance(shape, list) else 1


def _has_holes(shape: Any) -> bool:
    return bool(dict(_holes(shape, "")))


def _holes(shape: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(shape, dict):
        for key, inner in shape.items():
            yield from _holes(inner, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(shape, list):
        for inner in shape[:1]:
            yield from _holes(inner, f"{pointer}/0")
    elif isinstance(shape, str):
        whole = _HOLE.fullmatch(shape)
        names = [whole[1]] if whole else _INSIDE.findall(shape)
        if len(names) > 1:
            raise ValueError(f"two holes in one text: {shape}")
        yield from ((name, pointer) for name in names)


def _build(shape: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(shape, dict):
        built = ((key, _build(inner, values)) for key, inner in shape.items())
        return {key: value for key, value in built if value is not _MISSING}
    if isinstance(shape, list):
        return [_build(inner, values) for inner in shape]
    if not isinstance(shape, str):
        return shape
    whole = _HOLE.fullmatch(shape)
    if whole is None:
        return _INSIDE.sub(lambda hole: str(values[hole[1]]), shape)
    name, may_miss = whole.groups()
    value = values.get(name) if may_miss else values[name]
    return _MISSING if may_miss and value is None else value


def _read(shape: Any, message: Any, values: dict[str, Any]) -> bool:
    if isinstance(shape, dict):
        return isinstance(message, dict) and all(
            _read(inner, message.get(key, _MISSING), values) for key, inner in shape.items()
        )
    if isinstance(shape, list):
        if not isinstance(message, list) or (shape and not message):
            return False
        return not shape or _read(shape[0], message[0], values)
    if not isinstance(shape, str):
        return type(shape) is type(message) and bool(shape == message)
    whole = _HOLE.fullmatch(shape)
    if whole is not None:
        if message is _MISSING:
            return bool(whole[2])
        values[whole[1]] = message
        return True
    return _read_text(shape, message, values)


def _read_text(shape: str, message: Any, values: dict[str, Any]) -> bool:
    hole = _INSIDE.search(shape)
    if hole is None or not isinstance(message, str | int | float):
        return bool(shape == message)
    text, before, after = str(message), shape[: hole.start()], shape[hole.end() :]
    is_whole = len(text) >= len(before) + len(after)
    if not (is_whole and text.startswith(before) and text.endswith(after)):
        return False
    values[hole[1]] = text[len(before) : len(text) - len(after)]
    return True
