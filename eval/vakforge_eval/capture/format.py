"""The capture's names, bounds and journal lines.

::

    <call>.partial/    renamed to <call>/ when complete
      header.json      what was called, how, with what; first and synced
      scenario.json    the compiled scenario, whole
      frames.bin       one 64-byte record a message (timeline/records.py)
      user.wire        per message: u32 little-endian length, payload
      agent.wire
      events.jsonl     one line an object: ``[crc32,length,{...}]``
      index.json       SHA-256 of each file; its presence means complete

A journal line's CRC-32 and length are those of the object's compact JSON text exactly as it stands
in the line, so a torn or damaged line is known as such.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from vakforge_eval.capture import strict_json
from vakforge_eval.timeline.records import Direction

__all__ = [
    "AGENT_WIRE",
    "CAPTURE_VERSION",
    "DATA_FILES",
    "EVENTS",
    "FRAMES",
    "HEADER",
    "INDEX",
    "LENGTH",
    "MAX_NS",
    "PARTIAL_SUFFIX",
    "SCENARIO",
    "USER_WIRE",
    "WIRE_FILES",
    "CaptureBounds",
    "decode_line",
    "encode_line",
]

CAPTURE_VERSION = 1

HEADER = "header.json"
SCENARIO = "scenario.json"
FRAMES = "frames.bin"
USER_WIRE = "user.wire"
AGENT_WIRE = "agent.wire"
EVENTS = "events.jsonl"
INDEX = "index.json"
DATA_FILES = (HEADER, SCENARIO, FRAMES, USER_WIRE, AGENT_WIRE, EVENTS)
PARTIAL_SUFFIX = ".partial"

WIRE_FILES: dict[int, str] = {Direction.USER: USER_WIRE, Direction.AGENT: AGENT_WIRE}

MAX_NS = 1 << 62
"""146 years: no monotonic clock is beyond, and sums of two still fit into 64 bits."""

LENGTH = struct.Struct("<I")
"""The length before each payload of a wire file."""


@dataclass(frozen=True, slots=True)
class CaptureBounds:
    """What a capture may cost its reader; a stranger may have written it."""

    header_bytes: int = 4 << 20
    scenario_bytes: int = 16 << 20
    frames_bytes: int = 256 << 20
    """4 million messages: half an hour at over 2,000 a second."""
    wire_bytes: int = 1 << 30
    """Mapped, never read whole."""
    message_bytes: int = 64 << 20
    events_bytes: int = 256 << 20
    n_events: int = 1_000_000
    line_bytes: int = 32 << 20
    audio_s: float = 3600.0
    """Agent audio decoded of one call: twice the longest call, since it may come ahead."""

    def of(self, name: str) -> int:
        """Return the largest size of the file `name`."""
        return {
            HEADER: self.header_bytes,
            SCENARIO: self.scenario_bytes,
            FRAMES: self.frames_bytes,
            USER_WIRE: self.wire_bytes,
            AGENT_WIRE: self.wire_bytes,
            EVENTS: self.events_bytes,
            INDEX: self.header_bytes,
        }[name]


_LINE = re.compile(rb"\[(\d{1,10}),(\d{1,10}),")


def encode_line(obj: dict[str, Any]) -> bytes:
    """Return the journal line of `obj`, newline included."""
    text = strict_json.dumps(obj).encode("ascii")
    return b"[%d,%d,%b]\n" % (zlib.crc32(text), len(text), text)


def decode_line(line: bytes) -> dict[str, Any]:
    """Return the object of one journal line, newline included.

    Raises
    ------
    ValueError
        If the line is torn, damaged or not a JSON object.
    """
    head = _LINE.match(line)
    if head is None or not line.endswith(b"]\n"):
        raise ValueError("torn line")
    text = line[head.end() : -2]
    if len(text) != int(head[2]) or zlib.crc32(text) != int(head[1]):
        raise ValueError("length or CRC does not fit")
    obj = strict_json.loads(text)
    if not isinstance(obj, dict) or not isinstance(obj.get("type"), str):
        raise ValueError("no object with a type")
    return obj
