"""The agent's WebRTC side: what it answers to offers, good and bad, and what comes of a call."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiortc import RTCPeerConnection

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent import webrtc
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.doors import RTC_PATHS
from vakforge_probe.agent.server import AgentServer, serve
from vakforge_probe.errors import MissingDependency
from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.peer import Peer
from vakforge_probe.protocol.base import SessionConfig, StartSession
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.protocol.rtp import packet_samples
from vakforge_probe.protocol.signalling import Signalling

pytestmark = pytest.mark.wallclock

PATIENCE_S = 30.0
STAMP = ArrivalStamp(0, 1, None, 0, 1, coalesced=False)


@dataclass
class Answered:
    status: int
    headers: Any
    text: str


class Caller:
    """Somebody who joins a session, and keeps what comes."""

    def __init__(self, protocol: str) -> None:
        self.codec = make_client(protocol)
        assert isinstance(self.codec.signalling, Signalling)
        self.signalling = self.codec.signalling
        self.channel = self.signalling.channel
        self.came: list[str | bytes] = []
        self.overs: list[bool] = []
        self.news = asyncio.Event()
        self.peer = Peer(on_packet=self._note, on_text=self._note, decodes=False)

    def _note(self, data: str | bytes, stamp: ArrivalStamp) -> None:
        self.came.append(data)
        self.news.set()

    def _over(self, is_proper: bool) -> None:
        self.overs.append(is_proper)
        self.news.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.news.clear()
            await self.news.wait()

    async def hear(self, n: int) -> None:
        """Return when so many packets of sound have come."""
        await self.until(lambda: sum(isinstance(data, bytes) for data in self.came) >= n)

    async def join(self, answer: str) -> None:
        await self.peer.accept(answer)
        await self.peer.until_found()
        await self.peer.until_secured()
        if self.channel is not None:
            await self.peer.until_open()
        self.peer.on_over(self._over)
        for message in self.codec.send(StartSession(SessionConfig())):
            assert isinstance(message, str)
            assert self.peer.send_text(message)

    async def speak(self) -> None:
        """Send a frame of silence, from the loop."""
        sent: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        data = self.codec.audio_frame(bytes(2 * self.codec.user_audio.frame_samples))
        assert isinstance(data, bytes)
        asyncio.get_running_loop().call_soon(
            lambda: sent.set_result(self.peer.send_audio(data, packet_samples(data)))
        )
        assert await sent


class Booth:
    """A running agent, and somebody who asks it by HTTP."""

    def __init__(self, agent: AgentServer, http: aiohttp.ClientSession) -> None:
        self.agent, self._http = agent, http

    def url(self, protocol: str) -> str:
        return self.agent.url_for(protocol)

    async def ask(self, method: str, url: str, body: Any = None, kind: str = "") -> Answered:
        data = json.dumps(body) if isinstance(body, dict | list) else body
        kind = kind or ("application/sdp" if data is body else "application/json")
        headers = {"Content-Type": kind}
        async with self._http.request(method, url, data=data, headers=headers) as response:
            return Answered(response.status, response.headers, await response.text())

    async def offer(self, caller: Caller, url: str) -> tuple[Answered, str]:
        """Post an offer; return what came back, and the answer in it."""
        signalling = caller.signalling
        what = signalling.offer(url, await caller.peer.offer(caller.channel))
        answered = await self.ask("POST", url, what.body, what.headers["Content-Type"])
        agreed = signalling.read(url, answered.headers, answered.text.encode())
        return answered, agreed.sdp

    async def call(self, protocol: str, query: str = "") -> tuple[Caller, str]:
        """Return a caller in a session, and where its resource is."""
        caller, url = Caller(protocol), self.url(protocol)
        answered, sdp = await self.offer(caller, url + query)
        await caller.join(sdp)
        where = answered.headers.get("Location") or f"{RTC_PATHS[protocol]}/" + json.loads(
            answered.text
        ).get("pc_id", "")
        return caller, url.removesuffix(RTC_PATHS[protocol]) + where


Visit = Callable[[Booth], Awaitable[None]]


@pytest.fixture
def visit(clips: Path, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return a runner of visits; it gives the truth log, and sees that nothing is left."""
    truth = tmp_path / "truth.jsonl"

    def go(script: Visit, **knobs: Any) -> list[dict[str, Any]]:
        strays: list[dict[str, Any]] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: strays.append(context))
            async with (
                asyncio.timeout(PATIENCE_S),
                await serve(
                    Behaviour(**knobs), "127.0.0.1", 0, truth, clips, webrtc_port=0
                ) as agent,
                aiohttp.ClientSession() as http,
            ):
                await script(Booth(agent, http))
            if rest := asyncio.all_tasks() - {asyncio.current_task()}:
                _, rest = await asyncio.wait(rest, timeout=PATIENCE_S)
            assert not rest

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
        gc.collect()  # what was not closed warns now, and a warning is an error
        assert strays == []
        return [json.loads(line) for line in truth.read_text("utf-8").splitlines()]

    return go


# -- offers -----------------------------------------------------------------------------------


async def offer_of(kind: str | None, **facts: Any) -> str:
    """Return another client's offer; of no line if there is no kind."""
    connection = RTCPeerConnection()
    if kind is None:
        connection.createDataChannel("words")
    else:
        connection.addTransceiver(kind, **facts)
    await connection.setLocalDescription(await connection.createOffer())
    sdp = str(connection.localDescription.sdp)
    await connection.close()
    return sdp


async def _bad_offers() -> list[str | bytes]:
    audio = await offer_of("audio")
    return [
        b"", b"\xff\xfe", "v=0", "v=0\r\n", "<html>", "v=0\r\nm=audio x\r\n",
        await offer_of(None), await offer_of("video"),
        await offer_of("audio", direction="recvonly"),
        await offer_of("audio", direction="sendonly"),
        re.sub(r"a=fingerprint:.*\r\n", "", audio),
        re.sub(r"a=ice-pwd:.*\r\n", "", audio),
        re.sub(r"a=rtpmap:.*\r\n", "", audio),
        re.sub(r"a=candidate:.*", "a=candidate:x", audio),
    ]  # fmt: skip


def test_what_is_no_offer_is_answered_by_400_and_the_next_one_is_heard(visit: Any) -> None:
    async def script(booth: Booth) -> None:
        for protocol in ("whip", "smallwebrtc"):
            url = booth.url(protocol)
            for offer in await _bad_offers():
                said = await booth.ask("POST", url, offer)
                assert said.status == 400, offer
                assert said.text.strip()
                if isinstance(offer, str):
                    said = await booth.ask("POST", url, {"sdp": offer, "type": "offer"})
                    assert said.status == 400, offer
            bodies: list[Any] = [{}, {"sdp": 1}, [], "{", "[" * 5000, '{"sdp":"a","sdp":"b"}']
            for body in bodies:
                said = await booth.ask("POST", url, body, "application/json")
                assert said.status == 400, body
            said = await booth.ask("POST", url, b"v=0" + bytes(300_000))
            assert said.status == 413
        caller, _ = await booth.call("whip")
        await caller.peer.close()

    lines = visit(script)
    assert [line["connection"] for line in lines if line["type"] == "connected"] != []


def test_knobs_in_the_url_are_checked_before_the_offer(visit: Any) -> None:
    async def script(booth: Booth) -> None:
        url = booth.url("whip")
        for query, status in (
            ("?surprise=1", 400), ("?reply_delay=x", 400), ("?seed=1&seed=2", 400),
            ("?refuse=503", 503), ("?model=m&refuse=429", 429),
        ):  # fmt: skip
            said = await booth.ask("POST", url + query, await offer_of("audio"))
            assert said.status == status, query

    assert visit(script) == []


@pytest.mark.parametrize(("method", "path", "status"), [
    ("POST", "/nothing", 404), ("GET", "/whip", 405), ("DELETE", "/whip/9", 404),
    ("POST", "/v1/realtime/calls/9/hangup", 404), ("PATCH", "/api/offer", 400),
])  # fmt: skip
def test_what_nobody_asked_for_is_not_there(
    visit: Any, method: str, path: str, status: int
) -> None:
    async def script(booth: Booth) -> None:
        url = booth.url("whip").removesuffix("/whip") + path
        assert (await booth.ask(method, url)).status == status

    assert visit(script) == []


def test_nobody_answers_offers_unless_asked_to(clips: Path) -> None:
    async def main() -> None:
        async with await serve(Behaviour(), "127.0.0.1", 0, None, clips) as agent:
            with pytest.raises(ValueError, match="no port"):
                agent.url_for("whip")

    asyncio.run(main())


def test_without_aiortc_it_is_said_what_to_install(
    clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vakforge_probe.agent.webrtc", None)

    async def main() -> None:
        with pytest.raises(MissingDependency, match="webrtc"):
            await serve(Behaviour(), "127.0.0.1", 0, None, clips, webrtc_port=0)

    asyncio.run(main())


# -- addresses that come later ----------------------------------------------------------------


def test_addresses_may_come_after_the_offer(visit: Any) -> None:
    async def script(booth: Booth) -> None:
        caller, url = Caller("smallwebrtc"), booth.url("smallwebrtc")
        whole = await caller.peer.offer(caller.channel)
        found = re.findall(r"a=(candidate:.*)\r\n", whole)
        bare = re.sub(r"a=(candidate:.*|end-of-candidates)\r\n", "", whole)
        said = await booth.ask("POST", url, {"sdp": bare, "type": "offer"})
        answer = json.loads(said.text)
        candidates = [{"candidate": text, "sdp_mid": "0", "sdp_mline_index": 0} for text in found]
        more = {"pc_id": answer["pc_id"], "candidates": candidates}
        assert (await booth.ask("PATCH", url, more)).status == 200
        await caller.join(answer["sdp"])
        await caller.until(lambda: any("bot-ready" in str(data) for data in caller.came))
        await caller.peer.close()

    visit(script)


NO_ADDRESSES: list[Any] = [
    None, 1, "x", [1], [{}], [{"candidate": 1}], [{"candidate": "candidate:x", "sdp_mid": "0"}],
    [{"candidate": "candidate:1 1 udp x 127.0.0.1 y typ host", "sdp_mid": "0"}],
    [{"candidate": "candidate:1 1 udp 1 127.0.0.1 9 typ host"}], {"candidate": "x"},
]  # fmt: skip


def test_what_is_no_address_is_answered_by_400_and_the_call_goes_on(visit: Any) -> None:
    async def script(booth: Booth) -> None:
        url = booth.url("smallwebrtc")
        caller, where = await booth.call("smallwebrtc")
        tag = where.rpartition("/")[2]
        for candidates in NO_ADDRESSES:
            more = {"pc_id": tag, "candidates": candidates}
            assert (await booth.ask("PATCH", url, more)).status == 400, candidates
            assert (await booth.ask("PATCH", url, {**more, "pc_id": "x"})).status == 404
        assert (await booth.ask("PATCH", url, "{")).status == 400
        await caller.speak()
        await caller.hear(1)
        await caller.peer.close()

    visit(script)


# -- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", RTC_PATHS)
def test_a_call_greets_and_its_account_is_whole(visit: Any, protocol: str) -> None:
    async def script(booth: Booth) -> None:
        caller, _ = await booth.call(protocol)
        await caller.speak()
        await caller.hear(3)
        await caller.peer.close()

    lines = visit(script)
    assert lines[0]["type"] == "connected"
    assert lines[-1]["type"] == "closed"
    assert {line["connection"] for line in lines} == {"1"}
    assert lines[-1]["latest_frames"]
    assert {"stream_started", "sent"} <= {line["type"] for line in lines}


@pytest.mark.parametrize(("protocol", "method", "tail"), [
    ("whip", "DELETE", ""), ("openai-webrtc", "POST", "/hangup"),
])  # fmt: skip
def test_a_goodbye_ends_the_call_once(visit: Any, protocol: str, method: str, tail: str) -> None:
    async def script(booth: Booth) -> None:
        caller, where = await booth.call(protocol)
        assert (await booth.ask(method, where + tail)).status == 200
        await caller.until(lambda: bool(caller.overs))
        assert caller.overs[0] is True
        assert (await booth.ask(method, where + tail)).status == 404
        await caller.peer.close()

    assert [line["type"] for line in visit(script)][-1] == "closed"


@pytest.mark.parametrize("knob", ["close_at", "abort_at"])
def test_it_hangs_up_when_told_to(visit: Any, knob: str) -> None:
    async def script(booth: Booth) -> None:
        caller, _ = await booth.call("whip", f"?{knob}=0.05")
        await caller.speak()
        await caller.until(lambda: bool(caller.overs))
        await caller.peer.close()

    assert [line["type"] for line in visit(script)][-1] == "closed"


def test_two_calls_at_once_have_an_account_each(visit: Any) -> None:
    async def script(booth: Booth) -> None:
        callers = [caller for caller, _ in await asyncio.gather(
            booth.call("whip", "?label=a"), booth.call("smallwebrtc", "?label=b"),
        )]  # fmt: skip
        for caller in callers:
            await caller.speak()
        for caller in callers:
            await caller.hear(1)
        await callers[0].peer.close()
        await callers[1].speak()
        await callers[1].peer.close()

    lines = visit(script)
    for tag in ("1", "2"):
        kinds = [line["type"] for line in lines if line["connection"] == tag]
        assert (kinds[0], kinds[-1]) == ("connected", "closed")
        assert kinds.count("closed") == 1


def test_an_agent_that_ends_tells_its_callers(visit: Any) -> None:
    callers: list[Caller] = []

    async def script(booth: Booth) -> None:
        callers.append((await booth.call("whip"))[0])
        await callers[0].speak()
        await callers[0].hear(1)
        await booth.agent._offers.close()  # type: ignore[union-attr]
        await callers[0].until(lambda: bool(callers[0].overs))
        await callers[0].peer.close()

    assert [line["type"] for line in visit(script)][-1] == "closed"


def test_a_caller_who_never_comes_is_waited_for_no_longer_than_allowed(
    visit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webrtc, "_CONNECT_S", 0.2)

    async def script(booth: Booth) -> None:
        said = await booth.ask("POST", booth.url("whip"), await offer_of("audio"))
        assert said.status == 201
        tasks = booth.agent._offers._tasks  # type: ignore[union-attr]
        await asyncio.wait(set(tasks))
        where = booth.url("whip").removesuffix("/whip") + said.headers["Location"]
        assert (await booth.ask("DELETE", where)).status == 404

    assert visit(script) == []


# -- a line that loses ------------------------------------------------------------------------


class Heard:
    """Takes what a call would."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def start(self) -> None:
        assert self.payloads == []

    def on_message(self, data: bytes, at: Instant) -> None:
        self.payloads.append(data)


def heard(*numbers: int, n_early: int = 0) -> list[int]:
    """Return what a call hears when packets with these numbers come, the first before it begins."""

    async def main() -> list[bytes]:
        line, call = webrtc._Line(), Heard()
        for k, n in enumerate(numbers):
            if k == n_early:
                line.begin(call)  # type: ignore[arg-type]
            number = (n % 65536).to_bytes(2)
            line._take(b"\x80\x6f" + number + bytes(8) + number, STAMP)
        await line.peer.close()
        return call.payloads

    return [int.from_bytes(payload) for payload in asyncio.run(main())]


def test_what_comes_before_the_call_begins_is_heard_as_its_beginning() -> None:
    assert heard(7, 8, 10, 11, n_early=3) == [7, 8, 8, 10, 11]


def test_what_is_lost_is_filled_so_that_later_words_are_heard_in_time() -> None:
    assert heard(1, 2, 5) == [1, 2, 2, 2, 5]
    assert heard(65535, 2) == [65535, 65535, 65535, 2]


def test_what_comes_late_or_twice_is_not_heard_again() -> None:
    assert heard(1, 3, 2, 3, 4) == [1, 1, 3, 4]


def test_after_a_long_hole_the_caller_is_heard_again() -> None:
    found = heard(1, 2000, 2001)
    assert found[-2:] == [2000, 2001]
    assert len(found) == webrtc._MOST_LOST + 3
