"""Nested settings (hardware, versions, hashes) as pairs of name and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vakforge_eval.report import phrases

__all__ = ["flat"]


def flat(obj: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as pairs of dotted name and text."""
    if isinstance(obj, Mapping):
        return [
            pair
            for key, value in obj.items()
            for pair in flat(value, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(obj, list):
        if all(not isinstance(item, Mapping | list) for item in obj):
            return [(prefix, ", ".join(_plain(item) for item in obj) or phrases.NONE)]
        return [pair for i, item in enumerate(obj) for pair in flat(item, f"{prefix}.{i + 1}")]
    return [(prefix, _plain(obj))]


def _plain(value: Any) -> str:
    if value is None:
        return phrases.NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
