"""The agent's end of a WebSocket: each message with its proven arrival, no queue in between."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import DATA_OPCODES, CloseCode, Frame
from websockets.protocol import Event, State

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.net.clock import now_ns_of
from vakforge_probe.net.frames import FrameTally, MessageParts
from vakforge_probe.net.stamps import ArrivalStamp, ReadStamp, read_of

__all__ = ["AgentConnection"]

Sink = Callable[[str | bytes, Instant], None]


class AgentConnection(ServerConnection):
    """A server connection that hands messages over inside the data callback.

    Frames that complete in one read are put together first, because only the last of them may own
    the read's kernel stamp, and only if nothing of a further frame came with it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sink: Sink | None = None
        self._early: list[tuple[str | bytes, Instant]] = []
        self._tally = FrameTally(is_masked=True)
        self._parts = MessageParts()
        self._ended: list[str | bytes] = []
        self._is_last_ended = False

    def listen(self, sink: Sink) -> None:
        """Hand all messages to `sink`, those first that came before this call."""
        self._sink = sink
        early, self._early = self._early, []
        for data, arrival in early:
            sink(data, arrival)

    def data_received(self, data: bytes) -> None:
        """Take what one read gave."""
        read = read_of(self.transport)
        if self.protocol.state is not State.CONNECTING:
            self._tally.feed(len(data))
        super().data_received(data)
        ended, self._ended = self._ended, []
        for i, message in enumerate(ended, start=1):
            self._deliver(message, self._arrival(read, is_last=i == len(ended)))

    def process_event(self, event: Event) -> None:
        """Put frames together to messages; the rest is the library's."""
        self._is_last_ended = False
        if isinstance(event, Frame):
            self._tally.take(event)
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
            return
        try:
            message = self._parts.add(event)
        except UnicodeDecodeError:
            self.protocol.fail(CloseCode.INVALID_DATA, "not UTF-8")
            return
        if message is not None:
            self._ended.append(message)
            self._is_last_ended = True

    def _arrival(self, read: ReadStamp | None, *, is_last: bool) -> Instant:
        if read is None:
            return Instant.exact(now_ns_of(self.loop)())
        is_at_end = is_last and self._is_last_ended and self._tally.is_at_boundary
        # Inside TLS a record may end in this read and still not end at its last byte.
        is_plain = self.transport.get_extra_info("ssl_object") is None
        stamp: ArrivalStamp = read.at_end() if is_at_end and is_plain else read.inside()
        return Instant.arrival(stamp.lo, stamp.hi)

    def _deliver(self, data: str | bytes, arrival: Instant) -> None:
        if self._sink is None:
            self._early.append((data, arrival))
        else:
            self._sink(data, arrival)

    def send_now(self, text: str) -> None:
        """Write `text` as one message; nothing when the connection is not open."""
        if self.protocol.state is State.OPEN and not self.transport.is_closing():
            self.protocol.send_text(text.encode("utf-8"))
            self.send_data()

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
