"""Two peers in one loop: sound and words both ways, each stamped where it arrived.

The other end is on the same clock: a datagram's true arrival lies between the start of the call
that sent it and the moment at which its handler ran.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pytest
from aiortc import RTCRtpReceiver, RTCSctpTransport

from vakforge_eval.signal.opus import OpusEncoder
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.errors import TargetRefused
from vakforge_probe.header import stamp_source
from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.peer import Peer
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.protocol.rtp import RtpReader, packet_samples

pytestmark = pytest.mark.wallclock

PATIENCE_S = 30.0
T = TypeVar("T")
Run = Callable[..., None]


@dataclass
class Came:
    data: str | bytes
    stamp: ArrivalStamp
    handled_ns: int


@dataclass
class End:
    """A peer, and what came to it."""

    came: list[Came] = field(default_factory=list)
    overs: list[bool] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    peer: Peer = field(init=False)

    def __post_init__(self) -> None:
        self.peer = Peer(on_packet=self._note, on_text=self._note, decodes=False)

    def _note(self, data: str | bytes, stamp: ArrivalStamp) -> None:
        self.came.append(Came(data, stamp, time.monotonic_ns()))
        self.news.set()

    def over(self, is_proper: bool) -> None:
        self.overs.append(is_proper)
        self.news.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self.news.clear()
                await self.news.wait()


async def joined(label: str | None = "words") -> tuple[End, End]:
    """Return two ends of a session that stands."""
    a, b = End(), End()
    offer = await a.peer.offer(label)
    await a.peer.accept(await b.peer.answer(offer))
    async with asyncio.timeout(PATIENCE_S):
        for end in (a, b):
            await end.peer.until_found()
            await end.peer.until_secured()
            if label is not None:
                await end.peer.until_open()
            end.peer.on_over(end.over)
    return a, b


async def outside(call: Callable[..., T], *args: Any) -> tuple[int, T]:
    """Return when a call began, and what it returned; it is made by the loop, not by a task."""
    done: asyncio.Future[tuple[int, T]] = asyncio.get_running_loop().create_future()

    def now() -> None:
        begun = time.monotonic_ns()
        try:
            done.set_result((begun, call(*args)))
        except BaseException as error:
            done.set_exception(error)

    asyncio.get_running_loop().call_soon(now)
    return await done


def packets(n: int) -> list[bytes]:
    encoder, noise = OpusEncoder(48_000), np.random.default_rng(1)
    return [encoder.encode(noise.integers(-9000, 9000, 960).astype(np.int16)) for _ in range(n)]


async def exchanged(a: End, b: End, n: int = 5) -> list[tuple[int, Came]]:
    """Send packets and words from `a` to `b`; return with each when its sending began."""
    sent: list[int] = []
    before = len(b.came)
    for k, data in enumerate(packets(n)):
        n_sent = a.peer.mailbox.n_sent
        begun, has_left = await outside(a.peer.send_audio, data, packet_samples(data))
        assert has_left
        assert a.peer.mailbox.n_sent > n_sent, "it left after the call"
        sent.append(begun)
        await b.until(lambda: len(b.came) == before + len(sent))
        n_sent = a.peer.mailbox.n_sent
        begun, has_left = await outside(a.peer.send_text, f"word {k}")
        assert has_left
        assert a.peer.mailbox.n_sent > n_sent, "it left after the call"
        sent.append(begun)
        await b.until(lambda: len(b.came) == before + len(sent))
    return list(zip(sent, b.came[before:], strict=True))


def check(found: list[tuple[int, Came]], sound: list[bytes]) -> None:
    """Check that all came whole, and that each stamp may be true."""
    reader, heard, words = RtpReader(), list[bytes](), list[str]()
    for begun, came in found:
        assert came.stamp.lo <= came.stamp.hi <= came.handled_ns
        assert came.stamp.hi >= begun, "its stamp says that it came before it was sent"
        assert came.stamp.lo <= came.handled_ns
        if isinstance(came.data, str):
            words.append(came.data)
        else:
            events = reader.read(came.data, Instant.exact(0))
            heard += [event.data for event in events if isinstance(event, AudioChunk)]
    assert heard == sound
    assert words == [f"word {n}" for n in range(len(sound))]


def test_sound_and_words_go_both_ways_and_leave_inside_of_the_call(run_clean: Run) -> None:
    async def main() -> None:
        a, b = await joined()
        for one, other in ((a, b), (b, a)):
            found = await exchanged(one, other)
            check(found, packets(5))
            for begun, came in found:
                assert came.stamp.kernel is not None
                assert begun <= came.stamp.hi
                assert came.stamp.lo <= came.stamp.kernel <= came.stamp.hi
        await a.peer.close()
        await b.peer.close()

    run_clean(main())


def test_many_packets_at_once_keep_their_order_and_their_own_stamps(run_clean: Run) -> None:
    sound = packets(40)

    async def main() -> None:
        a, b = await joined(None)
        _, left = await outside(lambda: [a.peer.send_audio(data, 960) for data in sound])
        assert all(left)
        await b.until(lambda: len(b.came) == len(sound))
        kernels = [came.stamp.kernel or 0 for came in b.came]
        assert sorted(set(kernels)) == kernels
        await a.peer.close()
        await b.peer.close()

    run_clean(main())


def test_on_a_loop_that_stamps_nothing_stamps_are_wide_and_true(run_clean: Run) -> None:
    async def main() -> None:
        assert stamp_source(make_client("whip")) == "loop"
        begun = time.monotonic_ns()
        a, b = await joined()
        found: list[tuple[int, Came]] = []
        for data in packets(3):
            started, _ = await outside(a.peer.send_audio, data, 960)
            await b.until(lambda: len(b.came) == len(found) + 1)
            found.append((started, b.came[-1]))
        a.peer.send_text("word")
        await b.until(lambda: b.came[-1].data == "word")
        for sent, came in [*found, (started, b.came[-1])]:
            assert came.stamp.kernel is None
            assert begun <= came.stamp.lo <= sent <= came.stamp.hi <= came.handled_ns
        await a.peer.close()
        await b.peer.close()

    run_clean(main(), asyncio.new_event_loop)


def test_where_the_loop_stamps_the_kernel_is_the_source(run_clean: Run) -> None:
    async def main() -> None:
        assert stamp_source(make_client("whip")) == stamp_source(make_client("pipecat"))

    run_clean(main())


@pytest.mark.parametrize("first", [0, 1])
def test_whoever_ends_a_session_the_other_is_told(run_clean: Run, first: int) -> None:
    async def main() -> None:
        ends = await joined()
        one, other = ends[first], ends[1 - first]
        await one.peer.close()
        await other.until(lambda: bool(other.overs))
        assert other.overs[0] is True
        for end in ends:
            assert not end.peer.send_text("late")
            assert (await outside(end.peer.send_audio, b"\x78", 960))[1] is False
            await end.peer.close()
            await end.peer.close()

    run_clean(main())


def test_who_asks_after_the_end_is_told_at_once(run_clean: Run) -> None:
    async def main() -> None:
        a, b = await joined()
        await b.peer.close()
        await a.until(lambda: bool(a.overs))
        late: list[bool] = []
        a.peer.on_over(late.append)
        assert late == [True]
        await a.peer.close()

    run_clean(main())


def test_a_session_that_ends_before_its_channel_is_open_is_refused(run_clean: Run) -> None:
    async def main() -> None:
        a, b = End(), End()
        offer = await a.peer.offer("words")
        answer = await b.peer.answer(offer)
        words: Any = b.peer.connection.sctp
        words.start = _never
        await a.peer.accept(answer)
        async with asyncio.timeout(PATIENCE_S):
            for end in (a, b):
                await end.peer.until_found()
                await end.peer.until_secured()
            waiting = asyncio.ensure_future(a.peer.until_open())
            await b.peer.close()
            with pytest.raises(TargetRefused) as caught:
                await waiting
        assert caught.value.phase == "channel"
        await a.peer.close()

    run_clean(main())


async def _never(*_: object) -> None:
    return


def test_a_session_without_words_takes_none(run_clean: Run) -> None:
    async def main() -> None:
        a, b = await joined(None)
        for end in (a, b):
            assert not end.peer.is_channel_offered
            assert not end.peer.send_text("word")
        await a.peer.close()
        await b.peer.close()

    run_clean(main())


def test_what_is_sent_before_the_session_stands_does_not_leave(run_clean: Run) -> None:
    async def main() -> None:
        a = End()
        await a.peer.offer("words")
        assert not a.peer.send_text("word")
        assert (await outside(a.peer.send_audio, b"\x78", 960))[1] is False
        await a.peer.close()

    run_clean(main())


def test_aiortc_still_has_what_is_used_of_it_beyond_its_documentation() -> None:
    """If this fails, `net/peer.py` must be looked at before that version of aiortc is allowed."""
    handle = getattr(RTCRtpReceiver, "_handle_rtp_packet", None)
    assert handle is not None, "RTCRtpReceiver._handle_rtp_packet is gone"
    assert inspect.iscoroutinefunction(handle)
    assert list(inspect.signature(handle).parameters) == ["self", "packet", "arrival_time_ms"]
    flush = getattr(RTCSctpTransport, "_data_channel_flush", None)
    assert flush is not None, "RTCSctpTransport._data_channel_flush is gone"
    assert inspect.iscoroutinefunction(flush)
    assert list(inspect.signature(flush).parameters) == ["self"]
