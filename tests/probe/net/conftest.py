"""Kernel stamps switched on for good before the first test that counts on them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from vakforge_probe.net.stamps import stamped_listener


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
