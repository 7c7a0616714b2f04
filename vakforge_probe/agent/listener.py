"""The agent's end of a WebSocket: each message with its proven arrival, no queue in between."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.protocol import Event, State

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.net.clock import now_ns_of

__all__ = ["AgentConnection", "bind"]


def bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a listening socket whose connections stamp what they read."""
    return socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
    )


Sink = Callable[[str | bytes, Instant], None]


class AgentConnection(ServerConnection):
    """A server connection that hands messages over inside the data callback.

    `send_now` writes at once, without waiting for the peer to take it.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._sink: Sink | None = None
        self._early: list[tuple[str | bytes, Instant]] = []
        self._parts: list[bytes] = []
        self._is_text = True

    def listen(self, sink: Sink) -> None:
        """Hand all messages to `sink`, those first that came before this call."""
        self._sink = sink
        early, self._early = self._early, []
        for data, arrival in early:
            sink(data, arrival)

    def process_event(self, event: Event) -> None:
        """Put frames together to messages; the rest is the library's."""
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
            return
        if event.opcode is not Opcode.CONT:
            self._is_text, self._parts = event.opcode is Opcode.TEXT, []
        self._parts.append(bytes(event.data))
        if event.fin:
            data = b"".join(self._parts)
            self._parts = []
            self._deliver(data.decode("utf-8", "replace") if self._is_text else data)

    def _deliver(self, data: str | bytes) -> None:
        arrival = Instant.exact(now_ns_of(self.loop)())
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
        self.transport.abort()
