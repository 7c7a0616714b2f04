"""Where WebSocket frames end in what each read gave, looked for while it still was in the queue."""

from __future__ import annotations

import asyncio

from vakforge_probe.net.arrival import ArrivalStamp, ReadStamp
from vakforge_probe.net.clock import is_virtual
from vakforge_probe.net.frames import FrameEnds
from vakforge_probe.net.stamps import stamped_by_fd

__all__ = ["FrameWatch"]


class FrameWatch:
    """Watches the frames of one connection, from the end of the handshake on.

    Where the socket can tell segments apart it is made to find the ends itself, before it takes
    the bytes out of the queue; else they are found afterwards.

    Parameters
    ----------
    transport
        A transport over a `StampedSocket`, with or without TLS, inside the callback of the read
        that ended the handshake.
    rest
        What that read gave beyond the handshake.
    n_before
        How many bytes it gave before that.
    """

    def __init__(self, transport: asyncio.Transport, rest: bytes = b"", n_before: int = 0) -> None:
        self._scan = FrameEnds()
        self._found: list[int] = []
        self.first_ends = [n_before + end for end in self._scan.feed(rest)]
        self._is_told = self._ask_socket(transport)

    def _ask_socket(self, transport: asyncio.Transport) -> bool:
        if is_virtual(asyncio.get_running_loop()) or transport.get_extra_info("ssl_object"):
            return False
        stamped = stamped_by_fd(transport.get_extra_info("socket").fileno())
        return stamped is not None and stamped.look_for(self._find)

    def _find(self, data: bytes) -> list[int]:
        self._found = self._scan.feed(data)
        return self._found

    def ends(self, data: bytes) -> list[int]:
        """Return the positions in `data`, which a read gave, at which frames end."""
        return self._found if self._is_told else self._scan.feed(data)

    @staticmethod
    def stamp(read: ReadStamp, end: int, n_bytes: int) -> ArrivalStamp:
        """Return the stamp of a frame that ended at position `end` of the `n_bytes` of a read."""
        return read.at_end() if end == n_bytes and read.emptied else read.at(end)
