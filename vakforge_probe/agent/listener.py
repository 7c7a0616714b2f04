"""The agent's end of a WebSocket: each message with its proven arrival, no queue in between."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import DATA_OPCODES, CloseCode, Frame
from websockets.protocol import Event, State

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.net.clock import is_virtual, now_ns_of
from vakforge_probe.net.frames import MessageParts
from vakforge_probe.net.framewatch import FrameWatch
from vakforge_probe.net.stamps import ReadStamp, read_of
from vakforge_probe.net.tcpinfo import tcp_info
from vakforge_probe.protocol.base import Wire

__all__ = ["AgentConnection"]

Sink = Callable[[Wire, Instant], None]
_END_OF_HEAD = b"\r\n\r\n"


class AgentConnection(ServerConnection):
    """A server connection that hands messages over inside the data callback."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sink: Sink | None = None
        self._early: list[tuple[Wire, Instant]] = []
        self._watch: FrameWatch | None = None
        self._ends: deque[int] = deque()
        self._parts = MessageParts()
        self._ended: list[tuple[Wire, int | None]] = []

    def listen(self, sink: Sink) -> None:
        """Hand all messages to `sink`, those first that came before this call."""
        self._sink = sink
        early, self._early = self._early, []
        for data, arrival in early:
            sink(data, arrival)

    def data_received(self, data: bytes) -> None:
        """Take what one read gave."""
        read = read_of(self.transport)
        if self._watch is not None:
            self._ends.extend(self._watch.ends(data))
        elif data.endswith(_END_OF_HEAD):
            # A client that sends frames with its request has them never counted.
            self._watch = FrameWatch(self.transport)
        super().data_received(data)
        ended, self._ended = self._ended, []
        for message, end in ended:
            self._deliver(message, self._arrival(read, end, len(data)))

    def process_event(self, event: Event) -> None:
        """Put frames together to messages; the rest is the library's."""
        end = self._ends.popleft() if isinstance(event, Frame) and self._ends else None
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
            return
        try:
            message = self._parts.add(event)
        except UnicodeDecodeError:
            self.protocol.fail(CloseCode.INVALID_DATA, "not UTF-8")
            return
        if message is not None:
            self._ended.append((message, end))

    def _arrival(self, read: ReadStamp | None, end: int | None, n_bytes: int) -> Instant:
        if read is None:
            return Instant.exact(now_ns_of(self.loop)())
        stamp = read.inside() if end is None else FrameWatch.stamp(read, end, n_bytes)
        return Instant.arrival(stamp.lo, stamp.hi)

    def _deliver(self, data: Wire, arrival: Instant) -> None:
        if self._sink is None:
            self._early.append((data, arrival))
        else:
            self._sink(data, arrival)

    def send_now(self, message: Wire) -> None:
        """Write one message; nothing when the connection is not open."""
        if self.protocol.state is State.OPEN and not self.transport.is_closing():
            if isinstance(message, str):
                self.protocol.send_text(message.encode("utf-8"))
            else:
                self.protocol.send_binary(message)
            self.send_data()

    def n_unsent(self) -> int:
        """Return how many written bytes wait, because the client does not read fast enough.

        On virtual time nothing waits: no clock runs until all that was written has arrived.
        """
        if is_virtual(self.loop):
            return 0
        info = tcp_info(self.transport.get_extra_info("socket"))
        in_kernel = 0 if info is None else info.bytes_unsent
        return self.transport.get_write_buffer_size() + in_kernel

    def close_now(self) -> None:
        """Begin the closing handshake."""
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(1000, "")
            self.send_data()

    def abort_now(self) -> None:
        """Reset the connection without a word."""
        # With nothing to linger for, the kernel sends a reset instead of a proper end.
        under = self.transport.get_extra_info("socket")
        under.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
