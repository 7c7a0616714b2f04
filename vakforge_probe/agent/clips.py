"""The clips as the agent reads them: its own voice, and what it may recognise.

This reading is deliberately separate from the probe's: an error common to both would cancel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from vakforge_probe.agent import g711
from vakforge_probe.errors import ConfigError

__all__ = ["NOISE_GROUP", "RATE_HZ", "Clip", "ClipStore"]

RATE_HZ = 24000
VOICE_GROUP = "agent"
NOISE_GROUP = "noise"
"""Sounds that are no talk and get no answer."""
Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One clip: mono 16-bit, as read at 24 kHz; `voiced` spans are [start, end) in samples."""

    id: str
    text: str
    pcm: Pcm
    voiced: tuple[tuple[int, int], ...]

    @property
    def group(self) -> str:
        """First part of the id."""
        return self.id.partition("/")[0]

    def coded(self, codec: str, rate_hz: int) -> Clip:
        """Return the clip as it is after it was resampled off line, coded and decoded."""
        pcm, spans = self.pcm, self.voiced
        if rate_hz != RATE_HZ:
            n = _scaled(len(pcm), rate_hz)
            raw = soxr.resample(pcm.astype(np.float64), RATE_HZ, rate_hz, quality="VHQ")[:n]
            pcm = np.clip(np.rint(raw), -32768, 32767).astype(np.int16)
            pcm = np.pad(pcm, (0, n - len(pcm)))
            spans = tuple((_scaled(a, rate_hz), _scaled(b, rate_hz)) for a, b in spans)
        if codec in g711.CODECS:
            pcm = g711.hear(g711.encode(pcm, codec), codec)
        return replace(self, pcm=pcm, voiced=spans)

    @property
    def n_words(self) -> int:
        """Words in the text."""
        return len(self.text.split())


def _scaled(position: int, rate_hz: int) -> int:
    return (2 * position * rate_hz + RATE_HZ) // (2 * RATE_HZ)


class ClipStore:
    """All clips below a folder.

    Raises
    ------
    ConfigError
        If the folder has no clip of the agent's voice, or a clip does not agree with its sidecar.
    """

    def __init__(self, root: Path) -> None:
        self.clips = {clip.id: clip for clip in map(_read, sorted(root.glob("*/*.json")))}
        if not any(clip.group == VOICE_GROUP for clip in self.clips.values()):
            raise ConfigError("no clips of the agent's voice here", file=str(root))
        self._root = root

    def voice(self, name: str) -> Clip:
        """Return the clip ``agent/<name>``."""
        return self.clips[f"{VOICE_GROUP}/{name}"]

    def voices(self, prefix: str) -> list[str]:
        """Return the names of the agent's clips that begin with `prefix`, in natural order."""
        found = (c.id.partition("/")[2] for c in self.clips.values() if c.group == VOICE_GROUP)
        return sorted((n for n in found if n.startswith(prefix)), key=lambda n: (len(n), n))

    def callers(self) -> list[Clip]:
        """Return the clips that a caller may play."""
        return [clip for clip in self.clips.values() if clip.group != VOICE_GROUP]

    def require(self, names: Iterable[str]) -> None:
        """Refuse to start without the clips ``agent/<name>``."""
        missing = [n for n in names if f"{VOICE_GROUP}/{n}" not in self.clips]
        if missing:
            raise ConfigError(
                f"clips missing: {', '.join(f'{VOICE_GROUP}/{n}' for n in missing)}",
                file=str(self._root),
            )


def _read(sidecar: Path) -> Clip:
    audio = sidecar.with_suffix(".flac")
    try:
        meta = json.loads(sidecar.read_text("utf-8"))
        pcm, rate = soundfile.read(audio, dtype="int16")
        spans = tuple((int(a), int(b)) for a, b in meta["voiced"])
        clip = Clip(str(meta["id"]), str(meta["text"]), np.ascontiguousarray(pcm), spans)
        digest = str(meta["sha256"])
    except (OSError, ValueError, KeyError, TypeError, soundfile.LibsndfileError) as error:
        raise ConfigError(f"cannot read clip: {error}", file=str(sidecar)) from None
    if rate != RATE_HZ or pcm.ndim != 1:
        raise ConfigError(f"clip is not {RATE_HZ} Hz mono", file=str(audio))
    if hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest() != digest:
        raise ConfigError("clip is not the one that its sidecar describes", file=str(audio))
    if not all(0 <= a < b <= len(pcm) for a, b in spans):
        raise ConfigError("voiced span outside the clip", file=str(sidecar))
    return clip
