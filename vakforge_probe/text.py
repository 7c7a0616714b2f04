"""Cleaning of text that strangers wrote, before it reaches a terminal, a log or an error."""

from __future__ import annotations

import unicodedata

__all__ = ["clean"]

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def clean(text: str, limit: int) -> str:
    """Return `text` on one line without control, bidi and surrogate characters, cut to `limit`."""
    cut = text[: limit + 1]
    out = "".join(
        " " if c in "\n\r\t\u2028\u2029" else c
        for c in cut
        if c in "\n\r\t" or (unicodedata.category(c) not in ("Cc", "Cs") and c not in _BIDI)
    )
    return out if len(cut) <= limit else out[: limit - 1] + "…"
