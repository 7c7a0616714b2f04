"""The one clock: monotonic nanoseconds, or those of a virtual loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeGuard

from vakforge_probe.net.virtual import VirtualLoop

__all__ = ["is_virtual", "now_ns_of"]


def is_virtual(loop: asyncio.AbstractEventLoop) -> TypeGuard[VirtualLoop]:
    """Whether `loop` runs on virtual time."""
    return isinstance(loop, VirtualLoop)


def now_ns_of(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """Return the function that reads the clock of `loop` (ns)."""
    if is_virtual(loop):
        return lambda: loop.now_ns
    return time.monotonic_ns
