"""A WebSocket client that stamps: messages out of the data callback, sends without awaiting.

The protocol is that of `websockets` (its sans-I/O client); this is the shell around it. The
library's own asyncio shell queues messages for a task to fetch, answers pings without bound,
follows redirects and uses proxies: each of them would end up in the figures.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidMessage, InvalidStatus, InvalidURI
from websockets.frames import CloseCode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI, parse_uri

from vakforge_probe.errors import (
    ConfigError,
    TargetClosed,
    TargetError,
    TargetProtocolError,
    TargetRefused,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net.clock import is_virtual, now_ns_of
from vakforge_probe.net.dial import connect, reason_of, resolve, within
from vakforge_probe.net.shell import Sent
from vakforge_probe.net.stamps import ArrivalStamp, StampedSocket
from vakforge_probe.net.tls import client_context
from vakforge_probe.net.wire import WireCallbacks

__all__ = ["WebSocketShell"]

_HIDDEN = "***"


def _silent_logger() -> logging.Logger:
    # The library logs handshake headers, hence secrets, at level DEBUG. A logger outside the tree
    # cannot be switched on by the application.
    return logging.Logger("vakforge_probe.net.websocket", level=logging.CRITICAL + 1)


class WebSocketShell:
    """One connection to a target; use once, on a running loop.

    Parameters
    ----------
    url
        ``ws://`` or ``wss://``, without credentials.
    headers
        Handshake headers; their values never show in an error.
    subprotocols
        Offered in this order; none are offered if empty.
    ca_file
        Certificates to trust instead of the system's.
    limits
        Deadlines of the phases, and the caps on a message and on unsent data.
    on_message
        Called with each whole message inside the callback of the read that ended it. The first
        may come before `open` returns.
    on_closed
        Called once when the connection ends without a fault, with the close code (1006 if there
        was no close frame) and the target's reason. An exception in it is a bug.
    on_fault
        Called instead of `on_closed` when the target breaks the protocol or a limit.

    Attributes
    ----------
    phases
        What `open` returns, as far as it has come; there too when it fails.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] = (),
        ca_file: Path | None = None,
        limits: Limits | None = None,
        on_message: Callable[[str | bytes, ArrivalStamp], None],
        on_closed: Callable[[int, str], None],
        on_fault: Callable[[TargetError], None],
    ) -> None:
        self._uri = _parsed(url)
        self._headers = dict(headers or {})
        self._ssl = client_context(ca_file) if self._uri.secure else None
        self._limits = limits if limits is not None else Limits()
        self._loop = asyncio.get_running_loop()
        self._now_ns = now_ns_of(self._loop)
        self._protocol = ClientProtocol(
            self._uri,
            extensions=None,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            max_size=self._limits.max_message_bytes,
            logger=_silent_logger(),
        )
        self._wire = WireCallbacks(
            self._protocol,
            self._limits,
            mask=self._mask,
            on_message=on_message,
            on_closed=on_closed,
            on_fault=on_fault,
        )
        self._socket: StampedSocket | None = None
        self.phases: dict[str, tuple[int, int]] = {}

    async def open(self) -> dict[str, tuple[int, int]]:
        """Connect and shake hands; return start and end (ns) of each phase.

        Phases are ``resolve``, ``connect``, ``tls`` (only with TLS) and ``handshake``.

        Raises
        ------
        TargetRefused
            If the name, the host, the certificate check or the server says no; with HTTP status.
        TargetTimeout
            If a phase takes longer than its limit.
        TargetProtocolError
            If the answer is not a valid WebSocket handshake, or insists on an extension.
        """
        phases, limits = self.phases, self._limits
        try:
            begun = self._now_ns()
            addresses = await within(
                limits.resolve_s, "resolve", resolve(self._uri.host, self._uri.port)
            )
            phases["resolve"] = (begun, begun := self._now_ns())
            self._socket = await within(limits.connect_s, "connect", connect(addresses))
            phases["connect"] = (begun, begun := self._now_ns())
            if self._ssl is None:
                await self._loop.create_connection(lambda: self._wire, sock=self._socket)
            else:
                await within(limits.tls_s, "tls", self._start_tls(self._socket, self._ssl))
                phases["tls"] = (begun, begun := self._now_ns())
            await within(limits.handshake_s, "handshake", self._shake_hands())
            phases["handshake"] = (begun, self._now_ns())
        except BaseException:
            await self._give_up()
            raise
        return phases

    async def _start_tls(self, sock: StampedSocket, context: ssl.SSLContext) -> None:
        sock.expect_tls()
        try:
            await self._loop.create_connection(
                lambda: self._wire, sock=sock, ssl=context, server_hostname=self._uri.host
            )
        except TimeoutError:
            raise
        except OSError as error:
            raise TargetRefused(reason_of(error), phase="tls") from None

    async def _shake_hands(self) -> None:
        request = self._protocol.connect()
        request.headers["User-Agent"] = "vakforge-probe"
        for name, value in self._headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self._wire.flush()
        await self._wire.answered
        error = self._protocol.handshake_exc
        if error is not None:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> TargetError:
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            note = "; redirects are not followed" if 300 <= status < 400 else ""
            retry_after = next(iter(error.response.headers.get_all("Retry-After")), None)
            return TargetRefused(
                f"HTTP {status}{note}", phase="handshake", status=status, retry_after=retry_after
            )
        if isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError):
            return TargetRefused("closed the connection without an answer", phase="handshake")
        return TargetProtocolError(self._mask(str(error)), phase="handshake")

    async def _give_up(self) -> None:
        if self._wire.is_connected:
            self._wire.abandon()
            await self._wire.lost
        elif self._socket is not None:
            self._socket.close()

    def _mask(self, text: str) -> str:
        """Hide our headers' values in what the target said; it may echo them."""
        for value in self._headers.values():
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= 6:
                    text = text.replace(secret, _HIDDEN)
        return text

    @property
    def stamp_source(self) -> str:
        """Where arrival stamps come from: ``kernel``, ``loop`` or ``virtual``."""
        if is_virtual(self._loop):
            return "virtual"
        has_stamps = self._socket is not None and self._socket.has_kernel_stamps
        return "kernel" if has_stamps else "loop"

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the target chose."""
        return self._protocol.subprotocol

    def send(self, data: str | bytes) -> Sent:
        """Write one message now, without waiting for anything.

        Raises
        ------
        TargetClosed
            If the connection is not open.
        """
        if self._protocol.state is not State.OPEN or self._wire.is_over:
            raise TargetClosed("the connection is not open", phase="call")
        if isinstance(data, str):
            self._protocol.send_text(data.encode())
        else:
            self._protocol.send_binary(data)
        before = self._now_ns()
        n_unsent = self._wire.flush()
        after = self._now_ns()
        is_blocked = self._socket is not None and self._socket.is_blocked
        self._wire.check_unsent(n_unsent)
        return Sent(before, after, back_pressure=n_unsent > 0 or is_blocked)

    async def close(self) -> None:
        """Say goodbye and return when the connection is gone, at the latest after `close_s`.

        It may be called in any state and more than once.
        """
        if not self._wire.is_connected:
            return
        if self._protocol.state is State.OPEN and not self._wire.is_over:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._wire.flush()
            self._wire.expect_end()
        await asyncio.shield(self._wire.lost)

    def self_facts(self) -> dict[str, Any]:
        """Return what the shell knows of its own error: lateness of reads, spread of clocks."""
        if self._socket is None or is_virtual(self._loop):
            return {}
        return {"loop_lag_max_ns": self._wire.read_late_max_ns, **self._socket.clock_facts()}


def _parsed(url: str) -> WebSocketURI:
    try:
        uri = parse_uri(url)
    except (InvalidURI, ValueError):
        raise ConfigError("not a ws:// or wss:// URL", key="target") from None
    if uri.user_info is not None:
        raise ConfigError("credentials do not belong in a URL; use a header", key="target")
    return uri
