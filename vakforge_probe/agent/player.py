"""What was sent, and when a caller's player sounds it: the playout models written a second time.

They are apart from the probe's on purpose, so that an error in either shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vakforge_eval.timeline.instant import NS_PER_MS, Instant, samples_to_ns

__all__ = ["AudioSent", "FlushSent", "Piece", "Playout", "TextSent"]

FULL_NS = 60 * NS_PER_MS
"""What a live player holds without hurry."""
FRAME_NS = 500 * NS_PER_MS
"""It holds a longer message without hurry too, up to this."""
BLOCKS_PER_S = 100


class AudioSent(NamedTuple):
    """One audio message: samples [first, first + n) of response `tag` (None: between responses).

    `late_ns` is how much later it was sent than the agent meant to.
    """

    at: Instant
    tag: str | None
    first: int
    n: int
    late_ns: int = 0


class TextSent(NamedTuple):
    """One text message."""

    at: Instant
    late_ns: int = 0


class FlushSent(NamedTuple):
    """A message that told clients to drop what they hold.

    `onset` is the stream position at which the caller began to say what caused it. `tag` is the
    response whose later audio never sounds; None: all that are known by then.
    """

    at: Instant
    late_ns: int = 0
    onset: int | None = None
    tag: str | None = None


class Piece(NamedTuple):
    """Samples [first, …) of a message, which sound from `start` until they end or are cut (ns)."""

    sent: AudioSent
    start: int
    stop: int
    first: int


IsQuiet = Callable[[AudioSent, int, int], bool]


class Playout:
    """A player that plays what arrives in order, and drops all it holds on a flush.

    Parameters
    ----------
    is_quiet
        Whether samples [a, b) of a message are nothing but background. Given, the player is a live
        one: a block of 10 ms, counted from the stream's start, is left out if it is quiet and more
        than 60 ms (or the message's length) waited when the last of it came. The agent knows its
        own voice to the sample, so that this needs no gate: quiet is what lies in no voiced span.
    names_responses
        Whether audio says which response it belongs to: only then can what comes late of a flushed
        one be told from what is new.

    Attributes
    ----------
    cut
        The flush that took samples of a response away, for each response that lost some.
    drained_at
        When it falls silent if nothing more comes (ns).
    talks_until
        When the last that it holds of a response ends (ns); on a continuous stream there may be
        background behind it.
    played
        What sounds, in order.
    """

    def __init__(
        self, rate_hz: int, is_quiet: IsQuiet | None = None, *, names_responses: bool = True
    ) -> None:
        self._rate_hz, self._is_quiet = rate_hz, is_quiet
        self._names_responses = names_responses
        self._block = rate_hz // BLOCKS_PER_S
        self._flushed: dict[str, FlushSent] = {}
        self._known: set[str] = set()
        self._in_block = 0
        self._is_block_begun = False
        self._held: list[tuple[AudioSent, int, int, int]] = []
        self.cut: dict[str, FlushSent] = {}
        self.drained_at = 0
        self.talks_until = 0
        self.played: list[Piece] = []

    def push(self, sent: AudioSent, arrival: int) -> None:
        """Queue a message that arrived at `arrival`."""
        if sent.tag is not None:
            if sent.tag in self._flushed:
                self.cut.setdefault(sent.tag, self._flushed[sent.tag])
                return
            self._known.add(sent.tag)
        if self._is_quiet is None:
            self._play(sent, sent.first, sent.first + sent.n, arrival)
            return
        limit = max(FULL_NS, min(samples_to_ns(sent.n, self._rate_hz), FRAME_NS))
        a, end = sent.first, sent.first + sent.n
        while a < end:
            b = min(a + self._block - self._in_block, end)
            self._take(sent, a, b, arrival, limit)
            a = b

    def _take(self, sent: AudioSent, a: int, b: int, arrival: int, limit: int) -> None:
        """Take samples of one block; those of a full player wait until all of it has come."""
        self._in_block += b - a
        self._held.append((sent, a, b, arrival))
        is_full = self.drained_at - arrival > limit
        is_whole = self._in_block == self._block
        if not is_full or self._is_block_begun or (is_whole and not self._is_held_quiet()):
            self._play_held()
        elif is_whole:
            self._held.clear()
        if is_whole:
            self._in_block, self._is_block_begun = 0, False

    def _is_held_quiet(self) -> bool:
        is_quiet = self._is_quiet
        return is_quiet is not None and all(is_quiet(sent, a, b) for sent, a, b, _ in self._held)

    def _play_held(self) -> None:
        for part in self._held:
            self._play(*part)
        self._is_block_begun = self._is_block_begun or bool(self._held)
        self._held.clear()

    def _play(self, sent: AudioSent, first: int, end: int, arrival: int) -> None:
        last = self.played[-1] if self.played else None
        if last is not None and last.sent is sent and self._end_of(last) == first:
            # What follows without a gap is one piece: its places are counted from one rounding.
            first = last.first
            start = last.start
            self.played.pop()
        else:
            start = max(arrival, self.drained_at)
        self.drained_at = start + samples_to_ns(end - first, self._rate_hz)
        self.played.append(Piece(sent, start, self.drained_at, first))
        if sent.tag is not None:
            self.talks_until = self.drained_at

    def _end_of(self, piece: Piece) -> int:
        length = piece.stop - piece.start
        return piece.first + round(length * self._rate_hz / 1_000_000_000)

    def flush(self, at: int, cause: FlushSent | None = None) -> None:
        """Drop what has not sounded by `at`; later audio of the same responses never sounds."""
        cause = cause or FlushSent(Instant.exact(at))
        self._play_held()
        for tag in self._known if cause.tag is None else (cause.tag,):
            self._silence(tag, cause)
        while self.played and self.played[-1].start >= at:
            self._lose(self.played.pop(), cause)
        if self.played and self.played[-1].stop > at:
            self._lose(self.played[-1], cause)
            self.played[-1] = self.played[-1]._replace(stop=at)
        self.drained_at = min(self.drained_at, at)
        self.talks_until = min(self.talks_until, at)

    def _lose(self, piece: Piece, cause: FlushSent) -> None:
        if piece.sent.tag is not None:
            self.cut.setdefault(piece.sent.tag, cause)
            self._silence(piece.sent.tag, cause)

    def _silence(self, tag: str, cause: FlushSent) -> None:
        if self._names_responses:
            self._flushed.setdefault(tag, cause)
