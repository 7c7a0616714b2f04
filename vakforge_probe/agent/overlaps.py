"""What became of the agent's speech when the caller spoke into it, by the agent's own account.

Definitions are those of the metrics of the same names:

``stop_reaction``  caller's onset to the first message that told clients to drop or cancel
``stop_network``   to the end of the last audible sample sent of that response
``stop_heard``     to the end of the last that was heard of it
``natural_end``    to the end of the last that was heard of a response that ended by itself

The first three exist only where the caller's words stopped the response, the last one only where
nothing did. Neither: it talked on, and something else ended it, or the call was over.

What a background utterance did is told by what was heard: silence that begins within 1.0 s of the
onset is `stuttered` when the same response goes on within 3.0 s, `ended` when it was over anyway,
`restarted` when another response is heard before the caller's next turn, and else `stopped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.agent.heard import Heard, Span, joined
from vakforge_probe.agent.marks import Account, Mark, Pick

__all__ = [
    "Outcome",
    "Reaction",
    "Shared",
    "Voice",
    "outcome_at",
    "reaction_to",
    "shared_time",
    "voices",
]

WINDOW_NS = NS_PER_S
RESUME_NS = 3 * NS_PER_S
WORD_GAP_NS = NS_PER_S // 5
"""Words closer than this are one stretch of talk."""


class Outcome(StrEnum):
    """What the agent did after the caller's onset."""

    SILENT = "silent"
    """It was not heard at the onset."""
    HELD = "held"
    STUTTERED = "stuttered"
    STOPPED = "stopped"
    RESTARTED = "restarted"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Voice:
    """One response as heard: its stretches (ns), and how it ended.

    `is_whole` says that it ended by itself and all of it was heard, `is_open` that it was still
    under way when the call was over.
    """

    response: str
    spans: tuple[Span, ...]
    is_whole: bool
    is_open: bool


class Reaction(NamedTuple):
    """What followed one onset of the caller; `gap` runs between its two marks."""

    response: str | None
    outcome: Outcome | None
    gap: tuple[Mark, Mark] | None
    marks: dict[str, Mark | None]


def voices(account: Account, heard: Heard) -> list[Voice]:
    """Return all responses that were heard."""
    out = []
    for tag, stretches in heard.stretches.items():
        ending = account.endings.get(tag)
        is_whole = ending is not None and ending.status == "completed"
        spans = tuple((s.start, s.end) for s in stretches)
        out.append(Voice(tag, spans, is_whole and tag not in heard.player.cut, ending is None))
    return out


def outcome_at(
    known: Iterable[Voice], onset: int, until: int | None = None
) -> tuple[Outcome | None, Span | None]:
    """Return what the agent did after `onset` (ns), and the gap if it stuttered.

    Parameters
    ----------
    until
        Onset of the caller's next turn; None when there is none.

    Returns
    -------
    None as outcome where the call was over before it could be told.
    """
    known = list(known)
    found = ((v, a, b) for v in known for a, b in v.spans if a <= onset < b)
    voice, _, silence = next(found, (None, 0, 0))
    if voice is None:
        return Outcome.SILENT, None
    if silence > onset + WINDOW_NS:
        return Outcome.HELD, None
    resumed = min((a for a, _ in voice.spans if a >= silence), default=None)
    if resumed is not None and resumed - silence <= RESUME_NS:
        return Outcome.STUTTERED, (silence, resumed)
    if resumed is None and voice.is_open:
        return None, None
    if resumed is None and voice.is_whole:
        return Outcome.ENDED, None
    later = (v.spans[0][0] for v in known if v is not voice)
    is_restart = any(silence <= start and (until is None or start < until) for start in later)
    return (Outcome.RESTARTED if is_restart else Outcome.STOPPED), None


def reaction_to(
    onset_sample: int, onset: int, until: int | None, account: Account, heard: Heard, pick: Pick
) -> Reaction:
    """Return what followed the caller's onset on one track.

    Parameters
    ----------
    onset_sample, onset
        Where in the caller's stream it is, and when it was spoken (ns).
    until
        Onset of the caller's next turn (ns); None when there is none.
    """
    stretch = heard.at(onset)
    none: dict[str, Mark | None] = dict.fromkeys(
        ("stop_reaction", "stop_network", "stop_heard", "natural_end")
    )
    if stretch is None:
        return Reaction(None, Outcome.SILENT, None, none)
    tag, last = stretch.tag, heard.stretches[stretch.tag][-1]
    known = voices(account, heard)
    outcome, gap = outcome_at(known, onset, until)
    late = last.last.late_ns
    marks = dict(none)
    told = _told(tag, onset_sample, account, heard, pick)
    if told is not None:
        sent = account.last_sent(tag)
        marks["stop_reaction"] = told
        marks["stop_network"] = None if sent is None else account.arrived(*sent, pick)
        marks["stop_heard"] = Mark(last.end, max(late, told.late_ns))
    elif next(v for v in known if v.response == tag).is_whole:
        marks["natural_end"] = Mark(last.end, late)
    edges = None if gap is None else (Mark(gap[0], late), Mark(gap[1], late))
    return Reaction(tag, outcome, edges, marks)


def _told(tag: str, onset: int, account: Account, heard: Heard, pick: Pick) -> Mark | None:
    """Return the first message by which the words at `onset` stopped `tag`."""
    found = []
    flush, ending = heard.player.cut.get(tag), account.endings.get(tag)
    if flush is not None and flush.onset == onset:
        found.append(Mark(pick(flush.at), flush.late_ns))
    if ending is not None and ending.status == "cancelled" and ending.onset == onset:
        found.append(Mark(pick(ending.at), ending.late_ns))
    return min(found, default=None)


class Shared(NamedTuple):
    """Seconds-to-be (ns) in which both talked, and the part of it that the agent began.

    `n_edges` are the edges that it depends on.
    """

    both: int
    by_agent: int
    any: int
    n_edges: int


def shared_time(agent: Sequence[Span], user: Sequence[Span]) -> Shared:
    """Return how long both talked at once; gaps < 200 ms are talk on either side.

    The agent began where it is the later of the two to begin.
    """
    mine, theirs = joined(agent, WORD_GAP_NS), joined(user, WORD_GAP_NS)
    both = by_agent = n = 0
    for a, b in mine:
        for c, d in theirs:
            length = min(b, d) - max(a, c)
            if length > 0:
                both, n = both + length, n + 2
                by_agent += length if a > c else 0
    talk = sum(b - a for a, b in mine) + sum(d - c for c, d in theirs)
    return Shared(both, by_agent, talk - both, n)
