"""What hearing and deciding cost in 200 armed calls, and how soon a step follows the agent's onset.

Run it from the project's root::

    python -m benchmarks.performance.director

*Cost*: 200 calls get 20 ms messages of 24 kHz audio in turn, as fast as they can be worked off, and
each has a step that waits for the agent. Counted is the CPU time of `Ear`, its `EchoGuard` and
`Director`, all that a call does to hear and to decide: with a message once it is decoded, and
before and after a frame is sent. The caller is silent, or has a background, which keeps the guard
on its toes all the time. Decoding base64 and JSON, cutting frames, recording and sending are not in
it, nor are the first 9 s of each call, in which the noise floor of a continuous stream is learnt.
It is given as the share of one core that the calls would take in real time, the median over the
seconds of audio; a second of each kind comes in turn.

*Reaction*: on virtual time, from the true first sample of the agent's speech as heard to the moment
at which the step is given out, in calls whose onset lies at every part of a message and a frame.

Results go to ``director.json`` and ``director.md`` beside this file; a bar that is missed is
printed as missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.performance.pacing import Bar, machine, nearest_rank, verdict
from vakforge_eval.signal.pcm import encode
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant, samples_to_ns
from vakforge_eval.timeline.script import StepKind
from vakforge_probe.ear import Ear
from vakforge_probe.guard import EchoGuard
from vakforge_probe.scenario.anchors import parse_anchor
from vakforge_probe.scenario.clips import ClipLibrary, data_root
from vakforge_probe.scenario.director import Director, Fire
from vakforge_probe.scenario.flow import Act, Flow

Pcm = npt.NDArray[np.int16]

CALLS = 200
RATE_HZ = 24_000
FRAME_SAMPLES = 480
FRAME_NS = 20 * NS_PER_MS
PER_SECOND = NS_PER_S // FRAME_NS
START_NS = NS_PER_S
WARM_UP_S = 9
N_PHASES = 400

MAX_CPU_PERCENT = 10.0
MAX_REACTION_MS = 30.0 + 20.0


@dataclass(frozen=True)
class Cost:
    """CPU of all calls with one kind of audio: median, least and most of its seconds.

    A second in which another machine on the same hardware was busy costs up to twice as much.
    """

    audio: str
    caller: str
    calls: int
    messages: int
    us_per_message: float
    cpu_percent: float
    least_percent: float
    most_percent: float


@dataclass(frozen=True)
class Reaction:
    """From the onset as heard to the step, in ms."""

    calls: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Script:
    """A scenario as the director sees it."""

    flow: Flow


def armed(anchor: str) -> Director:
    """A director that waits for the agent."""
    step = Act(0, StepKind.BARGE_IN, parse_anchor(anchor), 8 * NS_PER_S, speech_ns=2 * NS_PER_S)
    flow = Flow((step,), 3600 * NS_PER_S, 3600 * NS_PER_S, {}, tells_response_end=True)
    director = Director(Script(flow))
    director.ready(START_NS)
    return director


def speech() -> Pcm:
    """The reference agent's voice without an end."""
    library = ClipLibrary(data_root() / "clips")
    return np.concatenate([library.get(f"agent/long_{n}").pcm for n in (1, 2)])


def hum() -> Pcm:
    """Comfort noise at -60 dBFS."""
    noise = np.random.default_rng(1).normal(0, 32768 * 10 ** (-60 / 20), 10 * RATE_HZ)
    return np.rint(noise).astype(np.int16)


CALLERS: dict[str, Callable[[], Pcm]] = {
    "silent": lambda: np.zeros(RATE_HZ, np.int16),
    "with a background": lambda: hum()[:RATE_HZ] * np.int16(8),
}
"""What the caller's stream holds while it waits, in rounds of 1 s."""

STREAMS: dict[str, tuple[Callable[[], Pcm], str | None]] = {
    "speech in a response": (speech, "r"),
    "digital silence, continuous": (lambda: np.zeros(10 * RATE_HZ, np.int16), None),
    "comfort noise, continuous": (hum, None),
    "speech, continuous": (speech, None),
}
"""Name -> audio, and the response that its messages name."""


def frames_of(pcm: Pcm) -> list[bytes]:
    """20 ms of 16-bit PCM each; what is left over is left out."""
    data, size = encode(pcm, "pcm_s16le"), 2 * FRAME_SAMPLES
    return [data[k : k + size] for k in range(0, len(data) // size * size, size)]


def messages_of(pcm: Pcm, response_id: str | None, offset: int, n: int) -> Iterator[AudioChunk]:
    """20 ms messages that arrive when they begin to be heard."""
    pieces = frames_of(np.roll(pcm, -offset))
    for k in range(n):
        yield AudioChunk(
            at=Instant.exact(START_NS + k * FRAME_NS),
            response_id=response_id,
            item_id=response_id,
            rate_hz=RATE_HZ,
            data=pieces[k % len(pieces)],
        )


class Listener:
    """One call, as far as hearing and deciding go."""

    def __init__(self, anchor: str, *, continuous: bool) -> None:
        self.guard = EchoGuard(RATE_HZ, FRAME_SAMPLES)
        self.ear = Ear(continuous=continuous, guard=self.guard)
        self.director = armed(anchor)
        self.told_of: str | None = None
        self.fired: list[tuple[int, Fire]] = []

    def on_message(self, chunk: AudioChunk) -> None:
        """Do what a call does with a message of audio."""
        now = chunk.at.hi
        edges = self.ear.hear(chunk, now)
        for edge in edges:
            self.director.heard(edge)
        if not edges and chunk.response_id == self.told_of:
            return
        self.told_of = chunk.response_id
        self.director.event(chunk)
        self.advance(now)

    def on_frame(self, frame: bytes, now: int) -> None:
        """Do what a call does before and after it sends a frame."""
        self.advance(now)
        self.guard.said(frame, now)
        for edge in self.ear.tick(now):
            self.director.heard(edge)

    def advance(self, now: int) -> None:
        """Carry out what the director decides now."""
        if self.director.is_idle(now):
            return
        actions = self.director.poll(now)
        self.fired += [(now, action) for action in actions if isinstance(action, Fire)]
        self.director.next_wake()


class Load:
    """All calls with one kind of audio, worked off second by second."""

    def __init__(self, name: str, caller: str, seconds: int, calls: int) -> None:
        make, response_id = STREAMS[name]
        pcm, n = make(), (WARM_UP_S + seconds) * PER_SECOND
        self.name, self.caller, self.calls = name, caller, calls
        self.cpu: list[float] = []
        self._said = frames_of(CALLERS[caller]())
        self._listeners = [
            Listener("1000 s after agent onset", continuous=response_id is None)
            for _ in range(calls)
        ]
        streams = [messages_of(pcm, response_id, 7919 * k % len(pcm), n) for k in range(calls)]
        self._moments = zip(*streams, strict=True)

    def second(self, *, counts: bool) -> None:
        """Work off one second of all calls; note its CPU time if it counts."""
        cpu = 0.0
        for frame, moment in zip(
            self._said, itertools.islice(self._moments, PER_SECOND), strict=True
        ):
            began = time.process_time()
            for listener, chunk in zip(self._listeners, moment, strict=True):
                listener.on_message(chunk)
                listener.on_frame(frame, chunk.at.hi + FRAME_NS // 2)
            cpu += time.process_time() - began
        if counts:
            self.cpu.append(cpu)

    def cost(self) -> Cost:
        """Return what the seconds that count have cost."""
        median = statistics.median(self.cpu)
        return Cost(
            audio=self.name,
            caller=self.caller,
            calls=self.calls,
            messages=len(self.cpu) * PER_SECOND * self.calls,
            us_per_message=median / (self.calls * PER_SECOND) * 1e6,
            cpu_percent=100 * median,
            least_percent=100 * min(self.cpu),
            most_percent=100 * max(self.cpu),
        )


def costs_of(seconds: int, calls: int) -> list[Cost]:
    """Return the cost of each kind of audio, a second of each in turn.

    So a time in which other machines on the same hardware are busy falls on all of them.
    """
    loads = [Load(name, caller, seconds, calls) for name in STREAMS for caller in CALLERS]
    for load in loads:
        for _ in range(WARM_UP_S):
            load.second(counts=False)
    for _ in range(seconds):
        for load in loads:
            load.second(counts=True)
    return [load.cost() for load in loads]


def reaction() -> Reaction:
    """Hard-edged speech that sets in at every part of a message."""
    late: list[int] = []
    tone = np.rint(8000 * np.cos(np.arange(RATE_HZ) / 9)).astype(np.int16)
    for k in range(N_PHASES):
        onset = 10 * FRAME_SAMPLES + k * FRAME_SAMPLES // N_PHASES
        pcm = np.concatenate([np.zeros(onset, np.int16), tone])
        listener = Listener("after agent onset", continuous=k % 2 == 0)
        for chunk in messages_of(pcm, None if k % 2 == 0 else "r", 0, 40):
            listener.on_message(chunk)
            listener.on_frame(bytes(2 * FRAME_SAMPLES), chunk.at.hi + k * 7919 % 20 * NS_PER_MS)
        ((given, _),) = listener.fired
        late.append(given - START_NS - samples_to_ns(onset, RATE_HZ))
    late.sort()
    return Reaction(N_PHASES, nearest_rank(late, 0.5), nearest_rank(late, 0.99), late[-1] / 1e6)


def bars_of(costs: list[Cost], reacted: Reaction) -> list[Bar]:
    cpu = [
        Bar(f"{c.audio}, caller {c.caller}: CPU (% of a core)", c.cpu_percent,
            f"<= {MAX_CPU_PERCENT:g}", c.cpu_percent <= MAX_CPU_PERCENT)
        for c in costs
    ]  # fmt: skip
    is_met = reacted.max_ms <= MAX_REACTION_MS
    return [*cpu, Bar("reaction, worst (ms)", reacted.max_ms, f"<= {MAX_REACTION_MS:g}", is_met)]


def markdown(
    facts: dict[str, object], costs: list[Cost], reacted: Reaction, bars: list[Bar]
) -> str:
    lines = [
        "# Hearing and deciding",
        "",
        f"`python -m benchmarks.performance.director`: {costs[0].calls} armed calls with 20 ms "
        "messages at 24 kHz; CPU time of ear, echo guard and director, as the share of a core that "
        "they would take in real time. Decoding base64 and JSON, cutting frames, recording and "
        "sending are not in it.",
        "",
        *(f"- {name.replace('_', ' ')}: {value}" for name, value in facts.items()),
        "",
        "| audio | caller | calls | messages | µs a message | CPU % of a core (least..most) |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {c.audio} | {c.caller} | {c.calls} | {c.messages} | {c.us_per_message:.1f} "
            f"| {c.cpu_percent:.1f} ({c.least_percent:.1f}..{c.most_percent:.1f}) |"
            for c in costs
        ),
        "",
        f"From the agent's onset as heard to the step, on virtual time, {reacted.calls} calls: "
        f"p50 {reacted.p50_ms:.1f} ms, p99 {reacted.p99_ms:.1f} ms, worst {reacted.max_ms:.1f} ms.",
        "",
        "| bar | value | limit | |",
        "| --- | --- | --- | --- |",
        *(f"| {b.name} | {b.value:.1f} | {b.limit} | {verdict(b)} |" for b in bars),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=10, help="audio of each call (10)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    facts = machine()
    costs = costs_of(arguments.seconds, CALLS)
    reacted = reaction()
    bars = bars_of(costs, reacted)
    for bar in bars:
        print(f"{verdict(bar).strip('*'):6} {bar.name}: {bar.value:.1f} (bar {bar.limit})")
    result = {
        "machine": facts,
        "seconds": arguments.seconds,
        "costs": [asdict(cost) for cost in costs],
        "reaction": asdict(reacted),
        "bars": [asdict(bar) for bar in bars],
    }
    arguments.out.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    arguments.out.with_suffix(".md").write_text(markdown(facts, costs, reacted, bars))


if __name__ == "__main__":
    main()
