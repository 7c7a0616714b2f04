"""One step's audio: clips joined with scripted pauses, cut close to the speech.

Anchors and pauses speak of speech, not of files, so silence around it is cut to `MARGIN_MS`, and
a pause lasts exactly from the end of speech before it to the start of speech after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.scenario.clips import Clip, ClipLibrary
from vakforge_probe.scenario.dtmf import tones
from vakforge_probe.scenario.grammar import Background, DtmfStep, Gap, PlayedStep

__all__ = ["MARGIN_MS", "StepAudio", "assemble", "background_audio", "key_tones"]

MARGIN_MS = 20
"""Silence kept before and after speech: room for the soft edges that no gate counts as speech."""

Pcm = npt.NDArray[np.int16]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class StepAudio:
    """PCM of a step with its voiced and paused spans, in samples."""

    pcm: Pcm
    voiced: tuple[Span, ...]
    pauses: tuple[Span, ...]
    clips: tuple[Clip, ...]

    @property
    def speech(self) -> Span:
        """From the first to the end of the last voiced sample."""
        return self.voiced[0][0], self.voiced[-1][1]


def key_tones(step: DtmfStep, rate_hz: int) -> StepAudio:
    """Return the audio of a `dtmf` step."""
    pcm, spans = tones(step.dtmf, rate_hz)
    return StepAudio(amplified(pcm, step.level), tuple(spans), (), ())


def background_audio(background: Background, library: ClipLibrary, rate_hz: int) -> StepAudio:
    """Return one round of a background: its clip from the first to the last sound.

    Raises
    ------
    ConfigError
        If the clip cannot be used.
    ValueError
        If its level would clip.
    """
    native = library.get(background.clip)
    clip = native.at_rate(rate_hz)
    pcm = amplified(clip.pcm[clip.voiced[0][0] : clip.voiced[-1][1]], background.level)
    return StepAudio(pcm, ((0, len(pcm)),), (), (native,))


def assemble(step: PlayedStep, library: ClipLibrary, rate_hz: int) -> StepAudio:
    """Return the audio of a step that plays clips.

    Raises
    ------
    ConfigError
        If a clip cannot be used.
    ValueError
        If the step's level would clip.
    """
    pieces: list[Pcm] = []
    voiced: list[Span] = []
    pauses: list[Span] = []
    clips: list[Clip] = []
    gaps = [_samples(p.pause, rate_hz) for p in step.sequence if isinstance(p, Gap)]
    margin = rate_hz * MARGIN_MS // 1000
    names = [name for name in step.sequence if isinstance(name, str)]
    for i, name in enumerate(names):
        native = library.get(name)
        clip = native.at_rate(rate_hz)
        clips.append(native)
        before = min(margin, gaps[i - 1] // 2) if i else margin
        after = min(margin, gaps[i] // 2) if i < len(gaps) else margin
        start, end = clip.voiced[0][0], clip.voiced[-1][1]
        lo, hi = max(start - before, 0), min(end + after, len(clip.pcm))
        if i:
            spoken_end = voiced[-1][1]
            silence = spoken_end + gaps[i - 1] - (start - lo) - sum(map(len, pieces))
            pieces.append(np.zeros(silence, dtype=np.int16))
            pauses.append((spoken_end, spoken_end + gaps[i - 1]))
        shift = sum(map(len, pieces)) - lo
        pieces.append(clip.pcm[lo:hi])
        voiced.extend((a + shift, b + shift) for a, b in clip.voiced)
    pcm = amplified(np.concatenate(pieces), step.level)
    return StepAudio(pcm, tuple(voiced), tuple(pauses), tuple(clips))


def _samples(duration_ns: int, rate_hz: int) -> int:
    return (2 * duration_ns * rate_hz + NS_PER_S) // (2 * NS_PER_S)


def amplified(pcm: Pcm, level_db: float) -> Pcm:
    """Return `pcm` with a gain in dB.

    Raises
    ------
    ValueError
        If a sample would leave the 16-bit range.
    """
    if level_db == 0:
        return pcm
    scaled = np.rint(pcm * 10 ** (level_db / 20))
    if np.abs(scaled).max() > np.iinfo(np.int16).max:
        raise ValueError("is too loud: the clip would be clipped")
    quantised: Pcm = scaled.astype(np.int16)
    return quantised
