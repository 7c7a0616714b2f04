"""UDP sockets that know when each datagram arrived, for media that comes without a stream.

A datagram has a kernel stamp of its own: nothing is merged, nothing waits for a predecessor. What
reads them (here ICE, DTLS and SRTP) hands on what was in them some steps later, so stamps are kept:
those of RTP by the name that its header has in clear, that of the latest other datagram as such.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.clockmap import shared_clocks
from vakforge_probe.net.stamps import SO_TIMESTAMPNS, STAMP_SPACE, stamp_in

__all__ = ["Mailbox", "StampLoop", "StampedDatagrams", "stamp_into"]

_MAX_DATAGRAM = 65_536
_MAX_KEPT = 1024
"""RTP waits for a loop's turn or two; 1,024 packets are 20 s of audio."""
_PATH_NS = 20_000
_ROOM_BYTES = 4 * 1024 * 1024

RtpName = tuple[int, int]
"""SSRC and sequence number."""


class Mailbox:
    """Stamps of what arrived on the sockets of one session.

    Parameters
    ----------
    on_unread
        Takes, whenever it grows, `n_unread`.

    Attributes
    ----------
    n_unread
        Bytes of DTLS since it was last set to 0 by whoever took a message.
    """

    def __init__(self, on_unread: Callable[[int], None] = lambda n_bytes: None) -> None:
        self._on_unread = on_unread
        self.n_unread = 0
        self._rtp: OrderedDict[RtpName, ArrivalStamp] = OrderedDict()
        self.latest: ArrivalStamp | None = None
        """Of the latest datagram of DTLS; what came in it is handed on before the next one is
        read."""
        self.n_sent = 0
        """Datagrams that were given to the kernel."""
        self.transports: list[asyncio.BaseTransport] = []
        """Of the sockets that were opened; closed by whoever made this."""
        self.read_late_max_ns = 0

    def arrived(self, data: bytes, stamp: ArrivalStamp) -> None:
        """Note a datagram."""
        name = _rtp_name(data)
        if name is None:
            if data and 20 <= data[0] < 64:  # RFC 7983
                self.latest = stamp
                self.n_unread += len(data)
                self._on_unread(self.n_unread)
            return
        self._rtp[name] = stamp
        if len(self._rtp) > _MAX_KEPT:
            self._rtp.popitem(last=False)

    def stamp_of(self, ssrc: int, sequence: int) -> ArrivalStamp | None:
        """Return, once, the stamp of a packet; None if it is not known."""
        return self._rtp.pop((ssrc, sequence), None)


def _rtp_name(data: bytes) -> RtpName | None:
    """Return the name of an RTP packet (RFC 3550), also of an encrypted one; None for others."""
    if len(data) < 12 or not 128 <= data[0] < 192 or 192 <= data[1] <= 223:
        return None  # STUN, DTLS, RTCP (RFC 7983, RFC 5761)
    return int.from_bytes(data[8:12]), int.from_bytes(data[2:4])


class StampedDatagrams(socket.socket):
    """A UDP socket whose datagrams are stamped on arrival."""

    def __init__(self, family: int, mailbox: Mailbox) -> None:
        super().__init__(family, socket.SOCK_DGRAM)
        self._mailbox = mailbox
        self._clocks = shared_clocks()
        self._proven_empty_at = time.monotonic_ns()
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
        if sys.platform.startswith("linux"):
            self.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """Read one datagram and stamp it."""
        data, ancillary, _, address = self.recvmsg(_MAX_DATAGRAM, STAMP_SPACE, flags)
        after = time.monotonic_ns()
        self._mailbox.arrived(data, self._stamp(stamp_in(ancillary), after))
        return data, address

    def _stamp(self, real: int | None, after: int) -> ArrivalStamp:
        """Return when a datagram came: by the kernel, else since the one before it was."""
        earliest = self._proven_empty_at
        if real is None:
            return ArrivalStamp(earliest, after, None, earliest, after, coalesced=False)
        spread = self._clocks.spread_ns
        kernel = self._clocks.to_monotonic(real, after)
        if not earliest - spread - _PATH_NS <= kernel <= after + spread:
            self._clocks.refresh()  # the wall clock may have been set
            return ArrivalStamp(earliest, after, None, earliest, after, coalesced=False)
        # They come in order: the next one is no earlier.
        self._proven_empty_at = max(earliest, kernel - spread)
        self._mailbox.read_late_max_ns = max(self._mailbox.read_late_max_ns, after - kernel)
        hi = min(after, kernel + spread + _PATH_NS)
        return ArrivalStamp(
            kernel - spread, max(hi, kernel), kernel, earliest, after, coalesced=False
        )

    def sendto(self, *args: Any) -> int:
        """Send, and count."""
        n_bytes = super().sendto(*args)
        self._mailbox.n_sent += 1
        return n_bytes


_mailbox: ContextVar[Mailbox | None] = ContextVar("mailbox", default=None)


def stamp_into(mailbox: Mailbox) -> None:
    """Let UDP sockets that this task, or one it starts, opens on a `StampLoop` stamp there."""
    _mailbox.set(mailbox)


class StampLoop(asyncio.SelectorEventLoop):
    """An event loop that opens stamped UDP sockets for whoever asked with `stamp_into`.

    A library that opens its own sockets cannot be handed one; but the loop opens them for it.
    """

    async def create_datagram_endpoint(  # type: ignore[override]
        self, protocol_factory: Any, local_addr: Any = None, **kwargs: Any
    ) -> Any:
        """Open a UDP socket."""
        mailbox = _mailbox.get()
        if mailbox is None or local_addr is None:
            return await super().create_datagram_endpoint(protocol_factory, local_addr, **kwargs)
        host, port = local_addr
        sock = StampedDatagrams(socket.AF_INET6 if ":" in host else socket.AF_INET, mailbox)
        try:
            sock.setblocking(False)
            sock.bind((host, port))
        except BaseException:
            sock.close()
            raise
        transport, protocol = await super().create_datagram_endpoint(protocol_factory, sock=sock)
        mailbox.transports.append(transport)
        return transport, protocol
