"""Clips are known, to the sample, behind a codec that changes their samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.timeline.instant import Instant

pytest.importorskip("av", reason="Opus needs PyAV")

from vakforge_eval.signal.opus import OpusDecoder, OpusEncoder
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clipbook import ClipBook
from vakforge_probe.agent.clips import Clip, ClipStore
from vakforge_probe.agent.ears import Ears
from vakforge_probe.agent.opus import DECODED_HZ, LOOK_AHEAD
from vakforge_probe.scenario.clips import ClipLibrary, data_root

pytestmark = pytest.mark.no_cover

Pcm = npt.NDArray[np.int16]
STORE = ClipStore(data_root() / "clips")
LIBRARY = ClipLibrary(data_root() / "clips")
BOOK = ClipBook(STORE.callers())
SPOKEN = [clip for clip in STORE.callers() if clip.group != "background"]


def sent(pcm: Pcm, rate_hz: int, frame_ms: int = 20, bit_rate: int = 32_000) -> list[Pcm]:
    """Return what comes out of each frame of `pcm` on the other side."""
    n = rate_hz * frame_ms // 1000
    pcm = np.pad(pcm, (0, -len(pcm) % n))
    encoder, decoder = OpusEncoder(rate_hz, frame_ms, bit_rate), OpusDecoder()
    frames = [decoder.feed(encoder.encode(pcm[at : at + n])) for at in range(0, len(pcm), n)]
    return [frames[0][LOOK_AHEAD:], *frames[1:]]


def heard(frames: list[Pcm]) -> Ears:
    ears = Ears(Behaviour(), BOOK.index("opus", DECODED_HZ), DECODED_HZ)
    for k, frame in enumerate(frames):
        ears.feed(frame, Instant.exact((k + 1) * 20_000_000))
    return ears


def played(clips: list[Clip], rate_hz: int, seconds: float) -> tuple[Pcm, list[int]]:
    """Return the beginnings of `clips` one after the other, and where each one lies when heard."""
    places, parts, at = [], [], 0
    for k, clip in enumerate(clips):
        # Each one at another place within the codec's frames.
        pause = np.zeros(2 * rate_hz // 5 + 37 * k % (rate_hz // 50), np.int16)
        pcm = LIBRARY.get(clip.id).at_rate(rate_hz).pcm
        if clip.group != "noise":  # whose levels do not tell that it breaks off
            pcm = pcm[: round(seconds * rate_hz)]
        places.append((at + len(pause)) * DECODED_HZ // rate_hz)
        at += len(pause) + len(pcm)
        parts += [pause, pcm]
    return np.concatenate([*parts, np.zeros(rate_hz // 2, np.int16)]), places


@pytest.mark.parametrize("rate_hz", [24_000, 48_000])
def test_all_committed_clips_are_known_through_opus_to_the_sample(rate_hz: int) -> None:
    pcm, places = played(SPOKEN, rate_hz, 0.45)
    ears = heard(sent(pcm, rate_hz))
    matches = [u.match for u in ears.utterances if u.match is not None]
    assert [match.clip.id for match in matches] == [clip.id for clip in SPOKEN]
    errors = np.subtract([match.start for match in matches], places)
    assert np.abs(errors).max() <= DECODED_HZ // 10_000


def test_whole_clip_is_heard_to_its_end_and_gives_its_spans() -> None:
    clips = [STORE.clips[name] for name in ("en/order_number_fixed", "human/made_amiable")]
    pcm, places = played(clips, 24_000, 60)
    ears = heard(sent(pcm, 24_000))
    assert [u.source for u in ears.utterances] == ["clip", "clip"]
    for utterance, clip, place in zip(ears.utterances, clips, places, strict=True):
        assert utterance.match is not None
        assert not utterance.match.is_broken
        assert utterance.match.is_over
        voiced = clip.coded("opus", DECODED_HZ).voiced
        assert utterance.spans == [(place + a, place + b) for a, b in voiced]


def test_broken_off_clip_ends_where_it_was_cut() -> None:
    clips = [STORE.clips[name] for name in ("en/order_where", "hi/order_stop", "en/booking_name")]
    for clip in clips:
        loud = np.flatnonzero(np.abs(clip.pcm[:24_000]) > 3000)
        cut = int(loud[-1]) / 24_000
        pcm, places = played([clip], 24_000, cut)
        (utterance,) = heard(sent(pcm, 24_000)).utterances
        assert utterance.match is not None
        assert utterance.match.is_broken
        assert abs(utterance.match.n_same / DECODED_HZ - cut) <= 0.025  # it rings
        assert abs(utterance.end - places[0] - cut * DECODED_HZ) <= 0.025 * DECODED_HZ


def test_voice_of_nobody_known_is_taken_for_no_clip() -> None:
    for clip in STORE.clips.values():
        if clip.group != "agent":
            continue
        pcm, places = played([clip], 24_000, 0.5)
        ears = heard(sent(pcm, 24_000))
        assert [u.source for u in ears.utterances] == ["energy"] * len(ears.utterances)
        assert abs(ears.utterances[0].start - places[0]) <= 0.008 * DECODED_HZ


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=6))
@settings(deadline=None, max_examples=5)
def test_how_the_decoded_stream_is_cut_into_messages_changes_nothing(sizes: list[int]) -> None:
    want = heard(FRAMES)
    whole, at = np.concatenate(FRAMES), 0
    parts: list[Pcm] = []
    while at < len(whole):
        parts.append(whole[at : at + sizes[len(parts) % len(sizes)]])
        at += len(parts[-1])
    got = heard(parts)
    assert [(u.start, u.spans, u.source) for u in got.utterances] == [
        (u.start, u.spans, u.source) for u in want.utterances
    ]


FRAMES = sent(played([STORE.clips[n] for n in ("backchannel/haan", "hi/confirm")], 24_000, 1)[0],
              24_000)  # fmt: skip


def test_frame_is_spoken_before_all_of_it_is_heard() -> None:
    # The look-ahead keeps the end of a frame back; the microphone had it all the same.
    ears = heard(FRAMES)
    n = DECODED_HZ // 50
    assert ears.tape.length == len(FRAMES) * n - LOOK_AHEAD
    assert [stop for stop, _ in ears.tape.latest(2)] == [n * (len(FRAMES) - 1), n * len(FRAMES)]
    assert ears.tape.spoken_start(5 * n)[0].at == 5 * 20_000_000
    assert ears.tape.spoken_end(5 * n)[0].at == 5 * 20_000_000
