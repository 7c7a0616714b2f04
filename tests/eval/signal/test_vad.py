from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import soxr

from vakforge_eval.signal.vad import first_speech

CLIP = Path(__file__).parents[3] / "scenarios/clips/human/leisure_to_consider.flac"


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 44100, 48000])
def test_human_speech_is_witnessed_where_it_begins_at_any_rate(rate: int) -> None:
    clip, clip_rate = sf.read(io.BytesIO(CLIP.read_bytes()), dtype="int16")
    pcm = soxr.resample(clip, clip_rate, rate)
    first = first_speech(np.concatenate((np.zeros(rate, np.int16), pcm)), rate)
    assert first is not None
    assert rate - 0.05 * rate <= first <= rate + 0.6 * rate


def test_silence_and_no_audio_have_no_speech() -> None:
    assert first_speech(np.zeros(24000, np.int16), 24000) is None
    assert first_speech(np.zeros(0, np.int16), 24000) is None
