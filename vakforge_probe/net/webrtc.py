"""A WebRTC client that stamps: packets of audio and messages out and in, each with its time."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vakforge_probe.errors import (
    MissingDependency,
    TargetClosed,
    TargetError,
    TargetLimitExceeded,
    TargetProtocolError,
    TargetRefused,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net import http
from vakforge_probe.net.clock import now_ns_of
from vakforge_probe.net.clockmap import shared_clocks
from vakforge_probe.net.dial import within
from vakforge_probe.net.shell import Sent
from vakforge_probe.net.stamps import ArrivalStamp
from vakforge_probe.net.tls import client_context
from vakforge_probe.protocol.rtp import packet_samples
from vakforge_probe.protocol.signalling import Agreed, HttpRequest, Refusal, Signalling
from vakforge_probe.protocol.strict import StrictError

if TYPE_CHECKING:
    from vakforge_probe.net.peer import Peer

__all__ = ["WebRtcShell"]

_GONE, _ABNORMAL = 1000, 1006
"""Close codes, as a WebSocket would have them."""


class WebRtcShell:
    """One session with a target; see `Shell`.

    A binary message is audio: out a packet of Opus, in one of RTP. A text is one of the data
    channel.

    Parameters
    ----------
    url
        ``http://`` or ``https://``, where the offer goes.
    signalling
        How it is posted.
    headers
        Of the requests; their values never show in an error.
    ca_file
        Certificates to trust instead of the system's.
    stun_urls
        Servers that are asked for our address; none by default.

    Raises
    ------
    MissingDependency
        If aiortc is not installed.
    """

    def __init__(
        self,
        url: str,
        signalling: Signalling,
        *,
        headers: Mapping[str, str] | None = None,
        ca_file: Path | None = None,
        stun_urls: tuple[str, ...] = (),
        limits: Limits | None = None,
        on_message: Callable[[str | bytes, ArrivalStamp], None],
        on_closed: Callable[[int, str], None],
        on_fault: Callable[[TargetError], None],
    ) -> None:
        try:
            from vakforge_probe.net.peer import Peer
        except ImportError:
            raise MissingDependency("aiortc, which speaks WebRTC,", "webrtc") from None
        self._url, self._signalling = url, signalling
        self._headers = dict(headers or {})
        self._context = client_context(ca_file) if url.startswith("https:") else None
        self._limits = limits if limits is not None else Limits()
        self._now_ns = now_ns_of(asyncio.get_running_loop())
        self._on_message, self._on_closed, self._on_fault = on_message, on_closed, on_fault
        self._peer: Peer = Peer(
            stun_urls=stun_urls,
            on_packet=self._on_packet,
            on_text=on_message,
            on_unread=self._on_unread,
        )
        self._agreed: Agreed | None = None
        self._delay = _Delay()
        self._listening: asyncio.Task[None] | None = None
        self._is_over = False
        self._closing: asyncio.Future[None] | None = None
        self.phases: dict[str, tuple[int, int]] = {}

    async def open(self) -> dict[str, tuple[int, int]]:
        """Agree on a session and connect.

        Phases are ``gather``, ``signal``, ``ice``, ``dtls`` and, with messages, ``channel``.

        Raises
        ------
        TargetRefused
            If the server says no; with HTTP status.
        TargetTimeout
            If a phase takes longer than its limit.
        TargetProtocolError
            If the answer is no session that we can join.
        """
        limits, peer = self._limits, self._peer
        begun = self._now_ns()
        offer = await within(limits.gather_s, "gather", peer.offer(self._signalling.channel))
        begun = self._passed("gather", begun)
        self._agreed = await within(limits.handshake_s, "signal", self._exchange(offer))
        begun = self._passed("signal", begun)
        await peer.accept(self._agreed.sdp)
        await within(limits.ice_s, "ice", peer.until_found())
        begun = self._passed("ice", begun)
        await within(limits.dtls_s, "dtls", peer.until_secured())
        begun = self._passed("dtls", begun)
        if self._signalling.channel is not None:
            await within(limits.handshake_s, "channel", peer.until_open())
            self._passed("channel", begun)
        peer.on_over(self._on_over)
        self._listening = asyncio.ensure_future(peer.watch_delay(self._delay))
        return self.phases

    def _passed(self, phase: str, begun: int) -> int:
        now = self._now_ns()
        self.phases[phase] = (begun, now)
        return now

    async def _exchange(self, offer: str) -> Agreed:
        what = self._signalling.offer(self._url, offer)
        answer = await self._request(what, "signal")
        try:
            return self._signalling.read(self._url, answer.headers, answer.body)
        except Refusal as error:
            raise TargetRefused(error.what, phase="signal") from None
        except StrictError as error:
            raise TargetProtocolError(error.what, phase="signal") from None

    def _on_packet(self, packet: bytes, stamp: ArrivalStamp) -> None:
        self._delay.arrived(int.from_bytes(packet[4:8]), stamp.kernel or stamp.hi)
        self._on_message(packet, stamp)

    def _on_unread(self, n_bytes: int) -> None:
        if n_bytes > self._limits.max_message_bytes and not self._is_over:
            self._is_over = True
            text = "a message is too long"
            self._on_fault(TargetLimitExceeded(text, phase="call", limit="max_message_bytes"))

    def _on_over(self, is_proper: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_closed(_GONE if is_proper else _ABNORMAL, "")

    def send(self, data: str | bytes) -> Sent:
        """Send a packet of Opus or a message now.

        Raises
        ------
        TargetClosed
            If the session does not stand.
        TargetProtocolError
            If it takes no messages of that size.
        """
        before = self._now_ns()
        if isinstance(data, str):
            try:
                has_left = self._peer.send_text(data)
            except ValueError:
                text = f"its data channel takes no message of {len(data)} characters"
                raise TargetProtocolError(text, phase="call") from None
        else:
            has_left = self._peer.send_audio(data, packet_samples(data))
        if not has_left:
            raise TargetClosed("the session does not stand", phase="call")
        return Sent(before, self._now_ns(), back_pressure=False)

    async def close(self) -> None:
        """Say goodbye and end the session, at the latest after `close_s`."""
        self._is_over = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _request(self, what: HttpRequest, phase: str) -> http.HttpAnswer:
        return await http.request(
            what,
            headers=self._headers,
            context=self._context,
            limits=self._limits,
            limit="max_answer_bytes",
            phase=phase,
        )

    async def _close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.close_s):
                await asyncio.gather(self._say_goodbye(), self._peer.close())
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening

    async def _say_goodbye(self) -> None:
        if self._agreed is not None and self._agreed.goodbye is not None:
            with suppress(TargetError):
                await self._request(self._agreed.goodbye, "call")

    def self_facts(self) -> dict[str, Any]:
        """Return lateness of reads, error of the clocks, and what a receiver's buffer adds."""
        clocks = shared_clocks()
        return {
            "loop_lag_max_ns": self._peer.mailbox.read_late_max_ns,
            "clock_spread_ns": clocks.spread_ns,
            "n_clock_steps": clocks.n_steps,
            **self._delay.facts(),
        }


class _Delay:
    """How much later than its packet a frame comes out of the library's jitter buffer."""

    _MAX_KEPT = 512
    _WRAP = 1 << 32

    def __init__(self) -> None:
        self._first: int | None = None
        self._arrived: dict[int, int] = {}
        self._found: list[int] = []

    def arrived(self, timestamp: int, at_ns: int) -> None:
        if self._first is None:
            self._first = timestamp
        self._arrived[(timestamp - self._first) % self._WRAP] = at_ns
        if len(self._arrived) > self._MAX_KEPT:
            del self._arrived[next(iter(self._arrived))]

    def came_out(self, position: int, at_ns: int) -> None:
        arrived = self._arrived.pop(position, None)
        if arrived is not None:
            self._found.append(at_ns - arrived)

    def facts(self) -> dict[str, Any]:
        if not self._found:
            return {}
        return {
            "receiver_delay_median_ns": statistics.median_low(self._found),
            "receiver_delay_max_ns": max(self._found),
        }
