"""JSON without its Python extras: no NaN, no infinity, in neither direction."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

__all__ = ["dumps", "loads", "pointed"]

_MAX_DEPTH = 64
"""Deeper values are cut when they have to be mended; nothing that we write comes near."""


def dumps(value: Any) -> str:
    """Return `value` as compact ASCII JSON.

    A number that JSON does not have, or nesting beyond reason, can only have come from a target:
    it becomes null, so that no target can stop a recording.
    """
    try:
        return _dumps(value)
    except (ValueError, RecursionError):
        return _dumps(_mended(value, _MAX_DEPTH))


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        If it is no JSON text in UTF-8, holds NaN or an infinity (``1e999`` too), or nests too deep.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("JSON nests too deep") from None


def pointed(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) points at in `value`.

    Raises
    ------
    LookupError, TypeError, ValueError
        If it points at nothing.
    """
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _mended(value: Any, depth: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict | list | tuple) and depth == 0:
        return None
    if isinstance(value, dict):
        return {key: _mended(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item, depth - 1) for item in value]
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("number beyond the range of a float")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""Made once: most of the texts are short."""
