"""What a call needs of a connection, whatever carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from vakforge_probe.protocol.base import Wire

__all__ = ["Sent", "Shell"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message handed to the kernel between `before` and `after` (ns).

    `back_pressure` says that the kernel did not take all of it, so that some left later.
    """

    before: int
    after: int
    back_pressure: bool


class Shell(Protocol):
    """One connection to a target; use once, on a running loop.

    It is made with three callbacks: `on_message` with each whole message and its stamp, the first
    maybe before `open` returns; `on_closed` once when the connection ends without a fault, with a
    code and the target's reason; `on_fault` instead of it when the target breaks the protocol or a
    limit.

    Attributes
    ----------
    phases
        Start and end (ns) of each phase of `open`, as far as it has come; there too when it fails.
    """

    phases: dict[str, tuple[int, int]]

    async def open(self) -> dict[str, tuple[int, int]]:
        """Connect; return `phases`.

        Raises
        ------
        TargetError
            If the target refuses, takes too long or breaks the protocol; names the phase.
        """
        ...

    def send(self, data: Wire) -> Sent:
        """Send one message now, without waiting for anything.

        Raises
        ------
        TargetClosed
            If the connection is not open.
        """
        ...

    async def close(self) -> None:
        """End the connection, at the latest after `close_s`; in any state, and more than once."""
        ...

    def self_facts(self) -> dict[str, Any]:
        """Return what the shell knows of its own error."""
        ...
