"""The reference agent's WebRTC side: offers by HTTP, each answered with a call of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.call import AgentCall, World
from vakforge_probe.agent.doors import RTC_DOORS, Knock
from vakforge_probe.errors import ConfigError, TargetError
from vakforge_probe.net.peer import Peer
from vakforge_probe.net.stamps import ArrivalStamp
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.rtp import CODEC, RATE_HZ, packet_samples
from vakforge_probe.protocol.strict import StrictError, parse_object

__all__ = ["OfferDesk"]

_MAX_OFFER = 256 * 1024
_CONNECT_S = 15.0
_WRAP = 1 << 16
_MOST_LOST = 500
"""Packets; 10 s of them."""
_HEADER_BYTES = 12


class _Line:
    """The connection of one call, as `call.Link` has it."""

    def __init__(self) -> None:
        self.peer = Peer(on_packet=self._take, on_text=self._take, decodes=False)
        self._call: AgentCall | None = None
        self._early: deque[tuple[Wire, ArrivalStamp]] = deque(maxlen=_MOST_LOST)
        self._next: int | None = None
        self._last = b""

    def begin(self, call: AgentCall) -> None:
        """Let `call` hear what comes, and what has come since the other side was there."""
        self._call = call
        call.start()
        for message, stamp in self._early:
            self._take(message, stamp)
        self._early.clear()

    def send_now(self, message: Wire) -> None:
        """Send a packet of Opus or a message; nothing when the session does not stand."""
        if isinstance(message, str):
            self.peer.send_text(message)
        else:
            self.peer.send_audio(message, packet_samples(message))

    def n_unsent(self) -> int:
        """Return 0: a datagram leaves or is lost."""
        return 0

    def close_now(self) -> None:
        """End the session."""
        self._ending = asyncio.ensure_future(self.peer.close())

    abort_now = close_now
    """There is no way to end it that the other side does not see."""

    def _take(self, message: Wire, stamp: ArrivalStamp) -> None:
        if self._call is None:
            self._early.append((message, stamp))
            return
        at = Instant.arrival(stamp.lo, stamp.hi)
        if isinstance(message, str):
            self._call.on_message(message, at)
            return
        number = int.from_bytes(message[2:4])
        n_lost = 0 if self._next is None else (number - self._next) % _WRAP
        if n_lost >= _WRAP // 2:
            return  # it came too late
        for _ in range(min(n_lost, _MOST_LOST)):
            # Something must be heard for what never came, or all later would be heard too early.
            self._call.on_message(self._last, at)
        self._next, self._last = (number + 1) % _WRAP, message[_HEADER_BYTES:]
        self._call.on_message(self._last, at)


class OfferDesk:
    """Answers offers at the paths of `RTC_DOORS`, and runs a call on each session.

    Parameters
    ----------
    asked
        Returns the behaviour for a request's path and query.
    note
        Takes each object of the truth log, with the call's tag.
    next_tag
        Returns the tag of a new call.
    """

    def __init__(
        self,
        world: World,
        asked: Callable[[str], Behaviour],
        note: Callable[[str, dict[str, Any]], None],
        next_tag: Callable[[], str],
    ) -> None:
        self._world, self._asked, self._note, self._next_tag = world, asked, note, next_tag
        self._lines: dict[str, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None
        self.address: tuple[str, int] = ("", 0)

    async def listen(self, host: str, port: int) -> None:
        """Listen on `host`:`port` (0: any free port)."""
        # Now rather than in the first call, which it would delay by most of a second.
        self._world.callers.index(CODEC, RATE_HZ)
        app = web.Application(client_max_size=_MAX_OFFER)
        for path in RTC_DOORS:
            app.router.add_post(path, self._offer)
            app.router.add_patch(path, self._candidates)
            app.router.add_delete(f"{path}/{{tag}}", self._goodbye)
            app.router.add_post(f"{path}/{{tag}}/hangup", self._goodbye)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        found = self._runner.addresses[0]
        self.address = str(found[0]), int(found[1])

    async def close(self) -> None:
        """End all calls, and listen no more."""
        for line in list(self._lines.values()):
            await line.peer.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _offer(self, request: web.Request) -> web.StreamResponse:
        try:
            behaviour = self._asked(request.path_qs)
        except ConfigError as error:
            return web.Response(status=400, text=f"{error}\n")
        if behaviour.refuse is not None:
            return web.Response(status=behaviour.refuse, text="refused as asked\n")
        is_json = request.content_type == "application/json"
        try:
            sdp = _sdp_of(await request.read(), is_json=is_json)
        except StrictError as error:
            return web.Response(status=400, text=f"{error.what}\n")
        tag, line = self._next_tag(), _Line()
        try:
            answer = await line.peer.answer(sdp)
        except TargetError as error:
            await line.peer.close()
            return web.Response(status=400, text=f"{error.message}\n")
        self._lines[tag] = line
        task = asyncio.ensure_future(self._run(request, tag, line, behaviour))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if is_json:
            return web.json_response({"sdp": answer, "type": "answer", "pc_id": tag})
        where = f"{request.path}/{tag}"
        return web.Response(
            status=201,
            text=answer,
            content_type="application/sdp",
            headers={"Location": where},
        )

    async def _candidates(self, request: web.Request) -> web.StreamResponse:
        """Take addresses that the other side found later (Pipecat's trickle)."""
        try:
            message = parse_object(await request.read(), _MAX_OFFER)
        except StrictError as error:
            return web.Response(status=400, text=f"{error.what}\n")
        line = self._lines.get(str(message.get("pc_id")))
        if line is None:
            return web.Response(status=404, text="no such session\n")
        try:
            await line.peer.add_candidates(message.get("candidates"))
        except TargetError as error:
            return web.Response(status=400, text=f"{error.message}\n")
        return web.json_response({"status": "success"})

    async def _goodbye(self, request: web.Request) -> web.StreamResponse:
        line = self._lines.get(request.match_info["tag"])
        if line is None:
            return web.Response(status=404)
        await line.peer.close()
        return web.Response(status=200)

    async def _run(self, request: web.Request, tag: str, line: _Line, behaviour: Behaviour) -> None:
        """Connect and run one call until its session is over."""
        over = asyncio.get_running_loop().create_future()

        def is_over(is_proper: bool) -> None:
            if not over.done():
                over.set_result(None)

        call: AgentCall | None = None
        try:
            async with asyncio.timeout(_CONNECT_S):
                await line.peer.until_found()
                await line.peer.until_secured()
                if line.peer.is_channel_offered:
                    await line.peer.until_open()
            line.peer.on_over(is_over)
            knock = Knock(dict(request.query), request.headers, tag)
            server = RTC_DOORS[urlsplit(request.path).path](behaviour, knock)
            call = AgentCall(
                self._world,
                behaviour.continuous(),
                line,
                lambda obj: self._note(tag, obj),
                server,
            )
            line.begin(call)
            await over
        except (TargetError, TimeoutError):
            pass
        finally:
            self._lines.pop(tag, None)
            if call is not None:
                call.closed()
            await line.peer.close()


def _sdp_of(body: bytes, *, is_json: bool) -> str:
    if not is_json:
        return body.decode("utf-8", "replace")
    sdp = parse_object(body, _MAX_OFFER).get("sdp")
    if not isinstance(sdp, str):
        raise StrictError("the offer holds no SDP")
    return sdp
