"""Errors by blame, and the one table that maps them to exit codes.

::

    ProbeError
    ├── ConfigError          a file or an option is wrong; nothing was dialled
    ├── TargetError          the target failed: refused, timed out, broke the protocol, a limit
    │   ├── TargetRefused
    │   ├── TargetTimeout
    │   ├── TargetProtocolError
    │   ├── TargetLimitExceeded
    │   └── TargetClosed
    ├── ProbeFault           the probe itself could not measure
    ├── CaptureFault         a capture cannot be read or written
    └── MissingDependency    an optional part is not installed
"""

from __future__ import annotations

from enum import IntEnum

from vakforge_eval.capture.errors import CaptureError
from vakforge_probe.text import clean

__all__ = [
    "CaptureFault",
    "ConfigError",
    "ExitCode",
    "MissingDependency",
    "ProbeError",
    "ProbeFault",
    "TargetClosed",
    "TargetError",
    "TargetLimitExceeded",
    "TargetProtocolError",
    "TargetRefused",
    "TargetTimeout",
    "exit_code",
]


class ExitCode(IntEnum):
    """What a command's exit code means."""

    OK = 0
    MISSED = 1
    CONFIG = 2
    TARGET = 3
    INVALID = 4
    PARTIAL = 5
    INTERRUPTED = 130
    TERMINATED = 143


class ProbeError(Exception):
    """Root of all errors that a user can meet; `str()` is one safe line."""


class ConfigError(ProbeError):
    """A scenario, option or file is wrong.

    Attributes
    ----------
    file, line, key, value, nearest
        Where it is, the wrong value, and the nearest right key; each may be None.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        value: object = None,
        nearest: str | None = None,
    ) -> None:
        self.message, self.file, self.line = message, file, line
        self.key, self.value, self.nearest = key, value, nearest
        place = ":".join(str(p) for p in (file, line) if p is not None)
        parts = [f"{place}: " if place else "", f"{key}: " if key else "", message]
        if value is not None:
            parts.append(f" (got {clean(repr(value), 120)})")
        if nearest:
            parts.append(f"; did you mean {nearest!r}?")
        super().__init__(clean("".join(parts), 2000))


class TargetError(ProbeError):
    """The target failed.

    Attributes
    ----------
    phase
        webhook, resolve, connect, tls, handshake, ready, call or first_audio. Who raises it below
        the call cannot always know; the call then sets it.
    """

    kind = "target_error"

    def __init__(self, message: str, *, phase: str) -> None:
        self.phase = phase
        self.message = clean(message, 400)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.kind} in phase {self.phase}: {self.message}"


class TargetRefused(TargetError):
    """The target did not let us in.

    Attributes
    ----------
    status, retry_after
        HTTP status and ``Retry-After`` header of its answer, where there was one.
    """

    kind = "refused"

    def __init__(
        self,
        message: str,
        *,
        phase: str,
        status: int | None = None,
        retry_after: str | None = None,
    ) -> None:
        self.status = status
        self.retry_after = None if retry_after is None else clean(retry_after, 64)
        super().__init__(message, phase=phase)


class TargetTimeout(TargetError):
    """The target did not answer within the phase's deadline."""

    kind = "timeout"


class TargetProtocolError(TargetError):
    """The target broke the protocol; `excerpt` is at most 200 escaped characters of it."""

    kind = "protocol_error"

    def __init__(self, message: str, *, phase: str, excerpt: str = "") -> None:
        self.excerpt = clean(excerpt, 200)
        super().__init__(message + (f" near {self.excerpt!r}" if excerpt else ""), phase=phase)


class TargetLimitExceeded(TargetError):
    """The target sent more than `limit` allows."""

    kind = "limit_exceeded"

    def __init__(self, message: str, *, phase: str, limit: str) -> None:
        self.limit = limit
        super().__init__(f"{message} (limit {limit})", phase=phase)


class TargetClosed(TargetError):
    """The target ended the call before the script was done."""

    kind = "closed"


class ProbeFault(ProbeError):
    """The probe itself could not measure (overrun, clock jump, disk full)."""


class CaptureFault(ProbeError):
    """A capture cannot be read or written."""


class MissingDependency(ProbeError):
    """An optional part is needed; `extra` names what to install."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} is not installed: pip install 'vakforge-probe[{extra}]'")


_EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (ConfigError, ExitCode.CONFIG),
    (MissingDependency, ExitCode.CONFIG),
    (TargetError, ExitCode.TARGET),
    (ProbeFault, ExitCode.INVALID),
    (CaptureFault, ExitCode.INVALID),
    (CaptureError, ExitCode.INVALID),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
)


def exit_code(error: BaseException) -> ExitCode | None:
    """Return the exit code for `error`, or None if it is a bug and must be seen as one."""
    return next((code for cls, code in _EXIT_CODES if isinstance(error, cls)), None)
