"""One WebRTC peer by aiortc, with stamps: coded audio out and in at once, messages beside it.

aiortc paces audio by its own clock, decodes what arrives after a fixed jitter buffer of 80 ms, and
sends from tasks. Here audio goes out coded and inside of the call that sends it, and each packet
that arrives is handed on decrypted, with the kernel's stamp of its datagram, before that buffer.

What is used of aiortc beyond its documentation: the receiver's handler of packets, and the data
channel's flush. `tests/probe/net/test_peer.py` fails where a version has them no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCDtlsTransport,
    RTCIceServer,
    RTCIceTransport,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCRtpSender,
    RTCRtpTransceiver,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket
from aiortc.sdp import candidate_from_sdp

from vakforge_probe.errors import TargetProtocolError, TargetRefused
from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.coded_track import CodedTrack
from vakforge_probe.net.datagrams import Mailbox, stamp_into

__all__ = ["Delay", "Peer"]

OnPacket = Callable[[bytes, ArrivalStamp], None]
OnText = Callable[[str, ArrivalStamp], None]


def _send_now(channel: RTCDataChannel, text: str) -> None:
    """Send a message inside of this call, as far as the peer lets us."""
    channel.send(text)
    # The library would do the same in the loop's next turn, and find nothing left to do.
    _drive(channel.transport._data_channel_flush())


def _drive(work: Coroutine[Any, Any, Any]) -> None:
    """Run what waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise RuntimeError("the library waits where it did not")


class Delay(Protocol):
    """Learns when frames come out of a track."""

    def came_out(self, position: int, at_ns: int) -> None:
        """Note that the frame came (ns) that begins at sample `position` of the track."""
        ...


async def _until(emitter: Any, is_so: Callable[[], bool]) -> None:
    """Wait until the state that an emitter tells of is right."""
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look() -> None:
        if is_so() and not reached.done():
            reached.set_result(None)

    emitter.on("statechange", look)
    try:
        look()
        await reached
    finally:
        emitter.remove_listener("statechange", look)


class Peer:
    """One end of a session with one audio line in each direction, and maybe a data channel.

    Parameters
    ----------
    stun_urls
        Servers that tell our address as seen from outside; none are asked if it is empty.
    decodes
        Whether the library plays what comes, too, as its own users get it.
    on_packet
        Takes each packet of audio: RTP as in RFC 3550, decrypted.
    on_text
        Takes each message of the data channel.
    on_unread
        Takes the bytes that have come for the data channel without completing a message; the
        library bounds them only for who heeds its window.

    Attributes
    ----------
    mailbox
        Stamps of what arrives.
    """

    def __init__(
        self,
        *,
        stun_urls: tuple[str, ...] = (),
        decodes: bool = True,
        on_packet: OnPacket,
        on_text: OnText,
        on_unread: Callable[[int], None] = lambda n_bytes: None,
    ) -> None:
        servers = [RTCIceServer(urls=list(stun_urls))] if stun_urls else []
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=servers))
        self.mailbox = Mailbox(on_unread)
        self._on_packet, self._on_text = on_packet, on_text
        self._decodes = decodes
        self._loop = asyncio.get_running_loop()
        self._begun_ns = time.monotonic_ns()
        self._closing: asyncio.Future[None] | None = None
        self._track = CodedTrack()
        self._channel: RTCDataChannel | None = None
        self.is_channel_open: asyncio.Future[None] = self._loop.create_future()
        """Done when the data channel may be used."""
        self.connection.on("datachannel", self._adopt)
        self.connection.on("track", self._tap)

    async def offer(self, label: str | None) -> str:
        """Return the offer (SDP): audio both ways by Opus, and a data channel if it has a label."""
        stamp_into(self.mailbox)
        transceiver = self.connection.addTransceiver(self._track, direction="sendrecv")
        opus = [
            codec
            for codec in RTCRtpSender.getCapabilities("audio").codecs
            if codec.mimeType == "audio/opus"
        ]
        transceiver.setCodecPreferences(opus)
        if label is not None:
            self._adopt(self.connection.createDataChannel(label, ordered=True))
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return str(self.connection.localDescription.sdp)

    async def accept(self, sdp: str) -> None:
        """Take the other side's answer to `offer`; connecting begins.

        Raises
        ------
        TargetProtocolError
            If it is no session with audio both ways.
        """
        await self._learn(sdp, "answer")
        self._check_line()

    async def answer(self, sdp: str) -> str:
        """Return the answer to the other side's offer; connecting begins.

        Raises
        ------
        TargetProtocolError
            If it is no session with audio both ways.
        """
        stamp_into(self.mailbox)
        await self._learn(sdp, "offer")
        self.connection.addTrack(self._track)
        await self.connection.setLocalDescription(await self.connection.createAnswer())
        self._check_line()
        return str(self.connection.localDescription.sdp)

    async def _learn(self, sdp: str, kind: str) -> None:
        try:
            # The library would find out once it has connected, and tell nobody.
            if "a=fingerprint:" not in sdp:
                raise ValueError("no key is announced")
            await self.connection.setRemoteDescription(RTCSessionDescription(sdp, kind))
            if not any(line.kind == "audio" for line in self.connection.getTransceivers()):
                raise ValueError("no audio is offered")
        except Exception as error:
            # It raises whatever its parsers stumble over.
            text = f"no session that can be joined ({type(error).__name__})"
            raise TargetProtocolError(text, phase="signal") from None

    def _check_line(self) -> None:
        if self._line.currentDirection != "sendrecv":
            raise TargetProtocolError("its audio does not go both ways", phase="signal")

    async def add_candidates(self, candidates: Any) -> None:
        """Take addresses that the other side found later: ``{candidate, sdp_mid, …}`` each.

        Raises
        ------
        TargetProtocolError
            If they are none.
        """
        try:
            for found in candidates:
                candidate = candidate_from_sdp(str(found["candidate"]).removeprefix("candidate:"))
                candidate.sdpMid = found.get("sdp_mid")
                candidate.sdpMLineIndex = found.get("sdp_mline_index")
                await self.connection.addIceCandidate(candidate)
        except Exception as error:
            text = f"not a candidate ({type(error).__name__})"
            raise TargetProtocolError(text, phase="signal") from None

    @property
    def is_channel_offered(self) -> bool:
        """Whether the session has a line for messages."""
        return self.connection.sctp is not None

    @property
    def receiver(self) -> RTCRtpReceiver:
        """The receiver of the audio line."""
        return self._line.receiver

    async def until_found(self) -> None:
        """Return when there is a way between the two.

        Raises
        ------
        TargetRefused
            If there is none.
        """
        ice = self._dtls.transport
        await _until(ice, lambda: ice.state in ("completed", "failed", "closed"))
        if ice.state != "completed":
            raise TargetRefused("no way between its addresses and ours", phase="ice")

    async def until_secured(self) -> None:
        """Return when audio can flow both ways.

        Raises
        ------
        TargetRefused
            If the other side's keys are not those that it announced, or it ends the session.
        """
        dtls = self._dtls
        await _until(dtls, lambda: dtls.state in ("connected", "failed", "closed"))
        if dtls.state != "connected":
            raise TargetRefused("no secured line", phase="dtls")
        await self._track.is_pulled

    async def until_open(self) -> None:
        """Return when messages can be sent.

        Raises
        ------
        TargetRefused
            If the other side ends the session before.
        """
        over = asyncio.ensure_future(_until(self._dtls, self._is_over))
        try:
            await asyncio.wait({over, self.is_channel_open}, return_when="FIRST_COMPLETED")
        finally:
            over.cancel()
        if not self.is_channel_open.done():
            raise TargetRefused("no data channel", phase="channel")

    @property
    def _line(self) -> RTCRtpTransceiver:
        lines = self.connection.getTransceivers()
        return next(line for line in lines if line.kind == "audio")

    @property
    def _dtls(self) -> RTCDtlsTransport:
        return self._line.receiver.transport

    def _is_over(self) -> bool:
        dtls = self._dtls
        return dtls.state in ("closed", "failed") or dtls.transport.state in ("closed", "failed")

    def on_over(self, tell: Callable[[bool], None]) -> None:
        """Let `tell` know when the other side ends the session, and whether it did so properly."""
        dtls, ice = self._dtls, self._dtls.transport

        def changed() -> None:
            if self._is_over():
                tell(dtls.state == "closed" and ice.state != "failed")

        dtls.on("statechange", changed)
        ice.on("statechange", changed)
        changed()

    def send_audio(self, data: bytes, n_samples: int) -> bool:
        """Send a packet of Opus that lasts `n_samples` at 48 kHz.

        Returns
        -------
        bool
            Whether it left; a session that does not stand yet, or no more, takes none.
        """
        n_sent = self.mailbox.n_sent
        self._track.put(data, n_samples)
        return self.mailbox.n_sent > n_sent

    def send_text(self, text: str) -> bool:
        """Send a message; return whether there is a channel for it."""
        if self._channel is None or self._channel.readyState != "open":
            return False
        _send_now(self._channel, text)
        return True

    async def close(self) -> None:
        """End the session; harmless when repeated."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        # Whoever gives up waiting must not break it off.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._track.stop()
        try:
            for ice in self._searching():
                # A way that it finds while it is closed would keep it alive for good.
                await ice.stop()
                await _until(ice, lambda ice=ice: ice.state != "closed")  # type: ignore[misc]
            await self.connection.close()
        finally:
            # The library forgets those that it was opening or closing when it was cancelled.
            for transport in self.mailbox.transports:
                transport.close()

    def _searching(self) -> list[RTCIceTransport]:
        found = {line.receiver.transport.transport for line in self.connection.getTransceivers()}
        if self.connection.sctp is not None:
            found.add(self.connection.sctp.transport.transport)
        return [ice for ice in found if ice.state == "checking"]

    async def watch_delay(self, delay: Delay) -> None:
        """Read the audio as an application would, and tell when each frame comes, until it ends."""
        with suppress(MediaStreamError):
            while True:
                frame = await self.receiver.track.recv()
                delay.came_out(frame.pts or 0, time.monotonic_ns())

    def _adopt(self, channel: RTCDataChannel) -> None:
        self._channel = channel
        channel.on("message", self._take_text)

        def opened() -> None:
            if not self.is_channel_open.done():
                self.is_channel_open.set_result(None)

        channel.on("open", opened)
        if channel.readyState == "open":
            opened()

    def _take_text(self, message: str | bytes) -> None:
        self.mailbox.n_unread = 0
        stamp = self.mailbox.latest or self._unknown_stamp()
        text = message if isinstance(message, str) else message.decode("utf-8", "replace")
        # Out of the library's task, inside of which no other can be made to send.
        self._loop.call_soon(self._on_text, text, stamp)

    def _unknown_stamp(self) -> ArrivalStamp:
        """Return what is known of an arrival on a loop that stamps none: it was in this session."""
        now = time.monotonic_ns()
        return ArrivalStamp(self._begun_ns, now, None, self._begun_ns, now, coalesced=False)

    def _tap(self, track: MediaStreamTrack) -> None:
        if track.kind != "audio":
            return
        receiver = self.receiver
        handle = receiver._handle_rtp_packet

        async def tapped(packet: RtpPacket, arrival_time_ms: int) -> None:
            stamp = self.mailbox.stamp_of(packet.ssrc, packet.sequence_number)
            if stamp is None:
                stamp = self._unknown_stamp()
            data = RtpPacket(
                payload_type=packet.payload_type,
                marker=packet.marker,
                sequence_number=packet.sequence_number,
                timestamp=packet.timestamp,
                ssrc=packet.ssrc,
                payload=packet.payload,
            ).serialize()
            self._loop.call_soon(self._on_packet, data, stamp)
            if self._decodes:
                await handle(packet, arrival_time_ms)

        receiver._handle_rtp_packet = tapped  # type: ignore[method-assign]
