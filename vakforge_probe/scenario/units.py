"""Durations as people write them: ``600 ms``, ``1.5 s``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S

__all__ = ["DURATION", "Duration", "parse_duration"]

DURATION = r"[0-9]{1,7}(?:\.[0-9]{1,6})? (?:ms|s)"
"""The pattern of an unsigned duration, without anchors."""

_DURATION = re.compile(DURATION)
_NS = {"ms": NS_PER_MS, "s": NS_PER_S}


def parse_duration(text: object) -> int:
    """Return a duration in ns.

    Times are parsed as decimals, so that ``0.1 s`` is exactly 100,000,000 ns.

    Raises
    ------
    ValueError
        If `text` is not a number, one space and ``ms`` or ``s``.
    """
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise ValueError("is not a duration: write it as '600 ms' or '1.5 s'")
    number, unit = text.split(" ")
    return int(Decimal(number) * _NS[unit])


Duration = Annotated[
    int,
    PlainValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": f"^{DURATION}$"}),
]
"""A duration in ns, written as text."""
