"""What the truth log says when a call is over: each turn, each utterance, what was heard.

The account is played three times, with all early bounds, all estimates and all late bounds of the
stamps; what the three say is the value and its error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vakforge_eval.timeline.instant import Instant, ns_to_s
from vakforge_probe.agent.ears import Utterance
from vakforge_probe.agent.heard import Span
from vakforge_probe.agent.marks import Account, Mark
from vakforge_probe.agent.overlaps import Reaction, Shared, Track, shared_time
from vakforge_probe.agent.tape import Tape

__all__ = ["Closing", "Turn", "models"]


@dataclass(slots=True)
class Turn:
    """One turn of the caller and the responses that answered it."""

    index: int
    utterances: tuple[Utterance, ...]
    user_end: int
    rule: str = ""
    tags: list[str] = field(default_factory=list)


class Closing:
    """The account of one call and what it comes to.

    Attributes
    ----------
    turns
        The caller's turns, as the agent took them.
    utterances
        Everything the caller uttered.
    rules
        What the agent decided on an utterance that met it talking, by its first sample.
    """

    def __init__(self, tape: Tape, account: Account) -> None:
        self._tape, self._account = tape, account
        self.turns: list[Turn] = []
        self.utterances: list[Utterance] = []
        self.rules: dict[int, str] = {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the truth of every turn, of every utterance, and of the whole call."""
        tracks = [Track(self._account, pick) for pick in (_lo, _at, _hi)]
        reactions = {u.start: self._reactions(u, tracks) for u in self.utterances}
        for turn in self.turns:
            user_end, _ = self._tape.spoken_end(turn.user_end)
            marks = [track.marks(turn.tags, user_end) for track in tracks]
            began = reactions.get(turn.utterances[0].start) if turn.utterances else None
            yield self._turn_truth(turn, marks, began)
        for utterance in self.utterances:
            yield self._event_truth(utterance, reactions[utterance.start])
        _, estimate, _ = tracks
        yield from self._heard(estimate)
        if self._tape.started is not None:
            yield self._shared(tracks)

    def _reactions(self, utterance: Utterance, tracks: list[Track]) -> list[Reaction]:
        onset, _ = self._tape.spoken_start(utterance.start)
        later = (t.utterances[0].start for t in self.turns if t.utterances)
        after = min((start for start in later if start > utterance.start), default=None)
        until = None if after is None else self._tape.spoken_start(after)[0].at
        return [track.reaction(utterance.start, onset, until) for track in tracks]

    def _turn_truth(
        self, turn: Turn, marks: list[dict[str, Mark | None]], began: list[Reaction] | None
    ) -> dict[str, Any]:
        microphone, frame_start = self._tape.spoken_end(turn.user_end)
        stops = {name: _instant([m[name] for m in marks]) for name in marks[0]}
        line = {
            "type": "turn",
            "turn": turn.index,
            "rule": turn.rule,
            "clips": [u.clip.id if u.clip else None for u in turn.utterances],
            "start_sample": turn.utterances[0].start if turn.utterances else None,
            "user_end_sample": turn.user_end,
            "responses": turn.tags,
            "late_ns": max((sent.late_ns for sent in self._account.sent(turn.tags)), default=0),
            "marks_late_ns": _late(marks),
            "user_end": models((microphone, frame_start)),
            "microphone": _from(microphone, stops),
            "frame_start": _from(frame_start, stops),
        }
        if began is not None and began[1].response is not None:
            self._add_interruption(line, turn, began)
        return line

    def _add_interruption(self, line: dict[str, Any], turn: Turn, began: list[Reaction]) -> None:
        """Add what a turn that began while the agent talked did to that talk."""
        stops = self._event_truth(turn.utterances[0], began)
        for model in ("microphone", "frame_start"):
            line[model] |= stops[model] | {"interruption_response": line[model]["ttfa_heard"]}
        line["marks_late_ns"] |= stops["marks_late_ns"]
        if "ttfa_heard" in line["marks_late_ns"]:
            line["marks_late_ns"]["interruption_response"] = line["marks_late_ns"]["ttfa_heard"]

    def _event_truth(self, utterance: Utterance, found: list[Reaction]) -> dict[str, Any]:
        microphone, frame_start = self._tape.spoken_start(utterance.start)
        marks = [reaction.marks for reaction in found]
        stops = {name: _instant([m[name] for m in marks]) for name in marks[0]}
        outcomes = {reaction.outcome for reaction in found}
        gap = _gap(found)
        late = _late(marks)
        if gap is not None:
            late["gap"] = max(m.late_ns for r in found for m in r.gap or ())
        return {
            "type": "event",
            "clip": utterance.clip.id if utterance.clip else None,
            "start_sample": utterance.start,
            "end_sample": utterance.end,
            "response": found[1].response,
            "rule": self.rules.get(utterance.start),
            # An outcome that hangs on the error of the stamps is no truth to compare with.
            "outcome": found[1].outcome if len(outcomes) == 1 else None,
            "gap_s": gap,
            "never": found[1].response is not None and not any(stops.values()),
            "marks_late_ns": late,
            "user_start": models((microphone, frame_start)),
            "microphone": _from(microphone, stops),
            "frame_start": _from(frame_start, stops),
        }

    def _heard(self, track: Track) -> Iterator[dict[str, Any]]:
        """Yield when each response was heard, by which a moment without the caller is judged."""
        width = self._widest()
        for voice in track.voices:
            yield {
                "type": "heard",
                "response": voice.response,
                "spans": [list(span) for span in voice.spans],
                "width_ns": width,
                "late_ns": max(s.late_ns for s in self._account.sent([voice.response])),
                "is_whole": voice.is_whole,
                "is_open": voice.is_open,
            }

    def _shared(self, tracks: list[Track]) -> dict[str, Any]:
        """Return for how long both talked at once; what has no words is no talk."""
        theirs = [
            (self._tape.spoken_start(a)[0], self._tape.spoken_end(b)[0])
            for u in self.utterances
            if u.clip is None or u.clip.text
            for a, b in u.spans
            if a < min(b, self._tape.length)
        ]
        early, estimate, late = (track.heard.sounds for track in tracks)
        shared = shared_time(estimate, [(a.at, b.at) for a, b in theirs])
        begin = self._tape.spoken_start(0)[0]
        end = self._tape.spoken_end(self._tape.length)[0]
        return {
            "type": "overlap",
            "overlap_s": ns_to_s(shared.both),
            "agent_overlap_s": ns_to_s(shared.by_agent),
            "speech_s": ns_to_s(shared.any),
            "total_s": ns_to_s(end.at - begin.at),
            "error_s": ns_to_s(self._overlap_error(shared, early, late, theirs)),
            "begin": [begin.lo, begin.hi],
            "end": [end.lo, end.hi],
        }

    def _overlap_error(
        self,
        shared: Shared,
        early: list[Span],
        late: list[Span],
        theirs: list[tuple[Instant, Instant]],
    ) -> int:
        """Return how far the overlap may be from `shared` (ns), by the errors of its own edges."""
        if len(early) != len(late):
            return shared.n_edges * (self._widest() + 1)
        pairs = list(zip(early, late, strict=True))
        least = shared_time(
            [(b[0], max(b[0], a[1])) for a, b in pairs],
            [(a.hi, max(a.hi, b.lo)) for a, b in theirs],
        )
        most = shared_time([(a[0], b[1]) for a, b in pairs], [(a.lo, b.hi) for a, b in theirs])
        # A place in a stream is rounded to 1 ns on either side.
        return max(most.both - shared.both, shared.both - least.both) + shared.n_edges

    def _widest(self) -> int:
        """Return how badly, at worst, the moment of a message or a frame is known (ns)."""
        sent = max((step.at.width for step in self._account.steps), default=0)
        return max(sent, self._tape.widest)


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


def _late(marks: list[dict[str, Mark | None]]) -> dict[str, int]:
    return {
        name: max(m.late_ns for m in found)
        for name in marks[0]
        if (found := [mark for m in marks if (mark := m[name]) is not None])
    }


def _gap(found: list[Reaction]) -> dict[str, float] | None:
    """Return the length of the gap with its bounds; None where there was none on some track."""
    gaps = [reaction.gap for reaction in found if reaction.gap is not None]
    if len(gaps) < len(found):
        return None
    begin, end = (_instant([gap[i] for gap in gaps]) for i in (0, 1))
    return None if begin is None or end is None else _span(begin, end)


def models(instants: tuple[Instant, Instant]) -> dict[str, list[int]]:
    """Return the bounds of a moment in the microphone and in the frame-start model."""
    names = ("microphone", "frame_start")
    return {name: [i.lo, i.hi] for name, i in zip(names, instants, strict=True)}


def _from(start: Instant, stops: dict[str, Instant | None]) -> dict[str, Any]:
    """Return each metric as seconds with its bounds; null where it does not exist."""
    return {name: None if stop is None else _span(start, stop) for name, stop in stops.items()}


def _span(start: Instant, stop: Instant) -> dict[str, float]:
    return {
        "value": ns_to_s(stop.at - start.at),
        "lo": ns_to_s(stop.lo - start.hi),
        "hi": ns_to_s(stop.hi - start.lo),
    }
