"""What a codec does to hard edges lies within what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

pytest.importorskip("av", reason="Opus needs PyAV")

from vakforge_eval.signal.activity import find_spans
from vakforge_eval.signal.codecs import SMEAR_MS
from vakforge_eval.signal.gate import Gate, gate_for
from vakforge_eval.signal.opus import LOOK_AHEAD, OpusDecoder, OpusEncoder

pytestmark = pytest.mark.no_cover

CLIPS = Path(__file__).parents[3] / "scenarios" / "clips" / "agent"
VOICES = ("generic_1", "generic_3", "long_2", "sorry")


@pytest.mark.parametrize("bit_rate", [16_000, 32_000, 64_000])
@pytest.mark.parametrize("level_dbfs", [-12, -28])
def test_edges_of_a_voice_in_opus_are_where_they_are_said_to_be(
    bit_rate: int, level_dbfs: int
) -> None:
    gate = gate_for(None)
    assert isinstance(gate, Gate)
    before, after = SMEAR_MS["opus"]
    for k, name in enumerate(VOICES):
        pcm, rate_hz = soundfile.read(CLIPS / f"{name}.flac", dtype="float64")
        assert rate_hz == json.loads((CLIPS / f"{name}.json").read_text())["rate_hz"] == 24_000
        voice = pcm * 10 ** (level_dbfs / 20) / np.sqrt(np.mean(pcm**2))
        loud = np.flatnonzero(np.abs(voice[:9000]) >= np.abs(voice).max() / 4)
        voice = np.clip(voice[: loud[-1] + 1] * 32768, -32768, 32767).astype(np.int16)
        lead = 6000 + 117 * k
        stream = np.concatenate([np.zeros(lead, np.int16), voice, np.zeros(6000, np.int16)])
        stream = np.pad(stream, (0, -len(stream) % 480))
        encoder, decoder = OpusEncoder(rate_hz, 20, bit_rate), OpusDecoder()
        heard = np.concatenate([decoder.feed(encoder.encode(f)) for f in stream.reshape(-1, 480)])
        spans = find_spans(heard[LOOK_AHEAD:], 48_000, gate)
        early = 2 * lead - spans[0].start
        late = spans[-1].end - 2 * (lead + len(voice))
        assert -1 <= early / 48 <= before
        assert -1 <= late / 48 <= after
