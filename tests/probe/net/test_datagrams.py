"""Datagrams know when they came, and are found again by the name that RTP has in clear."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.datagrams import Mailbox, StampedDatagrams, StampLoop, stamp_into

RTP = b"\x80\x6f\x00\x05" + bytes(4) + b"\x00\x00\x00\x09"
DTLS = b"\x17\xfe\xfd" + bytes(20)
STUN = b"\x00\x01" + bytes(18)
RTCP = b"\x80\xc8" + bytes(26)


def stamp(at: int) -> ArrivalStamp:
    return ArrivalStamp(at, at + 1, at, 0, at + 1, coalesced=False)


def test_a_packet_is_found_once_by_its_name() -> None:
    mailbox = Mailbox()
    mailbox.arrived(RTP, stamp(7))
    assert mailbox.stamp_of(9, 4) is None
    assert mailbox.stamp_of(9, 5) == stamp(7)
    assert mailbox.stamp_of(9, 5) is None
    assert mailbox.latest is None


def test_of_what_is_no_rtp_only_the_latest_of_dtls_is_kept() -> None:
    mailbox = Mailbox()
    for at, data in enumerate((STUN, RTCP, b"", b"\x80", RTP[:11])):
        mailbox.arrived(data, stamp(at))
    assert mailbox.latest is None
    mailbox.arrived(DTLS, stamp(10))
    for at, data in enumerate((STUN, RTCP, RTP), start=20):
        mailbox.arrived(data, stamp(at))
    assert mailbox.latest == stamp(10), "what carries no message says nothing of one"


def test_packets_that_nobody_asks_for_are_forgotten() -> None:
    mailbox = Mailbox()
    for n in range(3000):
        mailbox.arrived(b"\x80\x6f" + n.to_bytes(2) + RTP[4:], stamp(n))
    found = [n for n in range(3000) if mailbox.stamp_of(9, n) is not None]
    assert found == list(range(3000 - 1024, 3000))


@given(st.binary(max_size=40))
def test_any_bytes_are_noted(data: bytes) -> None:
    Mailbox().arrived(data, stamp(1))


@pytest.fixture
def pair() -> Any:
    """Return a mailbox, its socket, and a plain one connected to that."""
    mailbox = Mailbox()
    with (
        StampedDatagrams(socket.AF_INET, mailbox) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs,
    ):
        ours.bind(("127.0.0.1", 0))
        ours.settimeout(30)
        theirs.connect(ours.getsockname())
        yield mailbox, ours, theirs


def test_each_datagram_has_its_own_stamp_in_which_its_arrival_lies(pair: Any) -> None:
    mailbox, ours, theirs = pair
    left = []
    for n in range(20):
        begun = time.monotonic_ns()
        theirs.send(b"\x80\x6f" + n.to_bytes(2) + RTP[4:])
        left.append((begun, time.monotonic_ns()))
    last = 0
    for n, (begun, end) in enumerate(left):
        data, address = ours.recvfrom(100)
        assert (data[2:4], address) == (n.to_bytes(2), theirs.getsockname())
        found = mailbox.stamp_of(9, n)
        assert found.lo <= end, "it had been handed over before its interval begins"
        assert found.hi >= begun, "it had not left when its interval ends"
        assert found.lo >= last - 1_000_000
        last = found.lo


def test_without_a_kernels_stamp_a_datagram_came_since_the_one_before_it(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox, ours, theirs = pair
    opened = time.monotonic_ns()
    monkeypatch.setattr("vakforge_probe.net.datagrams.stamp_in", lambda ancillary: None)
    begun = time.monotonic_ns()
    theirs.send(RTP)
    ours.recvfrom(100)
    found = mailbox.stamp_of(9, 5)
    assert found.kernel is None
    assert found.lo <= opened <= begun <= found.hi <= time.monotonic_ns()


def test_a_stamp_of_a_clock_that_was_set_is_not_believed(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox, ours, theirs = pair
    monkeypatch.setattr("vakforge_probe.net.datagrams.stamp_in", lambda ancillary: 1)
    begun = time.monotonic_ns()
    theirs.send(RTP)
    ours.recvfrom(100)
    found = mailbox.stamp_of(9, 5)
    assert found.kernel is None
    assert found.lo <= begun <= found.hi


def test_what_is_sent_is_counted(pair: Any) -> None:
    mailbox, ours, theirs = pair
    for n in range(3):
        ours.sendto(b"x", theirs.getsockname())
        assert mailbox.n_sent == n + 1
    assert theirs.recv(10) == b"x"


# -- the loop ---------------------------------------------------------------------------------


def run(main: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=StampLoop) as runner:
        runner.run(main())


def test_only_who_asked_gets_stamped_sockets_and_each_its_own_mailbox() -> None:
    async def opened(mailbox: Mailbox | None, **where: Any) -> socket.socket:
        if mailbox is not None:
            stamp_into(mailbox)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, **where)
        found: socket.socket = transport.get_extra_info("socket")._sock
        transport.close()
        return found

    async def main() -> None:
        here = {"local_addr": ("127.0.0.1", 0)}
        one, other = Mailbox(), Mailbox()
        tasks = [asyncio.ensure_future(opened(box, **here)) for box in (one, other, None)]
        socks = [await task for task in tasks]
        assert [isinstance(sock, StampedDatagrams) for sock in socks] == [True, True, False]
        assert [len(box.transports) for box in (one, other)] == [1, 1]
        away = {"remote_addr": ("127.0.0.1", 9)}
        elsewhere = await asyncio.ensure_future(opened(one, **away))
        assert not isinstance(elsewhere, StampedDatagrams)

    run(main)


def test_an_address_that_is_taken_is_an_error_and_leaves_no_socket() -> None:
    async def main() -> None:
        stamp_into(Mailbox())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match="in use"):
                await asyncio.get_running_loop().create_datagram_endpoint(
                    asyncio.DatagramProtocol, local_addr=taken.getsockname()
                )

    run(main)
