"""From capture folders to a report on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.format import HEADER, INDEX
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.view import CallView
from vakforge_eval.report.assemble import report_document
from vakforge_eval.report.excerpts import Excerpts
from vakforge_eval.report.html_writer import to_html
from vakforge_eval.report.json_writer import to_json
from vakforge_eval.report.markdown_writer import to_markdown
from vakforge_eval.scoring.score import score_calls

__all__ = ["find_captures", "make_report", "write_report"]

_MAX_FOUND = 100_000


def find_captures(path: Path) -> list[Path]:
    """Return the complete captures at `path`: itself, or those in it or its ``calls`` folder.

    Raises
    ------
    CaptureError
        If `path` is not a folder, or is a capture that was never completed.
    """
    if not path.is_dir():
        raise CaptureError(f"{path} is not a folder")
    if (path / INDEX).is_file():
        return [path]
    if (path / HEADER).is_file():
        raise CaptureError(f"{path} is not complete; `capture recover` finishes it")
    inside = path / "calls" if (path / "calls").is_dir() else path
    found = sorted(p.parent for p in inside.glob(f"*/{INDEX}"))
    return found[:_MAX_FOUND]


def make_report(
    captures: Sequence[Path],
    *,
    baseline: Sequence[Path] = (),
    out: Path | None = None,
) -> dict[str, Any]:
    """Return the report document of captures, and write it to `out` if that is given.

    Parameters
    ----------
    captures
        Capture folders. Without `baseline`, those whose header says ``base`` are the baseline of
        the others.
    baseline
        Captures of the baseline, whatever name their headers give.
    out
        Folder for report.json, report.md, report.html and the samples' audio.

    Raises
    ------
    CaptureError
        If a capture cannot be read, two of a side have the same call id (which would make them
        one), or a side holds those of several systems.
    """
    tuned = [Capture.open(path) for path in captures]
    base = [Capture.open(path) for path in baseline]
    if not base:
        base = [c for c in tuned if c.header.get("system") == "base"]
        tuned = [c for c in tuned if c.header.get("system") != "base"]
        if not tuned:
            base, tuned = [], base
    elif len(names := _names(base)) > 1:
        raise CaptureError(f"the baseline is of several systems ({', '.join(names)}): name one's")
    name, base_name = _name(tuned), "base"
    if name == base_name and base:
        name = "tuned"
    sides = {base_name: base, name: tuned} if base else {name: tuned}
    calls = _views(sides)
    sets = [
        score_calls([view for (system, _), (view, _) in calls.items() if system == one], one)
        for one in sides
    ]
    document = report_document(
        sets[0] if base else None,
        sets[-1],
        provenance=_provenance([*base, *tuned]),
        hardware={
            system: next((c.header.get("hardware") for c in side), None)
            for system, side in sides.items()
        },
        excerpt=Excerpts(calls, out).of,
    )
    if out is not None:
        write_report(document, out)
    return document


def write_report(document: dict[str, Any], out: Path) -> None:
    """Write report.json, report.md and report.html into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_bytes(to_json(document))
    (out / "report.md").write_text(to_markdown(document), encoding="utf-8")
    (out / "report.html").write_text(to_html(document), encoding="utf-8")


def _views(sides: dict[str, list[Capture]]) -> dict[tuple[str, str], tuple[CallView, Capture]]:
    """Return each call, heard once for scores and samples, by system and call id."""
    calls: dict[tuple[str, str], tuple[CallView, Capture]] = {}
    for system, side in sides.items():
        for capture in side:
            view = CallView(build_timeline(capture))
            key = system, view.timeline.call_id
            if key in calls:
                raise CaptureError(f"{calls[key][1].path} and {capture.path} hold the same call id")
            calls[key] = view, capture
    return calls


def _names(captures: Sequence[Capture]) -> list[str]:
    return sorted({str(c.header.get("system", "tuned")) for c in captures})


def _name(captures: Sequence[Capture]) -> str:
    names = _names(captures)
    if len(names) > 1:
        raise CaptureError(
            f"captures of several systems ({', '.join(names)}): name one side with --baseline"
        )
    return names[0]


def _provenance(captures: Sequence[Capture]) -> dict[str, Any]:
    """Return what the captures' headers say alike, and hashes of what differs."""
    headers = [c.header for c in captures]
    seeds = sorted({h["seed"] for h in headers if isinstance(h.get("seed"), int)})
    return {
        "manifest_hash": None,
        "config_hash": _hash([_config(h) for h in headers]),
        "seed": seeds[0] if seeds else None,
        "versions": _shared(headers, "versions"),
        "probe_host": _shared(headers, "probe_host"),
        "scheduling": _shared(headers, "scheduling"),
        "stamp_source": sorted({str(h.get("stamp_source")) for h in headers}),
        "targets": sorted({str(h.get("target")) for h in headers}),
        "protocols": sorted({f"{h.get('protocol')}/{h.get('profile')}" for h in headers}),
        **_doubts(headers),
        "captures": len(headers),
        "recovered_captures": sum(c.is_recovered for c in captures),
        "truncated_captures": sum(c.is_truncated for c in captures),
    }


def _doubts(headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return which protocols no server of others has been called by, if any."""
    names = sorted({str(h.get("protocol")) for h in headers if h.get("experimental") is True})
    return {"experimental_protocols": names} if names else {}


_CONFIG = ("system", "target", "protocol", "profile", "user_audio", "limits", "redaction")


def _config(header: dict[str, Any]) -> dict[str, Any]:
    return {name: header.get(name) for name in _CONFIG}


def _hash(configs: list[dict[str, Any]]) -> str:
    texts = sorted({json.dumps(c, sort_keys=True, separators=(",", ":")) for c in configs})
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _shared(headers: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return a dict that all headers have alike; where a value differs, all its values."""
    found: dict[str, list[Any]] = {}
    for header in headers:
        part = header.get(name)
        for key, value in part.items() if isinstance(part, dict) else ():
            values = found.setdefault(str(key), [])
            if value not in values:
                values.append(value)
    return {key: v[0] if len(v) == 1 else v for key, v in sorted(found.items())}
