from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from vakforge_eval.signal.activity import find_spans
from vakforge_eval.signal.gate import GATE_DBFS, Gate
from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.scenario.clips import ClipLibrary, data_root
from vakforge_probe.scenario.sidecar import main, make_sidecar

RATE = 24_000
MakeClip = Callable[..., Path]


def tone(n_lead: int = 2400, n: int = 12_000, n_tail: int = 2400, hz: float = 220.0) -> Any:
    """Return a tone with hard edges in silence, int16."""
    pcm = np.zeros(n_lead + n + n_tail, dtype=np.int16)
    pcm[n_lead : n_lead + n] = np.rint(8000 * np.cos(2 * np.pi * hz * np.arange(n) / RATE))
    return pcm


@pytest.fixture
def make_clip(tmp_path: Path) -> MakeClip:
    def made(name: str = "g/a", pcm: Any = None, rate: int = RATE, **changes: object) -> Path:
        audio = tmp_path / "clips" / f"{name}.flac"
        audio.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(audio, tone() if pcm is None else pcm, rate, subtype="PCM_16")
        if (pcm is None or np.ndim(pcm) == 1) and rate <= 96_000:
            sidecar = make_sidecar(audio, licence="CC0", source="a tone", text="a tone")
            facts = {**sidecar.model_dump(mode="json"), **changes}
            audio.with_suffix(".json").write_text(json.dumps(facts))
        return audio

    return made


@pytest.fixture
def library(tmp_path: Path) -> ClipLibrary:
    return ClipLibrary(tmp_path / "clips")


def refusal(library: ClipLibrary, clip_id: str = "g/a") -> str:
    with pytest.raises(ConfigError) as caught:
        library.get(clip_id)
    return str(caught.value)


def test_the_sidecar_finds_hard_edges_to_a_fifth_of_a_millisecond(
    make_clip: MakeClip, library: ClipLibrary
) -> None:
    make_clip()
    clip = library.get("g/a")
    ((start, end),) = clip.voiced
    assert abs(start - 2400) <= 5
    assert abs(end - 14_400) <= 5
    assert (clip.id, clip.rate_hz, len(clip.pcm), clip.text) == ("g/a", RATE, 16_800, "a tone")


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 44_100, 48_000])
def test_resampling_moves_no_edge(make_clip: MakeClip, library: ClipLibrary, rate: int) -> None:
    """The spans are mapped by arithmetic, so the audio must not be delayed against them."""
    make_clip()
    native = library.get("g/a")
    clip = native.at_rate(rate)
    assert len(clip.pcm) == round(len(native.pcm) * rate / RATE)
    assert clip.pcm.dtype == np.int16
    ((start, end),) = clip.voiced
    assert abs(start / rate - native.voiced[0][0] / RATE) <= 0.5 / rate
    (found,) = find_spans(clip.pcm, rate, Gate.at(GATE_DBFS + 20))
    assert abs(found.start - start) / rate < 0.5e-3
    assert abs(found.end - end) / rate < 0.5e-3


@pytest.mark.parametrize("n", [16_799, 16_800, 16_801, 16_802])
def test_resampled_length_is_exact_whatever_the_ratio(
    make_clip: MakeClip, library: ClipLibrary, n: int
) -> None:
    make_clip(pcm=tone(n_tail=n - 14_400))
    assert len(library.get("g/a").at_rate(8000).pcm) == (2 * n * 8000 + RATE) // (2 * RATE)


def test_the_native_rate_changes_nothing(make_clip: MakeClip, library: ClipLibrary) -> None:
    make_clip()
    clip = library.get("g/a")
    assert clip.at_rate(RATE) is clip


def test_a_wav_clip_is_found_too(make_clip: MakeClip, library: ClipLibrary) -> None:
    audio = make_clip()
    soundfile.write(audio.with_suffix(".wav"), tone(), RATE, subtype="PCM_16")
    audio.unlink()
    assert np.array_equal(library.get("g/a").pcm, tone())


def test_edited_audio_without_a_new_sidecar_is_refused(
    make_clip: MakeClip, library: ClipLibrary
) -> None:
    audio = make_clip()
    pcm = tone()
    pcm[5000] += 1
    soundfile.write(audio, pcm, RATE, subtype="PCM_16")
    assert "is not the audio that its sidecar describes" in refusal(library)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "g/b"}, "its sidecar is of 'g/b'"),
        ({"voiced": []}, "voiced"),
        ({"voiced": [[0, 99_999]]}, "inside the clip"),
        ({"voiced": [[50, 40]]}, "ordered"),
        ({"voiced": [[0, 50], [40, 60]]}, "ordered"),
        ({"voiced": [[-5, 50]]}, "voiced"),
        ({"sha256": "0" * 64}, "is not the audio"),
        ({"n_samples": 16_801}, "is not the audio"),
        ({"rate_hz": 8000}, "is not the audio"),
        ({"licence": ""}, "licence"),
        ({"extra": 1}, "extra"),
        ({"level_dbfs": float("nan")}, "NaN is not JSON"),
    ],
)
def test_a_wrong_sidecar_is_refused(
    make_clip: MakeClip, library: ClipLibrary, change: dict[str, object], why: str
) -> None:
    make_clip(**change)
    assert why in refusal(library)
    assert "Value error" not in refusal(library)


def test_a_clip_without_a_sidecar_is_refused(make_clip: MakeClip, library: ClipLibrary) -> None:
    make_clip().with_suffix(".json").unlink()
    assert "has no sidecar" in refusal(library)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 5000, b"\xff", b" " * 300_000])
def test_a_sidecar_that_is_no_json_object_is_refused(
    make_clip: MakeClip, library: ClipLibrary, content: bytes
) -> None:
    make_clip().with_suffix(".json").write_bytes(content)
    assert "clip " in refusal(library)


@pytest.mark.parametrize(
    "clip_id",
    ["../secret", "g/../../secret", "/etc/hostname", "", "g/a\0b", "C:\\x", "\\\\host\\x", "g\\a",
     "."],
)  # fmt: skip
def test_a_name_that_leaves_the_folder_is_refused(
    make_clip: MakeClip, library: ClipLibrary, tmp_path: Path, clip_id: str
) -> None:
    make_clip()
    (tmp_path / "secret.flac").write_bytes(b"secret")
    assert "secret" not in refusal(library, clip_id).replace(repr(clip_id), "")


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(
    make_clip: MakeClip, library: ClipLibrary, tmp_path: Path
) -> None:
    audio = make_clip()
    outside = tmp_path / "outside.flac"
    audio.rename(outside)
    audio.symlink_to(outside)
    assert "a symbolic link leads out" in refusal(library)
    audio.unlink()
    inner = audio.with_name("inner.flac")
    outside.rename(inner)
    audio.symlink_to(inner)
    assert library.get("g/a").id == "g/a"


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_only_regular_files_are_opened(
    make_clip: MakeClip, library: ClipLibrary, kind: str
) -> None:
    audio = make_clip()
    audio.unlink()
    if kind == "fifo":
        os.mkfifo(audio)
    elif kind == "folder":
        audio.mkdir()
    else:
        audio.symlink_to("/dev/zero")
    assert "clip" in refusal(library)


def test_a_sidecar_that_is_a_fifo_does_not_block(make_clip: MakeClip, library: ClipLibrary) -> None:
    sidecar = make_clip().with_suffix(".json")
    sidecar.unlink()
    os.mkfifo(sidecar)
    assert "is not a regular file" in refusal(library)


@pytest.mark.parametrize(
    ("pcm", "rate", "why"),
    [
        (np.zeros((2400, 2), np.int16), RATE, "has 2 channels"),
        (np.zeros((2400, 8), np.int16), RATE, "has 8 channels"),
        (np.zeros(2400, np.int16), 4000, "has a rate of 4000 Hz"),
        (np.zeros(2400, np.int16), 192_000, "has a rate of 192000 Hz"),
    ],
)
def test_channels_and_rate_are_bounded(
    make_clip: MakeClip, library: ClipLibrary, pcm: Any, rate: int, why: str
) -> None:
    sidecar = make_clip().with_suffix(".json").read_bytes()
    audio = library.roots[0] / "g/a.flac"
    soundfile.write(audio, pcm, rate, subtype="PCM_16")
    audio.with_suffix(".json").write_bytes(sidecar)
    assert why in refusal(library)


def test_seconds_and_bytes_are_bounded(make_clip: MakeClip, tmp_path: Path) -> None:
    make_clip()
    root = tmp_path / "clips"
    assert "longer than 0.5 s" in refusal(ClipLibrary(root, limits=Limits(max_clip_s=0.5)))
    assert "larger than 100 bytes" in refusal(ClipLibrary(root, limits=Limits(max_clip_bytes=100)))


def test_a_small_file_that_decodes_to_hours_costs_no_memory(
    make_clip: MakeClip, tmp_path: Path
) -> None:
    """FLAC of silence packs thousandfold; the header is asked before anything is decoded."""
    sidecar = make_clip().with_suffix(".json").read_bytes()
    audio = tmp_path / "clips" / "g" / "a.flac"
    with soundfile.SoundFile(audio, "w", RATE, 1, "PCM_16") as file:
        block = np.zeros(RATE * 60, np.int16)
        for _ in range(60):
            file.write(block)
    audio.with_suffix(".json").write_bytes(sidecar)
    assert audio.stat().st_size < 2_000_000
    begun = time.process_time()
    assert "longer than 120 s" in refusal(ClipLibrary(tmp_path / "clips"))
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("cut", [0, 4, 20, 42, 100])
def test_torn_audio_is_refused_by_name(make_clip: MakeClip, library: ClipLibrary, cut: int) -> None:
    audio = make_clip()
    audio.write_bytes(audio.read_bytes()[:cut])
    assert "(got 'g/a')" in refusal(library)


def test_a_wav_header_that_lies_about_its_length_is_refused(
    make_clip: MakeClip, library: ClipLibrary
) -> None:
    audio = make_clip()
    wav = audio.with_suffix(".wav")
    soundfile.write(wav, tone(), RATE, subtype="PCM_16")
    audio.unlink()
    data = bytearray(wav.read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = (0x7FFFFFFF).to_bytes(4, "little")
    wav.write_bytes(bytes(data))
    try:
        assert len(library.get("g/a").pcm) == len(tone())
    except ConfigError as error:
        assert "g/a" in str(error)  # noqa: PT017 - both ways are right, by library version


def test_ids_lists_what_every_folder_holds(make_clip: MakeClip, tmp_path: Path) -> None:
    make_clip("g/a")
    make_clip("h")
    library = ClipLibrary(tmp_path / "clips", data_root() / "clips")
    assert {"g/a", "h", "en/booking_name"} <= set(library.ids())


def test_the_tool_writes_a_sidecar_that_the_library_accepts(tmp_path: Path) -> None:
    audio = tmp_path / "clips" / "mine" / "hello.wav"
    audio.parent.mkdir(parents=True)
    soundfile.write(audio, tone(), RATE, subtype="PCM_16")
    done = subprocess.run(
        [
            sys.executable, "-m", "vakforge_probe.scenario.sidecar", str(audio),
            "--licence", "CC0-1.0", "--source", "me", "--text", "नमस्ते", "--lang", "hi",
            "--speaker", "s1",
        ],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("mine/hello: [(")
    clip = ClipLibrary(tmp_path / "clips").get("mine/hello")
    assert (clip.text, clip.lang, clip.speaker, clip.licence) == ("नमस्ते", "hi", "s1", "CC0-1.0")


def test_the_tool_refuses_silence_one_text_for_two_clips_and_a_wrong_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audio = tmp_path / "a.wav"
    soundfile.write(audio, np.zeros(2400, np.int16), RATE, subtype="PCM_16")
    facts = ["--licence", "x", "--source", "y"]
    assert main([str(audio), *facts]) == 2
    assert "nothing in it reaches -55 dBFS" in capsys.readouterr().err
    soundfile.write(audio, tone(), RATE, subtype="PCM_16")
    assert main([str(audio), *facts, "--root", str(tmp_path / "other")]) == 2
    assert "does not lie under the clips folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(audio), str(audio), *facts, "--text", "both"])
    assert main([str(audio), *facts]) == 0


def peak_hz(pcm: npt.NDArray[np.int16], rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm)), 1 << 18))
    return float(np.argmax(spectrum)) * rate / (1 << 18)


@pytest.mark.parametrize("rate", [8000, 16_000, 48_000])
def test_resampling_keeps_the_pitch(make_clip: MakeClip, library: ClipLibrary, rate: int) -> None:
    make_clip(pcm=tone(hz=1000))
    clip = library.get("g/a").at_rate(rate)
    start, end = clip.voiced[0]
    assert peak_hz(clip.pcm[start:end], rate) == pytest.approx(1000, abs=2)


def test_audio_without_a_sample_is_refused(make_clip: MakeClip, library: ClipLibrary) -> None:
    audio = make_clip()
    soundfile.write(audio.with_suffix(".wav"), np.zeros(0, np.int16), RATE, subtype="PCM_16")
    audio.unlink()
    assert "holds no samples" in refusal(library)


def test_the_tool_names_a_file_that_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = ["--licence", "x", "--source", "y"]
    assert main([str(tmp_path / "gone.wav"), *facts]) == 2
    (tmp_path / "text.wav").write_text("no audio")
    assert main([str(tmp_path / "text.wav"), *facts]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "gone.wav" in said[0]
    assert "text.wav: is not audio" in said[1]
