"""Reading fields of a message of untrusted shape; a wrong shape is a `StrictError`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vakforge_probe.protocol.strict import StrictError
from vakforge_probe.text import clean

__all__ = [
    "error",
    "items",
    "mapping",
    "number",
    "optional",
    "reason",
    "required",
    "samples",
    "text",
]

MAX_ID_CHARS = 512


def samples(pcm: bytes) -> npt.NDArray[np.int16]:
    """Return little-endian 16-bit PCM as an array of shape ``(n_samples,)``."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.int16, copy=False)


def mapping(obj: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object at `key`."""
    value = obj.get(key)
    if not isinstance(value, dict):
        raise StrictError(f"{key} is not an object")
    return value


def items(obj: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the list of objects at `key`, empty when it is absent or null."""
    value = obj.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise StrictError(f"{key} is not a list of objects")
    return value


def text(obj: dict[str, Any], key: str) -> str:
    """Return the string at `key`; absent or null is the empty one."""
    value = obj.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise StrictError(f"{key} is not a string")
    return value


def required(obj: dict[str, Any], key: str) -> str:
    """Return the non-empty identifier at `key`."""
    value = optional(obj, key)
    if not value:
        raise StrictError(f"{key} is missing")
    return value


def optional(obj: dict[str, Any], key: str) -> str | None:
    """Return the identifier at `key`, None when it is absent, null or empty."""
    value = text(obj, key)
    if len(value) > MAX_ID_CHARS:
        raise StrictError(f"{key} is longer than {MAX_ID_CHARS} characters")
    return value or None


def number(obj: dict[str, Any], key: str) -> float | None:
    """Return the number at `key`, None when it is absent or null."""
    value = obj.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StrictError(f"{key} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise StrictError(f"{key} is out of range") from None


def error(message: dict[str, Any]) -> tuple[str | None, str, str]:
    """Return (code, cleaned message, all of it in lower case) of an ``error`` message.

    Some copies send ``error`` as a bare string with ``code`` beside it.
    """
    detail = message.get("error")
    if not isinstance(detail, dict):
        detail = {"message": detail, "code": message.get("code")}
    parts = [str(detail.get(key) or "") for key in ("code", "type", "message", "param")]
    code = clean(parts[0] or parts[1], 100) or None
    return code, clean(parts[2], 400), clean(" ".join(parts), 1000).lower()


def reason(response: dict[str, Any]) -> str | None:
    """Return why a response ended, as its status details say."""
    details = response.get("status_details")
    value = details.get("reason") if isinstance(details, dict) else None
    return clean(value, 100) if isinstance(value, str) else None
