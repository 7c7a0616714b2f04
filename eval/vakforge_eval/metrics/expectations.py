"""Whether a step led to what its script expected, with the error of the measurement counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Status", "Verdict"]

Status = Literal["pass", "fail", "indeterminate", "void", "not_measurable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one expectation.

    Attributes
    ----------
    text
        The expectation as the scenario states it.
    status
        "indeterminate": the measurement's error leaves both answers possible. "void": what was
        to be tested did not happen. "not_measurable": it did, and cannot be seen.
    why
        The number, outcome or reason behind the status, in words.
    """

    text: str
    status: Status
    why: str
