"""Make the sidecar of a clip: ``python -m vakforge_probe.scenario.sidecar FILE... --licence ...``.

The voiced spans are measured here, off line, on the clean clip. They are what every latency starts
from, so a clip must be silent but for its speech.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from vakforge_eval.signal.activity import find_spans
from vakforge_eval.signal.gate import GATE_DBFS, Gate
from vakforge_eval.signal.pcm import dbfs
from vakforge_probe.errors import ConfigError, ExitCode
from vakforge_probe.limits import Limits
from vakforge_probe.scenario.clips import Sidecar, decode_clip, pcm_sha256
from vakforge_probe.scenario.files import read_bounded

__all__ = ["main", "make_sidecar"]


def make_sidecar(
    file: Path,
    *,
    licence: str,
    source: str,
    text: str = "",
    lang: str | None = None,
    speaker: str | None = None,
    kind: str = "human",
    root: Path | None = None,
    gate_dbfs: float = GATE_DBFS,
    limits: Limits | None = None,
) -> Sidecar:
    """Return the sidecar of the audio in `file`.

    Parameters
    ----------
    root : Path, optional
        The clips folder that ids are relative to; the nearest folder named ``clips`` above the
        file if there is one, else the file's own.
    gate_dbfs : float
        Level at which speech begins.

    Raises
    ------
    ConfigError
        If the file is no usable clip, or nothing in it is loud enough.
    """
    limits = limits or Limits()
    try:
        pcm, rate_hz = decode_clip(read_bounded(file, limits.max_clip_bytes), limits)
    except (OSError, ValueError) as error:
        raise ConfigError(str(error), file=str(file)) from error
    voiced = [(span.start, span.end) for span in find_spans(pcm, rate_hz, Gate.at(gate_dbfs))]
    if not voiced:
        raise ConfigError(f"nothing in it reaches {gate_dbfs:g} dBFS", file=str(file))
    level = dbfs(np.concatenate([pcm[start:end] for start, end in voiced]))
    assert level is not None  # noqa: S101 - what reaches the gate is not silent
    return Sidecar(
        id=_clip_id(file, root),
        text=text,
        lang=lang,
        speaker=speaker,
        kind=kind,
        licence=licence,
        source=source,
        rate_hz=rate_hz,
        n_samples=len(pcm),
        voiced=voiced,
        level_dbfs=round(level, 2),
        sha256=pcm_sha256(pcm),
    )


def _clip_id(file: Path, root: Path | None) -> str:
    file = file.absolute()
    base = root.absolute() if root is not None else None
    if base is None:
        base = next((p for p in file.parents if p.name == "clips"), file.parent)
    if not file.is_relative_to(base):
        raise ConfigError("does not lie under the clips folder", file=str(file), value=str(base))
    return file.relative_to(base).with_suffix("").as_posix()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vakforge_probe.scenario.sidecar",
        description="Write NAME.json beside each clip: what it is, and where in it is speech.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="mono FLAC or WAV")
    parser.add_argument("--licence", required=True, help="licence, or the consent it rests on")
    parser.add_argument("--source", required=True, help="where it comes from")
    parser.add_argument("--text", default="", help="what is said, word for word")
    parser.add_argument("--lang", help="language tag, such as en-IN or hi-Latn")
    parser.add_argument("--speaker")
    parser.add_argument("--kind", choices=("human", "rendered"), default="human")
    parser.add_argument("--root", type=Path, help="clips folder that ids are relative to")
    parser.add_argument("--gate", type=float, default=GATE_DBFS, help="dBFS (%(default)s)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the tool; return the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.text and len(options.files) > 1:
        parser.error("--text is the text of one clip: give one file")
    for file in options.files:
        try:
            sidecar = make_sidecar(
                file,
                licence=options.licence,
                source=options.source,
                text=options.text,
                lang=options.lang,
                speaker=options.speaker,
                kind=options.kind,
                root=options.root,
                gate_dbfs=options.gate,
            )
        except ConfigError as error:
            sys.stderr.write(f"{error}\n")
            return ExitCode.CONFIG
        text = json.dumps(sidecar.model_dump(mode="json"), ensure_ascii=False, indent=1)
        file.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
        sys.stdout.write(f"{sidecar.id}: {sidecar.voiced}\n")
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
