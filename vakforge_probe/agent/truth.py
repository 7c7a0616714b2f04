"""The agent's own account of a call: what was said and heard when, and what each metric must be.

Everything here follows from sample counts, the clips' hard edges and the stamps of what was really
sent (after jitter); no sound is analysed. `marks.py` defines what each metric must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from vakforge_eval.timeline.instant import Instant, ns_to_s
from vakforge_probe.agent.ears import Utterance
from vakforge_probe.agent.marks import Account, Mark, Span
from vakforge_probe.agent.player import AudioSent, Playout, TextSent
from vakforge_probe.agent.tape import Tape

__all__ = ["Ledger", "Turn"]


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
        self._tape, self._note = tape, note
        self._account = Account(rate_hz)
        self._turns: list[Turn] = []
        self._live = Playout(rate_hz)

    @property
    def live_until(self) -> int:
        """When a player that got all that was sent so far falls silent (ns)."""
        return self._live.drained_at

    def voice(self, tag: str, voiced: Iterable[Span], planned: int) -> None:
        """Note the audible spans of response `tag` (samples sent), which begins at `planned`."""
        self._account.voiced[tag] = tuple(voiced)
        self._note(
            {
                "type": "voice",
                "response": tag,
                "planned": planned,
                "voiced": [list(s) for s in self._account.voiced[tag]],
            }
        )

    def audio(self, sent: AudioSent) -> None:
        """Note an audio message that was sent."""
        self._account.steps.append(sent)
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
        self._account.texts.setdefault(tag, TextSent(at, late_ns))
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
        self._account.steps.append(at)
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
        tracks = [(self._account.play(pick), pick) for pick in (_lo, _at, _hi)]
        for turn in self._turns:
            user_end, _ = self._tape.spoken_end(turn.user_end)
            marks = [
                self._account.marks(turn.tags, pick(user_end), player, pick)
                for player, pick in tracks
            ]
            self._note(self._turn_truth(turn, marks))

    def _turn_truth(self, turn: Turn, marks: list[dict[str, Mark | None]]) -> dict[str, Any]:
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
            "late_ns": max((sent.late_ns for sent in self._account.sent(turn.tags)), default=0),
            "marks_late_ns": {
                name: max(m.late_ns for m in found)
                for name in stops
                if (found := [mark for m in marks if (mark := m[name]) is not None])
            },
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


def _instant(marks: list[Mark | None]) -> Instant | None:
    known = [mark.at for mark in marks if mark is not None]
    # A mark that exists on one track only (a flush at its very edge) is no truth to compare with.
    return Instant(min(known), max(known), sorted(known)[1]) if len(known) == len(marks) else None


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
