"""What became of the agent's speech when the caller spoke into it, by the agent's own account.

Definitions are those of the metrics of the same names:

``stop_reaction``  caller's onset to the first message that told clients to drop or cancel
``stop_network``   to the end of the last audible sample sent of that response
``stop_heard``     to the end of the last that was heard of it
``natural_end``    to the end of the last that was heard of a response that ended by itself

The first three exist only where the caller's words stopped the response: it was cancelled because
of them, or a flush because of them took voice away. The last one exists only where it completed and
all of its voice was heard. Neither: it talked on, and was ended by something else or not at all.

What a background utterance did is told by what was heard: silence that begins within 1.0 s of the
onset is `stuttered` when the same response goes on within 3.0 s, `ended` when it was over anyway,
`restarted` when another response is heard before the caller's next turn, and else `stopped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from vakforge_eval.timeline.instant import NS_PER_S, Instant
from vakforge_probe.agent.heard import Span, Stretch, joined
from vakforge_probe.agent.marks import Account, Ending, Mark, Pick
from vakforge_probe.agent.player import FlushSent

__all__ = [
    "Outcome",
    "Reaction",
    "Shared",
    "Track",
    "Voice",
    "outcome_at",
    "shared_time",
]

MARKS = ("stop_reaction", "stop_network", "stop_heard", "natural_end")
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


class Track:
    """An account as one reading of its stamps plays it.

    Attributes
    ----------
    heard
        What sounded.
    voices
        All responses that were heard.
    """

    def __init__(self, account: Account, pick: Pick) -> None:
        self.account, self.pick = account, pick
        self.heard = account.play(pick)
        self.voices = [self._voice(tag, known) for tag, known in self.heard.stretches.items()]

    def _voice(self, tag: str, known: Sequence[Stretch]) -> Voice:
        ending = self.account.endings.get(tag)
        is_whole = ending is not None and ending.status == "completed"
        spans = tuple((s.start, s.end) for s in known)
        return Voice(tag, spans, is_whole and not self.has_lost(tag), ending is None)

    def has_lost(self, tag: str) -> bool:
        """Whether something audible of a heard response was sent and never heard."""
        last = self.account.last_sent(tag)
        return last is not None and self.heard.stretches[tag][-1].until < last[1]

    def marks(self, tags: Sequence[str], user_end: Instant) -> dict[str, Mark | None]:
        """Return the marks of a turn that ended at `user_end`; None what did not happen."""
        return self.account.marks(tags, self.pick(user_end), self.heard, self.pick)

    def reaction(self, onset_sample: int, onset: Instant, until: int | None) -> Reaction:
        """Return what followed the caller's onset.

        Parameters
        ----------
        onset_sample, onset
            Where in the caller's stream it is, and when it was spoken.
        until
            Onset of the caller's next turn (ns); None when there is none.
        """
        at = self.pick(onset)
        stretch = self.heard.at(at)
        marks: dict[str, Mark | None] = dict.fromkeys(MARKS)
        if stretch is None:
            return Reaction(None, Outcome.SILENT, None, marks)
        tag, last = stretch.tag, self.heard.stretches[stretch.tag][-1]
        late = last.last.late_ns
        told = self._told(tag, onset_sample)
        if told is not None:
            sent = self.account.last_sent(tag)
            first = min(told, default=None)
            marks["stop_reaction"] = first
            marks["stop_network"] = sent and self.account.arrived(*sent, self.pick)
            marks["stop_heard"] = Mark(last.end, max(late, first.late_ns if first else 0))
        elif any(v.response == tag and v.is_whole for v in self.voices):
            marks["natural_end"] = Mark(last.end, late)
        outcome, gap = outcome_at(self.voices, at, until)
        edges = None if gap is None else (Mark(gap[0], late), Mark(gap[1], late))
        return Reaction(tag, outcome, edges, marks)

    def _told(self, tag: str, onset: int) -> list[Mark] | None:
        """Return the messages by which the words at `onset` stopped `tag`; None if they did not.

        There are none where the agent just falls silent.
        """
        told: list[FlushSent | Ending] = []
        cut, ending = self.heard.player.cut.get(tag), self.account.endings.get(tag)
        if ending is not None and ending.status == "cancelled" and ending.onset == onset:
            told += [ending] if ending.is_told else []
        elif cut is None or cut.onset != onset or not self.has_lost(tag):
            return None
        # One that had nothing left to take tells of the interruption too.
        told += [
            step
            for step in self.account.steps
            if isinstance(step, FlushSent) and step.onset == onset and step.tag in (None, tag)
        ]
        return [Mark(self.pick(message.at), message.late_ns) for message in told]


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
    gap: Span | None = None
    resumed: int | None = None
    for start, end in (span for span in voice.spans if span[1] > silence):
        if silence > onset + WINDOW_NS:
            break
        resumed = start
        if start - silence > RESUME_NS:
            break
        gap, silence, resumed = gap or (silence, start), end, None
    if silence > onset + WINDOW_NS:
        return (Outcome.STUTTERED if gap else Outcome.HELD), gap
    if resumed is None and voice.is_open:
        return None, None
    if resumed is None and voice.is_whole:
        return Outcome.ENDED, None
    later = (v.spans[0][0] for v in known if v is not voice)
    is_restart = any(silence <= start and (until is None or start < until) for start in later)
    return (Outcome.RESTARTED if is_restart else Outcome.STOPPED), None


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
