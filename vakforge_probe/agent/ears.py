"""What the agent makes of what it hears: utterances, their beginning and their end.

A recognised clip brings its voiced spans with it (found off line on the clean clip); any other
sound goes through the agent's own plain energy endpointing. Both feed one rule: a turn opens with
a voiced span, and is over once `endpoint_silence` of stream time has passed after the last one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clipbook import Index
from vakforge_probe.agent.clips import Clip
from vakforge_probe.agent.matching import Match, Unknown
from vakforge_probe.agent.tape import Pcm, Tape

__all__ = ["Ears", "Heard", "Utterance"]

BLOCK_S = 0.010
ON_BLOCKS = 3
"""30 ms of energy in a row are speech; less is a click."""
ON_RMS = 10 ** (-45 / 20) * 32768
MAX_GAP_S = 0.3
"""Energy after a longer pause is a new utterance in the log."""


@dataclass(slots=True)
class Utterance:
    """One utterance: positions in the stream, `end` exclusive; it may still be going on."""

    start: int
    end: int
    source: Literal["clip", "energy"]
    match: Match | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def clip(self) -> Clip | None:
        """The recognised clip."""
        return self.match.clip if self.match is not None else None

    @property
    def n_words(self) -> int | None:
        """Words of the recognised clip, None for an unknown sound."""
        return None if self.clip is None else self.clip.n_words


@dataclass(frozen=True, slots=True)
class Heard:
    """A turn of the caller began (``onset``), or was judged to be over (``endpoint``)."""

    kind: Literal["onset", "endpoint"]
    position: int
    utterances: tuple[Utterance, ...]


class Ears:
    """Endpointing of one caller's stream at `rate_hz`.

    Attributes
    ----------
    tape
        All that was received.
    utterances
        Everything heard so far, in order, for the truth log.
    """

    def __init__(self, behaviour: Behaviour, index: Index, rate_hz: int) -> None:
        self.tape = Tape(rate_hz, index.behind)
        self.utterances: list[Utterance] = []
        self._behaviour = behaviour
        self._matcher = index.matcher(self.tape)
        self._silence = round(behaviour.silence * rate_hz)
        self._block = round(BLOCK_S * rate_hz)
        self._ahead: deque[tuple[int, int, Utterance]] = deque()
        self._turn: list[Utterance] = []
        self._turn_end = 0
        self._run: list[int] = []
        self._energy: Utterance | None = None
        self._unknown_to = -1
        self._next_block = 0

    @property
    def is_turn_open(self) -> bool:
        """Whether the caller has the floor, as far as the agent knows."""
        return bool(self._turn)

    @property
    def turn_end(self) -> int:
        """Where the caller's turn ends as far as is known; a recognised clip tells it ahead."""
        return self._turn_end

    @property
    def open_turn(self) -> tuple[Utterance, ...]:
        """Utterances of the turn that is not over."""
        return tuple(self._turn)

    @property
    def going_on(self) -> Utterance | None:
        """The unknown sound that later energy would still prolong."""
        return self._energy

    def feed(self, pcm: Pcm, arrival: Instant) -> list[Heard]:
        """Take one frame; return what it made known, in the order of the stream."""
        self.tape.append(pcm, arrival)
        for part in self._matcher.advance():
            if isinstance(part, Match):
                self._on_match(part)
            elif isinstance(part, Unknown):
                self._on_unknown(part)
        self._trim_broken()
        return self._walk()

    def _on_match(self, match: Match) -> None:
        self._energy, self._run = None, []
        spans = [(match.start + a, match.start + b) for a, b in match.clip.voiced]
        if not spans:
            return
        utterance = Utterance(spans[0][0], spans[-1][1], "clip", match, spans)
        self.utterances.append(utterance)
        if self._behaviour.endpointing == "clip":
            spans = [(spans[0][0], spans[-1][1])]
        self._ahead.extend((a, b, utterance) for a, b in spans)

    def _trim_broken(self) -> None:
        # A clip that was cut off in the middle ends where the equal samples end.
        for utterance in self.utterances[-2:]:
            match = utterance.match
            if match is None or not match.is_broken:
                continue
            cut = match.start + match.n_same
            utterance.spans = [(a, min(b, cut)) for a, b in utterance.spans if a < cut]
            if not utterance.spans:
                utterance.spans = [(utterance.start, max(cut, utterance.start + 1))]
            if utterance.end > cut:
                utterance.end = utterance.spans[-1][1]
                if self._turn and self._turn[-1] is utterance:
                    self._turn_end = utterance.end
            self._ahead = deque(
                (a, min(b, cut) if u is utterance else b, u)
                for a, b, u in self._ahead
                if u is not utterance or a < cut
            )

    def _on_unknown(self, part: Unknown) -> None:
        if part.start != self._unknown_to:
            # The grid begins with the sound, so that a hard onset is found to the sample.
            self._next_block, self._run = part.start, []
        self._unknown_to = part.stop
        while self._next_block + self._block <= part.stop:
            self._on_block(self._next_block, self._next_block + self._block)
            self._next_block += self._block

    def _on_block(self, lo: int, hi: int) -> None:
        pcm = self.tape.slice(lo, hi).astype(np.float64)
        if np.sqrt(np.mean(np.square(pcm))) < ON_RMS:
            self._run = []
            return
        self._run.append(lo)
        if len(self._run) < ON_BLOCKS:
            return
        first = self._run[-ON_BLOCKS]
        known = self._energy
        if known is None or first - known.end > MAX_GAP_S * self.tape.rate_hz:
            known = Utterance(first, hi, "energy", spans=[(first, hi)])
            self._energy = known
            self.utterances.append(known)
        elif first <= known.spans[-1][1]:
            known.spans[-1] = (known.spans[-1][0], hi)
        else:
            known.spans.append((first, hi))
        known.end = hi
        self._ahead.append((*known.spans[-1], known))

    def _walk(self) -> list[Heard]:
        out: list[Heard] = []
        while True:
            span = self._ahead[0] if self._ahead and self._ahead[0][0] < self.tape.length else None
            if self._turn and self._is_over(span):
                out.append(Heard("endpoint", self._turn_end, tuple(self._turn)))
                self._turn = []
            elif span is not None:
                self._ahead.popleft()
                if not self._turn:
                    self._turn = [span[2]]
                    self._turn_end = span[1]
                    out.append(Heard("onset", span[0], (span[2],)))
                elif span[2] is not self._turn[-1]:
                    self._turn.append(span[2])
                self._turn_end = max(self._turn_end, span[1])
            else:
                return out

    def _is_over(self, span: tuple[int, int, Utterance] | None) -> bool:
        deadline = self._turn_end + self._silence
        if span is not None:
            return span[0] >= deadline
        # What the matcher has not decided about yet may still be speech.
        return self._matcher.decided >= deadline

    def finish(self) -> None:
        """End what still goes on at the end of the call."""
        for utterance in self.utterances:
            utterance.end = min(utterance.end, self.tape.length)
            utterance.spans = [
                (a, min(b, self.tape.length)) for a, b in utterance.spans if a < self.tape.length
            ]
