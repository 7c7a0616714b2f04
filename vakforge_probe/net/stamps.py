"""TCP sockets that know when what they read arrived; `arrival.py` has the reasoning."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
import weakref
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.net.arrival import ArrivalStamp, Ending, ReadStamp
from vakforge_probe.net.clock import is_virtual
from vakforge_probe.net.clockmap import ClockMap, shared_clocks
from vakforge_probe.net.tcpinfo import n_out_of_order

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = [
    "SO_TIMESTAMPNS",
    "STAMP_SPACE",
    "ArrivalStamp",
    "ClockMap",
    "ReadStamp",
    "StampedSocket",
    "read_of",
    "stamp_in",
    "stamped_by_fd",
    "stamped_listener",
]

# asm-generic/socket.h; Python has no name for it. One number sets it and marks its stamps.
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_MAX_READ = 4096
"""One read's messages are worked on in one go, and frames of other calls are due meanwhile: a burst
of 64 kB would delay them by 20 ms."""
_MAX_LOOKS = 32
"""Of a read with more messages than this the first ones are looked at: a flood of empty frames must
not cost more than it does."""
STAMP_SPACE = socket.CMSG_SPACE(_TIMESPEC.size)
"""Room for a stamp beside what is read."""
_ROOM = memoryview(bytearray(_MAX_READ + 1))
_LOOK = socket.MSG_PEEK | socket.MSG_TRUNC


class _Records:
    """Finds where TLS records end in a stream of ciphertext."""

    _HEADER_BYTES = 5

    def __init__(self) -> None:
        self._header = bytearray()
        self._n_missing = 0

    def feed(self, data: memoryview) -> bool:
        """Take what was read; return whether exactly one record ended in it, at its end."""
        position, n_ended = 0, 0
        while position < len(data):
            if not self._n_missing:
                room = self._HEADER_BYTES - len(self._header)
                self._header += data[position : position + room]
                position += room
                if len(self._header) < self._HEADER_BYTES:
                    return False
                self._n_missing = int.from_bytes(self._header[3:])
            taken = min(self._n_missing, len(data) - position)
            position += taken
            self._n_missing -= taken
            if not self._n_missing:
                self._header.clear()
                n_ended += 1
        return n_ended == 1 and not self._n_missing and not self._header


_BY_FD: weakref.WeakValueDictionary[int, StampedSocket] = weakref.WeakValueDictionary()


class StampedSocket(socket.socket):
    """A TCP socket whose reads are stamped; a listener's connections are stamped, too.

    It is handed to asyncio like any other socket. `StampSelector` sharpens its lower bounds; under
    another selector they come from emptying reads alone and are wide after a pause.

    Attributes
    ----------
    last_read
        The facts of the latest read that returned something; None before the first.
    has_kernel_stamps
        Whether the kernel agreed to stamp.
    is_blocked
        Whether the kernel took less than it was given by the latest write.
    written_at
        The clock before that write; long ago before the first.
    """

    def __init__(
        self,
        family: int = socket.AF_INET,
        type: int = socket.SOCK_STREAM,
        proto: int = 0,
        fileno: int | None = None,
        *,
        clocks: ClockMap | None = None,
    ) -> None:
        super().__init__(family, type, proto, fileno)
        self.last_read: ReadStamp | None = None
        self.is_blocked = False
        self.written_at = 0
        self.has_kernel_stamps = self._ask_for_stamps()
        self._clocks = clocks if clocks is not None else shared_clocks()
        self._records: _Records | None = None
        self._proven_empty_at = time.monotonic_ns()
        self._n_out_of_order = 0
        self._watched_from = 0
        self._reported_in = -1
        self._find_ends: Callable[[bytes], list[int]] | None = None
        _BY_FD[self.fileno()] = self

    def _ask_for_stamps(self) -> bool:
        if not sys.platform.startswith("linux"):
            return False
        try:
            self.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except OSError:
            return False
        return True

    def clock_facts(self) -> dict[str, int]:
        """Return the error of the clock conversion (ns) and the steps of the wall clock seen."""
        return {
            "clock_spread_ns": self._clocks.spread_ns,
            "n_clock_steps": self._clocks.n_steps,
        }

    def expect_tls(self) -> None:
        """Say, before the first read, that the bytes are TLS records."""
        self._records = _Records()

    def look_for(self, find_ends: Callable[[bytes], list[int]]) -> bool:
        """Ask each read to look where messages end, for the stamps of those it ends.

        Parameters
        ----------
        find_ends
            Given the bytes of every read from now on, once and in order; returns the positions in
            them at which messages end.

        Returns
        -------
        bool
            False, and `find_ends` is not called, where the kernel has no stamps to tell that way.
        """
        if self.has_kernel_stamps and _stamps_parts():
            self._find_ends = find_ends
        return self._find_ends is not None

    def watched_from(self, round_number: int) -> None:
        """Note that selects watch this socket from that round on."""
        self._watched_from = round_number

    def reported(self, round_number: int, previous_entry: int) -> None:
        """Note that a select reported the socket readable.

        Parameters
        ----------
        round_number
            Number of that select.
        previous_entry
            The clock at the entry of the select before it, which proves the queue was empty then
            if it watched this socket without reporting it.
        """
        previous = round_number - 1
        if previous >= self._watched_from and previous != self._reported_in:
            self._proven_empty_at = max(self._proven_empty_at, previous_entry)
        self._reported_in = round_number

    def accept(self) -> tuple[StampedSocket, Any]:
        """Accept a connection as a `StampedSocket`, bounded from below by the listener's bound."""
        plain, address = super().accept()
        accepted = StampedSocket(
            plain.family, plain.type, plain.proto, plain.detach(), clocks=self._clocks
        )
        accepted._proven_empty_at = self._proven_empty_at
        return accepted, address

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Read and stamp."""
        bufsize = min(bufsize, _MAX_READ)
        before, n_before = time.monotonic_ns(), n_out_of_order(self)
        if self._find_ends is not None:
            flags |= socket.MSG_PEEK
        data, ancillary, _, _ = self.recvmsg(bufsize, STAMP_SPACE, flags)
        if data:
            after = time.monotonic_ns()
            seen = []
            if self._find_ends is not None:
                seen = self._take(data, self._find_ends, is_full=len(data) == bufsize)
            self._note(before, n_before, after, memoryview(data), bufsize, ancillary, seen)
        return data

    def _take(
        self, data: bytes, find_ends: Callable[[bytes], list[int]], *, is_full: bool
    ) -> list[tuple[int, int | None, bool]]:
        """Take what was looked at out of the queue; return what was seen where messages end."""
        found = []
        # From the back to the front: what is merged into a segment meanwhile makes its stamp newer,
        # so two looks into one segment never show the earlier byte with the older stamp.
        for end in reversed(find_ends(data)[:_MAX_LOOKS]):
            if end == len(data) and not is_full:
                continue  # the look that gave `data` has its stamp
            following, stamp = self._stamp_up_to(end + 1), self._stamp_up_to(end)
            is_own = stamp is not None and following is not None and stamp < following
            found.append((end, stamp, is_own))
        if super().recv_into(_ROOM, len(data), socket.MSG_TRUNC) != len(data):
            raise ConnectionError("the kernel took back what it had shown")
        return found[::-1]

    def _stamp_up_to(self, n_bytes: int) -> int | None:
        """Return the wall-clock stamp of the segment with byte number `n_bytes` of the queue."""
        return stamp_in(self.recvmsg_into([_ROOM[:n_bytes]], STAMP_SPACE, _LOOK)[1])

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Read into `buffer` and stamp."""
        room = memoryview(buffer).cast("B")
        if nbytes:
            room = room[:nbytes]
        before, n_before = time.monotonic_ns(), n_out_of_order(self)
        n_bytes, ancillary, _, _ = self.recvmsg_into([room], STAMP_SPACE, flags)
        if n_bytes:
            after = time.monotonic_ns()
            self._note(before, n_before, after, room[:n_bytes], len(room), ancillary, [])
        return n_bytes

    def _note(
        self,
        before: int,
        n_before: int,
        after: int,
        data: memoryview,
        room: int,
        ancillary: list[tuple[int, int, bytes]],
        endings: list[tuple[int, int | None, bool]],
    ) -> None:
        def mapped(real: int | None) -> int | None:
            return None if real is None else self._clocks.to_monotonic(real, after)

        emptied = len(data) < room
        kernel = mapped(stamp_in(ancillary))
        read = ReadStamp(
            lo=self._proven_empty_at,
            after=after,
            kernel=kernel,
            spread=self._clocks.spread_ns,
            emptied=emptied,
            in_order=n_out_of_order(self) == self._n_out_of_order,
            sealed=self._records is None or self._records.feed(data),
            endings=tuple(Ending(end, mapped(real), is_own) for end, real, is_own in endings),
        )
        if kernel is not None and emptied and read.in_order and read.believed is None:
            self._clocks.refresh()  # the wall clock may have been set
        if emptied:
            self._proven_empty_at = before
            self._n_out_of_order = n_before
        self._proven_empty_at = max(self._proven_empty_at, read.following)
        self.last_read = read

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Write, and note whether the kernel took all of it."""
        self.is_blocked, self.written_at = True, time.monotonic_ns()
        n_bytes = super().send(data, flags)
        self.is_blocked = n_bytes < memoryview(data).nbytes
        return n_bytes

    def sendmsg(self, buffers: Any, *args: Any) -> int:
        """Write, and note whether the kernel took all of it."""
        parts = list(buffers)
        self.is_blocked, self.written_at = True, time.monotonic_ns()
        n_bytes = super().sendmsg(parts, *args)
        self.is_blocked = n_bytes < sum(memoryview(part).nbytes for part in parts)
        return n_bytes

    def close(self) -> None:
        """Close the socket."""
        _BY_FD.pop(self.fileno(), None)
        super().close()

    def detach(self) -> int:
        """Give the descriptor away; reads on it are stamped no more."""
        _BY_FD.pop(self.fileno(), None)
        return super().detach()


def stamp_in(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """Return the kernel's stamp (ns of the wall clock) in what came beside a read."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * NS_PER_S + nanoseconds)
    return None


@cache
def _stamps_parts() -> bool:
    """Whether the kernel stamps a read that ends inside a segment, which is tried out once."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname(), 1) as writer,
            listener.accept()[0] as reader,
        ):
            reader.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            reader.settimeout(1)
            writer.sendall(b"ab")
            return stamp_in(reader.recvmsg(1, STAMP_SPACE)[1]) is not None
    except OSError:
        return False


def stamped_by_fd(fd: int) -> StampedSocket | None:
    """Return the open stamped socket with this descriptor, or None."""
    return _BY_FD.get(fd)


def read_of(transport: asyncio.BaseTransport) -> ReadStamp | None:
    """Return the facts of the latest read of a connection, to be asked in its data callback.

    Parameters
    ----------
    transport
        A transport over a `StampedSocket`, with or without TLS.

    Returns
    -------
    ReadStamp or None
        None if the socket is not stamped or nothing has been read. On virtual time a read at the
        loop's instant, without error unless the loop was stalled before it.
    """
    loop = asyncio.get_running_loop()
    under = transport.get_extra_info("socket")
    if is_virtual(loop):
        return ReadStamp.virtual(loop.empty_at(under.fileno()), loop.now_ns)
    stamped = None if under is None else stamped_by_fd(under.fileno())
    return None if stamped is None else stamped.last_read


def stamped_listener(host: str, port: int) -> StampedSocket:
    """Return a bound socket whose accepted connections are stamped, to be served as ``sock=``.

    Parameters
    ----------
    host
        A numeric IPv4 or IPv6 address.
    port
        The port, 0 for any free one.
    """
    listener = StampedSocket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it; asyncio sets it only where `proto` names TCP.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setblocking(False)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener
