"""The shipped clips are what their sidecars say; measured here by means of this file alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from scipy.signal import oaconvolve

from vakforge_eval.signal.activity import find_spans
from vakforge_eval.signal.gate import gate_for
from vakforge_eval.timeline.values import Undefined

CLIPS = Path(__file__).parents[3] / "scenarios" / "clips"
SIDECARS = {
    str(path.relative_to(CLIPS).with_suffix("")): path for path in sorted(CLIPS.glob("*/*.json"))
}
USER_GROUPS = ("human", "en", "hi", "duplex", "backchannel", "noise")
USER_IDS = [name for name in SIDECARS if name.split("/")[0] in USER_GROUPS]
SPEECH_IDS = [name for name in USER_IDS if not name.startswith("noise/")]
BACKGROUND_IDS = [name for name in SIDECARS if name.startswith("background/")]
AGENT_IDS = [name for name in SIDECARS if name.startswith("agent/")]
RATE_HZ = 24_000
WINDOW = 240
GATE_DBFS = -55.0
KEYS = {
    "id",
    "text",
    "lang",
    "speaker",
    "kind",
    "licence",
    "source",
    "rate_hz",
    "n_samples",
    "voiced",
    "level_dbfs",
    "sha256",
}


def sidecar(clip_id: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(SIDECARS[clip_id].read_text(encoding="utf-8"))
    return data


def audio(clip_id: str) -> NDArray[np.int16]:
    pcm, rate = soundfile.read(CLIPS / f"{clip_id}.flac", dtype="int16")
    assert rate == RATE_HZ
    return np.asarray(pcm, dtype=np.int16)


def window_levels(pcm: NDArray[Any]) -> NDArray[np.float64]:
    """Level in dBFS of every 10 ms window that fits, without its mean."""
    ones = np.ones(WINDOW) / WINDOW
    signal = pcm / 32768
    power = oaconvolve(signal**2, ones, "valid") - oaconvolve(signal, ones, "valid") ** 2
    return np.asarray(10 * np.log10(np.maximum(power, 1e-18)))


def edges(pcm: NDArray[np.int16], gate_dbfs: float, gain_db: float = 0.0) -> tuple[int, int]:
    """First sample whose trailing, and end of the last whose leading, 10 ms reach the gate."""
    scaled = np.rint(pcm * 10 ** (gain_db / 20))
    around = np.concatenate([np.zeros(WINDOW - 1), scaled, np.zeros(WINDOW - 1)])
    loud = np.flatnonzero(window_levels(around) >= gate_dbfs)
    return int(loud[0]), int(loud[-1]) - (WINDOW - 1) + 1


def longest_silence_ms(pcm: NDArray[np.int16], gate_dbfs: float) -> float:
    loud = np.flatnonzero(window_levels(pcm) >= gate_dbfs)
    return float((np.diff(loud).max() - 1 + WINDOW) / RATE_HZ * 1000) if len(loud) > 1 else 0.0


def test_every_audio_file_has_a_sidecar_and_the_reverse() -> None:
    assert set(SIDECARS) == {
        str(path.relative_to(CLIPS).with_suffix("")) for path in CLIPS.glob("*/*.flac")
    }


@pytest.mark.parametrize("clip_id", SIDECARS)
def test_a_sidecar_states_the_pcm_exactly(clip_id: str) -> None:
    facts, pcm = sidecar(clip_id), audio(clip_id)
    info = soundfile.info(CLIPS / f"{clip_id}.flac")
    assert (info.channels, info.subtype, info.samplerate) == (1, "PCM_16", RATE_HZ)
    assert set(facts) == KEYS
    assert facts["id"] == clip_id
    assert (facts["rate_hz"], facts["n_samples"]) == (RATE_HZ, len(pcm))
    assert facts["sha256"] == hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest()


@pytest.mark.parametrize("clip_id", SIDECARS)
def test_a_sidecar_names_licence_source_and_kind(clip_id: str) -> None:
    facts = sidecar(clip_id)
    assert facts["licence"] in {"Public-Domain", "Apache-2.0"}
    assert facts["source"]
    assert facts["kind"] == ("human" if clip_id.startswith("human/") else "rendered")
    assert (facts["speaker"] is None) == (facts["text"] == "")
    assert (facts["lang"] is None) == (facts["text"] == "")


def test_the_licence_page_covers_every_group() -> None:
    page = (CLIPS / "LICENCES.md").read_text(encoding="utf-8")
    groups = {clip_id.split("/")[0] for clip_id in SIDECARS}
    assert [
        group for group in groups if f"`{group}/" not in page and f"{group}/`" not in page
    ] == []


@pytest.mark.parametrize("clip_id", SIDECARS)
def test_voiced_spans_are_ordered_inside_the_file_and_voiced(clip_id: str) -> None:
    facts, pcm = sidecar(clip_id), audio(clip_id)
    flat = [edge for span in facts["voiced"] for edge in span]
    assert flat
    assert flat == sorted(set(flat))
    assert 0 <= flat[0] < flat[-1] <= len(pcm)
    speech = np.concatenate([pcm[start:end] for start, end in facts["voiced"]])
    level = 20 * np.log10(np.sqrt(np.mean((speech / 32768) ** 2)))
    assert level == pytest.approx(facts["level_dbfs"], abs=0.01)
    assert level > GATE_DBFS + 10


@pytest.mark.parametrize("clip_id", USER_IDS)
def test_outside_its_voiced_spans_a_callers_clip_is_silent(clip_id: str) -> None:
    facts, pcm = sidecar(clip_id), audio(clip_id).copy()
    first, last = facts["voiced"][0][0], facts["voiced"][-1][1]
    assert not pcm[: first - WINDOW * 5].any()
    assert not pcm[last + WINDOW * 5 :].any()
    for start, end in facts["voiced"]:
        pcm[start:end] = 0
    assert window_levels(pcm).max() < GATE_DBFS + 1


@pytest.mark.parametrize("clip_id", USER_IDS)
def test_the_outer_voiced_edges_are_where_ten_milliseconds_reach_the_gate(clip_id: str) -> None:
    spans = sidecar(clip_id)["voiced"]
    first, last = edges(audio(clip_id), GATE_DBFS)
    # A level that hovers at the gate for a moment may move an edge by less than 1 ms.
    assert abs(spans[0][0] - first) < RATE_HZ // 1000
    assert abs(spans[-1][1] - last) < RATE_HZ // 1000


@pytest.mark.parametrize("clip_id", SPEECH_IDS)
def test_callers_are_as_loud_as_on_a_good_line(clip_id: str) -> None:
    peak = 20 * np.log10(np.abs(audio(clip_id).astype(int)).max() / 32768)
    assert -6.0 <= peak <= -3.0
    assert sidecar(clip_id)["level_dbfs"] == pytest.approx(-20.0, abs=4.0)


@pytest.mark.parametrize("clip_id", SPEECH_IDS)
def test_an_utterance_is_one_voiced_span(clip_id: str) -> None:
    assert len(sidecar(clip_id)["voiced"]) == 1


@pytest.mark.parametrize("clip_id", AGENT_IDS)
def test_an_agent_clip_is_voiced_from_its_first_to_its_last_sample(clip_id: str) -> None:
    facts, pcm = sidecar(clip_id), np.abs(audio(clip_id).astype(int))
    assert facts["voiced"] == [[0, len(pcm)]]
    assert min(pcm[0], pcm[-1]) >= 0.25 * pcm.max()
    assert facts["level_dbfs"] == pytest.approx(-18.0, abs=0.5)
    assert longest_silence_ms(audio(clip_id), GATE_DBFS) < 250


@pytest.mark.parametrize("clip_id", AGENT_IDS)
@pytest.mark.parametrize(
    ("gain_db", "gate_dbfs", "limit_ms"),
    [(0, -61, 1.0), (0, -55, 1.0), (0, -49, 1.0), (-17, -61, 1.5), (-17, -55, 1.5)],
)
def test_agent_edges_do_not_depend_on_the_detector(
    clip_id: str, gain_db: float, gate_dbfs: float, limit_ms: float
) -> None:
    pcm = audio(clip_id)
    first, last = edges(pcm, gate_dbfs, gain_db)
    assert first / RATE_HZ * 1000 < limit_ms
    assert (len(pcm) - last) / RATE_HZ * 1000 < limit_ms


@pytest.mark.parametrize("clip_id", AGENT_IDS)
def test_an_attenuated_agent_clip_has_no_silence_that_would_end_it(clip_id: str) -> None:
    assert longest_silence_ms(audio(clip_id), GATE_DBFS + 17) < 250


@pytest.mark.parametrize("clip_id", AGENT_IDS)
def test_agent_speech_outlasts_the_shortest_run_at_both_edges(clip_id: str) -> None:
    pcm, run = audio(clip_id), RATE_HZ * 30 // 1000
    assert window_levels(pcm[: 2 * run]).min() > GATE_DBFS + 17
    assert window_levels(pcm[-2 * run :]).min() > GATE_DBFS + 17


def voiced_s(clip_id: str) -> float:
    spans = sidecar(clip_id)["voiced"]
    return float(spans[-1][1] - spans[0][0]) / RATE_HZ


@pytest.mark.parametrize("clip_id", [i for i in SIDECARS if "_stop" in i])
def test_barge_in_clips_last_long_enough_to_count(clip_id: str) -> None:
    assert voiced_s(clip_id) >= 1.5


@pytest.mark.parametrize("clip_id", [i for i in SIDECARS if i.startswith("backchannel/")])
def test_backchannels_are_short(clip_id: str) -> None:
    assert 0.2 <= voiced_s(clip_id) <= 0.8


def test_agent_clips_have_the_lengths_that_their_uses_need() -> None:
    assert 6.0 <= voiced_s("agent/long_1") <= 10.0
    assert 6.0 <= voiced_s("agent/long_2") <= 10.0
    assert voiced_s("agent/backchannel") < 0.7
    assert voiced_s("agent/right") < 0.7
    assert 0.5 <= voiced_s("agent/short_ok") <= 0.9
    for index in range(1, 5):
        assert 1.5 <= voiced_s(f"agent/generic_{index}") <= 3.0


def test_the_agents_voice_is_no_callers_voice() -> None:
    agent = {sidecar(clip_id)["speaker"] for clip_id in AGENT_IDS}
    callers = {sidecar(clip_id)["speaker"] for clip_id in USER_IDS}
    assert len(agent) == 1
    assert not agent & callers
    assert len(callers) >= 4


def test_each_clip_sounds_different() -> None:
    hashes = [sidecar(clip_id)["sha256"] for clip_id in SIDECARS]
    assert len(set(hashes)) == len(hashes)


def test_all_clips_together_stay_small() -> None:
    assert sum(path.stat().st_size for path in CLIPS.rglob("*")) < 6_000_000


@pytest.mark.parametrize("clip_id", BACKGROUND_IDS)
def test_a_background_is_even_and_has_no_seam(clip_id: str) -> None:
    pcm = audio(clip_id)
    assert sidecar(clip_id)["voiced"] == [[0, len(pcm)]]
    assert sidecar(clip_id)["level_dbfs"] == pytest.approx(-40.0, abs=0.1)
    steps = np.abs(np.diff(np.concatenate([pcm, pcm[:1]]).astype(int)))
    assert steps[-1] <= np.percentile(steps, 99)
    levels = window_levels(pcm)
    assert np.percentile(levels, 99) - np.percentile(levels, 1) < 20


@pytest.mark.parametrize("clip_id", USER_IDS + AGENT_IDS)
def test_the_shared_detector_finds_the_same_edges(clip_id: str) -> None:
    gate = gate_for(None)
    assert not isinstance(gate, Undefined)
    found = find_spans(audio(clip_id), RATE_HZ, gate)
    stated = sidecar(clip_id)["voiced"]
    assert abs(found[0].start - stated[0][0]) < RATE_HZ // 1000
    assert abs(found[-1].end - stated[-1][1]) < RATE_HZ // 1000
