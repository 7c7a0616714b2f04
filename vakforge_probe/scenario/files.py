"""Opening files that strangers wrote: confined to a folder, regular, bounded."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["inside", "read_bounded"]


def inside(root: Path, name: str) -> Path:
    """Return the real path of `name`, which must lie under `root`.

    Raises
    ------
    ValueError
        If `name` is absolute, climbs out (``..`` or a symbolic link) or is no file name at all.
    """
    if not name or "\0" in name or "\\" in name or ":" in name:
        raise ValueError("is not a plain relative path")
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError("must stay inside its folder")
    real_root = root.resolve()
    real = (real_root / relative).resolve()
    if not real.is_relative_to(real_root):
        raise ValueError("must stay inside its folder (a symbolic link leads out)")
    return real


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes`.

    Raises
    ------
    ValueError
        If it is not a regular file, or larger.
    OSError
        If it cannot be read.
    """
    # O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer for ever.
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a regular file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"is larger than {max_bytes} bytes")
    return data
