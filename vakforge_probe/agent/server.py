"""The reference agent as a server: one behaviour, many connections, one truth log."""

from __future__ import annotations

import asyncio
import itertools
import ssl as tls
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.call import AgentCall, World
from vakforge_probe.agent.clipbook import ClipBook
from vakforge_probe.agent.clips import ClipStore
from vakforge_probe.agent.dialogue import NEEDED
from vakforge_probe.agent.doors import DOORS, FOREIGN_KEYS, RTC_PATHS, Knock, path_of
from vakforge_probe.agent.listener import AgentConnection
from vakforge_probe.agent.truthlog import TruthLog
from vakforge_probe.errors import ConfigError, MissingDependency
from vakforge_probe.net.alarm import Alarm
from vakforge_probe.net.clock import now_ns_of
from vakforge_probe.net.stamps import stamped_listener

if TYPE_CHECKING:
    from vakforge_probe.agent.webrtc import OfferDesk

__all__ = ["AgentServer", "serve"]

MAX_MESSAGE_BYTES = 16 * 1024 * 1024


class AgentServer:
    """A running agent; close it, or use it as an asynchronous context.

    Parameters
    ----------
    servers
        Scheme of the URLs, and the listener; the first is the one that `host`, `port`, `url` and
        `url_for` mean unless another scheme is named.
    offers
        Answers WebRTC offers; None: nobody does.
    """

    def __init__(
        self, servers: dict[str, Server], truth: TruthLog, offers: OfferDesk | None = None
    ) -> None:
        self._servers, self._truth, self._offers = servers, truth, offers
        self._scheme, self._server = next(iter(servers.items()))

    @property
    def host(self) -> str:
        """Address that it listens on."""
        return str(next(iter(self._server.sockets)).getsockname()[0])

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return int(next(iter(self._server.sockets)).getsockname()[1])

    @property
    def url(self) -> str:
        """URL to dial for OpenAI Realtime; knobs go into its query."""
        return self.url_for("openai-realtime")

    @property
    def tls_url(self) -> str | None:
        """The same over TLS; None where no port speaks it."""
        return self.url_for("openai-realtime", "wss") if "wss" in self._servers else None

    def url_for(self, protocol: str, scheme: str | None = None) -> str:
        """Return the URL to dial for ``NAME[/PROFILE]``, by ``ws`` or ``wss`` if that is said.

        For a protocol over WebRTC that is where offers are posted.

        Raises
        ------
        ValueError
            If it is one and nobody answers offers.
        """
        if protocol in RTC_PATHS:
            if self._offers is None:
                raise ValueError("no port answers WebRTC offers")
            scheme, address = "http", self._offers.address
        else:
            scheme = scheme or self._scheme
            address = next(iter(self._servers[scheme].sockets)).getsockname()
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        return f"{scheme}://{host}:{address[1]}{path_of(protocol)}"

    async def serve_forever(self) -> None:
        """Serve until cancelled."""
        await asyncio.gather(*(server.serve_forever() for server in self._servers.values()))

    async def close(self) -> None:
        """Close all connections and the truth log."""
        for server in self._servers.values():
            server.close()
            await server.wait_closed()
        if self._offers is not None:
            await self._offers.close()
        self._truth.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Desk:
    """Takes connections in: checks what they ask for, and runs a call on each."""

    def __init__(self, behaviour: Behaviour, world: World, truth: TruthLog) -> None:
        self._behaviour, self._world, self._truth = behaviour, world, truth
        self._count = itertools.count(1)

    def refuse(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the refusal of a handshake, None to accept it."""
        url = urlsplit(request.path)
        if url.path not in DOORS:
            return connection.respond(404, f"no agent here; try {', '.join(DOORS)}\n")
        try:
            behaviour = self.asked(request.path)
        except ConfigError as error:
            return connection.respond(400, f"{error}\n")
        if behaviour.refuse is not None:
            return connection.respond(behaviour.refuse, "refused as asked\n")
        return None

    def asked(self, path: str) -> Behaviour:
        """Return the behaviour that a path with its query asks for.

        Raises
        ------
        ConfigError
            If a knob cannot be turned so.
        """
        pairs = parse_qsl(urlsplit(path).query, keep_blank_values=True)
        if len(dict(pairs)) != len(pairs):
            raise ConfigError("a knob is set twice in the URL")
        return self._behaviour.overridden({k: v for k, v in pairs if k not in FOREIGN_KEYS})

    def next_tag(self) -> str:
        """Return the tag of a new call."""
        return str(next(self._count))

    async def run(self, connection: ServerConnection) -> None:
        """Run one call on an accepted connection until it is closed."""
        request = connection.request
        if request is None or not isinstance(connection, AgentConnection):
            raise TypeError("not a connection of this server")
        query = dict(parse_qsl(urlsplit(request.path).query))
        tag = self.next_tag()
        behaviour = self.asked(request.path)
        door = DOORS[urlsplit(request.path).path]
        server = door(behaviour, Knock(query, request.headers, tag))
        if server.is_continuous:
            behaviour = behaviour.continuous()
        call = AgentCall(
            self._world, behaviour, connection, lambda obj: self._truth.note(tag, obj), server
        )
        call.start()
        connection.listen(call.on_message)
        try:
            await connection.wait_closed()
        finally:
            call.closed()


def _subprotocol(
    connection: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    return next((name for name in offered if name == "realtime"), None)


async def serve(
    behaviour: Behaviour,
    host: str,
    port: int,
    truth: Path | None,
    clips_root: Path,
    *,
    ssl: tls.SSLContext | None = None,
    tls_port: int | None = None,
    webrtc_port: int | None = None,
) -> AgentServer:
    """Start the agent on `host`:`port` (0: any free port).

    Parameters
    ----------
    ssl, tls_port
        With both TLS is spoken on that port beside; with `ssl` alone on `port`.
    webrtc_port
        WebRTC offers are posted there, by plain HTTP; None: there is no WebRTC.
    truth
        File that the truth log is appended to; None: no log.
    clips_root
        Folder with the clips; its ``agent`` group is the agent's voice.

    Raises
    ------
    ConfigError
        If a clip that the agent needs is missing or damaged.
    OSError
        If an address cannot be listened on.
    MissingDependency
        If WebRTC is asked for and aiortc is not installed.
    """
    loop = asyncio.get_running_loop()
    store = ClipStore(clips_root)
    store.require((*NEEDED, behaviour.say) if behaviour.say else NEEDED)
    now_ns, alarm = now_ns_of(loop), Alarm.of(loop)
    log = TruthLog(truth, alarm, now_ns)
    world = World(store, ClipBook(store.callers()), alarm, now_ns)
    desk = _Desk(behaviour, world, log)
    ports = {"ws" if ssl is None or tls_port is not None else "wss": port}
    if ssl is not None and tls_port is not None:
        ports["wss"] = tls_port
    servers: dict[str, Server] = {}
    offers: OfferDesk | None = None
    try:
        if webrtc_port is not None:
            offers = _offer_desk(world, desk, log)
            await offers.listen(host, webrtc_port)
        for scheme, number in ports.items():
            servers[scheme] = await serve_websocket(
                desk.run,
                process_request=desk.refuse,
                select_subprotocol=_subprotocol,
                create_connection=AgentConnection,
                compression=None,
                ping_interval=None,
                max_size=MAX_MESSAGE_BYTES,
                close_timeout=1,
                sock=stamped_listener(host, number),
                ssl=ssl if scheme == "wss" else None,
            )
    except BaseException:
        for server in servers.values():
            server.close()
        if offers is not None:
            await offers.close()
        log.close()
        raise
    return AgentServer(servers, log, offers)


def _offer_desk(world: World, desk: _Desk, log: TruthLog) -> OfferDesk:
    try:
        from vakforge_probe.agent.webrtc import OfferDesk
    except ImportError:
        raise MissingDependency("aiortc, which speaks WebRTC,", "webrtc") from None
    return OfferDesk(world, desk.asked, log.note, desk.next_tag)
