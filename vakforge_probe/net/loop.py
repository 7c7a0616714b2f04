"""The event loop for real calls."""

from __future__ import annotations

import asyncio
import sys

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop that gives stamped sockets tight lower bounds.

    Use it as a loop factory: ``asyncio.Runner(loop_factory=new_event_loop)``. On systems without
    epoll it is the default loop, and bounds are as wide as `StampedSocket` says.
    """
    if sys.platform == "linux":
        from vakforge_probe.net.datagrams import StampLoop
        from vakforge_probe.net.selector import StampSelector

        return StampLoop(StampSelector())
    return asyncio.new_event_loop()
