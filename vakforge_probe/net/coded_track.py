"""A track of aiortc's that sends coded packets, each inside of the call that hands it over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from fractions import Fraction
from typing import Any

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

__all__ = ["CodedTrack"]

_TIME_BASE = Fraction(1, 48_000)


class _Handover:
    """What a task waits for: it goes on inside of the call that gives it something.

    An `asyncio.Future` would let it go on in the loop's next turn, and nobody could say when its
    packet left. A task cannot go on inside of another; so whoever gives must be a callback.
    """

    _asyncio_future_blocking = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake: Callable[[], Any] | None = None
        self._given: av.Packet[Any] | None = None
        self._error: BaseException | None = None

    @property
    def is_awaited(self) -> bool:
        return self._wake is not None

    def give(self, packet: av.Packet[Any]) -> None:
        self._given = packet
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def end(self, error: BaseException) -> None:
        self._error = error
        wake, self._wake = self._wake, None
        if wake is not None:
            self._loop.call_soon(wake)

    # What asyncio asks of what a task waits for.

    def __await__(self) -> Generator[Any, None, av.Packet[Any]]:
        if self._error is None:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def add_done_callback(self, wake: Callable[[Any], Any], *, context: Any = None) -> None:
        self._wake = (lambda: wake(self)) if context is None else (lambda: context.run(wake, self))

    def result(self) -> av.Packet[Any]:
        # The task asks as well as whoever awaits.
        if self._error is not None:
            raise self._error
        assert self._given is not None  # noqa: S101 - nobody is woken without
        return self._given

    def cancel(self, msg: Any = None) -> bool:
        self.end(asyncio.CancelledError())
        return True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop


class CodedTrack(MediaStreamTrack):
    """A track of packets that somebody else codes and paces.

    Attributes
    ----------
    is_pulled
        Done when the sender asks for packets.
    """

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._at = 0
        self._next = _Handover()
        self.is_pulled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def recv(self) -> av.Packet[Any]:
        """Return the next packet, for the sender."""
        if self.readyState != "live":
            raise MediaStreamError
        if not self.is_pulled.done():
            self.is_pulled.set_result(None)
        return await self._next

    def put(self, data: bytes, n_samples: int) -> bool:
        """Send a packet that lasts `n_samples`; return whether somebody took it."""
        packet: av.Packet[Any] = av.Packet(data)
        packet.pts, packet.time_base = self._at, _TIME_BASE
        self._at += n_samples
        is_awaited = self._next.is_awaited
        if is_awaited:
            self._next.give(packet)
        return is_awaited

    def stop(self) -> None:
        """End the track; harmless when repeated."""
        super().stop()
        if self._next.is_awaited:
            self._next.end(MediaStreamError())
