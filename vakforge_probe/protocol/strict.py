"""Strict reading of what strangers send: JSON objects and base64, with limits.

The standard reader accepts NaN, keeps the last of two equal keys and turns ``1e999`` into
infinity; each of these would let a target put a value into a capture that no strict reader opens
again.
"""

from __future__ import annotations

import binascii
import json
import math
from typing import Any, NoReturn

from vakforge_probe.text import clean

__all__ = ["LimitExceeded", "StrictError", "decode_base64", "dump", "excerpt", "parse_object"]

EXCERPT_CHARS = 200
MAX_NUMBER_CHARS = 64
"""No field of any protocol needs a longer number; parsing one costs quadratic time."""
MAX_DEPTH = 64
"""No protocol nests deeper; whoever walks a message may therefore recurse."""


class StrictError(ValueError):
    """The data is not what the format allows; `what` says how, in the probe's own words."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)


class LimitExceeded(StrictError):
    """The peer sent more than `limit`, a field of `Limits`, allows."""

    def __init__(self, limit: str, what: str = "more than a call may cost") -> None:
        self.limit = limit
        super().__init__(what)


def excerpt(data: str | bytes) -> str:
    """Return the beginning of `data` as one short printable line."""
    if isinstance(data, bytes):
        data = data[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")
    return clean(data[: 2 * EXCERPT_CHARS], EXCERPT_CHARS)


def parse_object(data: str | bytes, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object in `data`.

    Raises
    ------
    StrictError
        If it is too long, not UTF-8, not JSON, not an object, nested too deeply, or holds NaN, an
        infinite number, an overlong number, a lone surrogate or a key twice.
    """
    if len(data) > max_bytes:
        raise LimitExceeded("max_message_bytes", f"message longer than {max_bytes} bytes")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        obj = _DECODER.decode(text)
        _refuse_surrogates(obj, text)
        _refuse_depth(obj, text)
    except StrictError:
        raise
    except UnicodeDecodeError:
        raise StrictError("not UTF-8") from None
    except RecursionError:
        raise StrictError("nested too deeply") from None
    except ValueError:
        raise StrictError("malformed JSON") from None
    if not isinstance(obj, dict):
        raise StrictError("not a JSON object")
    return obj


def decode_base64(text: object, max_bytes: int) -> bytes:
    """Return the bytes that `text` encodes.

    Raises
    ------
    StrictError
        If `text` is no string, too long, or not canonical base64 with its padding.
    """
    if not isinstance(text, str):
        raise StrictError("base64 field is not a string")
    if len(text) > max_bytes * 4 // 3 + 4:
        raise LimitExceeded("max_message_bytes", f"base64 longer than {max_bytes} bytes")
    try:
        # The strict mode still takes surplus padding behind whole groups.
        is_whole = len(text) % 4 == 0 and not text.endswith("===")
        data = binascii.a2b_base64(text, strict_mode=True) if is_whole else None
    except ValueError:
        data = None
    if data is None:
        raise StrictError("invalid base64")
    return data


def dump(obj: dict[str, Any]) -> str:
    """Return `obj` as compact JSON; NaN and infinity are refused.

    Raises
    ------
    ValueError
        If a number is not finite.
    """
    return json.dumps(obj, separators=(",", ":"), allow_nan=False)


def _refuse_constant(name: str) -> NoReturn:
    raise StrictError(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise StrictError("number out of range")
    return value


def _int(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARS:
        raise StrictError("number out of range")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    obj = dict(pairs)
    if len(obj) != len(pairs):
        raise StrictError("an object holds the same key twice")
    return obj


def _refuse_depth(obj: object, text: str) -> None:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    level, depth = [obj], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise StrictError("nested too deeply")
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]


def _refuse_surrogates(obj: object, text: str) -> None:
    # Only an escape can smuggle one in; the walk is paid by messages that hold such an escape.
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(obj, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise StrictError("text holds a lone surrogate") from None


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant,
    parse_float=_float,
    parse_int=_int,
    object_pairs_hook=_object,
)
