"""Captures written here by hand, byte for byte, not by the recorder."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.timeline.records import Direction, Flags, Kind
from vakforge_eval.timeline.script import Language, Script, ScriptStep

RATE = 8000
FRAME = 160
MS = 1_000_000


def script_of(*steps: dict[str, Any]) -> Script:
    return Script(
        id="s",
        content_hash="0",
        locale="en-US",
        language=Language(primary="en"),
        rate_hz=RATE,
        frame_samples=FRAME,
        steps=[
            ScriptStep(index=i, path=f"steps[{i}]", anchor="", **s) for i, s in enumerate(steps)
        ],
    )


def header_of(**changes: Any) -> dict[str, Any]:
    return {
        "capture_version": 1,
        "call_id": "c1",
        "system": "base",
        "capabilities": {"response_ids": True},
        "user_audio": {
            "codec": "pcm_s16le",
            "rate_hz": RATE,
            "frame_samples": FRAME,
            "transfer": "json_base64",
            "locator": "/audio",
        },
        "clock": {"wall_utc": "2026-01-01T00:00:00Z", "monotonic_ns": 0},
        **changes,
    }


def line_of(obj: Any) -> bytes:
    text = json.dumps(obj, separators=(",", ":")).encode()
    return b"[%d,%d,%b]\n" % (zlib.crc32(text), len(text), text)


@dataclass
class Book:
    """A capture in memory."""

    header: dict[str, Any] = field(default_factory=header_of)
    script: Script = field(default_factory=script_of)
    frames: bytes = b""
    wires: dict[int, bytes] = field(default_factory=lambda: {0: b"", 1: b""})
    events: bytes = b""
    n: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def message(
        self,
        direction: int,
        payload: bytes,
        *,
        before: int = 0,
        after: int | None = None,
        due: int = 0,
        flags: int = 0,
        kind: int = 0,
        lo: int | None = None,
        hi: int | None = None,
    ) -> int:
        after = before if after is None else after
        lo, hi = before if lo is None else lo, after if hi is None else hi
        offset = len(self.wires[direction]) + 4
        seq = self.n[direction]
        head = struct.pack(
            "<BBHIqqqqqQI",
            direction, flags, kind, seq, due, before, after, lo, hi, offset, len(payload),
        )  # fmt: skip
        self.frames += head + struct.pack("<I", zlib.crc32(head + payload))
        self.wires[direction] += struct.pack("<I", len(payload)) + payload
        self.n[direction] += 1
        return seq

    def frame(self, due: int, *, late: int = 0, took: int = 0, flags: Flags = Flags.NONE) -> int:
        sent = due + late
        return self.message(
            Direction.USER,
            b"{}",
            before=sent,
            after=sent + took,
            due=due,
            flags=int(flags),
            kind=Kind.AUDIO,
        )

    def event(self, type_: str, **fields: Any) -> None:
        self.events += line_of({"type": type_, **fields})

    def files(self) -> dict[str, bytes]:
        return {
            "header.json": json.dumps(self.header).encode(),
            "scenario.json": self.script.model_dump_json().encode(),
            "frames.bin": self.frames,
            "user.wire": self.wires[0],
            "agent.wire": self.wires[1],
            "events.jsonl": self.events,
        }

    def write(
        self, path: Path, *, complete: bool = True, changed: dict[str, bytes] | None = None
    ) -> Path:
        files = self.files() | (changed or {})
        path = path if complete else path.with_name(path.name + ".partial")
        path.mkdir()
        for name, data in files.items():
            (path / name).write_bytes(data)
        if complete:
            hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
            index = {"files": hashes, "recovered": False, "truncated": False}
            (path / "index.json").write_text(json.dumps(index))
        return path


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def filled() -> Book:
    """Three messages a direction and three journal lines."""
    book = Book()
    for i in range(3):
        book.frame(20 * i * MS)
        book.message(1, b"agent %d" % i, before=20 * i * MS)
        book.event("note", i=i, text="π\u2028")
    return book
