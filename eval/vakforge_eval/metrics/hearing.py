"""What a caller hears: audio placed on the clock by the playout model, speech found in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vakforge_eval.metrics.responses import Response, collect_responses
from vakforge_eval.metrics.segments import Island, Segment, find_islands
from vakforge_eval.metrics.unecho import Unechoed, unecho
from vakforge_eval.signal.echo import Echo
from vakforge_eval.signal.gate import (
    FLOOR_MARGIN_DB,
    FLOOR_QUANTILE,
    GATE_DBFS,
    Gate,
    gate_for,
    noise_floor,
    stream_floor,
)
from vakforge_eval.signal.playout import Fifo, Live, Placed, place
from vakforge_eval.timeline.call import AgentAudio, CallTimeline
from vakforge_eval.timeline.instant import Edge
from vakforge_eval.timeline.values import Reason, Undefined

__all__ = ["DETECTOR", "PLAYOUT", "Hearing", "hear"]

DETECTOR = (
    "RMS over trailing 10 ms, DC removed; gate max(-55 dBFS, floor + 10 dB), 6 dB hysteresis, "
    "run >= 30 ms, gaps < 350 ms joined"
)
PLAYOUT = "{playout}"
"""Stands in a metric's text for `Hearing.playout`, which is not the same in every call."""

Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Hearing:
    """All that was heard of the agent in one call.

    `gate` is Undefined(noise_too_high) where nothing can be told from the noise, and
    Undefined(unnamed_audio) where what has no response id may be noise or speech; there are no
    segments then. `segments` are in order of their start, and so are `sounds`: the begin and end
    of every audible stretch as heard, with nothing joined. `playout` says by which model. Messages
    are those of the timeline; where the caller's echo was in them, all that was heard goes by what
    they are without it (`clean`). `unknown_echo` says from when to when (ns) it cannot be told
    whether there is one: what the caller said there cannot be read.
    """

    floor_dbfs: float | None
    gate: Gate | Undefined
    segments: tuple[Segment, ...]
    responses: dict[str | None, Response]
    placed: tuple[Placed, ...]
    sounds: tuple[tuple[Edge, Edge], ...] = ()
    playout: str = Fifo.text
    unechoed: Unechoed | None = None
    unknown_echo: tuple[tuple[int, int], ...] = ()

    @property
    def echo(self) -> Echo | None:
        """The caller's echo; None if there is none."""
        return None if self.unechoed is None else self.unechoed.echo

    def clean(self, message: AgentAudio) -> AgentAudio:
        """Return a message of the timeline without the caller's echo."""
        return message if self.unechoed is None else self.unechoed.clean(message)

    def has_echo(self, lo_ns: int, hi_ns: int) -> bool:
        """Whether the caller's echo was in what came between two moments, loud enough to hear."""
        return self.unechoed is not None and self.unechoed.touches(lo_ns, hi_ns)

    def may_have_echo(self, lo_ns: int, hi_ns: int) -> bool:
        """Whether it cannot be told if the caller's echo was in what came between two moments."""
        return any(lo < hi_ns and hi > lo_ns for lo, hi in self.unknown_echo)


def hear(timeline: CallTimeline) -> Hearing:
    """Return what was heard of the agent in `timeline`, without what it heard of the caller."""
    hearing = _hear(timeline, None)
    gate = hearing.gate
    unechoed, unknown = unecho(timeline, GATE_DBFS if isinstance(gate, Undefined) else gate.on_dbfs)
    if unechoed is not None:
        hearing = _hear(replace(timeline, audio=unechoed.audio), unechoed)
        hearing = _as_it_came(hearing, unechoed, timeline.audio)
    return replace(hearing, unknown_echo=unknown)


def _as_it_came(hearing: Hearing, unechoed: Unechoed, audio: Sequence[AgentAudio]) -> Hearing:
    """Return `hearing` with the messages of the timeline in place of those without the echo."""
    raw = {id(mine): whole for mine, whole in zip(unechoed.audio, audio, strict=True)}
    for response in hearing.responses.values():
        response.messages = [raw[id(message)] for message in response.messages]
    return replace(
        hearing,
        segments=tuple(
            replace(segment, messages=tuple(raw[id(message)] for message in segment.messages))
            for segment in hearing.segments
        ),
        placed=tuple(replace(piece, audio=raw[id(piece.audio)]) for piece in hearing.placed),
    )


def _hear(timeline: CallTimeline, unechoed: Unechoed | None) -> Hearing:
    if timeline.capabilities.continuous_stream:
        return _hear_stream(timeline, unechoed)
    placed = tuple(place(timeline.audio, timeline.flushes))
    islands = find_islands(placed, timeline.flushes)
    # A protocol that marks no responses tells no floor: its audio is speech.
    is_told = timeline.capabilities.response_ids
    outside = [(i.rate_hz, i.pcm()) for i in islands if is_told and i.response_id is None]
    # Where a target names no response at all, what lies outside of any is its speech as well.
    is_named = any(message.response_id is not None for message in timeline.audio)
    if is_named:
        floor, gate = _judge_outside(outside)
    else:
        floor = _floor(outside, stream_floor)
        gate = gate_for(floor)
    return _heard(timeline, (floor, gate), placed, islands, Fifo.text, unechoed)


def _judge_outside(outside: Sequence[tuple[int, Pcm]]) -> tuple[float | None, Gate | Undefined]:
    """Return floor and gate by what comes outside of responses with an id.

    Noise is steady; what is not holds speech of responses without an id.
    """
    floor, loud = _floor(outside, noise_floor), _floor(outside, _loud)
    if floor is None or loud is None or loud - floor <= FLOOR_MARGIN_DB:
        return floor, gate_for(floor)
    floor = _floor(outside, stream_floor)
    gate = gate_for(floor)
    return floor, Undefined(Reason.UNNAMED_AUDIO) if isinstance(gate, Undefined) else gate


def _loud(stretches: list[Pcm], rate_hz: int) -> float | None:
    return noise_floor(stretches, rate_hz, 1 - FLOOR_QUANTILE)


def _hear_stream(timeline: CallTimeline, unechoed: Unechoed | None) -> Hearing:
    """Return what was heard of an agent that never pauses: all of its audio tells the floor."""
    whole = [(rate, np.concatenate(parts)) for rate, parts in _by_rate(timeline).items()]
    floor = _floor(whole, stream_floor)
    gate = gate_for(floor)
    if isinstance(gate, Undefined) and _leaves_out_silence(timeline.audio):
        floor, gate = None, gate_for(None)
    # Where nothing can be told from the noise, none of it may be dropped as silence.
    quiet = Gate.at(GATE_DBFS) if isinstance(gate, Undefined) else gate
    placed = tuple(place(timeline.audio, timeline.flushes, lambda: Live(quiet)))
    islands = find_islands(placed, timeline.flushes)
    return _heard(timeline, (floor, gate), placed, islands, Live.text, unechoed)


def _leaves_out_silence(audio: Sequence[AgentAudio]) -> bool:
    """Whether a tenth or more of the time was not sent at all; then what was sent is no noise."""
    span = audio[-1].arrival.at + audio[-1].duration_ns - audio[0].arrival.at
    sent = sum(message.duration_ns for message in audio)
    return span - sent >= FLOOR_QUANTILE * span


def _by_rate(timeline: CallTimeline) -> dict[int, list[Pcm]]:
    parts: dict[int, list[Pcm]] = {}
    for message in timeline.audio:
        parts.setdefault(message.rate_hz, []).append(message.pcm)
    return parts


def _heard(
    timeline: CallTimeline,
    threshold: tuple[float | None, Gate | Undefined],
    placed: tuple[Placed, ...],
    islands: Sequence[Island],
    playout: str,
    unechoed: Unechoed | None,
) -> Hearing:
    floor, gate = threshold
    segments: list[Segment] = []
    sounds: list[tuple[Edge, Edge]] = []
    for island in islands:
        if isinstance(gate, Undefined):
            break
        runs = island.runs(gate)
        if unechoed is not None:
            runs = island.without_echo(runs, unechoed)
        segments += island.segments(runs)
        sounds += island.sounds(runs)
    segments.sort(key=lambda s: (s.start.when.at, s.end.when.at, s.response_id or ""))
    sounds.sort(key=lambda pair: (pair[0].when.at, pair[1].when.at))
    responses = collect_responses(timeline, placed)
    return Hearing(
        floor, gate, tuple(segments), responses, placed, tuple(sounds), playout, unechoed
    )


def _floor(
    stretches: Sequence[tuple[int, Pcm]], floor_of: Callable[[list[Pcm], int], float | None]
) -> float | None:
    """Return the floor of ``(rate, samples)`` at the rate that most of the audio has."""
    if not stretches:
        return None
    length: dict[int, int] = {}
    for rate, pcm in stretches:
        length[rate] = length.get(rate, 0) + len(pcm)
    main = max(length, key=lambda rate: (length[rate] / rate, rate))
    return floor_of([pcm for rate, pcm in stretches if rate == main], main)
