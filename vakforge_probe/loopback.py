"""Two short trials of this machine: its alarm alone, and stamps of messages on loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import dataclass

from vakforge_eval.timeline.instant import NS_PER_MS
from vakforge_probe.net.alarm import Alarm
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.stamps import ArrivalStamp, StampedSocket, read_of

__all__ = ["StampTrial", "try_alarm", "try_stamps"]

_PERIOD_NS = 2 * NS_PER_MS
_N_TICKS = 300
_N_MESSAGES = 150
_MESSAGE = bytes(200)
_PATIENCE_S = 10.0


def try_alarm() -> list[int]:
    """Return how late (ns, sorted) the alarm rang at 300 deadlines 2 ms apart."""

    async def tick() -> list[int]:
        alarm = Alarm.of(asyncio.get_running_loop())
        start = time.monotonic_ns() + _PERIOD_NS
        late = []
        for n in range(_N_TICKS):
            due = start + n * _PERIOD_NS
            await alarm.sleep_until(due)
            late.append(time.monotonic_ns() - due)
        return sorted(late)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(tick())


@dataclass(frozen=True, slots=True)
class StampTrial:
    """What stamping gave for messages whose sending is known.

    Attributes
    ----------
    has_kernel_stamps
        Whether the kernel stamps at all.
    n_own
        Messages whose bounds come from their own kernel stamp alone.
    n_wrong
        Messages whose interval ends before they were sent.
    widths
        Widths (ns) of all intervals, sorted; empty if nothing arrived.
    """

    has_kernel_stamps: bool
    n_own: int
    n_wrong: int
    widths: tuple[int, ...]


def try_stamps() -> StampTrial:
    """Send 150 messages over loopback, one by one, and compare their stamps with their sending."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_PATIENCE_S)
        sent: list[int] = []
        sender = threading.Thread(target=_send, args=(listener, sent), daemon=True)
        sender.start()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            trial = runner.run(_receive(listener.getsockname(), sent))
        sender.join(_PATIENCE_S)
    return trial


def _send(listener: socket.socket, sent: list[int]) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_N_MESSAGES):
            sent.append(time.monotonic_ns())
            connection.sendall(_MESSAGE)
            time.sleep(_PERIOD_NS / 1e9)


class _Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self.stamps: list[ArrivalStamp] = []
        self.is_lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        read = read_of(self._transport)
        n_ended, self._rest = divmod(self._rest + len(data), len(_MESSAGE))
        if read is None or not n_ended:
            return
        self.stamps += [read.inside()] * (n_ended - 1)
        self.stamps.append(read.inside() if self._rest else read.at_end())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set_result(None)


async def _receive(address: tuple[str, int], sent: list[int]) -> StampTrial:
    loop = asyncio.get_running_loop()
    sock = StampedSocket()
    has_kernel_stamps = sock.has_kernel_stamps
    sock.setblocking(False)
    await loop.sock_connect(sock, address)
    _, receiver = await loop.create_connection(_Receiver, sock=sock)
    async with asyncio.timeout(_PATIENCE_S):
        await receiver.is_lost
    stamps = receiver.stamps
    return StampTrial(
        has_kernel_stamps,
        n_own=sum(not stamp.coalesced and stamp.kernel is not None for stamp in stamps),
        n_wrong=sum(stamp.hi < at for stamp, at in zip(stamps, sent, strict=False)),
        widths=tuple(sorted(stamp.hi - stamp.lo for stamp in stamps)),
    )
