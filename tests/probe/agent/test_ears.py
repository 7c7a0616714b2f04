from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vakforge_eval.signal.pcm import encode
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent import g711
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clipbook import ClipBook
from vakforge_probe.agent.clips import Clip, ClipStore
from vakforge_probe.agent.ears import Ears, Heard
from vakforge_probe.agent.matching import ClipIndex
from vakforge_probe.scenario.clips import ClipLibrary, data_root

Pcm = np.ndarray[Any, Any]


def loud(n: int, seed: int) -> Pcm:
    return np.random.default_rng(seed).integers(-9000, 9000, n).astype(np.int16) | 1


def zeros(n: int) -> Pcm:
    return np.zeros(n, dtype=np.int16)


def listen(
    stream: Pcm, sizes: list[int], clips: tuple[Clip, ...] = (), **knobs: Any
) -> tuple[Ears, list[Heard]]:
    knobs = {"endpoint_silence": 0.2, **knobs}
    ears = Ears(Behaviour(**knobs), ClipIndex(clips), 24000)
    out: list[Heard] = []
    at, i = 0, 0
    while at < len(stream):
        n = sizes[i % len(sizes)]
        out += ears.feed(stream[at : at + n], Instant.exact((at + n) * 41667))
        at, i = at + n, i + 1
    return ears, out


def said(heard: list[Heard]) -> list[tuple[str, int]]:
    return [(h.kind, h.position) for h in heard]


A = Clip("en/a", "a clip", np.concatenate([zeros(700), loud(9000, 1), zeros(300)]), ((800, 9600),))
B = Clip("en/b", "b clip", np.concatenate([loud(6000, 2), zeros(100)]), ((0, 2000), (3000, 6000)))


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_how_the_stream_is_cut_into_frames_changes_nothing(sizes: list[int]) -> None:
    stream = np.concatenate(
        [zeros(1000), A.pcm, zeros(5000), loud(7200, 9), zeros(8000), B.pcm, zeros(6000)]
    )
    ears, heard = listen(stream, sizes, (A, B))
    whole_ears, whole = listen(stream, [480], (A, B))
    assert said(heard) == said(whole)
    assert [(u.start, u.end, u.source) for u in ears.utterances] == [
        (u.start, u.end, u.source) for u in whole_ears.utterances
    ]


def test_known_clip_brings_its_voiced_spans() -> None:
    ears, heard = listen(np.concatenate([zeros(1000), A.pcm, zeros(6000)]), [480], (A,))
    assert said(heard) == [("onset", 1800), ("endpoint", 10600)]
    (utterance,) = ears.utterances
    assert (utterance.source, utterance.clip) == ("clip", A)


def test_unknown_sound_is_found_by_energy_alone() -> None:
    stream = np.concatenate([zeros(1000), loud(7200, 5), zeros(9000)])
    ears, heard = listen(stream, [480], (A,))
    assert said(heard) == [("onset", 1000), ("endpoint", 8200)]
    assert ears.utterances[0].source == "energy"
    assert ears.utterances[0].clip is None


def test_click_shorter_than_thirty_ms_is_no_speech() -> None:
    _, heard = listen(np.concatenate([zeros(1000), loud(400, 5), zeros(9000)]), [480])
    assert heard == []


def test_clip_one_sample_off_is_not_taken_for_the_clip() -> None:
    wrong = A.pcm.copy()
    wrong[900] += 1
    ears, _ = listen(np.concatenate([zeros(1000), wrong, zeros(6000)]), [480], (A,))
    assert [u.source for u in ears.utterances] == ["energy"]


def test_clip_cut_off_in_the_middle_ends_where_it_was_cut() -> None:
    stream = np.concatenate([zeros(1000), A.pcm[:4800], zeros(9000)])
    ears, heard = listen(stream, [480], (A,))
    ears.finish()
    assert said(heard) == [("onset", 1800), ("endpoint", 5800)]
    assert ears.utterances[0].end == 5800


def test_of_two_clips_with_one_beginning_the_right_one_is_found() -> None:
    longer = Clip("en/c", "c", np.concatenate([A.pcm[:6000], loud(9000, 8)]), ((800, 15000),))
    for clip in (A, longer):
        ears, _ = listen(np.concatenate([zeros(50), clip.pcm, zeros(6000)]), [480], (A, longer))
        assert [u.clip for u in ears.utterances][:1] == [clip]


def test_clips_back_to_back_are_both_recognised() -> None:
    stream = np.concatenate([zeros(500), A.pcm, B.pcm, A.pcm, zeros(6000)])
    ears, heard = listen(stream, [480], (A, B))
    assert [u.clip for u in ears.utterances] == [A, B, A]
    assert [h.kind for h in heard] == ["onset", "endpoint"]


@pytest.mark.parametrize(("silence", "n"), [(0.1, 2), (0.3, 1)])
def test_endpoint_silence_decides_where_a_turn_ends(silence: float, n: int) -> None:
    stream = np.concatenate([zeros(500), A.pcm, zeros(4000), A.pcm, zeros(9000)])
    _, heard = listen(stream, [480], (A,), endpoint_silence=silence)
    assert [h.kind for h in heard].count("endpoint") == n


def test_committed_clips_are_all_recognised_and_the_voice_is_complete() -> None:
    root = Path(__file__).parents[3] / "scenarios" / "clips"
    store = ClipStore(root)
    index = ClipIndex(store.callers())
    for clip in store.callers():
        ears = Ears(Behaviour(), index, 24000)
        ears.feed(np.concatenate([zeros(777), clip.pcm, zeros(4800)]), Instant.exact(0))
        assert [u.clip for u in ears.utterances] == [clip]


@pytest.mark.parametrize(
    ("codec", "rate_hz"), [("pcmu", 8000), ("pcma", 8000), ("pcm_s16le", 16000)]
)
def test_clips_are_known_in_the_form_in_which_callers_send_them(codec: str, rate_hz: int) -> None:
    library = ClipLibrary(data_root() / "clips")
    sent = library.get("en/booking_confirm").at_rate(rate_hz)
    data = encode(np.pad(sent.pcm, (rate_hz // 7, rate_hz)), codec)
    pcm = g711.hear(data, codec) if codec in g711.CODECS else np.frombuffer(data, "<i2")
    index = ClipBook(ClipStore(data_root() / "clips").callers()).index(codec, rate_hz)
    ears = Ears(Behaviour(), index, rate_hz)
    frame = rate_hz // 50
    for at in range(0, len(pcm), frame):
        ears.feed(pcm[at : at + frame], Instant.exact(at))
    (found,) = ears.utterances
    assert found.clip is not None
    assert found.clip.id == "en/booking_confirm"
    assert found.match is not None
    assert found.match.start == rate_hz // 7
    assert found.end == rate_hz // 7 + sent.voiced[-1][1]


def test_no_clip_is_looked_for_in_audio_that_a_codec_changes() -> None:
    book = ClipBook(ClipStore(data_root() / "clips").callers())
    assert book.index("g722", 16000) is book.index("g722", 16000)
    index = book.index("g722", 16000)
    assert isinstance(index, ClipIndex)
    assert not index._by_key
