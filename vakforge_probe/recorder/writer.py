"""The capture writer: nothing that a disk does can delay a call, or lose more than a moment of it.

The call queues messages and journal objects; a thread writes them in batches: payloads first, then
the records that vouch for them, then the journal, so that whatever is on the disk after ``kill -9``
has a prefix without holes. When the disk or the queue is full, capturing stops there and the call
goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.format import (
    AGENT_WIRE,
    EVENTS,
    FRAMES,
    HEADER,
    LENGTH,
    PARTIAL_SUFFIX,
    SCENARIO,
    USER_WIRE,
    WIRE_FILES,
    CaptureBounds,
    encode_line,
)
from vakforge_eval.capture.recover import cut_to_whole
from vakforge_eval.capture.seal import seal, sync_file, sync_folder, write_file
from vakforge_eval.timeline.records import RECORD_SIZE, Direction, Flags, Kind, Record
from vakforge_eval.timeline.script import Script
from vakforge_probe.errors import CaptureFault
from vakforge_probe.limits import Limits
from vakforge_probe.recorder.disk import Disk
from vakforge_probe.recorder.mask import Mask

__all__ = ["CaptureWriter"]

_STREAMS = (USER_WIRE, AGENT_WIRE, FRAMES, EVENTS)
"""In the order in which a batch is written: a record is never on disk before its payload."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A record whose place in the wire file is not known yet."""

    direction: Direction
    flags: int
    kind: int
    seq: int
    due: int
    before: int
    after: int
    lo: int
    hi: int
    payload: bytes


class CaptureWriter:
    """Writes one capture, into ``<folder>.partial`` until `finish`.

    Parameters
    ----------
    folder
        The capture's final folder; neither it nor its ``.partial`` may exist.
    header, script
        Contents of ``header.json`` and ``scenario.json``, on file when this returns.
    inline
        Write at once, in the caller: virtual time knows no threads, and no power cut either.
    limits
        `max_message_bytes` bounds the queue (to four of the largest messages), `min_free_bytes` the
        disk.
    secrets
        Masked in all that is written.

    Attributes
    ----------
    problem
        Why capturing stopped before the call did, or None. The capture then holds all up to there.
    n_written
        Messages whose record is on file, and so survive ``kill -9``.

    Raises
    ------
    CaptureFault
        If the folder cannot be made, exists, or the disk is nearly full.
    """

    _disk: ClassVar[Disk] = Disk()
    _bounds: ClassVar[CaptureBounds] = CaptureBounds()
    """What a reader accepts: a longer capture could never be opened again."""

    def __init__(
        self,
        folder: Path,
        header: dict[str, Any],
        script: Script,
        *,
        inline: bool,
        limits: Limits,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._mask = Mask(secrets)
        self._inline = inline
        self._partial = folder.with_name(folder.name + PARTIAL_SUFFIX)
        self._finished: Path | None = None
        self._max_queued = 4 * limits.max_message_bytes
        self._queue: deque[_Message | bytes] = deque()
        # Each counter has one writer: the call, and whoever drains.
        self._n_queued_bytes = 0
        self._n_drained_bytes = 0
        self._next_seq = {Direction.USER: 0, Direction.AGENT: 0}
        self._wire_end = {Direction.USER: 0, Direction.AGENT: 0}
        self._drain_lock = threading.Lock()
        self._file_lock = threading.Lock()
        self._dirty: set[str] = set()
        self._has_synced_header = False
        self._is_broken = False
        self._n_lines = 0
        self._room = {name: self._bounds.of(name) for name in _STREAMS}
        self.problem: str | None = None
        self.n_written = 0
        try:
            self._fds = self._create(folder, header, script, limits)
        except OSError as error:
            raise CaptureFault(f"cannot begin the capture {folder}: {error.strerror}") from error
        if not inline:
            self._disk.attach(self)

    def sent(
        self, kind: Kind, flags: Flags, due: int, before: int, after: int, payload: bytes
    ) -> int:
        """Record a message that was sent between `before` and `after`; return its seq."""
        return self._record(Direction.USER, flags, kind, due, before, after, before, after, payload)

    def received(
        self, flags: Flags, kernel: int, before: int, after: int, lo: int, hi: int, payload: bytes
    ) -> int:
        """Record a message that arrived within ``[lo, hi]``; return its seq."""
        return self._record(
            Direction.AGENT, flags, Kind.CONTROL, kernel, before, after, lo, hi, payload
        )

    def event(self, obj: dict[str, Any]) -> None:
        """Record a journal object, as it is now."""
        line = encode_line(self._mask.value(obj))
        self._put(line, len(line))

    def finish(self) -> Path:
        """Write all, complete the capture and return its folder; a second call does nothing.

        Blocks on the disk. A disk that refuses leaves a ``.partial``, and `problem` says so.
        """
        if self._finished is None:
            if not self._inline:
                self._disk.detach(self)
            self.drain()
            with self._drain_lock, self._file_lock:
                self._finished = self._complete()
        return self._finished

    def drain(self) -> None:
        """Write what is queued; called by the write thread."""
        with self._drain_lock:
            batch: list[_Message | bytes] = []
            while self._queue:
                batch.append(self._queue.popleft())
            if not batch or self._finished is not None:
                return
            # What was queued before the queue was full is still a prefix without holes.
            if not self._is_broken:
                try:
                    self._write(batch)
                except (OSError, struct.error) as error:
                    self._is_broken = True
                    self._stop(f"cannot write: {getattr(error, 'strerror', None) or error}")
            self._n_drained_bytes += sum(map(_size, batch))

    def sync(self) -> None:
        """Make durable what is written; called by the sync thread."""
        with self._file_lock:
            if self._finished is not None:
                return
            try:
                self._sync()
            except OSError as error:
                self._stop(f"cannot sync: {error.strerror}")

    def _create(
        self, folder: Path, header: dict[str, Any], script: Script, limits: Limits
    ) -> dict[str, int]:
        if folder.exists():
            raise CaptureFault(f"the capture {folder} exists already")
        folder.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.parent).free < limits.min_free_bytes:
            raise CaptureFault(f"less than {limits.min_free_bytes} bytes are free for {folder}")
        self._partial.mkdir(mode=0o700)
        for name, content in ((HEADER, header), (SCENARIO, script.model_dump(mode="json"))):
            text = json.dumps(self._mask.value(content), indent=2, allow_nan=False) + "\n"
            # The sync thread makes them durable within its first moments: an event loop waits here.
            write_file(self._partial / name, text.encode("ascii"), durable=False)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        fds = {name: os.open(self._partial / name, flags, 0o600) for name in _STREAMS}
        # Held until the process ends, however it ends: nobody recovers a capture still written.
        fcntl.flock(fds[FRAMES], fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fds

    def _record(
        self,
        direction: Direction,
        flags: Flags,
        kind: Kind,
        due: int,
        before: int,
        after: int,
        lo: int,
        hi: int,
        payload: bytes,
    ) -> int:
        seq = self._next_seq[direction]
        self._next_seq[direction] = seq + 1
        message = _Message(direction, flags, kind, seq, due, before, after, lo, hi, payload)
        self._put(message, _size(message))
        return seq

    def _put(self, item: _Message | bytes, size: int) -> None:
        if self.problem is not None or self._finished is not None:
            return
        if self._n_queued_bytes - self._n_drained_bytes + size > self._max_queued:
            self._stop("the disk is too slow: the queue is full")
            return
        if not self._has_room(item):
            self._stop("it is as long as a capture may be")
            return
        self._n_queued_bytes += size
        self._queue.append(item)
        if self._inline:
            self.drain()
        else:
            self._disk.wake()

    def _has_room(self, item: _Message | bytes) -> bool:
        """Take what `item` needs from the room that is left in its files."""
        if isinstance(item, bytes):
            self._n_lines += 1
            self._room[EVENTS] -= len(item)
            fits = len(item) <= self._bounds.line_bytes and self._n_lines <= self._bounds.n_events
            return fits and self._room[EVENTS] >= 0
        wire = WIRE_FILES[item.direction]
        self._room[FRAMES] -= RECORD_SIZE
        self._room[wire] -= LENGTH.size + len(item.payload)
        fits = len(item.payload) <= self._bounds.message_bytes
        return fits and self._room[FRAMES] >= 0 and self._room[wire] >= 0

    def _stop(self, problem: str) -> None:
        if self.problem is None:
            self.problem = f"capture stopped: {problem}"

    def _write(self, batch: list[_Message | bytes]) -> None:
        parts: dict[str, list[bytes]] = {name: [] for name in _STREAMS}
        for item in batch:
            if isinstance(item, bytes):
                parts[EVENTS].append(item)
            else:
                payload = self._mask.data(item.payload)
                parts[WIRE_FILES[item.direction]] += (LENGTH.pack(len(payload)), payload)
                parts[FRAMES].append(self._packed(item, payload))
        for name in _STREAMS:
            if parts[name]:
                _write_all(self._fds[name], b"".join(parts[name]))
                self._dirty.add(name)
        self.n_written += len(parts[FRAMES])

    def _packed(self, item: _Message, payload: bytes) -> bytes:
        offset = self._wire_end[item.direction] + LENGTH.size
        self._wire_end[item.direction] = offset + len(payload)
        return Record(
            item.direction,
            item.flags,
            item.kind,
            item.seq,
            item.due,
            item.before,
            item.after,
            item.lo,
            item.hi,
            offset,
            len(payload),
        ).pack(payload)

    def _sync(self) -> None:
        if not self._has_synced_header:
            for name in (HEADER, SCENARIO):
                sync_file(self._partial / name)
            for folder in (self._partial, self._partial.parent):
                sync_folder(folder)
            self._has_synced_header = True
        for name in _STREAMS:
            if name in self._dirty:
                # Discarded first: a write during the sync is for the next one.
                self._dirty.discard(name)
                os.fdatasync(self._fds[name])

    def _complete(self) -> Path:
        try:
            if self._is_broken:
                cut_to_whole(self._partial)
            return seal(
                self._partial,
                recovered=False,
                truncated=self.problem is not None,
                durable=not self._inline,
            )
        except (OSError, CaptureError) as error:
            self._stop(f"cannot complete: {getattr(error, 'strerror', None) or error}")
            return self._partial
        finally:
            for fd in self._fds.values():
                os.close(fd)


def _size(item: _Message | bytes) -> int:
    return len(item) if isinstance(item, bytes) else len(item.payload)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
