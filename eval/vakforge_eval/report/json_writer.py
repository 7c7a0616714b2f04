"""report.json: the document itself, as the same bytes for the same document."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["to_json"]


def to_json(document: dict[str, Any]) -> bytes:
    """Return the document as UTF-8 JSON: keys sorted, indented, one newline at the end.

    Raises
    ------
    ValueError
        If a number in it is not finite.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1, sort_keys=True)
    return f"{text}\n".encode()
