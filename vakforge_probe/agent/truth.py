"""The agent's own account of a call: what was said and heard when, and what each metric must be.

Everything here follows from sample counts, the clips' hard edges and the stamps of what was really
sent (after jitter); no sound is analysed. The playout model is written a second time, apart from
the probe's, so that an error in either shows.

Definitions are those of the metrics of the same names, on the reply's audible samples:

``ttft``            user_end -> first text message of the reply
``ttfa``            user_end -> first audio message that carries the reply's response id
``ttfa_audible``    user_end -> first audible sample, arrival of its message + its offset there
``ttfa_heard``      user_end -> first audible sample, as a first-in-first-out player sounds it
``ttfs``            user_end -> start of the first stretch of speech >= 400 ms as heard, gaps
                    < 350 ms joined within a response
``total_response``  user_end -> end of the last audible sample as heard
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vakforge_eval.timeline.instant import NS_PER_MS, Instant, ns_to_s, samples_to_ns
from vakforge_probe.agent.ears import Utterance
from vakforge_probe.agent.tape import Tape

__all__ = ["AudioSent", "Ledger", "Playout", "Turn"]

JOIN_NS = 350 * NS_PER_MS
SPEECH_NS = 400 * NS_PER_MS

Span = tuple[int, int]


class AudioSent(NamedTuple):
    """One audio message: samples [first, first + n) of response `tag` (None: between responses).

    `late_ns` is how much later it was sent than the agent meant to.
    """

    at: Instant
    tag: str | None
    first: int
    n: int
    late_ns: int = 0


class Playout:
    """A player that plays what arrives in order, and drops all it holds on a flush."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._flushed: set[str] = set()
        self._known: set[str] = set()
        self.drained_at = 0
        self.played: list[tuple[AudioSent, int, int]] = []
        """Each message with when it began to sound and when it ended or was cut (ns)."""

    def push(self, sent: AudioSent, arrival: int) -> None:
        """Queue a message that arrived at `arrival`."""
        if sent.tag is not None:
            if sent.tag in self._flushed:
                return
            self._known.add(sent.tag)
        start = max(arrival, self.drained_at)
        self.drained_at = start + samples_to_ns(sent.n, self._rate_hz)
        self.played.append((sent, start, self.drained_at))

    def flush(self, at: int) -> None:
        """Drop what has not sounded by `at`; later audio of the same responses never sounds."""
        self._flushed |= self._known
        while self.played and self.played[-1][1] >= at:
            self.played.pop()
        if self.played and self.played[-1][2] > at:
            sent, start, _ = self.played[-1]
            self.played[-1] = (sent, start, at)
        self.drained_at = min(self.drained_at, at)


@dataclass(slots=True)
class Turn:
    """One turn of the caller and the responses that answered it."""

    index: int
    utterances: tuple[Utterance, ...]
    user_end: int
    rule: str = ""
    tags: list[str] = field(default_factory=list)


class Ledger:
    """Account of one call, on one output rate.

    Parameters
    ----------
    note
        Takes each object of the log (without connection id).
    """

    def __init__(self, tape: Tape, rate_hz: int, note: Callable[[dict[str, Any]], None]) -> None:
        self._tape, self._rate_hz, self._note = tape, rate_hz, note
        self._voiced: dict[str, tuple[Span, ...]] = {}
        self._texts: dict[str, Instant] = {}
        self._steps: list[AudioSent | Instant] = []
        self._text_late: dict[str, int] = {}
        self._turns: list[Turn] = []
        self._live = Playout(rate_hz)

    @property
    def live_until(self) -> int:
        """When a player that got all that was sent so far falls silent (ns)."""
        return self._live.drained_at

    def voice(self, tag: str, voiced: Iterable[Span], planned: int) -> None:
        """Note the audible spans of response `tag` (samples sent), which begins at `planned`."""
        self._voiced[tag] = tuple(voiced)
        self._note(
            {
                "type": "voice",
                "response": tag,
                "planned": planned,
                "voiced": [list(s) for s in self._voiced[tag]],
            }
        )

    def audio(self, sent: AudioSent) -> None:
        """Note an audio message that was sent."""
        self._steps.append(sent)
        self._live.push(sent, sent.at.at)
        self._note(
            {
                "type": "sent",
                "kind": "audio",
                "response": sent.tag,
                "before": sent.at.lo,
                "after": sent.at.hi,
                "late_ns": sent.late_ns,
                "first": sent.first,
                "n": sent.n,
            }
        )

    def text(self, tag: str, at: Instant, late_ns: int) -> None:
        """Note a text message that was sent."""
        if tag not in self._texts:
            self._texts[tag], self._text_late[tag] = at, late_ns
        self._note(
            {
                "type": "sent",
                "kind": "text",
                "response": tag,
                "before": at.lo,
                "after": at.hi,
                "late_ns": late_ns,
            }
        )

    def flush(self, at: Instant) -> None:
        """Note that clients were told to drop what they hold."""
        self._steps.append(at)
        self._live.flush(at.at)
        self._note({"type": "flush", "before": at.lo, "after": at.hi})

    def turn(self, turn: Turn) -> None:
        """Note a turn of the caller that is over; its responses may still come."""
        self._turns.append(turn)
        self._note(
            {
                "type": "rule",
                "turn": turn.index,
                "rule": turn.rule,
                "user_end_sample": turn.user_end,
            }
        )

    def utterance(self, n: int, utterance: Utterance) -> None:
        """Note an utterance that has been heard to its end."""
        clip = utterance.clip
        spans = [[a, min(b, utterance.end)] for a, b in utterance.spans if a < utterance.end]
        self._note(
            {
                "type": "utterance",
                "n": n,
                "source": utterance.source,
                "clip": clip.id if clip else None,
                "text": clip.text if clip else None,
                "clip_start_sample": utterance.match.start if utterance.match else None,
                "start_sample": utterance.start,
                "end_sample": utterance.end,
                "voiced": spans,
                "user_start": _models(self._tape.spoken_start(utterance.start)),
                "user_end": _models(self._tape.spoken_end(utterance.end)),
            }
        )

    def close(self) -> None:
        """Note the truth of every turn."""
        tracks = [self._track(pick) for pick in (_lo, _at, _hi)]
        for turn in self._turns:
            marks = [self._marks(turn, player, pick) for player, pick in tracks]
            self._note(self._turn_truth(turn, marks, self._lateness(turn, tracks[1][0])))

    def _track(self, pick: Callable[[Instant], int]) -> tuple[Playout, Callable[[Instant], int]]:
        player = Playout(self._rate_hz)
        for step in self._steps:
            if isinstance(step, Instant):
                player.flush(pick(step))
            else:
                player.push(step, pick(step.at))
        return player, pick

    def _marks(
        self, turn: Turn, player: Playout, pick: Callable[[Instant], int]
    ) -> dict[str, int | None]:
        texts = [pick(self._texts[tag]) for tag in turn.tags if tag in self._texts]
        sent = self._sent(turn)
        # In the order of the audio: in a burst a later message may seem to begin earlier.
        audible = (
            pick(s.at) + samples_to_ns(spans[0][0] - s.first, self._rate_hz)
            for s in sent
            if (spans := self._audible(s))
        )
        heard = self._stretches(turn, player)
        long_enough = [a for a, b in heard if b - a >= SPEECH_NS]
        return {
            "ttft": min(texts, default=None),
            "ttfa": next((pick(s.at) for s in sent), None),
            "ttfa_audible": next(audible, None),
            "ttfa_heard": heard[0][0] if heard else None,
            "ttfs": min(long_enough, default=None),
            "total_response": max((b for _, b in heard), default=None),
        }

    def _lateness(self, turn: Turn, player: Playout) -> dict[str, int]:
        """Return how late the agent was with the message that each mark stands on (ns)."""
        tags = [tag for tag in turn.tags if tag in self._texts]
        text = min(tags, key=lambda tag: self._texts[tag].at, default=None)
        sent = self._sent(turn)
        pieces = [p for tag in turn.tags for p in self._heard(tag, player)]
        pieces.sort(key=lambda piece: piece[:2])
        stretches = self._stretches(turn, player)
        starts = [a for a, b in stretches if b - a >= SPEECH_NS][:1]
        stands_on = {
            "ttfa": sent[:1],
            "ttfa_audible": [s for s in sent if self._audible(s)][:1],
            "ttfa_heard": [p[2] for p in pieces[:1]],
            "ttfs": [p[2] for p in pieces if p[0] in starts],
            "total_response": [p[2] for p in pieces[-1:]],
        }
        late = {name: on[0].late_ns for name, on in stands_on.items() if on}
        return late if text is None else late | {"ttft": self._text_late[text]}

    def _sent(self, turn: Turn) -> list[AudioSent]:
        return [s for s in self._steps if isinstance(s, AudioSent) and s.tag in turn.tags]

    def _stretches(self, turn: Turn, player: Playout) -> list[Span]:
        heard = ([(a, b) for a, b, _ in self._heard(tag, player)] for tag in turn.tags)
        return sorted(span for spans in heard for span in _joined(spans))

    def _audible(self, sent: AudioSent) -> list[Span]:
        """Return the audible parts of a message, in samples of its response."""
        if sent.tag is None:
            return []
        cut = (
            (max(a, sent.first), min(b, sent.first + sent.n))
            for a, b in self._voiced.get(sent.tag, ())
        )
        return [(a, b) for a, b in cut if a < b]

    def _heard(self, tag: str, player: Playout) -> list[tuple[int, int, AudioSent]]:
        out = []
        for sent, start, stop in player.played:
            if sent.tag != tag:
                continue
            for a, b in self._audible(sent):
                lo = start + samples_to_ns(a - sent.first, self._rate_hz)
                hi = min(stop, start + samples_to_ns(b - sent.first, self._rate_hz))
                if lo < hi:
                    out.append((lo, hi, sent))
        return out

    def _turn_truth(
        self, turn: Turn, marks: list[dict[str, int | None]], lateness: dict[str, int]
    ) -> dict[str, Any]:
        microphone, frame_start = self._tape.spoken_end(turn.user_end)
        stops = {name: _instant([m[name] for m in marks]) for name in marks[0]}
        return {
            "type": "turn",
            "turn": turn.index,
            "rule": turn.rule,
            "clips": [u.clip.id if u.clip else None for u in turn.utterances],
            "start_sample": turn.utterances[0].start if turn.utterances else None,
            "user_end_sample": turn.user_end,
            "responses": turn.tags,
            "late_ns": max((sent.late_ns for sent in self._sent(turn)), default=0),
            "marks_late_ns": lateness,
            "user_end": _models((microphone, frame_start)),
            "microphone": _from(microphone, stops),
            "frame_start": _from(frame_start, stops),
        }


def _lo(instant: Instant) -> int:
    return instant.lo


def _at(instant: Instant) -> int:
    return instant.at


def _hi(instant: Instant) -> int:
    return instant.hi


def _joined(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for a, b in sorted(spans):
        if out and a - out[-1][1] < JOIN_NS:
            out[-1] = (out[-1][0], max(out[-1][1], b))
        else:
            out.append((a, b))
    return out


def _instant(values: list[int | None]) -> Instant | None:
    known = [v for v in values if v is not None]
    # A mark that exists on one track only (a flush at its very edge) is no truth to compare with.
    return Instant(min(known), max(known), sorted(known)[1]) if len(known) == len(values) else None


def _models(instants: tuple[Instant, Instant]) -> dict[str, list[int]]:
    names = ("microphone", "frame_start")
    return {name: [i.lo, i.hi] for name, i in zip(names, instants, strict=True)}


def _from(start: Instant, stops: dict[str, Instant | None]) -> dict[str, Any]:
    """Return each metric as seconds with its bounds; null where it does not exist."""
    return {
        name: None
        if stop is None
        else {
            "value": ns_to_s(stop.at - start.at),
            "lo": ns_to_s(stop.lo - start.hi),
            "hi": ns_to_s(stop.hi - start.lo),
        }
        for name, stop in stops.items()
    }
