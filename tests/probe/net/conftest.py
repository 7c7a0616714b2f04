"""Kernel stamps switched on for good before the first test that counts on them."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.stamps import stamped_listener

PATIENCE_S = 30.0


@pytest.fixture(scope="session", autouse=True)
def kernel_stamps() -> Iterator[None]:
    """Keep one stamped connection open.

    The kernel starts to stamp some time after the first socket has asked for it, and stops when
    the last one is gone; what comes before it has started carries no stamp.
    """
    if sys.platform != "linux":
        yield
        return
    with stamped_listener("127.0.0.1", 0) as listener:
        listener.listen()
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()) as plain:
            accepted, _ = listener.accept()
            accepted.setblocking(True)
            with accepted:
                while accepted.last_read is None or accepted.last_read.kernel is None:
                    plain.send(b"x")
                    accepted.recv(1)
                yield


@pytest.fixture
def run_clean() -> Callable[..., None]:
    """Return a runner on a real loop, which sees that no task, thread, socket or error is left."""

    def run(main: Awaitable[Any], loop_factory: Any = new_event_loop) -> None:
        strays: list[dict[str, Any]] = []
        threads = set(threading.enumerate())

        async def go() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: strays.append(context))
            await main
            if rest := asyncio.all_tasks() - {asyncio.current_task()}:
                _, rest = await asyncio.wait(rest, timeout=PATIENCE_S)
            assert not rest

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(go())
        gc.collect()  # what was not closed warns now, and a warning is an error
        assert strays == []
        assert set(threading.enumerate()) <= threads

    return run
