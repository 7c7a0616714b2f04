"""The transport's callbacks around a sans-I/O WebSocket client: read, stamp, deliver, end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from websockets.client import ClientProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import DATA_OPCODES, Close, CloseCode, Frame, Opcode
from websockets.protocol import State

from vakforge_probe.errors import TargetError, TargetLimitExceeded, TargetProtocolError
from vakforge_probe.limits import Limits
from vakforge_probe.net.frames import MessageParts
from vakforge_probe.net.framewatch import FrameWatch
from vakforge_probe.net.stamps import ArrivalStamp, ReadStamp, read_of

__all__ = ["WireCallbacks"]

_END_OF_HEAD = b"\r\n\r\n"


class WireCallbacks(asyncio.Protocol):
    """Sits between an asyncio transport over a `StampedSocket` and the WebSocket protocol.

    Attributes
    ----------
    is_connected
        Whether there has been a transport.
    is_over
        Whether the end has been reported, or is not to be.
    answered
        Done when the HTTP answer is complete or the connection is lost without one.
    lost
        Done when the connection is gone.
    read_late_max_ns
        The longest time between a stamp of the kernel and the end of the read that returned it.
    """

    _transport: asyncio.Transport

    def __init__(
        self,
        protocol: ClientProtocol,
        limits: Limits,
        *,
        mask: Callable[[str], str],
        on_message: Callable[[str | bytes, ArrivalStamp], None],
        on_closed: Callable[[int, str], None],
        on_fault: Callable[[TargetError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol, self._limits, self._mask = protocol, limits, mask
        self._on_message, self._on_closed, self._on_fault = on_message, on_closed, on_fault
        self._watch: FrameWatch | None = None
        self._head_tail = b""
        self._parts = MessageParts()
        self._linger: asyncio.TimerHandle | None = None
        self.answered: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.is_connected = False
        self.is_over = False
        self.read_late_max_ns = 0
        self._latest_hi = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_connected = True

    def data_received(self, data: bytes) -> None:
        """Deliver what one read completed, each message with its stamp."""
        read = read_of(self._transport)
        if read is None:
            raise RuntimeError("the transport's socket is not a stamped one")
        arrived = read.believed
        if arrived is not None:
            self.read_late_max_ns = max(self.read_late_max_ns, read.after - arrived)
        frames = self._parse(data)
        n_unsent = self.flush()
        self._deliver(frames, read, len(data))
        self._check_parser()
        self.check_unsent(n_unsent)

    def eof_received(self) -> None:
        """Let the transport close itself."""
        self._protocol.receive_eof()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end, unless it has been."""
        self._protocol.receive_eof()
        if self._linger is not None:
            self._linger.cancel()
        if not self.answered.done():
            self.answered.set_result(None)
        elif not self.is_over:
            self._report_end(CloseCode.ABNORMAL_CLOSURE, "" if exc is None else str(exc))
        self.lost.set_result(None)

    def flush(self) -> int:
        """Write what the protocol has to say; return how many bytes are still unsent."""
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()
        return self._transport.get_write_buffer_size()

    def check_unsent(self, n_bytes: int) -> None:
        """End the connection if the target makes us keep too much for it."""
        if n_bytes > self._limits.max_write_buffer_bytes:
            self._fault(
                TargetLimitExceeded(
                    f"does not read: {n_bytes} bytes are unsent",
                    phase="call",
                    limit="max_write_buffer_bytes",
                )
            )

    def expect_end(self) -> None:
        """Abort if the transport has not ended after the time for closing."""
        if self._linger is None:
            self._linger = self._loop.call_later(self._limits.close_s, self._transport.abort)

    def abandon(self) -> None:
        """End at once and report nothing."""
        self.is_over = True
        self._transport.abort()

    def _parse(self, data: bytes) -> list[tuple[Frame, int]]:
        """Return the frames that `data` completes, each with the position at which it ends."""
        if self._watch is not None:
            ends = self._watch.ends(data)
        else:
            data = self._parse_head(data)
            if self._watch is None:
                return []
            ends = self._watch.first_ends
        self._protocol.receive_data(data)
        frames = [event for event in self._protocol.events_received() if isinstance(event, Frame)]
        # After a breach of the protocol there are fewer frames than ends.
        return list(zip(frames, ends, strict=False))

    def _parse_head(self, data: bytes) -> bytes:
        """Take the HTTP answer; return what follows a successful one.

        That is cut off exactly, since frames are counted from there on.
        """
        end = (self._head_tail + data).find(_END_OF_HEAD)
        cut = len(data) if end < 0 else end + len(_END_OF_HEAD) - len(self._head_tail)
        self._head_tail = (self._head_tail + data)[1 - len(_END_OF_HEAD) :]
        self._protocol.receive_data(data[:cut])
        if self._protocol.state is not State.OPEN and data[cut:]:
            self._protocol.receive_data(data[cut:])  # the body of a refusal
        if self._protocol.events_received():
            self.answered.set_result(None)
        if self._protocol.state is not State.OPEN:
            return b""
        self._watch = FrameWatch(self._transport, data[cut:], cut)
        return data[cut:]

    def _deliver(self, frames: list[tuple[Frame, int]], read: ReadStamp, n_bytes: int) -> None:
        for frame, end in frames:
            if self.is_over:
                return
            if frame.opcode is Opcode.CLOSE:
                close = Close.parse(frame.data)
                self.expect_end()
                self._report_end(close.code, close.reason)
            elif frame.opcode in DATA_OPCODES:
                self._deliver_part(frame, FrameWatch.stamp(read, end, n_bytes))

    def _deliver_part(self, frame: Frame, stamp: ArrivalStamp) -> None:
        try:
            message = self._parts.add(frame)
        except UnicodeDecodeError:
            self._protocol.fail(CloseCode.INVALID_DATA)
            self._fault(TargetProtocolError("a text message is not UTF-8", phase="call"))
            return
        if message is not None:
            # Without a stamp of its own a message may seem to have come after the next one.
            if stamp.hi < self._latest_hi:
                stamp = replace(stamp, hi=self._latest_hi)
            self._latest_hi = stamp.hi
            self._on_message(message, stamp)

    def _check_parser(self) -> None:
        error = self._protocol.parser_exc
        if error is None or isinstance(error, EOFError):
            return
        if isinstance(error, PayloadTooBig):
            self._fault(
                TargetLimitExceeded(
                    "a message is too large", phase="call", limit="max_message_bytes"
                )
            )
        else:
            self._fault(TargetProtocolError(self._mask(str(error)), phase="call"))

    def _fault(self, error: TargetError) -> None:
        if not self.is_over:
            self.flush()
            self.abandon()
            self._on_fault(error)

    def _report_end(self, code: int, reason: str) -> None:
        self.is_over = True
        self._on_closed(code, self._mask(reason))
