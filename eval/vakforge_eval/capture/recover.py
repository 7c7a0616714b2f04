"""Finishing a capture that a crash left torn.

What was written last may be torn in any file. Kept is the longest prefix of records whose CRC and
payload hold, without a hole in either direction, and the journal up to its first bad line. All else
is cut off, the capture is marked ``recovered`` and gets its final name.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vakforge_eval.capture import strict_json
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.files import open_file, read_file
from vakforge_eval.capture.format import (
    AGENT_WIRE,
    DATA_FILES,
    EVENTS,
    FRAMES,
    HEADER,
    INDEX,
    PARTIAL_SUFFIX,
    SCENARIO,
    USER_WIRE,
    CaptureBounds,
)
from vakforge_eval.capture.scan import whole_lines, whole_messages
from vakforge_eval.capture.seal import final_path, hash_file, seal, sync_folder

__all__ = ["Recovery", "cut_to_whole", "recover"]

_GROWING = (FRAMES, USER_WIRE, AGENT_WIRE, EVENTS)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What `recover` found and did.

    Attributes
    ----------
    path
        The complete capture.
    was_torn
        False when there was nothing to recover.
    n_messages, n_events
        Whole messages and journal lines that the capture holds; 0 where nothing was torn.
    cut_bytes
        File name -> bytes cut off its end; names without a cut are absent.
    """

    path: Path
    was_torn: bool
    n_messages: int = 0
    n_events: int = 0
    cut_bytes: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.was_torn:
            return f"{self.path}: nothing to recover"
        cut = ", ".join(f"{n} bytes of {name}" for name, n in self.cut_bytes.items())
        return (
            f"{self.path}: recovered {self.n_messages} messages and {self.n_events} events, "
            f"cut {cut or 'nothing'}"
        )


def recover(path: Path, bounds: CaptureBounds | None = None) -> Recovery:
    """Finish the torn capture at `path` (its folder, with or without ``.partial``).

    A capture that is complete is left as it is.

    Raises
    ------
    CaptureError
        If there is no capture, its header or scenario never reached the disk, another process is
        still writing it, or a file is beyond its bound.
    """
    bounds = bounds or CaptureBounds()
    is_partial = path.name.endswith(PARTIAL_SUFFIX)
    partial = path if is_partial else path.with_name(path.name + PARTIAL_SUFFIX)
    final = final_path(partial)
    if os.path.isfile(final / INDEX):
        return Recovery(final, was_torn=False)
    if not os.path.isdir(partial):
        raise CaptureError(f"{path}: no capture")
    try:
        return _finish(partial, bounds)
    except OSError as error:
        raise CaptureError(f"{partial}: cannot recover: {error.strerror}") from error


def cut_to_whole(partial: Path, bounds: CaptureBounds | None = None) -> Recovery:
    """Cut each growing file of `partial` after its last whole part; seal nothing.

    Raises
    ------
    CaptureError
        If a file cannot be opened or is beyond its bound.
    OSError
        If the disk refuses.
    """
    bounds = bounds or CaptureBounds()
    n_messages, keep = whole_messages(partial, bounds)
    n_events, keep[EVENTS] = whole_lines(partial, bounds)
    cut: dict[str, int] = {}
    for name in _GROWING:
        fd, size = open_file(partial / name, bounds.of(name), os.O_RDWR)
        try:
            if size > keep[name]:
                os.ftruncate(fd, keep[name])
                cut[name] = size - keep[name]
        finally:
            os.close(fd)
    return Recovery(partial, True, n_messages, n_events, cut)


def _finish(partial: Path, bounds: CaptureBounds) -> Recovery:
    _check_heads(partial, bounds)
    for name in _GROWING:
        # Killed before all files were made.
        with suppress(FileExistsError):
            os.close(os.open(partial / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with _alone(partial, bounds):
        if _is_sealed(partial, bounds):
            final = final_path(partial)
            os.rename(partial, final)
            sync_folder(final.parent)
            return Recovery(final, was_torn=True)
        found = cut_to_whole(partial, bounds)
        final = seal(partial, recovered=True, truncated=False)
    return Recovery(final, True, found.n_messages, found.n_events, found.cut_bytes)


def _check_heads(partial: Path, bounds: CaptureBounds) -> None:
    for name in (HEADER, SCENARIO):
        try:
            strict_json.loads(read_file(partial / name, bounds.of(name)))
        except (CaptureError, ValueError) as error:
            raise CaptureError(f"{partial}: torn before the call began: {name}: {error}") from error


@contextmanager
def _alone(partial: Path, bounds: CaptureBounds) -> Iterator[None]:
    """Hold the lock that a running recorder holds."""
    fd, _ = open_file(partial / FRAMES, bounds.of(FRAMES))
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CaptureError(f"{partial}: still being written") from None
    finally:
        os.close(fd)


def _is_sealed(partial: Path, bounds: CaptureBounds) -> bool:
    """Whether only the last rename is missing."""
    try:
        index = strict_json.loads(read_file(partial / INDEX, bounds.of(INDEX)))
        return bool(index["files"] == {name: hash_file(partial / name) for name in DATA_FILES})
    except (CaptureError, ValueError, KeyError, TypeError):
        return False
