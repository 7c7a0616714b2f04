"""An echo is told from the agent's own speech: on real clips, by its delay and by its level."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile as sf
import soxr

from vakforge_eval.signal.echo import (
    LIKE_SENT,
    SLACK_S,
    Stretch,
    align,
    find_echo,
    likeness,
    remove,
)

CLIPS = Path(__file__).parents[3] / "scenarios/clips"
RATE = 24_000
LEAD_S = 1.08
USERS = ("en/order_where", "hi/order_when", "human/made_amiable", "en/general_hours")
AGENTS = ("agent/generic_1", "agent/generic_2", "agent/sorry", "agent/order_status")

Floats = npt.NDArray[np.float64]


@cache
def clip(name: str, rate: int = RATE) -> Floats:
    pcm, own = sf.read(CLIPS / f"{name}.flac", dtype="int16")
    return np.asarray(soxr.resample(pcm.astype(np.float64), own, rate))


def stretch(
    user: Floats,
    agent: Floats | None = None,
    *,
    gain_db: float | None = -20.0,
    delay_s: float = 0.12,
    noise_dbfs: float | None = None,
    rate: int = RATE,
) -> tuple[Stretch, Floats]:
    """Return what came while `user` spoke and half a second longer, and the echo in it."""
    n, lead, slack = len(user) + rate // 2, round(LEAD_S * rate), round(SLACK_S * rate)
    sent = np.concatenate((np.zeros(lead), user, np.zeros(n - len(user) + slack)))
    heard = np.zeros(n)
    if agent is not None:
        heard[: min(n, len(agent))] = agent[:n]
    echo = np.zeros(n)
    if gain_db is not None:
        at = lead - round(delay_s * rate)
        echo = sent[at : at + n] * 10 ** (gain_db / 20)
    if noise_dbfs is not None:
        heard += np.random.default_rng(1).normal(0, 32768 * 10 ** (noise_dbfs / 20), n)
    return Stretch(np.rint(heard + echo), sent, lead, rate), echo


def loudness(x: Floats) -> float:
    return 10 * float(np.log10(np.mean(np.square(x)) + 1e-3))


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize(("gain_db", "delay_s"), [(-20, 0.12), (-6, 0.3), (-35, 0.05), (-10, 0.71)])
def test_gain_and_delay_of_a_bare_echo_are_recovered(
    name: str, gain_db: float, delay_s: float
) -> None:
    heard, _ = stretch(clip(name), gain_db=gain_db, delay_s=delay_s)
    echo = find_echo([heard])
    assert echo is not None
    assert echo.level_db == pytest.approx(gain_db, abs=0.1)
    assert echo.delay_ns == pytest.approx(delay_s * 1e9, abs=50_000)
    assert echo.correlation > 0.99


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_the_rate_does_not_matter(rate: int) -> None:
    heard, _ = stretch(clip(USERS[0], rate), rate=rate)
    echo = find_echo([heard])
    assert echo is not None
    assert echo.level_db == pytest.approx(-20, abs=0.5)
    assert echo.delay_ns == pytest.approx(120_000_000, abs=100_000)


@pytest.mark.parametrize("noise_dbfs", [-50, -40])
def test_gain_and_delay_are_recovered_in_noise(noise_dbfs: float) -> None:
    heard, _ = stretch(clip(USERS[0]), noise_dbfs=noise_dbfs)
    echo = find_echo([heard])
    assert echo is not None
    assert echo.level_db == pytest.approx(-20, abs=0.5)
    assert echo.delay_ns == pytest.approx(120_000_000, abs=100_000)


@pytest.mark.parametrize(("user", "agent"), list(zip(USERS, AGENTS, strict=True)))
def test_an_echo_under_speech_is_found_and_gets_much_quieter(user: str, agent: str) -> None:
    pause = np.zeros(RATE // 2)
    heard, echo = stretch(clip(user), np.concatenate((pause, clip(agent))))
    found = find_echo([heard])
    assert found is not None
    assert found.delay_ns == pytest.approx(120_000_000, abs=100_000)
    left, taken = remove(heard, found)
    assert loudness(taken - echo) < loudness(echo) - 15
    assert np.array_equal(left + taken, heard.agent)


def test_a_bare_echo_is_taken_out_to_the_last_bit() -> None:
    heard, _ = stretch(clip(USERS[0]))
    found = find_echo([heard])
    assert found is not None
    assert np.max(np.abs(remove(heard, found)[0])) < 2


def test_an_echo_that_jumps_is_followed() -> None:
    early, _ = stretch(clip(USERS[0]), delay_s=0.12)
    late, _ = stretch(clip(USERS[0]), delay_s=0.2)
    half = len(early.agent) // 2
    heard = replace(early, agent=np.concatenate((early.agent[:half], late.agent[half:])))
    found = find_echo([heard, early])
    assert found is not None
    left, _ = remove(heard, found)
    assert loudness(left) < loudness(heard.agent) - 20


def test_an_echo_with_holes_is_taken_out_where_it_is() -> None:
    heard, _ = stretch(clip(USERS[0]))
    n = len(heard.agent) // 480 * 480
    holed = heard.agent[:n].copy()
    holed.reshape(-1, 480)[:, 240:] = 0
    heard = replace(heard, agent=holed)
    found = find_echo([heard])
    assert found is not None
    assert found.level_db == pytest.approx(-20, abs=0.5)
    assert loudness(remove(heard, found)[0]) < loudness(holed) - 20


@pytest.mark.parametrize("shift_s", [0.0, 0.37])
def test_speech_of_its_own_is_no_echo(shift_s: float) -> None:
    shift = np.zeros(round(shift_s * RATE))
    own = [
        stretch(clip(user), np.concatenate((shift, clip(agent))), gain_db=None)[0]
        for user in USERS
        for agent in AGENTS
    ]
    assert find_echo(own) is None
    for one in own:
        assert find_echo([one]) is None


def test_two_clips_of_one_voice_are_no_echo_of_each_other() -> None:
    pairs = [("en/order_where", "en/order_number"), ("en/order_number", "en/order_number_fixed")]
    for user, other in pairs:
        assert find_echo([stretch(clip(user), clip(other), gain_db=None)[0]]) is None


@pytest.mark.parametrize("noise_dbfs", [None, -40])
def test_silence_and_noise_are_no_echo(noise_dbfs: float | None) -> None:
    heard, _ = stretch(clip(USERS[0]), gain_db=None, noise_dbfs=noise_dbfs)
    assert find_echo([heard]) is None
    silent = replace(heard, sent=np.zeros(len(heard.sent)))
    assert find_echo([silent]) is None
    assert align(replace(heard, agent=np.zeros(0))) is None
    assert find_echo([]) is None


def test_a_known_echo_leaves_speech_without_it_as_it_is() -> None:
    heard, _ = stretch(clip(USERS[0]))
    found = find_echo([heard])
    assert found is not None
    for agent in AGENTS:
        own, _ = stretch(clip(USERS[1]), clip(agent), gain_db=None)
        left, taken = remove(own, found)
        assert loudness(taken) < loudness(own.agent) - 30
        assert loudness(left) == pytest.approx(loudness(own.agent), abs=0.1)


@pytest.mark.parametrize("at_s", [0.2, 0.5, 0.9])
def test_a_few_ms_of_echo_are_like_what_was_sent_and_speech_is_not(at_s: float) -> None:
    heard, _ = stretch(clip(USERS[0]), noise_dbfs=-60)
    other, _ = stretch(clip(USERS[0]), clip(AGENTS[0]), gain_db=None)
    at, n = round(at_s * RATE), round(0.06 * RATE)
    sent = heard.sent[heard.lead + at + n - RATE : heard.lead + at + n]
    alike, lag = likeness(heard.agent[at : at + n], sent, RATE)
    assert alike >= LIKE_SENT
    assert lag == pytest.approx(0.12 * RATE, abs=6)
    assert likeness(other.agent[at : at + n], sent, RATE)[0] < LIKE_SENT


def test_nothing_is_like_silence_or_like_too_little() -> None:
    sound = clip(USERS[0])
    assert likeness(np.zeros(720), sound, RATE) == (0.0, 0)
    assert likeness(sound[5000:5720], np.zeros(RATE), RATE) == (0.0, 0)
    assert likeness(sound[5000:5720], sound[5000:5100], RATE) == (0.0, 0)
    assert likeness(np.zeros(0), np.zeros(0), RATE) == (0.0, 0)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are told by Linux only")
def test_the_search_keeps_to_one_thread() -> None:
    code = """
import os
from pathlib import Path
import numpy as np
from vakforge_eval.signal.echo import Stretch, align, likeness

def others_ns():
    tasks = [t for t in Path("/proc/self/task").iterdir() if t.name != str(os.getpid())]
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks)

def waits():
    before = others_ns()
    os.sched_yield()
    return others_ns() == before

while not all(waits() for _ in range(1000)):
    pass
begun = others_ns()
sent, agent = np.random.default_rng(0).normal(0, 3000, (2, 96_000))
for _ in range(5):
    align(Stretch(agent[:60_000], sent, 25_000, 24_000))
    likeness(agent[:1440], sent[:48_000], 24_000)
print(others_ns() - begun)
"""
    several = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **several, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == 0
