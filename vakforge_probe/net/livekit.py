"""A user in a room of LiveKit's, by its SDK: audio out and in, and what happens in the room.

The SDK hides the network. What it gives comes decoded out of its jitter buffer, which keeps as much
back as it finds necessary, so an arrival here is the moment at which the SDK gave a frame to the
loop, and no kernel's stamp says more. It is later than that of the packet by what the SDK itself
says of its buffer, which `self_facts` tells. Audio goes out through a source without a queue, which
has no clock of its own: the SDK's threads take a frame within some milliseconds of its sending, and
the longest that it took is told as well.

Tested against a room that is faked, and never against a server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.errors import (
    ConfigError,
    MissingDependency,
    TargetClosed,
    TargetError,
    TargetLimitExceeded,
    TargetProtocolError,
    TargetRefused,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.clock import is_virtual, now_ns_of
from vakforge_probe.net.dial import within
from vakforge_probe.net.shell import Sent
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.strict import dump, parse_object

__all__ = ["LiveKitShell"]

_GONE, _ABNORMAL = 1000, 1006
"""Close codes, as a WebSocket would have them."""
_TRANSCRIPTION = "lk.transcription"
_MAX_OPEN = 256
"""Streams of text and calls of methods under way; an agent has one or two."""
_TURNS = 4
"""Of the loop, from the SDK's thread to us: its queue, its task, our task, and one to be behind."""
_ASK_STATS_S = 1.0


class LiveKitShell:
    """One visit to a room; see `Shell`.

    A binary message is a frame of 16-bit mono PCM: out of 10 ms, in as the SDK cuts them. A text is
    JSON. In come, by ``type``: ``ours`` (``name``: our identity, our track), ``attributes`` of a
    participant, ``text`` (a piece of a transcription, with the stream's attributes), ``rpc``
    (``id``, ``method``, ``payload``), ``track`` and ``reconnecting``. Out go ``tools`` (``names``
    of methods that may be called) and ``rpc_result`` (``id``, ``payload``).

    The first audio track that somebody else publishes is the agent's; whoever owns it ends the call
    by leaving. Others are told of and not heard.

    Parameters
    ----------
    url
        ``ws://`` or ``wss://``, with what `RoomJoin.entrance` takes from its query.
    join, headers, credentials
        The right to be there; neither it nor the token shows in an error or a message.
    ca_file
        Has to be None.

    Raises
    ------
    MissingDependency
        If the SDK is not installed.
    ConfigError
        If there is no token, or certificates are to be trusted which the SDK is not told of.
    """

    def __init__(
        self,
        url: str,
        join: RoomJoin,
        *,
        headers: Mapping[str, str] | None = None,
        credentials: str | None = None,
        ca_file: Path | None = None,
        limits: Limits | None = None,
        on_message: Callable[[str | bytes, ArrivalStamp], None],
        on_closed: Callable[[int, str], None],
        on_fault: Callable[[TargetError], None],
    ) -> None:
        if ca_file is not None:
            raise ConfigError("LiveKit's SDK trusts the system's certificates only", key="ca")
        self._entrance = join.entrance(url, headers or {}, credentials, time.time())
        self._rtc = _sdk()
        self._rate_hz = join.rate_hz
        self._limits = limits if limits is not None else Limits()
        self._loop = asyncio.get_running_loop()
        self._is_virtual = is_virtual(self._loop)
        self._now_ns = now_ns_of(self._loop)
        self._on_message, self._on_closed, self._on_fault = on_message, on_closed, on_fault
        self._room: Any = self._rtc.Room()
        self._source: Any = None
        self._line: Any = None
        """The agent's track."""
        self._owner = ""
        self._is_heard: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[str, asyncio.Future[str]] = {}
        self._n_streams = self._n_taking = 0
        self._taken_max_ns = 0
        self._buffer_facts: dict[str, Any] = {}
        self._empty_at = self._now_ns()
        self._is_over = False
        self._closing: asyncio.Future[None] | None = None
        self.phases: dict[str, tuple[int, int]] = {}

    # -- into the room ------------------------------------------------------------------------

    async def open(self) -> dict[str, tuple[int, int]]:
        """Join the room, publish the user's track and wait for the agent's.

        Phases are ``room``, ``connect`` and ``subscribed``.

        Raises
        ------
        TargetRefused
            If the server says no.
        TargetTimeout
            If a phase takes longer than its limit.
        """
        limits = self._limits
        await self._phase("room", limits.handshake_s, self._join())
        await self._phase("connect", limits.ice_s, self._publish())
        await self._phase("subscribed", limits.ready_s, asyncio.shield(self._is_heard))
        return self.phases

    async def _phase(self, name: str, limit_s: float, work: Awaitable[None]) -> None:
        begun = self._now_ns()
        try:
            await within(limit_s, name, work)
        except TargetError:
            raise
        except Exception as error:
            # The SDK has types of its own for each request, and plain ones beside them.
            text = self._hidden(str(error)) or type(error).__name__
            raise TargetRefused(text, phase=name) from None
        self.phases[name] = (begun, self._now_ns())

    async def _join(self) -> None:
        rtc, room, limits = self._rtc, self._room, self._limits
        room.on("participant_attributes_changed", self._on_attributes)
        room.on("participant_connected", lambda who: self._on_attributes(who.attributes, who))
        room.on("participant_disconnected", self._on_left)
        room.on("track_published", self._on_published)
        room.on("track_subscribed", self._on_subscribed)
        room.on("track_unsubscribed", self._on_unsubscribed)
        room.on("reconnecting", lambda: self._tell({"type": "reconnecting"}))
        room.on("disconnected", self._on_disconnected)
        room.register_text_stream_handler(_TRANSCRIPTION, self._on_text)
        options = rtc.RoomOptions(
            # Pictures would be decoded and thrown away.
            auto_subscribe=False,
            connect_timeout=limits.handshake_s,
            data_stream=rtc.DataStreamOptions(max_payload_byte_length=limits.max_control_bytes),
        )
        await room.connect(self._entrance.url, self._entrance.token, options)
        self._tell({"type": "ours", "name": room.local_participant.identity})
        for participant in list(room.remote_participants.values()):
            self._on_attributes(participant.attributes, participant)
            for publication in list(participant.track_publications.values()):
                self._on_published(publication)

    async def _publish(self) -> None:
        rtc = self._rtc
        # A queue would be emptied by a clock of its own, up to its length later.
        self._source = rtc.AudioSource(self._rate_hz, 1, queue_size_ms=0)
        track = rtc.LocalAudioTrack.create_audio_track("probe", self._source)
        # Agents listen to microphones; a silent user is sent like any other.
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE, dtx=False)
        publication = await self._room.local_participant.publish_track(track, options)
        self._tell({"type": "ours", "name": publication.sid})

    # -- what happens in it -------------------------------------------------------------------

    def _on_attributes(self, changed: dict[str, str], participant: Any) -> None:
        told = {"identity": participant.identity, "attributes": dict(changed)}
        self._tell({"type": "attributes", **told})

    def _on_left(self, participant: Any) -> None:
        if self._owner and participant.identity == self._owner:
            self._end(_GONE, "the agent left the room")

    def _on_disconnected(self, reason: int) -> None:
        known = self._rtc.DisconnectReason
        word = known.Name(reason) if reason in known.values() else reason
        self._end(_ABNORMAL, f"disconnected from the room: {word}")

    def _end(self, code: int, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_closed(code, reason)

    def _on_published(self, publication: Any, *_: Any) -> None:
        if publication.kind == self._rtc.TrackKind.KIND_AUDIO:
            publication.set_subscribed(True)

    def _on_subscribed(self, track: Any, publication: Any, participant: Any) -> None:
        if track.kind != self._rtc.TrackKind.KIND_AUDIO:
            return
        is_heard = self._line is None
        self._tell({"type": "track", "identity": participant.identity, "is_heard": is_heard})
        if is_heard:
            self._line, self._owner = track, participant.identity
            self._spawn(self._listen(track))
            self._spawn(self._watch_buffer(track))
            if not self._is_heard.done():
                self._is_heard.set_result(None)

    def _on_unsubscribed(self, track: Any, *_: Any) -> None:
        if track is self._line:
            self._line = None

    async def _listen(self, track: Any) -> None:
        stream = self._rtc.AudioStream(track, sample_rate=self._rate_hz, num_channels=1)
        try:
            async for event in stream:
                self._take(bytes(event.frame.data))
        finally:
            await stream.aclose()

    async def _watch_buffer(self, track: Any) -> None:
        # What the SDK cannot tell of itself is no fault of the call's.
        with suppress(Exception):
            while track is self._line:
                await asyncio.sleep(_ASK_STATS_S)
                for stats in await track.get_stats():
                    if stats.WhichOneof("stats") == "inbound_rtp":
                        self._note_buffer(stats.inbound_rtp.inbound)

    def _note_buffer(self, inbound: Any) -> None:
        # The delay is that of all samples together (s).
        total_s, n = inbound.jitter_buffer_delay, inbound.jitter_buffer_emitted_count
        if n:
            self._buffer_facts = {"jitter_buffer_mean_ns": round(total_s * NS_PER_S / n)}

    def _on_text(self, reader: Any, identity: str) -> None:
        if self._n_streams >= _MAX_OPEN:
            self._break("opens too many streams of text")
        self._n_streams += 1
        self._spawn(self._read(reader, identity))

    async def _read(self, reader: Any, identity: str) -> None:
        try:
            # A stream that breaks off is no fault of the call's.
            with suppress(self._rtc.StreamError):
                async for text in reader:
                    attributes = dict(reader.info.attributes or {})
                    told = {"identity": identity, "attributes": attributes, "text": text}
                    self._tell({"type": "text", **told})
        finally:
            self._n_streams -= 1
            reader.close()

    async def _on_rpc(self, call: Any) -> str:
        if len(self._calls) >= _MAX_OPEN:
            self._break("calls too many methods at once")
        answer: asyncio.Future[str] = self._loop.create_future()
        self._calls[call.request_id] = answer
        told = {"id": call.request_id, "method": call.method, "payload": call.payload}
        self._tell({"type": "rpc", **told})
        try:
            return await answer
        finally:
            self._calls.pop(call.request_id, None)

    def _break(self, what: str) -> None:
        self._on_fault(TargetLimitExceeded(what, phase="call", limit=str(_MAX_OPEN)))

    def _tell(self, message: dict[str, Any]) -> None:
        self._take(self._hidden(dump(message)))

    def _take(self, message: str | bytes) -> None:
        if self._is_over:
            return
        now = self._now_ns()
        if self._is_virtual:
            stamp = ArrivalStamp.exact(now)
        else:
            lo = self._empty_at
            stamp = ArrivalStamp(lo, now, None, lo, now, coalesced=True)
            self._after_turns(now, _TURNS)
        self._on_message(message, stamp)

    def _after_turns(self, since: int, n: int) -> None:
        """Prove that all which the SDK gave us before `since` has been taken.

        What its thread hands over reaches us in the loop's third turn after that at the latest.
        """
        if n:
            self._loop.call_soon(self._after_turns, since, n - 1)
        else:
            self._empty_at = since

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._is_over:
            text = self._hidden(f"LiveKit's SDK failed: {type(error).__name__}: {error}")
            self._on_fault(TargetProtocolError(text, phase="call"))

    def _hidden(self, text: str) -> str:
        token = self._entrance.token
        return text.replace(token, "*" * len(token))

    # -- what we do in it ---------------------------------------------------------------------

    def send(self, data: str | bytes) -> Sent:
        """Send a frame of 10 ms, or do what a message says, now.

        `back_pressure` says that the SDK has not yet taken the frame before.

        Raises
        ------
        TargetClosed
            If we are not in the room.
        """
        before = self._now_ns()
        if self._source is None or self._is_over:
            raise TargetClosed("the room is left", phase="call")
        is_behind = isinstance(data, bytes) and self._n_taking > 0
        if isinstance(data, str):
            self._obey(parse_object(data, len(data)))
        else:
            self._n_taking += 1
            frame = self._rtc.AudioFrame(data, self._rate_hz, 1, len(data) // 2)
            self._spawn(self._capture(frame, before))
        return Sent(before, self._now_ns(), back_pressure=is_behind)

    async def _capture(self, frame: Any, begun: int) -> None:
        try:
            await self._source.capture_frame(frame)
        finally:
            self._n_taking -= 1
        self._taken_max_ns = max(self._taken_max_ns, self._now_ns() - begun)

    def _obey(self, message: dict[str, Any]) -> None:
        if message["type"] == "tools":
            for name in message["names"]:
                self._room.local_participant.register_rpc_method(name, self._on_rpc)
            return
        answer = self._calls.get(message["id"])
        # Who asked may have lost patience.
        if answer is not None and not answer.done():
            answer.set_result(message["payload"])

    async def close(self) -> None:
        """Leave the room, at the latest after `close_s`."""
        self._is_over = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        # Whatever the SDK says to a farewell, nothing follows from it.
        with suppress(Exception):
            async with asyncio.timeout(self._limits.close_s):
                await self._room.disconnect()
                await asyncio.gather(*tasks, return_exceptions=True)
                if self._source is not None:
                    await self._source.aclose()

    def self_facts(self) -> dict[str, Any]:
        """Return how late the SDK took a frame at worst, and what its jitter buffer adds."""
        return {"capture_max_ns": self._taken_max_ns, **self._buffer_facts}


def _sdk() -> Any:
    try:
        from livekit import rtc
    except ImportError:
        raise MissingDependency("LiveKit's SDK", "livekit") from None
    log = logging.getLogger("livekit")
    if not log.handlers:
        # Else what a server says would reach the terminal as it is.
        log.addHandler(logging.NullHandler())
        log.propagate = False
    return rtc
