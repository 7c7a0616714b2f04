"""What the agent did after the user spoke into its speech, from what was heard."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vakforge_eval.metrics.hearing import Segment
from vakforge_eval.timeline.instant import Edge, Instant
from vakforge_eval.timeline.values import Reason

__all__ = ["Fate", "Reaction"]


class Fate(StrEnum):
    """What became of the agent's speech."""

    SILENT = "silent"
    """The agent was not audible when the user began."""
    HELD = "held"
    """It talked on through the time in which it would have had to stop."""
    STUTTERED = "stuttered"
    """It fell silent and went on with the same response."""
    STOPPED = "stopped"
    RESTARTED = "restarted"
    """It stopped, and began a new response before the user took the floor again."""
    ENDED = "ended"
    """It came to its own end."""
    AMBIGUOUS = "ambiguous"
    """It fell silent, and nothing tells whether what followed was the same response."""
    NEVER_STOPPED = "never_stopped"
    """It talked on for as long as it was watched."""
    UNCONFIRMED = "unconfirmed"
    """It fell silent, and watching ended before that could be told from a pause."""
    ANCHOR_MISSED = "anchor_missed"
    """What the step hung on was not where it had been heard live."""
    INDETERMINATE = "indeterminate"
    """The error interval straddles the moment that decides."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """The fate of the agent's speech from the user's onset on.

    Attributes
    ----------
    segment
        What was audible when the user began.
    silence
        When it fell silent as heard, for good or (stuttered) for the first time.
    silence_arrival
        When the last audible sample of its response arrived, whether it was ever heard or not.
    resumed
        When it went on, or what may be the same response did.
    evidence
        First message that tells of a cut of this response, up to 0.5 s after the silence.
    reacted
        First message that tells of an interruption, even where nothing was left to cut.
    until
        Until when (ns) it surely had not stopped, where it did not.
    last
        The segment that `silence` ended.
    void
        Why the event shows nothing, if it does not.
    """

    fate: Fate
    segment: Segment | None = None
    silence: Edge | None = None
    silence_arrival: Edge | None = None
    resumed: Edge | None = None
    evidence: Instant | None = None
    reacted: Instant | None = None
    until: int | None = None
    last: Segment | None = None
    void: Reason | None = None
