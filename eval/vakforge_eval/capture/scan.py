"""How much of a capture's growing files holds together."""

from __future__ import annotations

from pathlib import Path

from vakforge_eval.capture.files import map_file, open_file
from vakforge_eval.capture.format import (
    EVENTS,
    FRAMES,
    LENGTH,
    WIRE_FILES,
    CaptureBounds,
    decode_line,
)
from vakforge_eval.timeline.records import RECORD_SIZE, Direction, crc_of, unpack

__all__ = ["whole_lines", "whole_messages"]


def whole_messages(partial: Path, bounds: CaptureBounds) -> tuple[int, dict[str, int]]:
    """Return how many records hold from the first on, and how many bytes of each file they cover.

    A record holds when its CRC and its message do, and its direction has no hole before it. Raises
    CaptureError for a file that cannot be opened or is beyond its bound.
    """
    wires = {d: map_file(partial / name, bounds.of(name)) for d, name in WIRE_FILES.items()}
    frames = map_file(partial / FRAMES, bounds.of(FRAMES))
    ends = dict.fromkeys(Direction, 0)
    seqs = dict.fromkeys(Direction, 0)
    n = 0
    for at in range(0, len(frames) - RECORD_SIZE + 1, RECORD_SIZE):
        head = frames[at : at + RECORD_SIZE]
        record, crc = unpack(head)
        if record.direction not in wires:
            break
        direction = Direction(record.direction)
        wire, begin = wires[direction], ends[direction] + LENGTH.size
        end = begin + record.length
        if record.offset != begin or record.seq != seqs[direction] or end > len(wire):
            break
        length = LENGTH.unpack_from(wire, begin - LENGTH.size)[0]
        if length != record.length or crc_of(head, wire[begin:end]) != crc:
            break
        ends[direction], seqs[direction], n = end, record.seq + 1, n + 1
    keep = {WIRE_FILES[d]: end for d, end in ends.items()}
    return n, {FRAMES: n * RECORD_SIZE, **keep}


def whole_lines(partial: Path, bounds: CaptureBounds) -> tuple[int, int]:
    """Return how many journal lines hold from the first on, and how many bytes they are.

    Raises CaptureError as `whole_messages`.
    """
    fd, _ = open_file(partial / EVENTS, bounds.of(EVENTS))
    n = n_bytes = 0
    with open(fd, "rb") as file:
        while n < bounds.n_events:
            line = file.readline(bounds.line_bytes)
            try:
                decode_line(line)
            except ValueError:
                break
            n, n_bytes = n + 1, n_bytes + len(line)
    return n, n_bytes
