"""Make the audio under ``clips/`` again, from ``clips/catalogue.yaml``.

Users never need this: the audio is committed. It needs the Debian packages flite 2.2, espeak-ng
1.51 and pocketsphinx-testdata (human recordings); with these versions the PCM comes out identical
each time. ``clips/LICENCES.md`` says where every voice and recording comes from.

What is promised of each clip, and asserted here before it is written:

* A caller's clip is silent (zeros) but for its speech; its sidecar's `voiced` spans are measured on
  the clip as it is shipped.
* A clip of the reference agent is cut hard at two strong samples, so that its first and last sample
  are its first and last voiced sample under any sensible detector: truth about the agent's speech
  must not depend on whose detector is asked. The edges are tried at other gates and levels.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import yaml
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

Signal = NDArray[np.float64]
Pcm = NDArray[np.int16]
Entry = dict[str, Any]

CLIPS = Path(__file__).parent / "clips"
RECORDINGS = Path("/usr/share/pocketsphinx/test/data/librivox")
RECORDING_NAME = "sense_and_sensibility_01_austen_64kb-{}.wav"
RATE_HZ = 24_000
WINDOW = RATE_HZ // 100
GATE_DBFS = -55.0
JOIN = RATE_HZ * 350 // 1000
SHORTEST_RUN = RATE_HZ * 30 // 1000
SILENCE_AROUND = RATE_HZ * 60 // 1000
USER_PEAK_DBFS = -4.0
USER_RMS_DBFS = -20.0
AGENT_RMS_DBFS = -18.0
BACKGROUND_RMS_DBFS = -40.0
AGENT_PAUSE = RATE_HZ * 120 // 1000

Span = tuple[int, int]


def db(value: float) -> float:
    """Level in dB of an amplitude."""
    return 20 * float(np.log10(max(value, 1e-9)))


def amplitude(level_db: float) -> float:
    """Amplitude of a level in dB."""
    return float(10 ** (level_db / 20))


def rms(signal: Signal) -> float:
    """Root mean square of a signal."""
    return float(np.sqrt(np.mean(signal**2)))


def trailing_rms(signal: Signal) -> Signal:
    """RMS without DC of the 10 ms that end at each sample; one window longer than the signal."""
    padded = np.concatenate([np.zeros(WINDOW), signal, np.zeros(WINDOW)])
    total = np.cumsum(padded)
    squares = np.cumsum(padded**2)
    mean = (total[WINDOW:] - total[:-WINDOW]) / WINDOW
    power = (squares[WINDOW:] - squares[:-WINDOW]) / WINDOW
    return np.asarray(np.sqrt(np.maximum(power - mean**2, 0)))


def joined(spans: list[Span], gap: int) -> list[Span]:
    """Spans less than `gap` apart made one."""
    out: list[Span] = []
    for start, end in spans:
        if out and start - out[-1][1] < gap:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def active_spans(signal: Signal, gate_dbfs: float, join: int = JOIN) -> list[Span]:
    """Audible spans [start, end): at both edges the 10 ms that reach inwards meet the gate.

    A level that hovers at the gate counts as above it. Sounds too short for speech (the clicks
    with which some voices begin) count for nothing.
    """
    loud = np.concatenate([[False], trailing_rms(signal) >= amplitude(gate_dbfs), [False]])
    edges = np.flatnonzero(np.diff(loud.astype(np.int8)))
    runs = joined([(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)], WINDOW)
    spans = [(start, stop - WINDOW + 1) for start, stop in runs if stop - start >= SHORTEST_RUN]
    return joined(spans, join)


def noise_floor_dbfs(signal: Signal) -> float:
    """Level that a tenth of the 10 ms blocks stay below; digital silence left out."""
    blocks = signal[: len(signal) // WINDOW * WINDOW].reshape(-1, WINDOW)
    levels = blocks.std(axis=1)
    return db(float(np.percentile(levels[levels > 0], 10)))


def run_engine(voice: Entry, name: str, entry: Entry, wav: Path) -> None:
    """Let the synthesiser write one utterance."""
    text = str(entry.get("say", entry["text"]))
    if voice["engine"] == "espeak-ng":
        command = ["espeak-ng", "-v", name, "-s", "150", "-w", str(wav), text]
    elif "phones" in entry:
        command = ["flite", "-voice", name, "-p", str(entry["phones"]), "-o", str(wav)]
    else:
        stretch = f"duration_stretch={voice.get('stretch', 1.0)}"
        command = ["flite", "-voice", name, "--setf", stretch, "-t", text, "-o", str(wav)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603


def load(wav: Path, start_s: float = 0.0, end_s: float | None = None) -> Signal:
    """A part of a wave file at our rate, mean removed; the resampler adds no delay."""
    signal, rate = soundfile.read(wav, dtype="float64")
    signal = signal[int(start_s * rate) : None if end_s is None else int(end_s * rate)]
    return np.asarray(soxr.resample(signal - signal.mean(), rate, RATE_HZ, quality="VHQ"))


def render(entry: Entry, voices: dict[str, Entry]) -> Signal:
    """A catalogue entry as its voice speaks it."""
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "speech.wav"
        run_engine(voices[entry["voice"]], entry["voice"], entry, wav)
        return load(wav)


def quantise(signal: Signal) -> Pcm:
    """16 bit samples; refuses to clip."""
    if np.abs(signal).max() > amplitude(-0.5):
        raise ValueError(f"would clip: peak {db(np.abs(signal).max()):.1f} dBFS")
    return np.rint(signal * 32768).astype(np.int16)


def levelled(signal: Signal, strength: float) -> Signal:
    """Quiet syllables raised towards loud ones by `strength` (0 to 1), silence left alone."""
    width = RATE_HZ * 40 // 1000
    power = np.convolve(signal**2, np.ones(width) / width, mode="same")
    envelope = np.sqrt(np.maximum(power, 0))
    reference = float(np.percentile(envelope, 90))
    gain = (reference / np.maximum(envelope, reference * amplitude(-26))) ** strength
    return np.asarray(signal * gain)


def scaled_to_peak(signal: Signal, peak_dbfs: float) -> Signal:
    """The signal with its largest sample at `peak_dbfs`."""
    return np.asarray(signal * (amplitude(peak_dbfs) / np.abs(signal).max()))


def audible_part(signal: Signal, gate_dbfs: float) -> Signal:
    """From the first to the last sound above the gate."""
    spans = active_spans(signal, gate_dbfs)
    return signal[spans[0][0] : spans[-1][1]]


def in_silence(signal: Signal) -> Signal:
    """What can be heard, with 60 ms of digital silence on either side."""
    return np.pad(audible_part(signal, GATE_DBFS), SILENCE_AROUND)


def spoken_part(signal: Signal) -> Signal:
    """The speech alone; a recording is cut where speech leaves its own room noise."""
    even = scaled_to_peak(signal, USER_PEAK_DBFS)
    return audible_part(even, max(GATE_DBFS, noise_floor_dbfs(even) + 10))


def user_clip(signal: Signal) -> tuple[Pcm, list[Span]]:
    """A caller's clip and its voiced spans, measured on the samples as shipped.

    Of the peaks between -6 and -3 dBFS it gets the one that brings it nearest to -20 dBFS RMS.
    """
    speech = spoken_part(signal)
    towards_rms = np.clip(USER_RMS_DBFS - db(rms(speech)), -1.9, 0.9)
    pcm = quantise(in_silence(scaled_to_peak(speech, USER_PEAK_DBFS + float(towards_rms))))
    return pcm, active_spans(pcm / 32768, GATE_DBFS)


def pauses_shortened(signal: Signal, gate_dbfs: float) -> Signal:
    """No silence inside longer than 120 ms: a detector must never end the agent's speech in it."""
    spans = active_spans(signal, gate_dbfs, join=AGENT_PAUSE)
    half = AGENT_PAUSE // 2
    parts = [signal[max(start - half, 0) : end + half] for start, end in spans]
    return np.concatenate(parts)


def hard_edges(signal: Signal) -> Signal:
    """Cut from the first to the last strong sample that has loud speech behind it."""
    power = np.concatenate([[0.0], np.cumsum(signal**2)])
    window = 2 * WINDOW
    ahead = np.sqrt((power[window:] - power[:-window]) / window)
    loud = rms(signal) * amplitude(-4)
    strong = np.abs(signal) >= 0.4 * np.abs(signal).max()
    starts = np.flatnonzero(strong[: len(ahead)] & (ahead >= loud))
    ends = np.flatnonzero(strong[window - 1 :] & (ahead >= loud)) + window - 1
    return signal[starts[0] : ends[-1] + 1]


def agent_clip(signal: Signal) -> tuple[Pcm, list[Span]]:
    """A clip of the reference agent: one voiced span, the whole clip, by construction."""
    even = levelled(signal, 0.6)
    cut = hard_edges(pauses_shortened(even, db(rms(even)) - 20))
    pcm = quantise(cut * amplitude(AGENT_RMS_DBFS) / rms(cut))
    assert_hard_edges(pcm)
    return pcm, [(0, len(pcm))]


def assert_hard_edges(pcm: Pcm) -> None:
    """Whoever measures the clip, at whatever usual gate and level, finds the same two edges."""
    signal = pcm / 32768
    limits_ms = {(AGENT_RMS_DBFS, g): 1.0 for g in (-61.0, -55.0, -49.0)}
    limits_ms |= {(-35.0, -61.0): 1.5, (-35.0, -55.0): 1.5, (AGENT_RMS_DBFS, -38.0): 2.0}
    for (level, gate), limit_ms in limits_ms.items():
        quieter = np.rint(signal * amplitude(level - AGENT_RMS_DBFS) * 32768) / 32768
        spans = active_spans(quieter, gate, join=RATE_HZ * 250 // 1000)
        if len(spans) != 1:
            raise ValueError(f"silence inside at level {level} gate {gate}: {spans}")
        errors_ms = [spans[0][0] / 24, (len(pcm) - spans[0][1]) / 24]
        if max(errors_ms) > limit_ms:
            raise ValueError(f"soft edge at level {level} gate {gate}: {errors_ms} ms")


def band(signal: Signal, low_hz: float, high_hz: float) -> Signal:
    """Band-pass of second order."""
    sos = butter(2, [low_hz, high_hz], btype="bandpass", fs=RATE_HZ, output="sos")
    return np.asarray(sosfilt(sos, signal))


def burst(rng: np.random.Generator, length_s: float, decay_s: float) -> Signal:
    """White noise with 5 ms of attack and an exponential decay."""
    t = np.arange(int(length_s * RATE_HZ)) / RATE_HZ
    return rng.standard_normal(len(t)) * np.minimum(t / 0.005, 1) * np.exp(-t / decay_s)


def cough(rng: np.random.Generator) -> Signal:
    """Two throaty bursts, the second weaker."""
    first, second = burst(rng, 0.30, 0.07), 0.6 * burst(rng, 0.35, 0.09)
    return band(np.concatenate([first, second]), 250, 2500)


def door(rng: np.random.Generator) -> Signal:
    """A low thump with a rattle on top."""
    thump = band(burst(rng, 0.7, 0.12), 50, 250) * 4
    rattle = np.zeros_like(thump)
    tail = band(burst(rng, 0.4, 0.05), 900, 3500) * 0.4
    rattle[: len(tail)] = tail
    return thump + rattle


def keyboard(rng: np.random.Generator) -> Signal:
    """Fourteen key strokes, each a click down and a softer one up, unevenly spaced."""
    signal = np.zeros(int(2.4 * RATE_HZ))
    at = 0
    for gap in rng.uniform(0.09, 0.22, 14):
        for offset_s, gain in ((0.0, 1.0), (0.055, 0.5)):
            click = band(burst(rng, 0.03, 0.006), 1500, 7000) * gain
            start = at + int(offset_s * RATE_HZ)
            signal[start : start + len(click)] += click[: len(signal) - start]
        at += int(gap * RATE_HZ)
    return signal[: at + RATE_HZ // 10]


def babble(rng: np.random.Generator, voices: list[Signal]) -> Signal:
    """Six of the callers speaking at once."""
    length = 3 * RATE_HZ
    total = np.zeros(length)
    for index in rng.permutation(len(voices))[:6]:
        talk = np.roll(np.resize(voices[index], length), int(rng.integers(length)))
        total += talk / rms(talk)
    fade = np.minimum(1, np.arange(length) / (0.05 * RATE_HZ))
    return band(total, 150, 5000) * fade * fade[::-1]


def room(rng: np.random.Generator) -> Signal:
    """Four seconds of hum and hiss that fall by 6 dB an octave; the end leads on to the start."""
    length = 4 * RATE_HZ
    hz = np.fft.rfftfreq(length, 1 / RATE_HZ)
    shape = np.where((hz > 60) & (hz < 9000), 1 / np.maximum(hz, 200), 0)
    phases = np.exp(2j * np.pi * rng.random(len(hz)))
    return np.asarray(np.fft.irfft(shape * phases, length))


def cafe(rng: np.random.Generator, voices: list[Signal]) -> Signal:
    """Eight callers across a room, who begin one after the other; the end leads on to the start."""
    length = 4 * RATE_HZ
    total = room(rng)
    total *= 0.3 / rms(total)
    for place, index in enumerate(rng.permutation(len(voices))[:8]):
        talk = farther(voices[index])[:length]
        talk = np.pad(talk, (0, length - len(talk)))
        total += np.roll(talk / rms(talk), place * length // 8)
    return total


def background_clip(signal: Signal, rms_dbfs: float) -> tuple[Pcm, list[Span]]:
    """A background without a seam, which is all sound."""
    pcm = quantise(signal * amplitude(rms_dbfs) / rms(signal))
    return pcm, [(0, len(pcm))]


def farther(signal: Signal) -> Signal:
    """Speech from across the room: dull, with a few early reflections."""
    dull = band(signal, 200, 2800)
    room = np.concatenate([dull, np.zeros(RATE_HZ // 10)])
    for delay_ms, gain in ((11, 0.5), (23, -0.4), (37, 0.3), (61, 0.2)):
        shift = delay_ms * RATE_HZ // 1000
        room[shift : shift + len(dull)] += gain * dull
    return room


def noise_clip(signal: Signal, peak_dbfs: float) -> tuple[Pcm, list[Span]]:
    """A disturbance on the caller's line; `voiced` is where it is above the gate."""
    pcm = quantise(in_silence(scaled_to_peak(signal, peak_dbfs)))
    return pcm, active_spans(pcm / 32768, GATE_DBFS)


def write(clip_id: str, entry: Entry, made: tuple[Pcm, list[Span]], facts: Entry) -> None:
    """Write audio and sidecar."""
    pcm, voiced = made
    speech = np.concatenate([pcm[start:end] for start, end in voiced]) / 32768
    path = CLIPS / f"{clip_id}.flac"
    path.parent.mkdir(exist_ok=True)
    soundfile.write(path, pcm, RATE_HZ, format="FLAC", subtype="PCM_16")
    sidecar = {
        "id": clip_id,
        "text": entry["text"],
        "lang": entry.get("lang", "en-US" if entry["text"] else None),
        **facts,
        "rate_hz": RATE_HZ,
        "n_samples": len(pcm),
        "voiced": voiced,
        "level_dbfs": round(db(rms(speech)), 2),
        "sha256": hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest(),
    }
    text = json.dumps(sidecar, ensure_ascii=False, indent=1)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(
        f"{clip_id:32} {len(pcm) / RATE_HZ:5.2f} s {sidecar['level_dbfs']:6.1f} dBFS\n"
    )


def rendered_facts(entry: Entry, voices: dict[str, Entry]) -> Entry:
    """Origin of a rendered clip."""
    voice = voices[entry["voice"]]
    return {
        "speaker": voice["speaker"],
        "kind": "rendered",
        "licence": "Apache-2.0",
        "source": voice["source"],
    }


def synthesised_facts(entry: Entry) -> Entry:
    """Origin of what was not spoken."""
    return {
        "speaker": None,
        "kind": "rendered",
        "licence": "Apache-2.0",
        "source": f"synthesised by this project, recipe {entry['recipe']}",
    }


def make_human(catalogue: Entry) -> None:
    """Cut the human recordings."""
    for name, entry in catalogue["human"].items():
        recording = RECORDING_NAME.format(entry["recording"])
        signal = load(RECORDINGS / recording, entry["from"], entry["to"])
        facts = {
            "speaker": "librivox-sense-and-sensibility-01",
            "kind": "human",
            "licence": "Public-Domain",
            "source": f"LibriVox, Sense and Sensibility, chapter 1; {recording}",
        }
        write(f"human/{name}", entry, user_clip(signal), facts)


def make_rendered(catalogue: Entry) -> None:
    """Render callers and the reference agent."""
    voices = catalogue["voices"]
    makers: dict[str, Callable[[Signal], tuple[Pcm, list[Span]]]] = {
        "en": user_clip,
        "hi": user_clip,
        "duplex": user_clip,
        "backchannel": user_clip,
        "agent": agent_clip,
    }
    for group, make in makers.items():
        for name, entry in catalogue[group].items():
            clip_id = f"{group}/{name}"
            try:
                made = make(render(entry, voices))
            except ValueError as error:
                raise ValueError(f"{clip_id}: {error}") from error
            write(clip_id, entry, made, rendered_facts(entry, voices))


def make_noise(catalogue: Entry) -> None:
    """Synthesise disturbances, or mix them from our own clips."""
    callers = [soundfile.read(p, dtype="float64")[0] for p in sorted(CLIPS.glob("en/*.flac"))]
    recipes: dict[str, tuple[float, Callable[[np.random.Generator], Signal]]] = {
        "cough": (-9.0, cough),
        "door": (-9.0, door),
        "keyboard": (-14.0, keyboard),
        "babble": (-18.0, lambda rng: babble(rng, callers)),
    }
    for seed, (name, entry) in enumerate(catalogue["noise"].items()):
        if entry["recipe"] == "side_talk":
            made = noise_clip(farther(render(entry, catalogue["voices"])), -18.0)
            facts = rendered_facts(entry, catalogue["voices"])
        else:
            peak_dbfs, recipe = recipes[entry["recipe"]]
            made = noise_clip(recipe(np.random.Generator(np.random.PCG64(seed))), peak_dbfs)
            facts = synthesised_facts(entry)
        write(f"noise/{name}", entry, made, facts)


def make_background(catalogue: Entry) -> None:
    """Synthesise what may lie under a whole call."""
    callers = [soundfile.read(p, dtype="float64")[0] for p in sorted(CLIPS.glob("en/*.flac"))]
    recipes: dict[str, Callable[[np.random.Generator], Signal]] = {
        "room": room,
        "cafe": lambda rng: cafe(rng, callers),
    }
    for seed, (name, entry) in enumerate(catalogue["background"].items()):
        signal = recipes[entry["recipe"]](np.random.Generator(np.random.PCG64(seed)))
        made = background_clip(signal, BACKGROUND_RMS_DBFS)
        write(f"background/{name}", entry, made, synthesised_facts(entry))


def main() -> None:
    """Make every clip."""
    catalogue = yaml.safe_load((CLIPS / "catalogue.yaml").read_text(encoding="utf-8"))
    make_human(catalogue)
    make_rendered(catalogue)
    make_noise(catalogue)
    make_background(catalogue)


if __name__ == "__main__":
    main()
