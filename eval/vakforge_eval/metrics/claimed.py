"""What a server says of turns and of its own latency, beside what was heard.

Each claim is a time in seconds from an origin that both sides share, so that claimed and heard can
stand side by side:

- where the user's speech began and ended, by the offset that the server names and by when its
  event came: from user_start;
- how much of an item was played when the server says that it cut it: from the item's first sample;
- when a response was over, or its audio: from the response's first audible sample;
- a latency that the server states: its own name, against ttfa_heard of that reply.

Turns that the probe spoilt are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vakforge_eval.metrics.latency import ttfa_heard
from vakforge_eval.metrics.segments import Segment
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.signal.playout import Placed
from vakforge_eval.timeline.events import (
    Claim,
    Event,
    ResponseAudioEnd,
    ResponseEnded,
    SpeechStarted,
    Truncated,
)
from vakforge_eval.timeline.instant import Edge, Instant, ns_to_s, samples_to_ns
from vakforge_eval.timeline.values import Measured, MetricValue, Reason, Undefined

__all__ = ["CLAIMS", "LATENCY", "Claimed", "claims"]

CLAIMS = {
    "speech_started": "user_start, microphone model",
    "speech_started_event": "user_start, microphone model",
    "speech_stopped": "user_end, microphone model",
    "speech_stopped_event": "user_end, microphone model",
    "truncated": "audio of the item played by then",
    "response_ended": "last audible sample of the response, as heard",
    "response_audio_end": "last audible sample of the response, as heard",
}
"""What a server may say of turns, and what it is held against."""
LATENCY = "latency: "
"""Begins the name of a latency that a server states; it is held against ttfa_heard."""

_MAX_S = 86_400.0
"""No call lasts as long; a server that claims more claims nothing."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One thing that a server said, with what was observed of it (s, from the same origin).

    `heard` and `difference` (claimed - heard, signed) are Undefined where nothing was heard to
    compare it with.
    """

    claim: str
    claimed: Measured
    heard: MetricValue
    difference: MetricValue

    @classmethod
    def of_moment(cls, claim: str, origin: Edge, said: Instant, heard: Edge) -> Claimed:
        """Return the claim that something was at `said`; it was heard to be at `heard`."""
        return cls(
            claim,
            Measured.between(origin, said),
            Measured.between(origin, heard),
            Measured.between(heard, said),
        )

    @classmethod
    def of_value(cls, claim: str, said_s: float, heard: MetricValue) -> Claimed:
        """Return the claim that something took `said_s`."""
        if not isinstance(heard, Measured):
            why = heard if isinstance(heard, Undefined) else Undefined(Reason.NOT_APPLICABLE)
            return cls(claim, Measured(said_s), why, why)
        difference = Measured(said_s - heard.value, u=heard.u[::-1], u_detect=heard.u_detect[::-1])
        return cls(claim, Measured(said_s), heard, difference)


def claims(view: CallView) -> tuple[Claimed, ...]:
    """Return all that the server of a call claimed, in the order of `CLAIMS`, latencies last."""
    turns = [turn for turn in view.turn_views if not any(f.invalidates for f in turn.flags)]
    return (
        *_of_speech(view, turns),
        *_of_cuts(view),
        *_of_ends(view),
        *_of_latency(view, turns),
    )


def _of_speech(view: CallView, turns: Iterable[TurnView]) -> Iterator[Claimed]:
    """Yield what the server says of where the user's speech began and ended."""
    told = (event for event in view.timeline.events if isinstance(event, SpeechStarted))
    begun = sorted(told, key=lambda event: event.at.at)
    sounds = sorted(utterance.start.at for utterance in view.turns.background)
    for turn in turns:
        start, end = Edge(turn.turn.start), Edge(turn.turn.end)
        for name, event, truth in (
            ("speech_started", _started(turn, begun, sounds), start),
            ("speech_stopped", turn.anchors.endpoint, end),
        ):
            if event is None:
                continue
            spoken = None if event.offset_ms is None else view.timeline.spoken(event.offset_ms)
            if spoken is not None:
                yield Claimed.of_moment(name, start, spoken, truth)
            yield Claimed.of_moment(f"{name}_event", start, event.at, truth)


def _started(
    turn: TurnView, begun: Sequence[SpeechStarted], sounds: Sequence[int]
) -> SpeechStarted | None:
    """Return the server's word that the user began; what it says of later sounds is not it."""
    later = bisect_right(sounds, turn.turn.end.at)
    until = min([turn.turn.closes, *sounds[later : later + 1]])
    first = bisect_left(begun, turn.turn.start.at, key=lambda event: event.at.at)
    return next((event for event in begun[first : first + 1] if event.at.at < until), None)


def _of_cuts(view: CallView) -> Iterator[Claimed]:
    """Yield how much of an item was heard when the server first says that it cut it."""
    placed: dict[str, list[Placed]] = {}
    for piece in view.hearing.placed:
        if piece.audio.item_id is not None:
            placed.setdefault(piece.audio.item_id, []).append(piece)
    cuts: dict[str | None, Truncated] = {}
    for event in view.timeline.events:
        if isinstance(event, Truncated) and 0 <= event.audio_end_ms <= _MAX_S * 1000:
            cuts.setdefault(event.item_id, event)
    for item_id, event in cuts.items():
        parts = [_played(piece, event.at) for piece in placed.get(item_id or "", ())]
        heard: MetricValue = Undefined(Reason.NO_AUDIO)
        if parts:
            low, at, high = (ns_to_s(sum(part[k] for part in parts)) for k in range(3))
            heard = Measured(at, u=(at - low, high - at))
        yield Claimed.of_value("truncated", event.audio_end_ms / 1000, heard)


def _played(piece: Placed, by: Instant) -> tuple[int, int, int]:
    """Return for how long (ns) a piece was surely, by estimate and perhaps heard by an instant."""
    rate_hz = piece.audio.rate_hz
    whole = samples_to_ns(piece.n_played, rate_hz)
    # What was cut was heard from its start to the flush; what was not, all of it.
    slack = piece.start.width + piece.end.width if piece.is_cut else 0
    most = samples_to_ns(len(piece.audio.pcm) - piece.first, rate_hz) if piece.is_cut else whole
    return (
        max(0, min(whole - slack, by.lo - piece.start.hi)),
        max(0, min(whole, by.at - piece.start.at)),
        max(0, min(whole + slack, most, by.hi - piece.start.lo)),
    )


def _of_ends(view: CallView) -> Iterator[Claimed]:
    """Yield when the server says that a response, or its audio, was over."""
    heard: dict[str, list[Segment]] = {}
    for segment in view.hearing.segments:
        if segment.response_id is not None:
            heard.setdefault(segment.response_id, []).append(segment)
    said: dict[tuple[str, str], Event] = {}
    for event in view.timeline.events:
        match event:
            case (
                ResponseAudioEnd(response_id=str(name))
                | ResponseEnded(response_id=str(name), status="completed")
            ) if name in heard:
                said.setdefault((event.TYPE, name), event)
            case _:
                pass
    for (claim, name), event in said.items():
        segments = heard[name]
        if any(s.is_cut or s.start_fault or s.end_fault for s in segments):
            continue
        last = max((s.end for s in segments), key=lambda edge: edge.when.at)
        yield Claimed.of_moment(claim, segments[0].start, event.at, last)


def _of_latency(view: CallView, turns: list[TurnView]) -> Iterator[Claimed]:
    """Yield the latencies that the server states, each with that of the turn it speaks of.

    That is the turn which the named response replies to, else the one open when the claim came.
    """
    owners = {s.response_id: turn for turn in turns for s in turn.turn.reply}
    for event in view.timeline.events:
        if not isinstance(event, Claim) or event.value_s is None:
            continue
        if not 0 <= event.value_s <= _MAX_S:
            continue
        if event.response_id is None:
            turn = _open_at(event.at, turns)
        else:
            turn = owners.get(event.response_id)
        heard = Undefined(Reason.NOT_APPLICABLE) if turn is None else ttfa_heard(turn)
        yield Claimed.of_value(LATENCY + event.name, float(event.value_s), heard)


def _open_at(at: Instant, turns: Iterable[TurnView]) -> TurnView | None:
    return next((v for v in turns if v.turn.start.at <= at.at < v.turn.closes), None)
