"""The agent's audio without the caller's echo: where it may be, taken out, and what is left of it.

An echo can only be where the user has been audible a moment before, so only audio that came while
the user spoke, or a second later, is looked at; a call in which there is none stays as it is, to
the bit. The agent's own count of samples is a better clock than arrivals, so audio is worked in
patches without a hole, each aligned by its samples.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.codecs import SMEAR_MS
from vakforge_eval.signal.echo import (
    LIKE_SENT,
    MAX_DELAY_S,
    SLACK_S,
    WANDER_S,
    Echo,
    Stretch,
    find_echo,
    likeness,
    remove,
)
from vakforge_eval.signal.pcm import FULL_SCALE
from vakforge_eval.timeline.call import AgentAudio, CallTimeline
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, samples_to_ns

__all__ = ["LIKE_MS", "Unechoed", "unecho"]

LIKE_MS = 50
"""How much audio is compared at once when what is left of an echo is looked for."""
_TAIL_NS = 500 * NS_PER_MS
_LEAD_S = MAX_DELAY_S + SLACK_S + 0.02
_MAX_AHEAD_NS = NS_PER_S
"""Audio that comes so much before it is due was made before the user could be in it."""
_LEAK = 0.02
"""How much faster than the probe's an agent's clock may run."""
_HOLE_NS = 100 * NS_PER_MS
_PATCH_S, _MIN_PATCH_S = 2.0, 0.5
_MIN_SEARCH_S = 0.35
"""Less tells no echo from chance; a reply that comes 200 ms after the user is not looked at."""
_UNVOICED_S = 0.1
"""How much of a clip may lie around what is voiced of it."""
_AUDIBLE_DBFS = -61.0
"""The off gate in quiet: an echo below it touches no edge."""

Pcm = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]
_Zone = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Samples of one message in a patch, from `offset` on; `index` is its place in the call."""

    index: int
    offset: int
    pcm: Pcm


@dataclass(slots=True, eq=False)
class _Patch:
    """Audio of one rate without a hole; `begin_ns` is when its first sample came, jitter aside."""

    rate_hz: int
    begin_ns: int
    goes_on: bool
    """Whether it begins where another patch ends."""
    parts: list[_Part] = field(default_factory=list)
    n_samples: int = 0

    def add(self, index: int, arrival_ns: int, pcm: Pcm) -> None:
        """Append a message's samples."""
        self.begin_ns = min(self.begin_ns, arrival_ns - samples_to_ns(self.n_samples, self.rate_hz))
        self.parts.append(_Part(index, self.n_samples, pcm))
        self.n_samples += len(pcm)

    def take(self, other: _Patch) -> None:
        """Append a patch that goes on where this one ends."""
        for part in other.parts:
            arrival = other.begin_ns + samples_to_ns(part.offset, self.rate_hz)
            self.add(part.index, arrival, part.pcm)

    def may_be_told(self, gate_dbfs: float) -> bool:
        """Whether it is long and loud enough for an echo in it to be told, and to matter."""
        if self.n_samples < _MIN_SEARCH_S * self.rate_hz:
            return False
        power = _powers(self.pcm(), self.rate_hz)
        return bool(np.max(power) >= 10 ** (gate_dbfs / 10) * FULL_SCALE**2)

    def pcm(self) -> Floats:
        """Return its samples."""
        return np.concatenate([part.pcm for part in self.parts]).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Unechoed:
    """A call's audio without its echo.

    Attributes
    ----------
    echo
        Delay, level and correlation where they are clearest.
    audio
        As the timeline's, message for message.
    spans
        From when to when (ns, by arrival) the echo was loud enough to be heard.
    """

    echo: Echo
    audio: tuple[AgentAudio, ...]
    spans: tuple[_Zone, ...]
    _places: dict[int, tuple[Stretch, int]]
    """By a clean message's identity: the clean stretch around it, and its first sample there."""
    _clean: dict[int, AgentAudio]
    """By the identity of a message that held some of it."""

    def clean(self, message: AgentAudio) -> AgentAudio:
        """Return a message of the timeline without the echo."""
        return self._clean.get(id(message), message)

    def is_like_sent(self, audio: AgentAudio, first: int, n: int) -> bool:
        """Whether `n` samples of `audio`, and what follows it, are still the caller's.

        False where the user had not been audible, or too few samples are left to tell.
        """
        stretch, offset = self._places.get(id(audio), (None, 0))
        if stretch is None:
            return False
        begin, rate = offset + first, stretch.rate_hz
        lag, wander = stretch.lag_of(self.echo.delay_ns), round(WANDER_S * rate)
        agent = stretch.agent[begin : begin + n]
        at = stretch.lead + begin - lag
        sent = stretch.sent[max(0, at - wander) : max(0, at + len(agent) + wander)]
        if len(agent) < n // 2 or len(sent) < len(agent):
            return False
        return likeness(agent, sent, rate)[0] >= LIKE_SENT

    def touches(self, lo_ns: int, hi_ns: int) -> bool:
        """Whether the echo could be heard between two moments."""
        return any(lo < hi_ns and hi > lo_ns for lo, hi in self.spans)


def unecho(timeline: CallTimeline, gate_dbfs: float) -> tuple[Unechoed | None, tuple[_Zone, ...]]:
    """Return the agent's audio of a call without the caller's echo, and where it is not known.

    Parameters
    ----------
    gate_dbfs
        What speech must reach: an echo that does not has no effect, and is not looked for.

    Returns
    -------
    Unechoed or None
        None if there is no echo, and where the timeline does not hold what was sent.
    tuple
        From when to when (ns, by arrival) an echo may be in audio that was looked at, but what it
        would repeat cannot be read.
    """
    if timeline.sent_pcm is None or not len(timeline.stream):
        return None, ()
    sent = _Sent(timeline)
    patches = [p for p in _patches(timeline, _TAIL_NS) if p.may_be_told(gate_dbfs)]
    echo = _find(sent, patches)
    unknown = tuple(zone for patch in patches for zone in sent.unknown(patch))
    if echo is None:
        return None, unknown
    tail = echo.delay_ns + round((WANDER_S + SLACK_S) * NS_PER_S)
    return _cleaned(timeline, echo, sent, _patches(timeline, max(tail, _TAIL_NS))), unknown


def _find(sent: _Sent, patches: Iterable[_Patch]) -> Echo | None:
    by_rate: dict[int, list[Stretch]] = {}
    for stretch in filter(None, map(sent.stretch, patches)):
        by_rate.setdefault(stretch.rate_hz, []).append(stretch)
    found = (find_echo(same) for same in by_rate.values())
    return next((echo for echo in found if echo is not None), None)


def _cleaned(
    timeline: CallTimeline, echo: Echo, sent: _Sent, patches: Sequence[_Patch]
) -> Unechoed:
    audio = list(timeline.audio)
    places: dict[int, tuple[Stretch, int]] = {}
    spans: list[_Zone] = []
    for patch in patches:
        stretch = sent.stretch(patch)
        if stretch is None:
            continue
        left, taken = remove(stretch, echo)
        smear = SMEAR_MS.get(timeline.audio[patch.parts[0].index].codec)
        if smear is not None:
            left = _undistorted(left, taken, patch.rate_hz, smear)
        spans += _audible(patch, taken)
        pcm = np.clip(np.rint(left), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
        clean = replace(stretch, agent=left)
        for part in patch.parts:
            message, n = audio[part.index], len(part.pcm)
            own = np.concatenate((pcm[part.offset : part.offset + n], message.pcm[n:]))
            audio[part.index] = replace(message, pcm=own)
            places[id(audio[part.index])] = clean, part.offset
    pairs = zip(timeline.audio, audio, strict=True)
    changed = {id(whole): mine for whole, mine in pairs if mine is not whole}
    return Unechoed(echo, tuple(audio), tuple(spans), places, changed)


def _undistorted(left: Floats, taken: Floats, rate_hz: int, smear_ms: tuple[int, int]) -> Floats:
    """Return what is left without what a codec has made of the echo, which is no path's doing.

    It is silent where it is no louder than the echo that was taken out as near as the codec smears.
    """
    before, after = (-(-ms // 10) for ms in smear_ms)
    power = np.pad(_powers(taken, rate_hz), (after, before))
    near = np.max(np.lib.stride_tricks.sliding_window_view(power, before + after + 1), axis=1)
    is_own = _powers(left, rate_hz) > near
    own: Floats = left * np.repeat(is_own, rate_hz // 100)[: len(left)]
    return own


def _audible(patch: _Patch, taken: Floats) -> Iterator[_Zone]:
    """Yield from when to when the echo that was taken out of a patch is loud enough."""
    block = patch.rate_hz // 100
    power = _powers(taken, patch.rate_hz)
    loud = np.flatnonzero(power >= 10 ** (_AUDIBLE_DBFS / 10) * FULL_SCALE**2) * block
    if len(loud):
        lo, hi = (samples_to_ns(int(at), patch.rate_hz) for at in (loud[0], loud[-1] + block))
        yield patch.begin_ns + lo, patch.begin_ns + hi


def _powers(x: Floats, rate_hz: int) -> Floats:
    """Return the power of each 10 ms."""
    block = rate_hz // 100
    power: Floats = np.add.reduceat(np.square(x), np.arange(0, len(x), block)) / block
    return power


def _zones(timeline: CallTimeline, tail_ns: int) -> list[_Zone]:
    """Return when the caller may be heard in the agent's audio, in order, apart."""
    spans = sorted((a.at, b.at + tail_ns) for u in timeline.utterances for a, b in u.voiced)
    zones: list[_Zone] = []
    for lo, hi in spans:
        if zones and lo <= zones[-1][1]:
            lo, hi = zones[-1][0], max(hi, zones.pop()[1])
        zones.append((lo, hi))
    return zones


def _patches(timeline: CallTimeline, tail_ns: int) -> list[_Patch]:
    """Return the agent's audio that came in the zones, as it hangs together."""
    zones = _zones(timeline, tail_ns)
    starts = [lo for lo, _ in zones]
    chains: dict[str | None, _Chain] = {}
    is_one = timeline.capabilities.continuous_stream
    for index, message in enumerate(timeline.audio):
        at = message.arrival.at
        k = bisect_left(starts, at + message.duration_ns) - 1
        if k >= 0 and at < zones[k][1] and len(message.pcm):
            chain = chains.setdefault(None if is_one else message.response_id, _Chain())
            chain.add(index, message)
    return [patch for chain in chains.values() for patch in chain.finish()]


class _Chain:
    """Cuts messages that follow each other into patches."""

    def __init__(self) -> None:
        self._patches: list[_Patch] = []
        self._current: _Patch | None = None
        self._last_ns: int | None = None
        self._ahead_ns = 0

    def add(self, index: int, message: AgentAudio) -> None:
        at, duration = message.arrival.at, message.duration_ns
        if self._pass(at) or self._ahead_ns > _MAX_AHEAD_NS:
            self._current = None
        if self._ahead_ns <= _MAX_AHEAD_NS:
            most = round(_MAX_AHEAD_NS * message.rate_hz / NS_PER_S)
            self._open(message.rate_hz, at).add(index, at, message.pcm[:most])
            if len(message.pcm) > most:
                self._current = None
        self._ahead_ns += duration

    def _pass(self, at: int) -> bool:
        """Let time pass until `at`; return whether the audio so far was over long before."""
        passed = 0 if self._last_ns is None else at - self._last_ns
        hole = passed - self._ahead_ns
        self._ahead_ns = max(0, self._ahead_ns - round((1 + _LEAK) * passed))
        self._last_ns = at
        return hole > _HOLE_NS

    def _open(self, rate_hz: int, at: int) -> _Patch:
        patch = self._current
        goes_on = patch is not None and patch.rate_hz == rate_hz
        if patch is None or not goes_on or patch.n_samples >= _PATCH_S * rate_hz:
            patch = self._current = _Patch(rate_hz, at, goes_on)
            self._patches.append(patch)
        return patch

    def finish(self) -> list[_Patch]:
        """Return the patches; a short rest of a long one is part of it."""
        out: list[_Patch] = []
        for patch in self._patches:
            if patch.goes_on and patch.n_samples < _MIN_PATCH_S * patch.rate_hz:
                out[-1].take(patch)
            else:
                out.append(patch)
        return out


class _Sent:
    """What the user's stream held, by the time at which it was spoken."""

    def __init__(self, timeline: CallTimeline) -> None:
        stream = timeline.stream
        assert timeline.sent_pcm is not None  # noqa: S101 - asked by the caller
        self._pcm, self._gaps = timeline.sent_pcm, timeline.sent_gaps
        self._rate_hz = timeline.script.rate_hz
        self._length = timeline.script.frame_samples
        self._spoken = (stream["before"] + stream["after"]) // 2 - timeline.frame_ns
        # Elsewhere the stream is silent: that need not be read.
        self._voiced = [(self._place(lo), self._place(hi)) for lo, hi in _zones(timeline, 0)]

    def stretch(self, patch: _Patch) -> Stretch | None:
        """Return a patch with what had been sent by then; None if either is silent."""
        agent = patch.pcm()
        if not agent.any():
            return None
        place = self._place(patch.begin_ns)
        n = -(-len(agent) * self._rate_hz // patch.rate_hz)
        lead, slack = (round(s * self._rate_hz) for s in (_LEAD_S, SLACK_S))
        sent = self._samples(place - lead, place + n + slack)
        if not sent.any():
            return None
        offset_ns = patch.begin_ns - self._spoken_ns(place)
        scale = patch.rate_hz / self._rate_hz
        return Stretch(
            agent=agent,
            sent=_at_rate(sent, self._rate_hz, patch.rate_hz),
            lead=round(lead * scale),
            rate_hz=patch.rate_hz,
            offset_ns=offset_ns,
        )

    def unknown(self, patch: _Patch) -> Iterator[_Zone]:
        """Yield from when to when a patch may repeat what cannot be read."""
        if self._gaps is None:
            return
        end_ns = patch.begin_ns + samples_to_ns(patch.n_samples, patch.rate_hz)
        first = self._place(patch.begin_ns - round(_LEAD_S * NS_PER_S))
        for begin, end in self._voiced:
            for lo, hi in self._gaps(max(begin, first), min(end, self._place(end_ns))):
                since = max(patch.begin_ns, self._spoken_ns(lo))
                until = min(end_ns, self._spoken_ns(hi) + round(MAX_DELAY_S * NS_PER_S))
                if since < until:
                    yield since, until

    def _samples(self, start: int, stop: int) -> Pcm:
        out = np.zeros(stop - start, np.int16)
        margin = round(_UNVOICED_S * self._rate_hz)
        for lo, hi in self._voiced:
            lo, hi = max(start, lo - margin), min(stop, hi + margin)
            if lo < hi:
                out[lo - start : hi - start] = self._pcm(lo, hi)
        return out

    def _place(self, ns: int) -> int:
        """Return the sample that was being spoken at `ns`."""
        frame = max(0, int(np.searchsorted(self._spoken, ns, "right")) - 1)
        since_ns = ns - int(self._spoken[frame])
        return frame * self._length + round(since_ns * self._rate_hz / NS_PER_S)

    def _spoken_ns(self, sample: int) -> int:
        frame = min(max(0, sample // self._length), len(self._spoken) - 1)
        return int(self._spoken[frame]) + samples_to_ns(
            sample - frame * self._length, self._rate_hz
        )


def _at_rate(pcm: Pcm, rate_hz: int, wanted_hz: int) -> Floats:
    if rate_hz == wanted_hz:
        return pcm.astype(np.float64)
    import soxr

    return np.asarray(soxr.resample(pcm.astype(np.float64), rate_hz, wanted_hz))
