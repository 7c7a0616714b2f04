"""The user's own voice, sent back, is no onset of the agent: live, and on real clips."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile as sf
import soxr

from vakforge_eval.signal.pcm import encode
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.ear import Ear, HeardEdge
from vakforge_probe.guard import EchoGuard

CLIPS = Path(__file__).parents[2] / "scenarios/clips"
MS = 1_000_000
RATE = 24_000
FRAME = RATE // 50
T0 = 5_000 * MS

Floats = npt.NDArray[np.float64]


@cache
def clip(name: str, rate: int = RATE) -> Floats:
    pcm, own = sf.read(CLIPS / f"{name}.flac", dtype="int16")
    return np.asarray(soxr.resample(pcm.astype(np.float64), own, rate))


def track(ms: float, *parts: tuple[float, Floats], rate: int = RATE) -> Floats:
    out = np.zeros(round(ms * rate / 1000))
    for at, pcm in parts:
        first = round(at * rate / 1000)
        part = pcm[: max(0, len(out) - first)]
        out[first : first + len(part)] += part
    return out


def listen(
    user: Floats,
    agent: Floats,
    *,
    user_rate: int = RATE,
    is_guarded: bool = True,
    chunk: int = FRAME,
    jitter_ms: float = 0,
) -> list[HeardEdge]:
    """Let both streams run; the agent's as one response that is paced."""
    frame = user_rate // 50
    guard = EchoGuard(user_rate, frame)
    ear = Ear(guard=guard if is_guarded else None)
    rng = np.random.default_rng(1)
    moments = [(T0 + (k + 1) * 20 * MS, 0, k * frame) for k in range(len(user) // frame)]
    arrival = 0
    for at in range(0, len(agent), chunk):
        late = round(rng.uniform(0, jitter_ms) * MS)
        arrival = max(arrival, T0 + round(at / RATE * 1e9) + late)
        moments.append((arrival, 1, at))
    edges: list[HeardEdge] = []
    for now, side, at in sorted(moments):
        if side == 0:
            pcm = np.rint(user[at : at + frame]).astype("<i2")
            guard.said(pcm.tobytes(), now)
        else:
            pcm = np.clip(np.rint(agent[at : at + chunk]), -32768, 32767).astype(np.int16)
            data = encode(pcm, "pcm_s16le")
            edges += ear.hear(
                AudioChunk(at=Instant.exact(now), response_id="r", rate_hz=RATE, data=data), now
            )
        edges += ear.tick(now)
    return edges + ear.response_ended("r", arrival)


def onsets(edges: list[HeardEdge]) -> list[float]:
    return [(edge.heard_ns - T0) / MS for edge in edges if edge.kind == "onset"]


USERS = ["en/order_where", "hi/order_when", "human/made_amiable"]


@pytest.mark.parametrize("jitter_ms", [0, 60])
@pytest.mark.parametrize(("gain_db", "delay_ms"), [(-20, 120), (-6, 300), (-30, 40)])
@pytest.mark.parametrize("name", USERS)
def test_an_echo_is_not_heard_as_the_agent(
    name: str, gain_db: float, delay_ms: float, jitter_ms: float
) -> None:
    user = track(4000, (500, clip(name)))
    back = track(4000, (500 + delay_ms, clip(name) * 10 ** (gain_db / 20)))
    assert onsets(listen(user, back, is_guarded=False))
    assert listen(user, back, jitter_ms=jitter_ms) == []


@pytest.mark.parametrize("noise_dbfs", [-70, -60])
def test_an_echo_over_faint_noise_is_not_heard_as_the_agent(noise_dbfs: float) -> None:
    user = track(4000, (500, clip(USERS[0])))
    noise = np.random.default_rng(1).normal(0, 32768 * 10 ** (noise_dbfs / 20), 4 * RATE)
    assert onsets(listen(user, track(4000, (620, clip(USERS[0]) * 0.1)) + noise)) == []


def test_an_echo_at_another_rate_is_not_heard_as_the_agent() -> None:
    user = track(4000, (500, clip(USERS[0], 8000)), rate=8000)
    back = soxr.resample(track(4000, (620, clip(USERS[0], 8000) * 0.1), rate=8000), 8000, RATE)
    assert onsets(listen(user, back, user_rate=8000)) == []


@pytest.mark.parametrize("agent", ["agent/generic_1", "agent/sorry", "agent/short_ok"])
@pytest.mark.parametrize("at", [900, 2000, 3000])
def test_an_agent_without_echo_is_heard_where_it_is(agent: str, at: float) -> None:
    user = track(6000, (500, clip(USERS[0])))
    own = track(6000, (at, clip(agent)))
    guarded = listen(user, own)
    unguarded = listen(user, own, is_guarded=False)
    assert [(e.kind, e.heard_ns) for e in guarded] == [(e.kind, e.heard_ns) for e in unguarded]
    for mine, plain in zip(guarded, unguarded, strict=True):
        assert 0 <= mine.confirmed_ns - plain.confirmed_ns <= 60 * MS


@pytest.mark.parametrize("at", [2200, 3340])
def test_an_agent_that_begins_in_its_echo_is_heard_within_100_ms(at: float) -> None:
    user = track(6000, (500, clip(USERS[0])))
    both = track(6000, (620, clip(USERS[0]) * 0.1), (at, clip("agent/generic_1")))
    first = onsets(listen(user, both))[0]
    # The echo that was held when it began is told with it.
    assert at - 60 <= first <= at + 100


@pytest.mark.parametrize("chunk", [97, 333, 1200])
def test_where_messages_are_cut_does_not_matter(chunk: int) -> None:
    user = track(6000, (500, clip(USERS[0])))
    both = track(6000, (620, clip(USERS[0]) * 0.1), (3500, clip("agent/generic_1")))
    assert onsets(listen(user, both, chunk=chunk)) == pytest.approx(
        onsets(listen(user, both)), abs=0.1
    )


def test_a_repetition_that_comes_later_than_an_echo_is_speech() -> None:
    user = track(8000, (500, clip(USERS[0])))
    parrot = track(8000, (4500, clip(USERS[0])))
    assert onsets(listen(user, parrot)) == onsets(listen(user, parrot, is_guarded=False))


def test_a_short_echo_that_ends_with_the_audio_is_dropped() -> None:
    user = track(2000, (500, clip(USERS[0])))
    back = track(2000, (620, clip(USERS[0]) * 0.1))
    first = onsets(listen(user, back, is_guarded=False))[0]
    end = round((first + 45) * RATE / 1000)
    assert onsets(listen(user[: end + RATE // 10], back[:end])) == []
