"""Stamps against a sender that notes when its bytes left and when they were received.

The sender runs in a thread on the same clock. A message's true arrival lies between the start of
the call that wrote its last byte and the moment at which the receiving socket had counted every
byte written so far. Nothing here depends on how busy the machine is: the truth must be inside the
stamp's interval always, and each scene waits for conditions, never for time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.stamps import ArrivalStamp
from vakforge_probe.net.tcpinfo import tcp_info
from vakforge_probe.net.websocket import WebSocketShell

Truth = tuple[int, int]


class Scene:
    """A call against a server thread that plays a scene and keeps the truth of each message."""

    def __init__(self, raw_server: Any, certificate: Any | None = None) -> None:
        self.stamps: list[ArrivalStamp] = []
        self.truth: list[Truth] = []
        self._raw_server, self._certificate = raw_server, certificate
        self._received = threading.Condition()
        self._shell: Any = None
        self._is_done: asyncio.Event
        self.play: Callable[[], None]
        self.server: Any
        self.stall_after: int | None = None
        self.reader_stalls = threading.Event()
        self.release_reader = threading.Event()

    # In the server's thread.

    def send(self, *sizes: int, tail: int = 0) -> None:
        """Send messages in one write each; with `tail` the last bytes in a write of their own."""
        begun = []
        for size in sizes:
            data = self.server.frame(2, bytes(size))
            if tail:
                self.server.send(data[:-tail])
                data = data[-tail:]
            begun.append(time.monotonic_ns())
            self.server.send(data)
        received = self.await_arrival()
        self.truth += [(start, received) for start in begun]

    def await_arrival(self) -> int:
        """Return the instant at which all that was written was seen to have been received."""
        ours, theirs = self.server.connection, self._shell._socket
        while True:
            given, got = tcp_info(ours), tcp_info(theirs)
            assert given is not None
            assert got is not None
            if got.bytes_received >= given.bytes_written:
                return time.monotonic_ns()
            self.server.stopped.wait(0.0002)  # lets the loop's thread run

    def await_reader(self) -> None:
        """Return when the reader has taken all that was sent."""
        with self._received:
            assert self._received.wait_for(lambda: len(self.stamps) >= len(self.truth), 30)

    def _script(self, server: Any) -> None:
        self.server = server
        server.shake_hands()
        with self._received:
            assert self._received.wait_for(lambda: self._shell._protocol.state == 1, 30)
        self.play()
        self.await_reader()
        server.say_goodbye()

    # In the loop.

    def _on_message(self, data: str | bytes, stamp: ArrivalStamp) -> None:
        with self._received:
            self.stamps.append(stamp)
            self._received.notify_all()
        if self.stall_after == len(self.stamps):
            self.reader_stalls.set()
            assert self.release_reader.wait(30)

    async def _call(self) -> None:
        tls = None if self._certificate is None else self._certificate.server_context()
        server = self._raw_server(self._script, tls=tls)
        is_closed = asyncio.Event()
        self._shell = WebSocketShell(
            server.url,
            ca_file=None if self._certificate is None else self._certificate.cert_file,
            on_message=self._on_message,
            on_closed=lambda code, reason: is_closed.set(),
            on_fault=lambda error: pytest.fail(str(error)),
        )
        await self._shell.open()
        with self._received:
            self._received.notify_all()
        await is_closed.wait()
        await self._shell.close()
        if server.error is not None:
            raise server.error

    def run(self, play: Callable[[], None]) -> list[tuple[ArrivalStamp, Truth]]:
        self.play = play
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._call())
        assert len(self.stamps) == len(self.truth) > 0
        pairs = list(zip(self.stamps, self.truth, strict=True))
        for n, (stamp, (earliest, latest)) in enumerate(pairs):
            assert stamp.lo <= latest, f"message {n} had arrived before its interval begins"
            assert stamp.hi >= earliest, f"message {n} had not left when its interval ends"
            assert stamp.before <= stamp.lo <= stamp.hi <= stamp.after
        return pairs


@pytest.fixture(params=["plain", "tls"])
def scene(request: pytest.FixtureRequest, raw_server: Any) -> Scene:
    if request.param == "plain":
        return Scene(raw_server)
    make_certificate = request.getfixturevalue("make_certificate")
    return Scene(raw_server, make_certificate())


def is_own(stamp: ArrivalStamp) -> bool:
    """Whether the interval comes from the kernel's stamp alone."""
    return not stamp.coalesced and stamp.hi - stamp.lo < 100_000


def test_messages_that_come_alone_carry_their_own_kernel_stamp(scene: Scene) -> None:
    def play() -> None:
        for _ in range(100):
            scene.send(960)
            scene.await_reader()

    pairs = scene.run(play)
    # A retransmission or a step of the wall clock takes the stamp away; neither is common.
    assert sum(is_own(stamp) for stamp, _ in pairs) >= 95


def test_bursts_hold_the_truth_for_each_of_their_messages(scene: Scene) -> None:
    def play() -> None:
        for n in range(60):
            scene.send(*[200 + 50 * n] * (2 + n % 7))
            scene.await_reader()

    scene.run(play)


def test_short_messages_of_a_burst_have_stamps_of_their_own(raw_server: Any) -> None:
    scene = Scene(raw_server)

    def play() -> None:
        for _ in range(40):
            scene.send(100, 100, 100)
            scene.await_reader()

    pairs = scene.run(play)
    # The kernel merges them when it has acknowledged the one before, which it seldom does at once.
    assert sum(is_own(stamp) for stamp, _ in pairs) > len(pairs) / 3 + 10


def test_messages_larger_than_a_read_are_stamped_at_their_last_byte(scene: Scene) -> None:
    def play() -> None:
        for n in range(12):
            scene.send(300_000 + 70_000 * n, tail=1 + 300 * n)
            scene.await_reader()

    scene.run(play)


def test_fragments_and_control_frames_between_them_do_not_shift_the_stamps(scene: Scene) -> None:
    def play() -> None:
        frame = scene.server.frame
        for _ in range(40):
            scene.server.send(frame(2, bytes(50), fin=False) + frame(9, b"are you there"))
            scene.server.send(frame(0, bytes(50), fin=False))
            begun = time.monotonic_ns()
            scene.server.send(frame(0, bytes(50)) + frame(10))
            scene.truth.append((begun, scene.await_arrival()))
            scene.await_reader()

    pairs = scene.run(play)
    assert not any(is_own(stamp) for stamp, _ in pairs), "the read ended with a pong"


def test_a_message_that_follows_the_handshake_answer_in_one_write_is_stamped(
    raw_server: Any,
) -> None:
    begun: list[int] = []

    def script(server: Any) -> None:
        server.read_request()
        begun.append(time.monotonic_ns())
        server.send(server.answer() + server.frame(1, b"hello"))
        server.say_goodbye()

    async def main() -> None:
        got: asyncio.Future[tuple[Any, ArrivalStamp]] = asyncio.Future()
        shell = WebSocketShell(
            raw_server(script).url,
            on_message=lambda data, stamp: got.set_result((data, stamp)),
            on_closed=lambda code, reason: None,
            on_fault=lambda error: pytest.fail(str(error)),
        )
        await shell.open()
        data, stamp = await got
        assert data == "hello"
        assert stamp.hi >= begun[0]
        await shell.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def test_after_a_stall_of_the_reader_the_intervals_are_honestly_wide(scene: Scene) -> None:
    def play() -> None:
        scene.send(100)
        assert scene.reader_stalls.wait(30)
        for _ in range(3):
            scene.send(400)
            scene.server.stopped.wait(0.1)
        scene.release_reader.set()

    scene.stall_after = 1
    pairs = scene.run(play)
    first, last = pairs[1], pairs[-1]
    # The whole stall lies between the bounds of what came at its beginning.
    assert first[0].hi - first[0].lo >= last[1][0] - first[1][1]
    assert first[0].coalesced


def test_after_a_stall_the_last_message_still_has_its_own_stamp(raw_server: Any) -> None:
    scene = Scene(raw_server)

    def play() -> None:
        scene.send(100)
        assert scene.reader_stalls.wait(30)
        for _ in range(5):
            scene.send(400)
        scene.release_reader.set()

    scene.stall_after = 1
    pairs = scene.run(play)
    assert is_own(pairs[-1][0])


def test_without_the_stamping_selector_bounds_are_wide_but_hold(raw_server: Any) -> None:
    scene = Scene(raw_server)

    def play() -> None:
        for _ in range(20):
            scene.send(300, 300)
            scene.await_reader()

    scene.play = play
    asyncio.run(scene._call())
    for stamp, (earliest, latest) in zip(scene.stamps, scene.truth, strict=True):
        assert stamp.lo <= latest
        assert stamp.hi >= earliest
