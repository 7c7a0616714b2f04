"""What the kernel counts about one TCP connection."""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

__all__ = ["TcpInfo", "n_out_of_order", "tcp_info"]

# bytes_received, notsent_bytes, bytes_sent, bytes_retrans, rcv_ooopack of `struct tcp_info`.
_FIELDS = struct.Struct("=128xQ8xI52xQQ8xI")


class TcpInfo(NamedTuple):
    """Counters of a connection; all since it was opened."""

    bytes_received: int
    """Bytes received in order, whether read or not."""
    bytes_unsent: int
    bytes_sent: int
    """Bytes sent at least once, repeats included."""
    bytes_repeated: int
    segments_out_of_order: int

    @property
    def bytes_written(self) -> int:
        """Bytes that the kernel has taken from the writer."""
        return self.bytes_sent - self.bytes_repeated + self.bytes_unsent


def tcp_info(sock: socket.socket) -> TcpInfo | None:
    """Return the counters of `sock`, or None where the system does not keep them."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size)
    except OSError:
        return None
    return TcpInfo(*_FIELDS.unpack(raw)) if len(raw) == _FIELDS.size else None


def n_out_of_order(sock: socket.socket) -> int:
    """Return how many segments have come out of order; 0 where the system does not count them."""
    info = tcp_info(sock)
    return 0 if info is None else info.segments_out_of_order
