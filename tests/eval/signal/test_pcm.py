from __future__ import annotations

import io
import itertools
import math

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.signal.pcm import CODECS, PcmDecoder, dbfs, encode

ALL_VALUES = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)


@pytest.mark.parametrize(("codec", "subtype"), [("pcmu", "ULAW"), ("pcma", "ALAW")])
def test_g711_decodes_every_code_as_libsndfile_does(codec: str, subtype: str) -> None:
    codes = bytes(range(256))
    theirs, _ = sf.read(
        io.BytesIO(codes),
        dtype="int16",
        format="RAW",
        samplerate=8000,
        channels=1,
        subtype=subtype,
    )
    assert np.array_equal(PcmDecoder(codec).feed(codes), theirs)


@pytest.mark.parametrize("codec", ["pcmu", "pcma"])
def test_g711_encodes_to_the_code_below_or_above_and_its_own_values_to_themselves(
    codec: str,
) -> None:
    table = PcmDecoder(codec).feed(bytes(range(256)))
    assert np.array_equal(PcmDecoder(codec).feed(encode(table, codec)), table)
    coded = PcmDecoder(codec).feed(encode(ALL_VALUES, codec)).astype(int)
    assert np.all(np.diff(coded) >= 0)
    levels = np.unique(table.astype(int))
    below = levels[np.maximum(np.searchsorted(levels, ALL_VALUES, "right") - 1, 0)]
    above = levels[np.minimum(np.searchsorted(levels, ALL_VALUES), len(levels) - 1)]
    assert np.all((coded == below) | (coded == above))


@pytest.mark.parametrize(("codec", "subtype"), [("pcmu", "ULAW"), ("pcma", "ALAW")])
def test_g711_encodes_speech_as_well_as_libsndfile(codec: str, subtype: str) -> None:
    values = np.random.default_rng(0).normal(0, 3000, 100_000).astype(np.int16)
    theirs = io.BytesIO()
    sf.write(theirs, values, 8000, format="RAW", subtype=subtype)
    ours, other = (
        np.mean((PcmDecoder(codec).feed(data) - values.astype(float)) ** 2)
        for data in (encode(values, codec), theirs.getvalue())
    )
    assert ours <= 1.01 * other


@pytest.mark.parametrize("codec", ["pcm_s16le", "float32le"])
def test_linear_codecs_keep_every_value(codec: str) -> None:
    assert np.array_equal(PcmDecoder(codec).feed(encode(ALL_VALUES, codec)), ALL_VALUES)


@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_any_split_decodes_to_the_same_samples(codec: str, data: bytes, cuts: list[int]) -> None:
    whole = PcmDecoder(codec)
    expected = whole.feed(data)
    split = PcmDecoder(codec)
    places = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    got = [split.feed(data[a:b]) for a, b in itertools.pairwise(places)]
    assert np.array_equal(np.concatenate(got), expected)
    assert split.pending == whole.pending == len(data) % CODECS[codec][0]
    assert split.n_corrupt == whole.n_corrupt


def test_floats_that_are_no_numbers_become_silence_and_are_counted() -> None:
    decoder = PcmDecoder("float32le")
    samples = np.array([0.5, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40], "<f4")
    got = decoder.feed(samples.tobytes())
    assert got.tolist() == [16384, 0, 0, 0, 32767, -32768, 0]
    assert decoder.n_corrupt == 3


@pytest.mark.parametrize("codec", ["opus", "", "PCMU"])
def test_unknown_codec_is_refused_with_the_known_ones(codec: str) -> None:
    with pytest.raises(ValueError, match="pcm_s16le"):
        PcmDecoder(codec)
    with pytest.raises(ValueError, match="pcm_s16le"):
        encode(ALL_VALUES, codec)


def test_level_of_a_full_scale_square_wave_is_zero_and_silence_has_none() -> None:
    assert dbfs(np.full(10, -32768, np.int16)) == 0.0
    assert dbfs(np.full(10, 3277, np.int16)) == pytest.approx(20 * math.log10(3277 / 32768))
    assert dbfs(np.zeros(10, np.int16)) is None
    assert dbfs(np.zeros(0, np.int16)) is None
