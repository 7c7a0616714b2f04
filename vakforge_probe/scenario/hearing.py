"""What the director knows of the agent: what was heard, what is in progress, what was said.

A reply is over only when nothing is audible, no response is in progress and no tool call waits.
A tool call waits until its result was sent *and* the agent went on: the silence between a filler
and the answer is no end of the reply.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Interrupt,
    ResponseEnded,
    ResponseStarted,
    TextDelta,
    ToolCall,
)
from vakforge_probe.scenario.edges import HeardEdge

__all__ = ["Hearing", "Segment"]

_MAX_TEXT = 20_000


@dataclass(slots=True)
class Segment:
    """A stretch of the agent's speech as heard; `end` is None while it is not known."""

    onset: HeardEdge
    end: HeardEdge | None = None


@dataclass(slots=True)
class _Waiting:
    """A tool call that the agent has not yet gone on from."""

    name: str
    response_id: str | None
    is_answered: bool = False


class Hearing:
    """Collects edges and events; knows nothing of the script.

    Parameters
    ----------
    tool_delays_ns
        How long each tool takes to answer.
    tells_response_end
        Whether the protocol says when a response has ended; if not, responses are not waited for.
    """

    def __init__(self, tool_delays_ns: dict[str, int], *, tells_response_end: bool) -> None:
        self.segments: list[Segment] = []
        self.calls: list[tuple[str, int]] = []
        """(tool, moment) of each call since the user's last turn."""
        self._delays = tool_delays_ns
        self._tells_end = tells_response_end
        self._responses: set[str | None] = set()
        self._waiting: list[_Waiting] = []
        self._last_sign_ns = 0
        self._said = ""
        self._words: str | None = ""
        self._seen: set[str] = set()
        self._stale: frozenset[str] = frozenset()

    # -- what comes in ------------------------------------------------------------------------

    def edge(self, edge: HeardEdge) -> None:
        """Take in a heard edge; one that repeats what is known changes nothing."""
        last = self.segments[-1] if self.segments else None
        if edge.kind == "onset":
            if last is None or last.end is not None:
                self.segments.append(Segment(edge))
                self._went_on(edge.response_id)
        elif last is not None and last.end is None:
            last.end = edge

    def revoke(self, from_ns: int) -> None:
        """Forget what would have been heard from `from_ns` on."""
        self.segments = [s for s in self.segments if s.onset.heard_ns < from_ns]
        for segment in self.segments[-1:]:
            if segment.end is not None and segment.end.heard_ns > from_ns:
                segment.end = None

    def event(self, event: Event) -> bool:
        """Take in a protocol event; return whether anything follows from it now."""
        if isinstance(event, AudioChunk):
            if event.response_id is not None:
                self._seen.add(event.response_id)
            return False
        response_id = getattr(event, "response_id", None)
        if response_id is not None:
            self._seen.add(response_id)
        match event:
            case ResponseStarted():
                self._sign(event.at.hi)
                # Without told ends a response in progress does not show: only speech is waited for.
                if self._tells_end:
                    self._responses.add(event.response_id)
                    self._went_on(None)
            case ResponseEnded():
                self._sign(event.at.hi)
                self._responses.discard(event.response_id)
            case Interrupt():
                self._interrupted(event.response_id)
            case ToolCall():
                self._called(event)
            case TextDelta():
                self._heard_text(event)
            case _:
                return False
        return True

    def answered(self, name: str, at_ns: int) -> None:
        """Note that the oldest waiting call of the tool `name` got its result."""
        for call in self._waiting:
            if call.name == name and not call.is_answered:
                call.is_answered = True
                self._sign(at_ns)
                return

    def user_took_floor(self, at_ns: int) -> None:
        """Begin a new turn: what the agent says or calls from now on belongs to it."""
        self.calls.clear()
        self._said, self._words = "", None
        self._stale = frozenset(self._seen)
        self.segments = [s for s in self.segments if s.end is None or s.end.heard_ns >= at_ns]

    def give_up(self) -> None:
        """Stop waiting for responses and tool calls that show no sign of life."""
        self._responses.clear()
        self._waiting.clear()

    # -- what is known ------------------------------------------------------------------------

    @property
    def last(self) -> Segment | None:
        """The latest stretch of speech, which may lie ahead."""
        return self.segments[-1] if self.segments else None

    @property
    def is_speaking(self) -> bool:
        """Whether a stretch of speech has no known end."""
        return self.last is not None and self.last.end is None

    @property
    def is_busy(self) -> bool:
        """Whether the agent speaks, works on a response or waits for a tool."""
        return self.is_speaking or bool(self._responses) or bool(self._waiting)

    @property
    def last_sign_ns(self) -> int:
        """When the agent last showed a sign of life, or will (0: never)."""
        end = self.last.end if self.last is not None else None
        return self._last_sign_ns if end is None else max(self._last_sign_ns, end.heard_ns)

    def said_any(self, phrases: tuple[str, ...]) -> bool:
        """Return whether the agent's text of this turn holds one of the phrases as whole words."""
        # A branch asks on every poll; a long reply is brought into words once for each piece.
        if self._words is None:
            self._words = _words(self._said)
        return any(_holds(self._words, _words(phrase)) for phrase in phrases)

    # -- inside -------------------------------------------------------------------------------

    def _sign(self, at_ns: int) -> None:
        self._last_sign_ns = max(self._last_sign_ns, at_ns)

    def _interrupted(self, response_id: str | None) -> None:
        if response_id is None:
            self._responses.clear()
        self._responses.discard(response_id)

    def _called(self, event: ToolCall) -> None:
        self.calls.append((event.name, event.at.hi))
        self._waiting.append(_Waiting(event.name, event.response_id))
        self._sign(event.at.hi + self._delays.get(event.name, 0))

    def _went_on(self, response_id: str | None) -> None:
        """Drop answered calls, unless this is only the rest of the response that made them."""
        self._waiting = [
            call
            for call in self._waiting
            if not call.is_answered or (response_id is not None and response_id == call.response_id)
        ]

    def _heard_text(self, event: TextDelta) -> None:
        if event.response_id not in self._stale:
            self._said, self._words = (self._said + event.text)[-_MAX_TEXT:], None


def _words(text: str) -> str:
    """Return `text` case-folded, with one space for all that is neither letter, mark nor digit."""
    kept = (c if unicodedata.category(c)[0] in "LMN" else " " for c in text.casefold())
    return " ".join("".join(kept).split())


def _holds(text: str, phrase: str) -> bool:
    # Chinese and Japanese are written without spaces, so word edges cannot be asked for.
    if any("\u2e80" <= c <= "\u9fff" for c in phrase):
        return phrase.replace(" ", "") in text.replace(" ", "")
    return bool(phrase) and f" {phrase} " in f" {text} "
