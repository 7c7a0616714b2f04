"""Whether speech after a silence goes on with what was said before it, or is new.

- Speech of the same response goes on with it if it comes within 1.5 s; time in which a tool call
  waits for its result does not count.
- Without response ids it is new after a message that tells of a cut, and after an end that the
  server told and that lost nothing. If it comes within 1.5 s all the same, it goes on if the user
  speaks then: who hears the user out answers later. In the user's silence nothing tells: who
  stopped may answer as soon as who drew breath goes on.

Source: metrics definition "Duplex".
"""

from __future__ import annotations

from enum import StrEnum

from vakforge_eval.metrics.cuts import Stretch
from vakforge_eval.metrics.segments import Segment
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.events import ToolCall
from vakforge_eval.timeline.instant import NS_PER_MS, Edge, Instant

__all__ = ["CONFIRM_NS", "EVIDENCE_NS", "Sequel", "bounds", "find_sequel", "is_after", "quiet_from"]

EVIDENCE_NS = 500 * NS_PER_MS
"""A message this long after the silence still tells why it set in."""
CONFIRM_NS = 1500 * NS_PER_MS
"""A silence this long is no pause."""


class Sequel(StrEnum):
    """What speech is to the speech before it."""

    NEW = "new"
    REST = "rest"
    UNTOLD = "untold"
    """Nothing tells."""
    INDETERMINATE = "indeterminate"
    """The errors of the edges leave open whether the silence was a pause."""


def find_sequel(
    stretch: Stretch, following: Segment, *, since: int, until: int, is_speaking: bool
) -> Sequel:
    """Return what `following` is to the stretch that it follows.

    Parameters
    ----------
    since
        From when on (ns) a message tells of a cut.
    until
        How long (ns) a tool is waited for whose result was never sent.
    is_speaking
        Whether the user speaks when `following` begins.
    """
    silence, has_name = stretch.segment.end, stretch.segment.response_id is not None
    if not has_name:
        told = stretch.evidence(since, silence.when.at + EVIDENCE_NS)
        if told is not None or stretch.is_natural_end:
            return Sequel.NEW
    waited = quiet_from(stretch.timeline, stretch.segment, until) - silence.when.at
    gone = is_after(following.start, bounds(silence).shifted(waited + CONFIRM_NS))
    if gone is None:
        return Sequel.INDETERMINATE
    if gone:
        return Sequel.NEW
    return Sequel.REST if has_name or is_speaking else Sequel.UNTOLD


def quiet_from(timeline: CallTimeline, segment: Segment, until: int) -> int:
    """Return from when (ns) the silence after a segment counts: waiting for a tool is no stop."""
    silence = segment.end.when.at
    results = {result.call_id: result.at.at for result in timeline.tool_results}
    waits = [
        results.get(event.call_id, until)
        for event in timeline.events
        if isinstance(event, ToolCall)
        and event.response_id in (None, segment.response_id)
        and event.at.at <= silence + EVIDENCE_NS
    ]
    return max([silence, *waits])


def is_after(edge: Edge, limit: Instant) -> bool | None:
    """Whether an edge lies after a limit; None where the errors of both leave it open."""
    found = bounds(edge)
    if found.lo > limit.hi:
        return True
    return False if found.hi <= limit.lo else None


def bounds(edge: Edge) -> Instant:
    """Return the moment with both of its errors."""
    when = edge.when
    return Instant(when.lo - edge.detect_minus, when.hi + edge.detect_plus, when.at)
