"""The moments of a reply that the metrics run to, from what was sent and which samples sound.

Definitions are those of the metrics of the same names:

``ttft``            first text message of the reply
``ttfa``            first audio message that carries the reply's response id
``ttfa_audible``    first sample heard of it: sending of the message that holds it + its place there
``ttfa_heard``      the same sample, as a first-in-first-out player sounds it
``ttfs``            start of the first stretch of speech >= 400 ms as heard, gaps < 350 ms joined
                    within a response
``total_response``  end of the last audible sample as heard

The reply is all that is heard of the responses to the turn, save stretches of less than 1 s that
are over before the user is: those are signs of listening.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant, samples_to_ns
from vakforge_probe.agent.player import AudioSent, Playout, TextSent

__all__ = ["Account", "Mark", "Span"]

JOIN_NS = 350 * NS_PER_MS
SPEECH_NS = 400 * NS_PER_MS
NOD_NS = NS_PER_S

Span = tuple[int, int]
Pick = Callable[[Instant], int]


class Mark(NamedTuple):
    """When it was, and how late the agent was with the message it stands on (both ns)."""

    at: int
    late_ns: int


class _Stretch(NamedTuple):
    """An audible stretch of one response as heard: its first sample, its first and last message."""

    start: int
    end: int
    tag: str
    sample: int
    first: AudioSent
    last: AudioSent


@dataclass(slots=True)
class Account:
    """All that was sent in a call, in order.

    Attributes
    ----------
    steps
        Audio messages, and instants at which clients were told to drop what they hold.
    texts
        First text message of each response.
    voiced
        Audible spans of each response, in its samples.
    """

    rate_hz: int
    steps: list[AudioSent | Instant] = field(default_factory=list)
    texts: dict[str, TextSent] = field(default_factory=dict)
    voiced: dict[str, tuple[Span, ...]] = field(default_factory=dict)

    def play(self, pick: Pick) -> Playout:
        """Return what a player has played, taking each instant as `pick` reads it."""
        player = Playout(self.rate_hz)
        for step in self.steps:
            if isinstance(step, Instant):
                player.flush(pick(step))
            else:
                player.push(step, pick(step.at))
        return player

    def sent(self, tags: Sequence[str]) -> list[AudioSent]:
        """Return the audio messages of the responses `tags`."""
        return [s for s in self.steps if isinstance(s, AudioSent) and s.tag in tags]

    def marks(
        self, tags: Sequence[str], user_end: int, player: Playout, pick: Pick
    ) -> dict[str, Mark | None]:
        """Return the marks of a turn that ended at `user_end` (ns); None what did not happen.

        Parameters
        ----------
        tags
            The responses to the turn.
        player, pick
            What `play` returned, and for which reading of the instants.
        """
        heard = sorted(s for tag in tags for s in self._stretches(tag, player))
        reply = [s for s in heard if s.end > user_end or s.end - s.start >= NOD_NS]
        if heard:
            tags = [s.tag for s in reply[:1]]
        sent = self.sent(tags)
        speech = next((s for s in reply if s.end - s.start >= SPEECH_NS), None)
        last = max(reply, key=lambda s: s.end, default=None)
        return {
            "ttft": self._first_text(tags, pick),
            "ttfa": Mark(pick(sent[0].at), sent[0].late_ns) if sent else None,
            "ttfa_audible": self._arrival(reply[0], pick) if reply else None,
            "ttfa_heard": Mark(reply[0].start, reply[0].first.late_ns) if reply else None,
            "ttfs": None if speech is None else Mark(speech.start, speech.first.late_ns),
            "total_response": None if last is None else Mark(last.end, last.last.late_ns),
        }

    def _first_text(self, tags: Iterable[str], pick: Pick) -> Mark | None:
        known = [self.texts[tag] for tag in tags if tag in self.texts]
        return min((Mark(pick(t.at), t.late_ns) for t in known), default=None)

    def _arrival(self, stretch: _Stretch, pick: Pick) -> Mark:
        sent = stretch.first
        place = samples_to_ns(stretch.sample - sent.first, self.rate_hz)
        return Mark(pick(sent.at) + place, sent.late_ns)

    def _audible(self, sent: AudioSent) -> list[Span]:
        """Return the audible parts of a message, in samples of its response."""
        if sent.tag is None:
            return []
        cut = (
            (max(a, sent.first), min(b, sent.first + sent.n))
            for a, b in self.voiced.get(sent.tag, ())
        )
        return [(a, b) for a, b in cut if a < b]

    def _stretches(self, tag: str, player: Playout) -> list[_Stretch]:
        out: list[_Stretch] = []
        for sent, start, stop in player.played:
            for a, b in self._audible(sent) if sent.tag == tag else ():
                lo = start + samples_to_ns(a - sent.first, self.rate_hz)
                hi = min(stop, start + samples_to_ns(b - sent.first, self.rate_hz))
                if lo >= hi:
                    continue
                piece = _Stretch(lo, hi, tag, a, sent, sent)
                if out and lo - out[-1].end < JOIN_NS:
                    piece = out.pop()._replace(end=hi, last=sent)
                out.append(piece)
        return out
