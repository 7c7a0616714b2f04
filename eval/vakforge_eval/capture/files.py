"""Opening a stranger's files: regular ones only, none larger than its bound."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from vakforge_eval.capture.errors import CaptureError

__all__ = ["map_file", "open_file", "read_file"]


def open_file(path: Path, max_bytes: int, flags: int = os.O_RDONLY) -> tuple[int, int]:
    """Return ``(fd, size)`` of a regular file.

    Raises
    ------
    CaptureError
        If it is missing, a link, no regular file, or larger than `max_bytes`.
    """
    try:
        # Not blocking: a FIFO would wait for its other end.
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CaptureError(f"{path.name}: cannot open: {error.strerror}") from error
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
        return fd, status.st_size
    os.close(fd)
    kind = f"larger than {max_bytes} bytes" if stat.S_ISREG(status.st_mode) else "no regular file"
    raise CaptureError(f"{path.name}: {kind}")


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a regular file; raises as `open_file`."""
    fd, size = open_file(path, max_bytes)
    with open(fd, "rb") as file:
        return file.read(size)


def map_file(path: Path, max_bytes: int) -> memoryview:
    """Return the bytes of a regular file without reading them; raises as `open_file`."""
    fd, size = open_file(path, max_bytes)
    try:
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    finally:
        os.close(fd)
