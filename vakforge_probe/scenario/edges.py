"""What the ear tells the director."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["HeardEdge"]


@dataclass(frozen=True, slots=True)
class HeardEdge:
    """The agent is heard to begin or to end at `heard_ns`, which may lie ahead (queued audio).

    An end is exclusive: the first instant that is silent. `confirmed_ns` is when the probe knew.
    """

    kind: Literal["onset", "end"]
    heard_ns: int
    confirmed_ns: int
    response_id: str | None = None
