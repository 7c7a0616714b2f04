"""The last step of a capture: sync, index, rename. Shared by the recorder and by recovery."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from vakforge_eval.capture.format import DATA_FILES, INDEX, PARTIAL_SUFFIX

__all__ = ["final_path", "hash_file", "seal", "sync_file", "sync_folder", "write_file"]


def final_path(partial: Path) -> Path:
    """Return what a ``.partial`` folder is called when complete."""
    return partial.with_name(partial.name.removesuffix(PARTIAL_SUFFIX))


def seal(partial: Path, *, recovered: bool, truncated: bool, durable: bool = True) -> Path:
    """Complete the capture in `partial`, whose data files are whole; return its final folder.

    Parameters
    ----------
    recovered
        Whether a torn capture was mended.
    truncated
        Whether the recorder had to stop before the call did.
    durable
        Whether to wait until the disk has it all.

    Raises
    ------
    OSError
        If the disk refuses; the capture is then still a recoverable ``.partial``.
    """
    if durable:
        for name in DATA_FILES:
            sync_file(partial / name)
    index = {
        "files": {name: hash_file(partial / name) for name in DATA_FILES},
        "recovered": recovered,
        "truncated": truncated,
    }
    text = json.dumps(index, indent=2, allow_nan=False) + "\n"
    write_file(partial / INDEX, text.encode("ascii"), durable=durable)
    final = final_path(partial)
    os.rename(partial, final)
    if durable:
        sync_folder(final.parent)
    return final


def write_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file that appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if durable:
        sync_folder(path.parent)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_file(path: Path) -> None:
    """Wait until the disk has the file's data."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the folder's entries."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
