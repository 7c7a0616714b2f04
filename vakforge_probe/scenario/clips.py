"""Clips: audio with a sidecar that says what it is and where in it somebody speaks.

``<id>.flac`` (or ``.wav``) and ``<id>.json`` lie under a clips folder. A sidecar vouches for its
audio by SHA-256 over the little-endian 16-bit PCM, so an edited clip without a new sidecar is
refused: its voiced spans would be wrong, and with them every latency.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vakforge_eval.capture import strict_json
from vakforge_eval.timeline.faults import first_fault
from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.scenario.files import inside, read_bounded

__all__ = ["Clip", "ClipLibrary", "Sidecar", "data_root", "decode_clip", "pcm_sha256"]

Pcm = npt.NDArray[np.int16]
Span = tuple[int, int]

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 96_000
_MAX_SIDECAR_BYTES = 256 * 1024
_BLOCK = 65_536
_SUFFIXES = (".flac", ".wav")


def data_root() -> Path:
    """Return the folder of the shipped suites and clips.

    The wheel carries it as package data; a source tree has it at its top level.
    """
    packaged = Path(str(resources.files("vakforge_probe"))) / "data" / "scenarios"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "scenarios"


class Sidecar(BaseModel):
    """What stands beside a clip."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1, max_length=200)
    text: str = Field(max_length=2000)
    lang: str | None
    speaker: str | None
    kind: str
    """``human`` or ``rendered``."""
    licence: str = Field(min_length=1)
    source: str = Field(min_length=1)
    rate_hz: int = Field(ge=MIN_RATE_HZ, le=MAX_RATE_HZ)
    n_samples: int = Field(gt=0)
    voiced: list[tuple[Annotated[int, Field(ge=0)], int]] = Field(min_length=1)
    level_dbfs: float
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _ordered_spans(self) -> Sidecar:
        flat = [position for span in self.voiced for position in span]
        if any(a >= b for a, b in pairwise(flat)) or flat[-1] > self.n_samples:
            raise ValueError("voiced spans must be ordered, apart and inside the clip")
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A decoded clip: mono 16-bit PCM, shape (n_samples,), and its voiced spans [start, end)."""

    id: str
    pcm: Pcm
    rate_hz: int
    text: str
    lang: str | None
    speaker: str | None
    licence: str
    source: str
    voiced: tuple[Span, ...]
    sha256: str

    def at_rate(self, rate_hz: int) -> Clip:
        """Return the clip resampled off line, without delay; spans are mapped to the sample."""
        if rate_hz == self.rate_hz:
            return self
        n = _scaled(len(self.pcm), self.rate_hz, rate_hz)
        # As floats: of integers the library would make dither even where there is silence.
        raw = soxr.resample(self.pcm.astype(np.float64), self.rate_hz, rate_hz, quality="VHQ")[:n]
        pcm = np.clip(np.rint(raw), -32768, 32767).astype(np.int16)
        return replace(
            self,
            pcm=np.pad(pcm, (0, n - len(pcm))),
            rate_hz=rate_hz,
            voiced=tuple(
                (_scaled(a, self.rate_hz, rate_hz), _scaled(b, self.rate_hz, rate_hz))
                for a, b in self.voiced
            ),
        )


def _scaled(position: int, rate_hz: int, new_rate_hz: int) -> int:
    return (2 * position * new_rate_hz + rate_hz) // (2 * rate_hz)


def pcm_sha256(pcm: Pcm) -> str:
    """Return the SHA-256 (hex) of the little-endian samples."""
    return hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest()


def decode_clip(data: bytes, limits: Limits) -> tuple[Pcm, int]:
    """Return (pcm, rate) of an encoded mono file.

    Raises
    ------
    ValueError
        If it is no audio, or its channels, rate or duration are out of bounds. The caps hold
        while decoding too: a header that lies costs no memory.
    """
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate, max_samples = file.samplerate, round(limits.max_clip_s * file.samplerate)
            if file.channels != 1:
                raise ValueError(f"has {file.channels} channels; a clip is mono")
            if not MIN_RATE_HZ <= rate <= MAX_RATE_HZ:
                raise ValueError(f"has a rate of {rate} Hz, not {MIN_RATE_HZ} to {MAX_RATE_HZ}")
            if file.frames > max_samples:
                raise ValueError(f"is longer than {limits.max_clip_s:g} s")
            blocks: list[Pcm] = []
            n = 0
            while len(block := file.read(_BLOCK, dtype="int16")):
                n += len(block)
                if n > max_samples:
                    raise ValueError(f"is longer than {limits.max_clip_s:g} s")
                blocks.append(block)
    except soundfile.SoundFileError as error:
        raise ValueError(f"is not audio that can be read: {error}") from error
    if not blocks:
        raise ValueError("holds no samples")
    return np.concatenate(blocks), rate


class ClipLibrary:
    """Finds clips by id under one folder, then under the fallback folders.

    Parameters
    ----------
    root : Path
        Searched first.
    *fallback : Path
        Searched next, in order.
    limits : Limits
        Caps on bytes and seconds.
    """

    def __init__(self, root: Path, *fallback: Path, limits: Limits | None = None) -> None:
        self.roots = (root, *fallback)
        self._limits = limits or Limits()
        self._known: dict[str, Clip] = {}

    def get(self, clip_id: str) -> Clip:
        """Return the clip named `clip_id`, at its native rate.

        Raises
        ------
        ConfigError
            If it is missing, outside the folder, not what its sidecar says, or not audio.
        """
        if clip_id not in self._known:
            self._known[clip_id] = self._load(clip_id)
        return self._known[clip_id]

    def ids(self) -> list[str]:
        """Return the ids of all clips that have a sidecar."""
        return sorted(
            {
                path.relative_to(root).with_suffix("").as_posix()
                for root in self.roots
                if root.is_dir()
                for path in root.rglob("*.json")
            }
        )

    def _load(self, clip_id: str) -> Clip:
        for root in self.roots:
            for suffix in _SUFFIXES:
                try:
                    audio = inside(root, clip_id + suffix)
                except ValueError as error:
                    _refuse(clip_id, str(error), error)
                if audio.exists():
                    return self._read(clip_id, root, audio)
        raise ConfigError("no such clip", value=clip_id)

    def _read(self, clip_id: str, root: Path, audio: Path) -> Clip:
        try:
            # Named after the id, not after what a symbolic link leads to.
            beside = inside(root, clip_id + ".json")
            sidecar = _parse_sidecar(read_bounded(beside, _MAX_SIDECAR_BYTES))
            data = read_bounded(audio, self._limits.max_clip_bytes)
            pcm, rate = decode_clip(data, self._limits)
        except FileNotFoundError as error:
            _refuse(clip_id, "has no sidecar (make one with the sidecar tool)", error)
        except (ValueError, OSError) as error:
            _refuse(clip_id, str(error), error)
        if sidecar.id != clip_id:
            _refuse(clip_id, f"its sidecar is of {sidecar.id!r}")
        if (rate, len(pcm), pcm_sha256(pcm)) != (
            sidecar.rate_hz,
            sidecar.n_samples,
            sidecar.sha256,
        ):
            _refuse(clip_id, "is not the audio that its sidecar describes")
        return Clip(
            id=clip_id,
            pcm=pcm,
            rate_hz=rate,
            text=sidecar.text,
            lang=sidecar.lang,
            speaker=sidecar.speaker,
            licence=sidecar.licence,
            source=sidecar.source,
            voiced=tuple(sidecar.voiced),
            sha256=sidecar.sha256,
        )


def _refuse(clip_id: str, why: str, cause: Exception | None = None) -> NoReturn:
    raise ConfigError(f"clip {why}", value=clip_id) from cause


def _parse_sidecar(data: bytes) -> Sidecar:
    try:
        return Sidecar.model_validate(strict_json.loads(data))
    except ValidationError as error:
        where = ": ".join(part for part in first_fault(error) if part)
        raise ValueError(f"has a wrong sidecar: {where}") from error
    except ValueError as error:
        raise ValueError(f"has a sidecar that is not JSON: {error}") from error
