"""When messages arrived: from the facts of a read to bounds that are proven, not estimated.

Arrival of a message is the instant at which its last byte, and all before it, were in the socket's
receive queue. Each read gives facts, and the bounds follow from them.

**Lower bound.** A select (or poll, even with a zero time-out) that was entered at `e` while the
socket was watched, and did not report it readable, proves its queue was empty at `e`: epoll is
level triggered and looks at the queue after it is entered. So all that a later read returns
arrived after `e`. A read that emptied the queue proves the same of the instant right before it. The
bound is the latest such instant; `StampSelector` keeps it, and never sleeps long at a stretch.

**Kernel stamp.** The kernel stamps each segment by CLOCK_REALTIME on its way into the queue and
hands out the stamp of the last segment that a read consumed; segments that it merged keep the
newest stamp. A read that returned less than it had room for emptied the queue, so its last byte is
that segment's last byte: the stamp is the arrival of the read's last byte, and no other byte of it
came later. A read that filled its buffer may have ended inside a segment, and before Linux 5.9 it
was not given that segment's stamp: such a stamp is not used.

**Messages read together** have stamps of their own, too, unless the kernel merged their segments.
A read looks before it takes (MSG_PEEK), finds where messages end, and looks again (MSG_TRUNC: no
byte is copied) at the queue up to the last byte of each, and up to one byte more. From Linux 5.9 on
a look returns the stamp of the segment that holds its last byte, so:

- the message arrived no later than the stamp at its last byte, or at any byte behind it;
- if the stamp one byte on is newer, its last byte is the last of its segment: the stamp is the
  arrival itself, and whatever follows arrived after it;
- if the stamp at its last byte is newer than that at an earlier message's end, its segment is a
  later one, and it arrived after that stamp.

More may be merged into the last segment between two looks, which makes its stamp newer. Therefore
looks go from the back to the front: then newer behind older proves two segments, as said.

**Reordering** breaks what stamps say: a segment that waited for a lost predecessor carries one
from before its bytes could be read. If it was stamped before the lower bound, the two contradict
each other and the stamp is dropped. Else it arrived after the last emptying read had begun, and
the kernel's count of out-of-order segments differs from what it was then: dropped as well.

**TLS** hides where messages end in the ciphertext. But if exactly one record ended in the read, at
the read's last byte, then a message that ended in the plaintext's last byte ended right there.

A step of the wall clock shows as a stamp outside [lower bound, read] and drops that stamp.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ArrivalStamp", "Ending", "ReadStamp"]

_PATH_NS = 20_000
"""A segment is stamped a few microseconds before it is in the queue."""


@dataclass(frozen=True, slots=True)
class ArrivalStamp:
    """When a message arrived: in ``[lo, hi]`` (ns of the loop's clock).

    Attributes
    ----------
    kernel
        The kernel's stamp at the message's last byte, on the monotonic clock; else that of the
        read's last byte; None if there is none.
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


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a message ended in a read, and what was seen there.

    Attributes
    ----------
    position
        How many bytes of the read come up to and with its last one.
    kernel
        The kernel's stamp of the segment with that byte, on the monotonic clock; None without.
    is_own
        Whether the segment ends with it.
    """

    position: int
    kernel: int | None
    is_own: bool


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
    endings
        The messages that were seen to end in it, in order; not one whose last byte is that of an
        emptying read, whose stamp that is.
    """

    lo: int
    after: int
    kernel: int | None
    spread: int
    emptied: bool
    in_order: bool
    sealed: bool
    endings: tuple[Ending, ...] = ()

    @classmethod
    def virtual(cls, lo: int, now: int) -> ReadStamp:
        """Return the facts of a read on virtual time; exact unless the loop was stalled."""
        return cls(lo, now, None, 0, emptied=True, in_order=True, sealed=True)

    @property
    def believed(self) -> int | None:
        """The kernel's stamp if it is the arrival of the read's last byte, else None."""
        return self._checked(self.kernel) if self.emptied else None

    def _checked(self, kernel: int | None) -> int | None:
        """Return a stamp if nothing contradicts it."""
        if kernel is None or not self.in_order:
            return None
        earliest = self.lo - self.spread - _PATH_NS
        return kernel if earliest <= kernel <= self.after + self.spread else None

    @property
    def following(self) -> int:
        """Lower bound of the arrival of all that follows this read."""
        own = (self._checked(e.kernel) for e in self.endings if e.is_own)
        return max([self.lo, *(kernel - self.spread for kernel in own if kernel is not None)])

    def inside(self) -> ArrivalStamp:
        """Return the stamp of a message that ended anywhere in this read."""
        return self._stamp(self.lo, self.believed)

    def at_end(self) -> ArrivalStamp:
        """Return the stamp of the message whose last byte is the last byte of this read."""
        stamp = self.believed
        if stamp is None or not self.sealed:
            return self._stamp(self.lo, stamp)
        return self._stamp(max(self.lo, stamp - self.spread), stamp, is_own=True)

    def at(self, position: int) -> ArrivalStamp:
        """Return the stamp of a message that ended with byte number `position` of this read.

        It is as that of `inside`, or better where that end was looked at.
        """
        seen = [(e, k) for e in self.endings if (k := self._checked(e.kernel)) is not None]
        own = next(((e, k) for e, k in seen if e.position == position), None)
        if own is None:
            return self.inside()
        ending, kernel = own
        # Of earlier stamps those of other segments came before, and those at a segment's end.
        earlier = [
            k - self.spread for e, k in seen if e.position < position and (e.is_own or k < kernel)
        ]
        lo = max([self.lo, *earlier, *([kernel - self.spread] if ending.is_own else [])])
        # What is behind it came later; and a later look may have found a segment that had grown.
        later = [k for e, k in seen if e.position >= position]
        if self.believed is not None:
            later.append(self.believed)
        return self._stamp(lo, min(later), is_own=ending.is_own)

    def _stamp(self, lo: int, believed: int | None, *, is_own: bool = False) -> ArrivalStamp:
        latest = self.after
        if believed is not None:
            latest = min(latest, believed + self.spread + _PATH_NS)
        kernel = self.kernel if believed is None else believed
        coalesced = not is_own and self.kernel is not None
        return ArrivalStamp(lo, max(lo, latest), kernel, self.lo, self.after, coalesced)
