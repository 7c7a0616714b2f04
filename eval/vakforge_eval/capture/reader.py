"""Reading a complete capture; whoever wrote it is not trusted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from vakforge_eval.capture import strict_json
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.files import map_file, open_file, read_file
from vakforge_eval.capture.format import (
    CAPTURE_VERSION,
    DATA_FILES,
    EVENTS,
    FRAMES,
    HEADER,
    INDEX,
    LENGTH,
    MAX_NS,
    PARTIAL_SUFFIX,
    SCENARIO,
    WIRE_FILES,
    CaptureBounds,
    decode_line,
)
from vakforge_eval.capture.scan import whole_lines, whole_messages
from vakforge_eval.capture.seal import hash_file
from vakforge_eval.timeline.faults import first_fault
from vakforge_eval.timeline.records import RECORD_SIZE, as_array, crc_of
from vakforge_eval.timeline.script import Script

__all__ = ["Capture", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a capture that does not hold."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


class Capture:
    """One complete capture; open it with `Capture.open`.

    Attributes
    ----------
    path
        Its folder.
    header
        Contents of ``header.json``.
    script
        The compiled scenario.
    is_recovered, is_truncated
        Whether a crash tore it, and whether the recorder stopped before the call.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        script: Script,
        index: dict[str, Any],
        bounds: CaptureBounds,
    ) -> None:
        self.path, self.header, self.script, self.bounds = path, header, script, bounds
        self.is_recovered = index.get("recovered") is True
        self.is_truncated = index.get("truncated") is True
        self._hashes = index.get("files")
        self._wires: dict[str, memoryview] = {}

    @classmethod
    def open(cls, path: Path, bounds: CaptureBounds | None = None) -> Capture:
        """Open the complete capture in folder `path`.

        Raises
        ------
        CaptureError
            If there is none, it is torn, was written by a newer version, or its header, scenario
            or index is damaged or beyond its bound.
        """
        bounds = bounds or CaptureBounds()
        _check_complete(path)
        header = _json_object(path, HEADER, bounds)
        version = header.get("capture_version")
        if version != CAPTURE_VERSION:
            raise CaptureError(
                f"{HEADER}: capture_version is {version!r}; this program reads {CAPTURE_VERSION}"
            )
        index = _json_object(path, INDEX, bounds)
        try:
            script = Script.model_validate(_json_object(path, SCENARIO, bounds))
        except ValidationError as error:
            where = ": ".join(part for part in (SCENARIO, *first_fault(error)) if part)
            raise CaptureError(where) from None
        return cls(path, header, script, index, bounds)

    @cached_property
    def frames(self) -> npt.NDArray[np.void]:
        """All records in order, of `RECORD_DTYPE`, shape ``(n_messages,)``."""
        data = read_file(self.path / FRAMES, self.bounds.of(FRAMES))
        if len(data) % RECORD_SIZE:
            raise CaptureError(f"{FRAMES}: ends inside a record")
        frames = as_array(data)
        if np.any(frames["lo"] > frames["hi"]) or np.any(frames["before"] > frames["after"]):
            raise CaptureError(f"{FRAMES}: an interval that ends before it begins")
        times = [frames[name] for name in ("lo", "hi", "before", "after", "due")]
        if any(np.any((t <= -MAX_NS) | (t >= MAX_NS)) for t in times):
            raise CaptureError(f"{FRAMES}: a time that no clock shows")
        return frames

    @cached_property
    def journal(self) -> tuple[dict[str, Any], ...]:
        """All journal objects in order."""
        fd, _ = open_file(self.path / EVENTS, self.bounds.of(EVENTS))
        objects: list[dict[str, Any]] = []
        with open(fd, "rb") as file:
            while line := file.readline(self.bounds.line_bytes):
                if len(objects) == self.bounds.n_events:
                    raise CaptureError(f"{EVENTS}: more than {self.bounds.n_events} lines")
                try:
                    objects.append(decode_line(line))
                except ValueError as error:
                    raise CaptureError(f"{EVENTS}: line {len(objects) + 1}: {error}") from error
        return tuple(objects)

    def payload(self, record: np.void) -> bytes:
        """Return the message that one of `frames` records, checked against its CRC.

        Raises
        ------
        CaptureError
            If it is not there, damaged, or beyond its bound.
        """
        name = WIRE_FILES.get(int(record["direction"]))
        begin, length = int(record["offset"]), int(record["length"])
        where = f"{name}: message {int(record['seq'])}"
        if name is None or length > self.bounds.message_bytes:
            raise CaptureError(f"{where}: no such direction, or too large")
        wire = self._wire(name)
        if not LENGTH.size <= begin <= begin + length <= len(wire):
            raise CaptureError(f"{where}: outside of the file")
        data = bytes(wire[begin : begin + length])
        if crc_of(record.tobytes(), data) != int(record["crc"]):
            raise CaptureError(f"{where}: CRC does not fit")
        return data

    def verify(self) -> list[Problem]:
        """Return all that does not hold: hashes, records, messages, journal lines."""
        try:
            return [*self._wrong_hashes(), *self._torn_files()]
        except CaptureError as error:
            return [Problem(str(self.path), str(error))]

    def _wire(self, name: str) -> memoryview:
        if name not in self._wires:
            self._wires[name] = map_file(self.path / name, self.bounds.of(name))
        return self._wires[name]

    def _wrong_hashes(self) -> list[Problem]:
        hashes = self._hashes
        if not isinstance(hashes, dict) or set(hashes) != set(DATA_FILES):
            return [Problem(INDEX, "does not name the capture's files")]
        for name in DATA_FILES:
            map_file(self.path / name, self.bounds.of(name))
        return [
            Problem(name, "SHA-256 differs from the index")
            for name in DATA_FILES
            if hash_file(self.path / name) != hashes[name]
        ]

    def _torn_files(self) -> list[Problem]:
        _, keep = whole_messages(self.path, self.bounds)
        _, keep[EVENTS] = whole_lines(self.path, self.bounds)
        sizes = {name: (self.path / name).stat().st_size for name in keep}
        return [
            Problem(name, f"holds only up to byte {at} of {sizes[name]}")
            for name, at in keep.items()
            if at != sizes[name]
        ]


def _check_complete(path: Path) -> None:
    if path.name.endswith(PARTIAL_SUFFIX) or not os.path.exists(path / INDEX):
        partial = path.with_name(path.name.removesuffix(PARTIAL_SUFFIX) + PARTIAL_SUFFIX)
        if os.path.isdir(partial):
            raise CaptureError(f"{partial}: torn; `capture recover` can finish it")
        raise CaptureError(f"{path}: no capture")


def _json_object(path: Path, name: str, bounds: CaptureBounds) -> dict[str, Any]:
    try:
        obj = strict_json.loads(read_file(path / name, bounds.of(name)))
    except ValueError as error:
        raise CaptureError(f"{name}: {error}") from error
    if not isinstance(obj, dict):
        raise CaptureError(f"{name}: not a JSON object")
    return obj
