"""What goes wrong on the way to a session and in it is the target's, typed, and names its phase."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from vakforge_probe.errors import (
    ExitCode,
    MissingDependency,
    TargetClosed,
    TargetError,
    TargetLimitExceeded,
    exit_code,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.peer import Peer
from vakforge_probe.net.webrtc import WebRtcShell
from vakforge_probe.protocol.signalling import Signalling

pytestmark = pytest.mark.wallclock

Run = Callable[..., None]
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]

PATIENCE_S = 30.0
LIMITS = Limits(close_s=5.0)
SECRET = "Bearer of-a-secret"
WHIP = Signalling("words", "sdp", goodbye="delete")


class Phases(dict[str, tuple[int, int]]):
    """Phases that have been passed, to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def __setitem__(self, name: str, times: tuple[int, int]) -> None:
        super().__setitem__(name, times)
        self._news.set()

    async def passed(self, name: str) -> None:
        while name not in self:
            self._news.clear()
            await self._news.wait()


@dataclass
class Desk:
    """A target: its HTTP side, and the other end of each session.

    `alter` changes the answer, `prepare` the peer that gives it; `respond` replaces all of it.
    """

    respond: Respond | None = None
    alter: Callable[[str], str] = lambda sdp: sdp
    prepare: Callable[[Peer], None] = lambda peer: None
    is_gone: bool = False
    """Whether the peer goes away with its answer."""
    url: str = ""
    peers: list[Peer] = field(default_factory=list)
    heard: list[tuple[str, str]] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.heard.append((request.method, request.path_qs))
        self.authorization.append(request.headers.get("Authorization"))
        self.asked.set()
        if request.method == "DELETE":
            return web.Response()
        if self.respond is not None:
            return await self.respond(request)
        peer = Peer(on_packet=lambda *_: None, on_text=lambda *_: None, decodes=False)
        self.peers.append(peer)
        answer = self.alter(await peer.answer(await request.text()))
        self.prepare(peer)
        if self.is_gone:
            await peer.close()
        return web.Response(status=201, text=answer, headers={"Location": "/calls/1"})


@asynccontextmanager
async def serving(desk: Desk) -> AsyncIterator[Desk]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", desk.handle)
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=0
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    desk.url = "http://{}:{}/offer?model=m".format(*runner.addresses[0][:2])
    try:
        yield desk
    finally:
        for peer in desk.peers:
            await peer.close()
        await runner.cleanup()


class Client:
    """The shell under test, and what it told."""

    def __init__(self, url: str, limits: Limits = LIMITS, signalling: Signalling = WHIP) -> None:
        self.messages: list[str | bytes] = []
        self.closed: list[int] = []
        self.faults: list[TargetError] = []
        self.is_over, self.news = asyncio.Event(), asyncio.Event()
        self.phases = Phases()
        self.shell = WebRtcShell(
            url,
            signalling,
            headers={"Authorization": SECRET},
            limits=limits,
            on_message=self._on_message,
            on_closed=self._on_closed,
            on_fault=self.faults.append,
        )
        self.shell.phases = self.phases

    def _on_message(self, data: str | bytes, stamp: ArrivalStamp) -> None:
        self.messages.append(data)
        self.news.set()

    async def messages_are(self, n: int) -> None:
        while len(self.messages) < n:
            self.news.clear()
            await self.news.wait()

    def _on_closed(self, code: int, reason: str) -> None:
        self.closed.append(code)
        self.is_over.set()


def failing(run_clean: Run, desk: Callable[[], Desk], **limits: float) -> TargetError:
    """Return how a call to a desk fails; nothing is left of it."""
    found: list[TargetError] = []

    async def main() -> None:
        async with serving(desk()) as target:
            client = Client(target.url, Limits(close_s=5.0, **limits))  # type: ignore[arg-type]
            with pytest.raises(TargetError) as caught:
                async with asyncio.timeout(PATIENCE_S):
                    await client.shell.open()
            await client.shell.close()
            found.append(caught.value)
            assert (client.closed, client.faults) == ([], [])
            assert client.shell.self_facts()
            with pytest.raises(TargetClosed):
                client.shell.send("word")
            with pytest.raises(TargetClosed):
                client.shell.send(b"\x78")

    run_clean(main())
    (error,) = found
    assert "secret" not in str(error)
    return error


# -- a session that stands --------------------------------------------------------------------


def test_a_session_passes_its_phases_and_ends_with_a_goodbye(run_clean: Run) -> None:
    async def main() -> None:
        async with serving(Desk()) as target:
            client = Client(target.url)
            phases = await client.shell.open()
            assert list(phases) == ["gather", "signal", "ice", "dtls", "channel"]
            times = [time for pair in phases.values() for time in pair]
            assert times == sorted(times)
            sent = client.shell.send("word")
            assert sent.before <= sent.after
            await client.shell.close()
            await client.shell.close()
            assert client.closed == []
            assert target.heard == [("POST", "/offer?model=m"), ("DELETE", "/calls/1")]
            assert target.authorization == [SECRET] * 2

    run_clean(main())


def test_without_messages_there_is_no_phase_for_them(run_clean: Run) -> None:
    async def main() -> None:
        async with serving(Desk()) as target:
            client = Client(target.url, signalling=Signalling(None, "sdp"))
            assert list(await client.shell.open()) == ["gather", "signal", "ice", "dtls"]
            await client.shell.close()
            assert [method for method, _ in target.heard] == ["POST"]

    run_clean(main())


def test_a_server_that_ends_the_session_closes_the_call_once(run_clean: Run) -> None:
    async def main() -> None:
        async with serving(Desk()) as target:
            client = Client(target.url)
            await client.shell.open()
            await target.peers[0].close()
            async with asyncio.timeout(PATIENCE_S):
                await client.is_over.wait()
            with pytest.raises(TargetClosed):
                client.shell.send("word")
            await client.shell.close()
            assert client.closed == [1000]

    run_clean(main())


def test_a_message_without_end_is_a_fault_once(run_clean: Run) -> None:
    async def main() -> None:
        async with serving(Desk()) as target:
            client = Client(target.url, Limits(close_s=5.0, max_message_bytes=50_000))
            await client.shell.open()
            peer = target.peers[0]
            sent = 0
            for _ in range(20):  # what ends sets the count back
                sent += peer.send_text("x" * 10_000)
                await client.messages_are(sent)
            assert client.faults == []
            mailbox = client.shell._peer.mailbox
            assert mailbox.latest is not None
            for _ in range(100):
                mailbox.arrived(b"\x17" + bytes(999), mailbox.latest)
            (fault,) = client.faults
            assert isinstance(fault, TargetLimitExceeded)
            assert (fault.limit, fault.phase) == ("max_message_bytes", "call")
            await client.shell.close()

    run_clean(main())


def test_a_goodbye_that_hangs_is_given_up(run_clean: Run) -> None:
    async def main() -> None:
        desk = Desk()
        async with serving(desk) as target:
            client = Client(target.url, Limits(close_s=0.2))
            await client.shell.open()
            desk.handle = _hangs  # type: ignore[method-assign]
            async with asyncio.timeout(PATIENCE_S):
                await client.shell.close()

    run_clean(main())


def test_a_shell_that_was_never_opened_closes(run_clean: Run) -> None:
    async def main() -> None:
        client = Client("http://127.0.0.1:1/")
        await client.shell.close()

    run_clean(main())


# -- the exchange -----------------------------------------------------------------------------


async def _hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def _floods(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"v=0 " * 10_000)


async def _drops(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _babbles(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"\0\1 no HTTP\r\n\r\n")
    request.transport.close()
    return web.Response()


def says(status: int, body: bytes = b"", **headers: str) -> Respond:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    return respond


@pytest.mark.parametrize(("respond", "kind", "words"), [
    (says(404), "refused", "HTTP 404"),
    (says(500, b"x" * 100), "refused", "HTTP 500"),
    (says(503), "refused", "HTTP 503"),
    (says(307, Location="http://127.0.0.1:1/"), "refused", "redirects are not followed"),
    (_hangs, "timeout", "within 0.5 s"),
    (_floods, "limit_exceeded", "max_answer_bytes"),
    (_drops, "refused", ""),
    (_babbles, "protocol_error", "not HTTP"),
    (says(201), "protocol_error", "not SDP"),
    (says(201, b"<html>"), "protocol_error", "not SDP"),
    (says(201, b"\xff\xfe"), "protocol_error", "not text"),
    (says(201, b"v=0\r\n"), "protocol_error", "no session"),
    (says(201, b"v=0\r\nm=\r\n"), "protocol_error", "no session"),
    (says(200, b"v=0" + b"\r\na=x" * 200_000), "protocol_error", "not SDP"),
])  # fmt: skip
def test_an_exchange_that_fails_is_told_so(
    run_clean: Run, respond: Respond, kind: str, words: str
) -> None:
    limits = {"handshake_s": 0.5} if respond is _hangs else {}
    error = failing(run_clean, lambda: Desk(respond), **limits)
    assert (error.kind, error.phase) == (kind, "signal"), error
    assert words in str(error)


def test_nobody_there_is_a_refusal(run_clean: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def main() -> None:
        client = Client(f"http://127.0.0.1:{port}/")
        with pytest.raises(TargetError) as caught:
            await client.shell.open()
        await client.shell.close()
        assert (caught.value.kind, caught.value.phase) == ("refused", "signal")
        assert "onnection refused" in caught.value.message

    run_clean(main())


def test_a_certificate_that_nobody_vouches_for_is_a_refusal(
    run_clean: Run, raw_server: Any, make_certificate: Any
) -> None:
    server = raw_server(lambda _: None, tls=make_certificate().server_context())

    async def main() -> None:
        client = Client(f"https://127.0.0.1:{server.port}/")
        with pytest.raises(TargetError) as caught:
            await client.shell.open()
        await client.shell.close()
        assert (caught.value.kind, caught.value.phase) == ("refused", "signal")
        assert "certificate" in caught.value.message

    run_clean(main())


# -- the answer -------------------------------------------------------------------------------


def without_audio(sdp: str) -> str:
    head, *media = re.split(r"(?=^m=)", sdp, flags=re.MULTILINE)
    return head + "".join(part for part in media if not part.startswith("m=audio"))


ALTERED: dict[str, Callable[[str], str]] = {
    "no audio": without_audio,
    "only another codec": lambda sdp: sdp.replace("opus/48000/2", "speex/16000"),
    "it only listens": lambda sdp: sdp.replace("a=sendrecv", "a=recvonly"),
    "it only speaks": lambda sdp: sdp.replace("a=sendrecv", "a=sendonly"),
    "inactive": lambda sdp: sdp.replace("a=sendrecv", "a=inactive"),
    "no key": lambda sdp: re.sub(r"a=fingerprint:.*\r\n", "", sdp),
    "no role": lambda sdp: re.sub(r"a=setup:.*", "a=setup:actpass", sdp),
    "no password": lambda sdp: re.sub(r"a=ice-pwd:.*\r\n", "", sdp),
    "a candidate that is none": lambda sdp: re.sub(r"a=candidate:.*", "a=candidate:x", sdp),
    "a port that is none": lambda sdp: sdp.replace("m=audio ", "m=audio x"),
    "one of many": lambda sdp: sdp + "m=video 9 UDP/TLS/RTP/SAVPF 96\r\n",
}


@pytest.mark.parametrize("name", ALTERED)
def test_an_answer_that_cannot_be_joined_is_told_so(run_clean: Run, name: str) -> None:
    error = failing(run_clean, lambda: Desk(alter=ALTERED[name]), ice_s=5.0, dtls_s=5.0)
    assert (error.kind, error.phase) == ("protocol_error", "signal"), error


def test_a_peer_that_cannot_be_reached_fails_in_the_time_it_is_given(run_clean: Run) -> None:
    error = failing(run_clean, lambda: Desk(is_gone=True), ice_s=0.3)
    assert error.phase == "ice"
    assert error.kind in ("timeout", "refused")


def test_an_answer_without_a_place_fails_in_ice(run_clean: Run) -> None:
    def alter(sdp: str) -> str:
        return re.sub(r"a=candidate:.*\r\n", "", sdp)

    error = failing(run_clean, lambda: Desk(alter=alter, is_gone=True), ice_s=0.3)
    assert (error.kind, error.phase) in {("timeout", "ice"), ("refused", "ice")}


def test_other_keys_than_those_that_were_announced_are_refused(run_clean: Run) -> None:
    def alter(sdp: str) -> str:
        return re.sub(r"(a=fingerprint:\S+ )..", r"\g<1>00", sdp)

    error = failing(run_clean, lambda: Desk(alter=alter))
    assert (error.kind, error.phase) == ("refused", "dtls")


async def _never(*_: object) -> None:
    return


def no_keys(peer: Peer) -> None:
    monkey: Any = peer._dtls
    monkey.start = _never


def no_channel(peer: Peer) -> None:
    monkey: Any = peer.connection.sctp
    monkey.start = _never


def test_keys_that_are_never_exchanged_are_waited_for_no_longer_than_allowed(
    run_clean: Run,
) -> None:
    error = failing(run_clean, lambda: Desk(prepare=no_keys), dtls_s=0.3)
    assert (error.kind, error.phase) == ("timeout", "dtls")


def test_a_channel_that_never_opens_is_waited_for_no_longer_than_allowed(run_clean: Run) -> None:
    error = failing(run_clean, lambda: Desk(prepare=no_channel), handshake_s=2.0)
    assert (error.kind, error.phase) == ("timeout", "channel")


# -- a caller who gives up --------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "desk"), [
    ("gather", Desk),
    ("signal", lambda: Desk(_hangs)),
    ("ice", lambda: Desk(is_gone=True)),
    ("dtls", lambda: Desk(prepare=no_keys)),
    ("channel", lambda: Desk(prepare=no_channel)),
    ("call", Desk),
])  # fmt: skip
def test_a_call_that_is_cancelled_leaves_nothing_running(
    run_clean: Run, phase: str, desk: Callable[[], Desk]
) -> None:
    before = {"signal": "gather", "ice": "signal", "dtls": "ice", "channel": "dtls"}

    async def main() -> None:
        async with serving(desk()) as target, asyncio.timeout(PATIENCE_S):
            client = Client(target.url)
            opening = asyncio.ensure_future(client.shell.open())
            if phase == "gather":
                await asyncio.sleep(0)
            elif phase == "call":
                await opening
            else:
                await client.phases.passed(before[phase])
            if phase == "signal":
                await target.asked.wait()
            opening.cancel()
            if phase != "call":
                with pytest.raises(asyncio.CancelledError):
                    await opening
                assert phase not in client.phases
            await client.shell.close()
            assert client.closed == []

    run_clean(main())


# -- without the library ----------------------------------------------------------------------


def test_without_aiortc_it_is_said_what_to_install(
    run_clean: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("vakforge_probe.net.peer", "vakforge_probe.net.coded_track"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "aiortc", None)

    async def main() -> None:
        with pytest.raises(MissingDependency, match=r"vakforge-probe\[webrtc\]") as caught:
            Client("http://127.0.0.1:1/")
        assert exit_code(caught.value) is ExitCode.CONFIG

    run_clean(main())
