"""The moments of a reply that the metrics run to, from what was sent and which samples sound.

Definitions are those of the metrics of the same names:

``ttft``            first text message of the reply
``ttfa``            first audio message that carries the reply's response id; on a stream that does
                    not pause ``ttfa_audible``
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
from vakforge_probe.agent.heard import Heard, Span, Stretch, voiced_parts
from vakforge_probe.agent.player import AudioSent, FlushSent, Playout, TextSent

__all__ = ["Account", "Ending", "Mark", "Pick"]

SPEECH_NS = 400 * NS_PER_MS
NOD_NS = NS_PER_S

Pick = Callable[[Instant], int]


class Mark(NamedTuple):
    """When it was, and how late the agent was with the message it stands on (both ns)."""

    at: int
    late_ns: int


class Ending(NamedTuple):
    """How a response ended, and when its last message was sent.

    `onset` is the stream position at which the caller began to say what ended it; None where
    nothing did. `is_told` says whether the protocol has a message of it.
    """

    status: str
    at: Instant
    late_ns: int = 0
    onset: int | None = None
    is_told: bool = True


@dataclass(slots=True)
class Account:
    """All that was sent in a call, in order.

    Attributes
    ----------
    is_live
        Whether the client is taken to have a live player.
    names_responses
        Whether the client can tell which response audio belongs to.
    steps
        Audio messages, and what told clients to drop what they hold.
    by_tag
        The audio messages of each response.
    texts
        First text message of each response.
    voiced
        Audible spans of each response, in its samples.
    endings
        How each response ended, of those that did.
    """

    rate_hz: int
    is_live: bool = False
    names_responses: bool = True
    steps: list[AudioSent | FlushSent] = field(default_factory=list)
    by_tag: dict[str | None, list[AudioSent]] = field(default_factory=dict)
    texts: dict[str, TextSent] = field(default_factory=dict)
    voiced: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)

    def add(self, sent: AudioSent) -> None:
        """Append an audio message."""
        self.steps.append(sent)
        self.by_tag.setdefault(sent.tag, []).append(sent)

    def player(self) -> Playout:
        """Return a player of the client's kind."""
        return Playout(
            self.rate_hz,
            self._is_quiet if self.is_live else None,
            names_responses=self.names_responses,
        )

    def _is_quiet(self, sent: AudioSent, first: int, end: int) -> bool:
        return sent.tag is None or not voiced_parts(self.voiced.get(sent.tag, ()), first, end)

    def play(self, pick: Pick) -> Heard:
        """Return what a player has sounded, taking each instant as `pick` reads it."""
        player = self.player()
        for step in self.steps:
            if isinstance(step, FlushSent):
                player.flush(pick(step.at), step)
            else:
                player.push(step, pick(step.at))
        return Heard(player, self.voiced, self.rate_hz)

    def sent(self, tags: Sequence[str]) -> list[AudioSent]:
        """Return the audio messages of the responses `tags`."""
        found = (sent for tag in dict.fromkeys(tags) for sent in self.by_tag.get(tag, ()))
        return sorted(found, key=lambda sent: sent.at.at)

    def marks(
        self, tags: Sequence[str], user_end: int, heard: Heard, pick: Pick
    ) -> dict[str, Mark | None]:
        """Return the marks of a turn that ended at `user_end` (ns); None what did not happen.

        Parameters
        ----------
        tags
            The responses to the turn.
        heard, pick
            What `play` returned, and for which reading of the instants.
        """
        every = heard.of(tags)
        reply = [s for s in every if s.end > user_end or s.end - s.start >= NOD_NS]
        if every:
            tags = [s.tag for s in reply[:1]]
        sent = self.sent(tags)
        speech = next((s for s in reply if s.end - s.start >= SPEECH_NS), None)
        last = max(reply, key=lambda s: s.end, default=None)
        audible = self._arrival(reply[0], pick) if reply else None
        first = Mark(pick(sent[0].at), sent[0].late_ns) if sent else None
        return {
            "ttft": self._first_text(tags, pick),
            "ttfa": audible if self.is_live else first,
            "ttfa_audible": audible,
            "ttfa_heard": Mark(reply[0].start, reply[0].first.late_ns) if reply else None,
            "ttfs": None if speech is None else Mark(speech.start, speech.first.late_ns),
            "total_response": None if last is None else Mark(last.end, last.last.late_ns),
        }

    def _first_text(self, tags: Iterable[str], pick: Pick) -> Mark | None:
        known = [self.texts[tag] for tag in tags if tag in self.texts]
        return min((Mark(pick(t.at), t.late_ns) for t in known), default=None)

    def _arrival(self, stretch: Stretch, pick: Pick) -> Mark:
        return self.arrived(stretch.first, stretch.sample, pick)

    def arrived(self, sent: AudioSent, sample: int, pick: Pick) -> Mark:
        """Return when `sample` of a response came: with its message + its place in there."""
        place = samples_to_ns(sample - sent.first, self.rate_hz)
        return Mark(pick(sent.at) + place, sent.late_ns)

    def last_sent(self, tag: str) -> tuple[AudioSent, int] | None:
        """Return the message with the last audible sample that was sent of `tag`, and its end."""
        for sent in reversed(self.by_tag.get(tag, [])):
            parts = voiced_parts(self.voiced.get(tag, ()), sent.first, sent.first + sent.n)
            if parts:
                return sent, parts[-1][1]
        return None
