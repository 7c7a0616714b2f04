"""A connection takes in what comes at once, before any of it is read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time

import pytest

from vakforge_probe.net.dial import connect
from vakforge_probe.net.tcpinfo import tcp_info

N_BURST = 150_000
"""Two seconds of audio as text; far more than waits in a buffer of the usual first size."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel what waits")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_burst_arrives_whole_while_the_probe_is_busy(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.create_server((host, 0), family=family))
        except OSError:
            pytest.skip("no IPv6 here")
        client = stack.enter_context(asyncio.run(connect([(family, listener.getsockname())])))
        server = stack.enter_context(listener.accept()[0])
        server.settimeout(20)
        server.sendall(bytes(N_BURST))
        until = time.monotonic() + 20
        while (info := tcp_info(server)) is None or info.bytes_unsent:
            assert time.monotonic() < until, "the peer waits for the probe to read"
        assert client.recv(1)
