"""Virtual time: exact, the same each time, and blind to nothing that could make it wrong."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from vakforge_probe.net import virtual
from vakforge_probe.net.clock import is_virtual, now_ns_of
from vakforge_probe.net.virtual import VirtualLoop, VirtualTimeError, run

MS = 1_000_000


def loop_now() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert is_virtual(loop)
    return loop


@pytest.mark.parametrize("n_bytes", [960, 200_000, 2_000_000])
def test_round_trips_through_an_unmodified_websocket_library_last_exactly_as_programmed(
    n_bytes: int,
) -> None:
    async def echo_later(connection: ServerConnection) -> None:
        async for message in connection:
            await asyncio.sleep(0.0137)
            await connection.send(message)

    async def main() -> set[int]:
        loop = loop_now()
        options: dict[str, Any] = {"compression": None, "ping_interval": None, "max_size": None}
        durations = set()
        async with serve(echo_later, "127.0.0.1", 0, **options) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            url = f"ws://127.0.0.1:{port}"
            async with connect(url, proxy=None, **options) as client:
                payload = bytes(n_bytes)
                for _ in range(300):
                    begun = loop.now_ns
                    await client.send(payload)
                    assert len(await client.recv()) == n_bytes
                    durations.add(loop.now_ns - begun)
                    await asyncio.sleep(0.003)
        return durations

    assert run(main()) == {13_700_000}


def test_timers_one_nanosecond_apart_fire_at_their_own_instants() -> None:
    async def main() -> list[tuple[int, int]]:
        loop = loop_now()
        await asyncio.sleep(100_000)  # a day on, where a float of seconds has few digits left
        start = loop.now_ns
        fired: list[tuple[int, int]] = []

        def note(ns: int) -> None:
            fired.append((ns, loop.now_ns - start))

        for ns in (3, 1, 2, 20 * MS):
            loop.call_at_ns(start + ns, note, ns)
        await asyncio.sleep(1)
        return fired

    assert run(main()) == [(1, 1), (2, 2), (3, 3), (20 * MS, 20 * MS)]


def test_sleeps_of_twenty_milliseconds_never_drift() -> None:
    async def main() -> int:
        for _ in range(1000):
            await asyncio.sleep(0.02)
        return loop_now().now_ns

    assert run(main()) == 20_000 * MS


def test_work_between_two_timers_takes_no_time() -> None:
    async def main() -> int:
        for _ in range(100):
            await asyncio.sleep(0)
        return loop_now().now_ns

    assert run(main()) == 0


def test_advance_is_a_stall_that_makes_due_timers_late() -> None:
    async def main() -> list[int]:
        loop = loop_now()
        seen: list[int] = []
        loop.call_at_ns(10 * MS, lambda: seen.append(loop.now_ns))
        loop.advance(300 * MS)
        await asyncio.sleep(0)
        return seen

    assert run(main()) == [300 * MS]


def test_advance_never_runs_backwards() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="backwards"):
            loop_now().advance(-1)

    run(main())


def test_the_clock_of_a_loop_is_its_own() -> None:
    async def main() -> tuple[int, int]:
        now = now_ns_of(asyncio.get_running_loop())
        before = now()
        await asyncio.sleep(0.5)
        return before, now()

    assert run(main()) == (0, 500 * MS)


def test_a_connection_waits_for_nothing_but_the_timers() -> None:
    """A stream larger than all kernel buffers goes through at one instant."""

    async def main() -> int:
        loop = loop_now()

        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            n_bytes = len(await reader.read(-1))
            writer.write(str(n_bytes).encode())
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(swallow, "127.0.0.1", 0, limit=1 << 26)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(bytes(30_000_000))
            await writer.drain()
            writer.write_eof()
            assert await reader.read() == b"30000000"
            writer.close()
            await writer.wait_closed()
        return loop.now_ns

    assert run(main()) == 0


def test_a_reader_that_pauses_holds_the_writer_up_in_virtual_time() -> None:
    async def main() -> int:
        loop = loop_now()
        listener = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        client.setblocking(False)
        accepted.setblocking(False)
        with listener, client, accepted:
            sending = asyncio.ensure_future(loop.sock_sendall(client, bytes(30_000_000)))
            await asyncio.sleep(1)
            assert not sending.done()
            n_read = 0
            while n_read < 30_000_000:
                n_read += len(await loop.sock_recv(accepted, 1 << 20))
            await sending
        return loop.now_ns

    assert run(main()) == 1000 * MS


def test_bytes_between_two_watched_sockets_are_under_way_until_received() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    writer = socket.create_connection(listener.getsockname())
    reader, _ = listener.accept()
    with listener, writer, reader, virtual._Wire() as wire:
        for sock in (writer, reader):
            sock.setblocking(False)
            wire.register(sock, selectors.EVENT_READ)
        assert not wire.under_way()
        with pytest.raises(BlockingIOError):
            fill(writer)  # part of it waits in the writer's kernel buffer
        assert wire.under_way()
        wire.unregister(reader)
        assert not wire.under_way(), "nobody waits for it"
        wire.register(reader, selectors.EVENT_READ)
        assert wire.under_way()
        while wire.under_way():
            if wire.select(1):
                reader.recv(1 << 20)


def test_what_is_delivered_while_the_loop_looks_for_it_is_read_before_the_clock_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> int:
        loop = loop_now()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)

            def deliver_now(wire: object) -> bool:
                theirs.send(b"late")
                return False

            monkeypatch.setattr(virtual._Wire, "under_way", deliver_now)
            reading = asyncio.ensure_future(loop.sock_recv(ours, 9))
            loop.call_at_ns(20 * MS, lambda: None)
            await reading
            return loop.now_ns

    assert run(main()) == 0


def fill(sock: socket.socket) -> None:
    """Write until the kernel takes no more."""
    while True:
        sock.send(bytes(1 << 20))


def test_a_blocked_writer_is_waited_for_only_while_its_peer_reads() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    writer = socket.create_connection(listener.getsockname())
    reader, _ = listener.accept()
    with listener, writer, reader, virtual._Wire() as wire:
        wire.register(writer, selectors.EVENT_WRITE)
        assert not wire.under_way()
        wire.register(reader, selectors.EVENT_READ)
        assert wire.under_way()


def test_a_connection_that_nobody_answers_fails_the_run_instead_of_jumping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual, "_DELIVERY_GRACE_S", 0.05)

    async def main() -> None:
        loop = loop_now()
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            for _ in range(8):  # fill the queue of connections that nobody accepts
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
            last = stack.enter_context(socket.socket())
            last.setblocking(False)
            async with asyncio.timeout(10):
                await loop.sock_connect(last, listener.getsockname())

    with pytest.raises(VirtualTimeError, match="did not deliver"):
        run(main())


def test_executors_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(VirtualTimeError, match="threads"):
            await asyncio.to_thread(int)

    run(main())


def test_other_threads_are_refused() -> None:
    async def main() -> list[str]:
        loop = loop_now()
        errors: list[str] = []

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(int)
            except VirtualTimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        return errors

    assert run(main()) == ["virtual time has no threads: called from another thread"]


def test_name_look_ups_are_refused_and_addresses_are_not() -> None:
    async def main() -> str:
        loop = loop_now()
        with pytest.raises(VirtualTimeError, match="look-up"):
            await loop.getaddrinfo("localhost", 80)
        with pytest.raises(VirtualTimeError, match="look-up"):
            await loop.getnameinfo(("127.0.0.1", 80))
        found = await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
        return str(found[0][4])

    assert run(main()) == "('127.0.0.1', 80)"


@pytest.mark.parametrize("start", [asyncio.create_subprocess_exec, asyncio.create_subprocess_shell])
def test_subprocesses_are_refused(start: object) -> None:
    async def main() -> None:
        with pytest.raises(VirtualTimeError, match="subprocesses"):
            await start("true")  # type: ignore[operator]

    run(main())


def test_a_run_that_would_wait_for_ever_is_called_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(VirtualTimeError, match="deadlock"):
        run(main())


def test_a_run_that_waits_for_a_silent_socket_is_called_a_deadlock() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            await asyncio.get_running_loop().sock_recv(ours, 1)

    with pytest.raises(VirtualTimeError, match="deadlock"):
        run(main())


def test_leaked_tasks_fail_the_run_and_are_named() -> None:
    async def forgotten() -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        kept.append(asyncio.ensure_future(forgotten()))
        await asyncio.sleep(0)

    kept: list[asyncio.Future[None]] = []
    with pytest.raises(VirtualTimeError, match="forgotten"):
        run(main())
    assert kept[0].cancelled()


def test_an_error_of_the_program_is_not_hidden_by_the_tasks_it_leaves() -> None:
    async def main() -> None:
        kept.append(asyncio.ensure_future(asyncio.sleep(3600)))
        raise KeyError("mine")

    kept: list[asyncio.Future[None]] = []
    with pytest.raises(KeyError, match="mine"):
        run(main())
