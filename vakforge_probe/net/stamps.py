"""When bytes arrived: kernel stamps of TCP reads, and bounds that are proven, not estimated.

Arrival of a message is the instant at which its last byte, and all before it, were in the socket's
receive queue. Each read gives four facts, and the bounds follow from them.

**Lower bound.** A select (or poll, even with a zero time-out) that was entered at `e` while the
socket was watched, and did not report it readable, proves its queue was empty at `e`: epoll is
level triggered and looks at the queue after it is entered. So all that a later read returns
arrived after `e`. A read that emptied the queue proves the same of the instant right before it. The
bound is the latest such instant; `StampSelector` keeps it, and never sleeps long at a stretch.

**Kernel stamp.** The kernel stamps each segment by CLOCK_REALTIME on its way into the queue and
hands out the stamp of the last segment that a read consumed whole; segments that it merged keep
the newest stamp. A read that returned less than it had room for emptied the queue, so its last byte
is that segment's last byte: the stamp is the arrival of the read's last byte, and no other byte of
it came later. A read that filled its buffer may have ended inside a segment whose stamp it was not
given: its stamp says nothing about its last bytes and is not used.

**Reordering** breaks the second rule: a segment that waited for a lost predecessor carries a stamp
from before its bytes could be read. If it was stamped before the lower bound, the two contradict
each other and the stamp is dropped. Else it arrived after the last emptying read had begun, and
the kernel's count of out-of-order segments differs from what it was then: dropped as well.

**TLS** hides where messages end in the ciphertext. But if exactly one record ended in the read, at
the read's last byte, then a message that ended in the plaintext's last byte ended right there.

A step of the wall clock shows as a stamp outside [lower bound, read] and drops that stamp.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import struct
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.net.clock import is_virtual
from vakforge_probe.net.tcpinfo import n_out_of_order

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = [
    "ArrivalStamp",
    "ClockMap",
    "ReadStamp",
    "StampedSocket",
    "read_of",
    "stamped_by_fd",
    "stamped_listener",
]

# asm-generic/socket.h; Python has no name for it. One number sets it and marks its stamps.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_PATH_NS = 20_000
"""A segment is stamped a few microseconds before it is in the queue."""
_MAX_READ = 65_536
"""More would be taken from and given back to the system at each read, for 20 ms of audio."""
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size)


@dataclass(frozen=True, slots=True)
class ArrivalStamp:
    """When a message arrived: in ``[lo, hi]`` (ns of the loop's clock).

    Attributes
    ----------
    kernel
        The kernel's stamp of the read that ended it, on the monotonic clock; None if there is none.
    before, after
        The proven lower bound of the read that ended it, and the clock right after that read.
    coalesced
        Whether that kernel stamp is not this message's own, so that ``[lo, hi]`` is wide.
    """

    lo: int
    hi: int
    kernel: int | None
    before: int
    after: int
    coalesced: bool

    @classmethod
    def exact(cls, ns: int) -> ArrivalStamp:
        """Return the stamp of an arrival on virtual time."""
        return cls(ns, ns, None, ns, ns, coalesced=False)


class ClockMap:
    """Maps the kernel's wall-clock stamps to the monotonic clock.

    The two differ by a constant until somebody sets the wall clock, so the difference is taken
    again every second.

    Attributes
    ----------
    spread_ns
        How far a mapped stamp may be off, either way.
    n_steps
        How often the wall clock was seen to have been set.
    """

    _PAIRS = 101
    _STALE_NS = NS_PER_S
    _CORES_NS = 1_000
    """Clocks of two cores differ by less than this; a stamp may come from another core."""

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        realtime_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns, self._realtime_ns = monotonic_ns, realtime_ns
        self.n_steps = 0
        self._offset_ns, self.spread_ns = self._measure()
        self._measured_at = monotonic_ns()

    def to_monotonic(self, real_ns: int, now_ns: int) -> int:
        """Return a wall-clock instant on the monotonic clock, which shows `now_ns`."""
        if now_ns - self._measured_at > self._STALE_NS:
            self.refresh()
        return real_ns - self._offset_ns

    def refresh(self) -> None:
        """Compare the two clocks now."""
        offset_ns, spread_ns = self._measure()
        if abs(offset_ns - self._offset_ns) > spread_ns + self.spread_ns:
            self.n_steps += 1
        self._offset_ns, self.spread_ns = offset_ns, spread_ns
        self._measured_at = self._monotonic_ns()

    def _measure(self) -> tuple[int, int]:
        doubled, brackets = [], []
        for _ in range(self._PAIRS):
            before = self._monotonic_ns()
            real = self._realtime_ns()
            after = self._monotonic_ns()
            doubled.append(2 * real - before - after)
            brackets.append(after - before)
        # Medians: an interrupted pair says little and must not widen the rest.
        return statistics.median_low(doubled) // 2, statistics.median_low(brackets) + self._CORES_NS


@dataclass(frozen=True, slots=True)
class ReadStamp:
    """The facts of one read, from which the stamps of the messages that it ended follow.

    Attributes
    ----------
    lo
        Proven lower bound of the arrival of every byte in the read.
    after
        The clock right after the read.
    kernel, spread
        The kernel's stamp on the monotonic clock (None without), and its error either way.
    emptied
        Whether the read emptied the receive queue.
    in_order
        Whether no segment of it can have waited for a predecessor.
    sealed
        Whether the last byte of the plaintext came with the last byte of the read.
    """

    lo: int
    after: int
    kernel: int | None
    spread: int
    emptied: bool
    in_order: bool
    sealed: bool

    @classmethod
    def virtual(cls, lo: int, now: int) -> ReadStamp:
        """Return the facts of a read on virtual time; exact unless the loop was stalled."""
        return cls(lo, now, None, 0, emptied=True, in_order=True, sealed=True)

    @property
    def believed(self) -> int | None:
        """The kernel's stamp if it is the arrival of the read's last byte, else None."""
        if self.kernel is None or not (self.emptied and self.in_order):
            return None
        earliest = self.lo - self.spread - _PATH_NS
        return self.kernel if earliest <= self.kernel <= self.after + self.spread else None

    def inside(self) -> ArrivalStamp:
        """Return the stamp of a message that ended anywhere in this read."""
        return self._stamp(self.lo, self.believed, coalesced=self.kernel is not None)

    def at_end(self) -> ArrivalStamp:
        """Return the stamp of the message whose last byte is the last byte of this read."""
        stamp = self.believed
        if stamp is None or not self.sealed:
            return self._stamp(self.lo, stamp, coalesced=self.kernel is not None)
        return self._stamp(max(self.lo, stamp - self.spread), stamp, coalesced=False)

    def _stamp(self, lo: int, believed: int | None, *, coalesced: bool) -> ArrivalStamp:
        latest = self.after
        if believed is not None:
            latest = min(latest, believed + self.spread + _PATH_NS)
        return ArrivalStamp(lo, max(lo, latest), self.kernel, self.lo, self.after, coalesced)


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
        self.has_kernel_stamps = self._ask_for_stamps()
        self._clocks = clocks if clocks is not None else _shared_clocks()
        self._records: _Records | None = None
        self._proven_empty_at = time.monotonic_ns()
        self._n_out_of_order = 0
        self._watched_from = 0
        self._reported_in = -1
        _BY_FD[self.fileno()] = self

    def _ask_for_stamps(self) -> bool:
        if not sys.platform.startswith("linux"):
            return False
        try:
            self.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
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
        data, ancillary, _, _ = self.recvmsg(bufsize, _ANCILLARY, flags)
        if data:
            self._note(before, n_before, memoryview(data), bufsize, ancillary)
        return data

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Read into `buffer` and stamp."""
        room = memoryview(buffer).cast("B")
        if nbytes:
            room = room[:nbytes]
        before, n_before = time.monotonic_ns(), n_out_of_order(self)
        n_bytes, ancillary, _, _ = self.recvmsg_into([room], _ANCILLARY, flags)
        if n_bytes:
            self._note(before, n_before, room[:n_bytes], len(room), ancillary)
        return n_bytes

    def _note(
        self,
        before: int,
        n_before: int,
        data: memoryview,
        room: int,
        ancillary: list[tuple[int, int, bytes]],
    ) -> None:
        after = time.monotonic_ns()
        real = _stamp_in(ancillary)
        kernel = None if real is None else self._clocks.to_monotonic(real, after)
        emptied = len(data) < room
        read = ReadStamp(
            lo=self._proven_empty_at,
            after=after,
            kernel=kernel,
            spread=self._clocks.spread_ns,
            emptied=emptied,
            in_order=n_out_of_order(self) == self._n_out_of_order,
            sealed=self._records is None or self._records.feed(data),
        )
        if kernel is not None and emptied and read.in_order and read.believed is None:
            self._clocks.refresh()  # the wall clock may have been set
        if emptied:
            self._proven_empty_at = before
            self._n_out_of_order = n_before
        self.last_read = read

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Write, and note whether the kernel took all of it."""
        self.is_blocked = True
        n_bytes = super().send(data, flags)
        self.is_blocked = n_bytes < memoryview(data).nbytes
        return n_bytes

    def sendmsg(self, buffers: Any, *args: Any) -> int:
        """Write, and note whether the kernel took all of it."""
        parts = list(buffers)
        self.is_blocked = True
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


def _stamp_in(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * NS_PER_S + nanoseconds)
    return None


_CLOCKS: ClockMap | None = None


def _shared_clocks() -> ClockMap:
    global _CLOCKS
    if _CLOCKS is None:
        _CLOCKS = ClockMap()
    return _CLOCKS


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
