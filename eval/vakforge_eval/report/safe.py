"""Cleaning of text that strangers wrote, before it enters the report document.

It happens once, when the document is built, so that no writer can forget it. Escaping for a
format (HTML, markdown) is the writer's own work and comes on top.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_TEXT", "clean_text", "clean_tree", "cut"]

MAX_TEXT = 2000
"""Longest text kept in a report; the whole text stays in the capture."""

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI, which also colours text
    r"|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # OSC: titles, links
)
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\ufeff")
_SPACES = frozenset("\n\r\t\x0b\x0c\x85\u2028\u2029")
# Cn holds the noncharacters, which XML and some JSON readers refuse.
_UNWANTED = frozenset({"Cc", "Cs", "Cn"})


def _is_wanted(char: str) -> bool:
    is_tag = 0xE0000 <= ord(char) <= 0xE007F  # invisible copies of ASCII
    return not (char in _BIDI or is_tag or unicodedata.category(char) in _UNWANTED)


def cut(text: str, limit: int) -> str:
    """Return `text` with at most `limit` characters, the last one "…" if any were cut."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """Return `text` on one line without escape sequences, control, bidi or invisible characters.

    Joiners stay: Hindi and emoji need them.
    """
    if text.isprintable():  # holds none of them, and nearly every text is
        return cut(text, limit)
    plain = _ESCAPE_SEQUENCE.sub("", text[: 4 * limit])
    kept = (" " if c in _SPACES else c for c in plain if c in _SPACES or _is_wanted(c))
    return cut("".join(kept), limit)


def clean_tree(obj: Any) -> Any:
    """Return a deep copy of `obj` as JSON types with every text and key cleaned."""
    if isinstance(obj, str):
        return clean_text(obj)
    if isinstance(obj, Mapping):
        return {clean_text(str(key)): clean_tree(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [clean_tree(item) for item in obj]
    return obj
