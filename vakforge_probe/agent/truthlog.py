"""The file of the truth log: JSON lines, one file a process, the connection's id on each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vakforge_probe.net.alarm import Alarm, Handle

__all__ = ["TruthLog"]

DELAY_NS = 50_000_000
"""Lines are written this much later, so that a burst of messages is not slowed by its own log."""


class TruthLog:
    """Appends to `path`; with None it only keeps nothing and costs nothing."""

    def __init__(self, path: Path | None, alarm: Alarm, now_ns: Callable[[], int]) -> None:
        self._alarm, self._now_ns = alarm, now_ns
        self._fd = (
            None if path is None else os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        )
        self._waiting: list[dict[str, Any]] = []
        self._handle: Handle | None = None

    def note(self, connection: str, obj: dict[str, Any]) -> None:
        """Log `obj` of `connection`, stamped with the moment of this call."""
        if self._fd is None:
            return
        self._waiting.append({"connection": connection, "logged": self._now_ns(), **obj})
        if self._handle is None:
            self._handle = self._alarm.call_at(self._now_ns() + DELAY_NS, self.flush)

    def flush(self) -> None:
        """Write what waits."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._fd is not None and self._waiting:
            lines = "".join(
                json.dumps(obj, separators=(",", ":"), allow_nan=False) + "\n"
                for obj in self._waiting
            )
            self._waiting.clear()
            os.write(self._fd, lines.encode("utf-8"))

    def close(self) -> None:
        """Write what waits and close the file."""
        self.flush()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
