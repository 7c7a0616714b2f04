"""The WebSocket shell with a well-behaved server, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from vakforge_probe.errors import ConfigError, TargetClosed
from vakforge_probe.net.clock import is_virtual
from vakforge_probe.net.shell import Sent
from vakforge_probe.net.stamps import ArrivalStamp, stamped_listener
from vakforge_probe.net.virtual import VirtualTimeError, run
from vakforge_probe.net.websocket import WebSocketShell

MS = 1_000_000
Handler = Callable[[ServerConnection], Awaitable[None]]


class Ear:
    """Everything a shell said."""

    def __init__(self) -> None:
        self.messages: list[tuple[str | bytes, int]] = []
        self.closed: list[tuple[int, str]] = []
        self.ended = asyncio.Event()

    def on_message(self, data: str | bytes, stamp: ArrivalStamp) -> None:
        assert stamp == ArrivalStamp.exact(stamp.hi)
        self.messages.append((data, stamp.hi))

    def on_closed(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))
        self.ended.set()

    def shell(self, url: str, **options: Any) -> WebSocketShell:
        return WebSocketShell(
            url,
            on_message=self.on_message,
            on_closed=self.on_closed,
            on_fault=lambda error: pytest.fail(str(error)),
            **options,
        )


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """Serve with the unmodified library and yield the URL."""
    listener = stamped_listener("127.0.0.1", 0)
    options = {"ping_interval": None, "max_size": None} | options
    async with serve(handler, sock=listener, **options):
        scheme = "wss" if "ssl" in options else "ws"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/v1?model=a"


async def echo_later(connection: ServerConnection) -> None:
    async for message in connection:
        await asyncio.sleep(0.0137)
        await connection.send(message)


def now_ns() -> int:
    loop = asyncio.get_running_loop()
    assert is_virtual(loop)
    return loop.now_ns


def test_phases_and_sends_take_no_virtual_time_and_echoes_come_to_the_nanosecond() -> None:
    async def main() -> None:
        ear = Ear()
        async with serving(echo_later) as url:
            await asyncio.sleep(1)
            shell = ear.shell(url)
            assert await shell.open() == {
                "resolve": (1000 * MS, 1000 * MS),
                "connect": (1000 * MS, 1000 * MS),
                "handshake": (1000 * MS, 1000 * MS),
            }
            for data in ("text é", b"\x00\xff", "", bytes(100_000)):
                begun = now_ns()
                assert shell.send(data) == Sent(begun, begun, back_pressure=False)
                await asyncio.sleep(0.02)
                assert ear.messages.pop() == (data, begun + 13_700_000)
            assert shell.stamp_source == "virtual"
            assert shell.self_facts() == {}
            await shell.close()
        assert ear.closed == [(1000, "")]

    run(main())


def test_tls_works_on_virtual_time_and_has_a_phase_of_its_own(make_certificate: Any) -> None:
    certificate = make_certificate()

    async def main() -> None:
        ear = Ear()
        async with serving(echo_later, ssl=certificate.server_context()) as url:
            shell = ear.shell(url, ca_file=certificate.cert_file)
            assert list(await shell.open()) == ["resolve", "connect", "tls", "handshake"]
            begun = now_ns()
            for n_bytes in (100, 50_000):
                shell.send(bytes(n_bytes))
            await asyncio.sleep(0.5)
            assert [(len(data), at - begun) for data, at in ear.messages] == [
                (100, 13_700_000),
                (50_000, 27_400_000),
            ]
            await shell.close()

    run(main())


def test_two_runs_are_the_same_to_the_nanosecond() -> None:
    async def main() -> list[int]:
        ear = Ear()
        async with serving(echo_later) as url:
            shell = ear.shell(url)
            await shell.open()
            for n in range(50):
                shell.send(bytes(1 + 997 * n))
                await asyncio.sleep(0.0031)
            await asyncio.sleep(2)
            await shell.close()
        return [at for _, at in ear.messages]

    first = run(main())
    assert len(first) == 50
    assert run(main()) == first


def test_headers_and_subprotocols_reach_the_server_and_compression_is_not_offered() -> None:
    seen: list[Any] = []

    async def note(connection: ServerConnection) -> None:
        seen.append(connection.request)

    async def main() -> None:
        ear = Ear()
        async with serving(note, subprotocols=[Subprotocol("realtime")]) as url:
            shell = ear.shell(
                url,
                headers={"Authorization": "Bearer abcdef", "X-Beta": "1"},
                subprotocols=["other", "realtime"],
            )
            await shell.open()
            assert shell.subprotocol == "realtime"
            await ear.ended.wait()
            await shell.close()
        (request,) = seen
        assert request.path == "/v1?model=a"
        assert request.headers["Authorization"] == "Bearer abcdef"
        assert request.headers["X-Beta"] == "1"
        assert "Sec-WebSocket-Extensions" not in request.headers

    run(main())


def test_the_servers_goodbye_is_reported_once_with_code_and_reason() -> None:
    async def leave(connection: ServerConnection) -> None:
        await asyncio.sleep(0.25)
        await connection.close(4000, "enough")

    async def main() -> None:
        ear = Ear()
        async with serving(leave) as url:
            shell = ear.shell(url)
            await shell.open()
            await ear.ended.wait()
            assert now_ns() == 250 * MS
            with pytest.raises(TargetClosed):
                shell.send("too late")
            await shell.close()
            await shell.close()
        assert ear.closed == [(4000, "enough")]

    run(main())


def test_closing_before_and_without_opening_is_harmless() -> None:
    async def main() -> None:
        shell = Ear().shell("ws://127.0.0.1:1/")
        await shell.close()
        with pytest.raises(TargetClosed):
            shell.send("too early")

    run(main())


def test_what_the_kernel_does_not_take_at_once_is_flagged_as_back_pressure() -> None:
    async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(x for x in head.split(b"\r\n") if x.lower().startswith(b"sec-websocket-key"))
        writer.write(answer_to(key.split(b":")[1].strip()))
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        await asyncio.sleep(1)
        transport.resume_reading()
        while await reader.read(1 << 20):
            pass
        writer.close()

    async def main() -> None:
        ear = Ear()
        server = await asyncio.start_server(read_late, "127.0.0.1", 0)
        async with server:
            shell = ear.shell(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            await shell.open()
            assert not shell.send(bytes(1000)).back_pressure
            # More than both kernels' buffers hold, less than the cap over them.
            flags = [shell.send(bytes(100_000)).back_pressure for _ in range(10)]
            while not flags[-1]:
                flags.append(shell.send(bytes(100_000)).back_pressure)
            assert shell.send(b"queued behind").back_pressure
            await asyncio.sleep(2)
            assert not shell.send(b"flows again").back_pressure
            await shell.close()
            await asyncio.sleep(0.1)  # the server sees the end

    run(main())


def answer_to(key: bytes) -> bytes:
    from websockets.utils import accept_key

    accept = accept_key(key.decode()).encode()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "127.0.0.1", "ws://", "ws://user:hush-hush@127.0.0.1/", "ws://[::1/"],
)
def test_a_wrong_url_is_the_users_mistake_and_not_repeated(url: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError) as caught:
            Ear().shell(url)
        assert "hush-hush" not in str(caught.value)

    run(main())


@pytest.mark.parametrize("text", [None, "this is no certificate"])
def test_a_wrong_ca_file_is_the_users_mistake(tmp_path: Path, text: str | None) -> None:
    ca_file = tmp_path / "ca.pem"
    if text is not None:
        ca_file.write_text(text)

    async def main() -> None:
        with pytest.raises(ConfigError, match=r"ca\.pem"):
            Ear().shell("wss://127.0.0.1/", ca_file=ca_file)

    run(main())


def test_a_name_on_virtual_time_is_refused_clearly() -> None:
    async def main() -> None:
        with pytest.raises(VirtualTimeError, match="look-up"):
            await Ear().shell("ws://localhost:1/").open()

    run(main())
