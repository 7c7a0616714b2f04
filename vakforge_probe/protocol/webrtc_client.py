"""The probe's side of protocols over WebRTC: audio by RTP, messages by a data channel.

On such a line sound is heard as it comes: no message makes a caller drop it, none names what it
belongs to, and what a server tells of a response's end says nothing of when its sound ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol
from uuid import uuid4

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    Event,
    Interrupt,
    ResponseStarted,
    ServerError,
    SpeechStarted,
    TurnCommitted,
    Unknown,
)
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant
from vakforge_probe.errors import MissingDependency
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import (
    AudioFormat,
    Intent,
    SessionConfig,
    Truncate,
    Wire,
)
from vakforge_probe.protocol.openai_client import OpenAIRealtimeClient
from vakforge_probe.protocol.openai_fields import samples
from vakforge_probe.protocol.plain_client import PlainClient
from vakforge_probe.protocol.rtp import CODEC, RATE_HZ, RtpReader
from vakforge_probe.protocol.rtvi import RtviClient
from vakforge_probe.protocol.signalling import Signalling
from vakforge_probe.protocol.strict import LimitExceeded, StrictError, parse_object
from vakforge_probe.text import clean

__all__ = ["FastRtcClient", "OpenAICallClient", "SmallWebRtcClient", "WhipClient"]

_PING_NS = NS_PER_S
"""So often Pipecat's transport wants to hear that we are there."""


class _Coder(Protocol):
    def encode(self, pcm: Any) -> bytes: ...


def _coder(form: AudioFormat) -> _Coder:
    try:
        from vakforge_eval.signal.opus import OpusEncoder
    except ImportError:
        raise MissingDependency("PyAV, by which Opus is coded,", "webrtc") from None
    return OpusEncoder(form.rate_hz, form.frame_ms)


class RtpClient(PlainClient):
    """What all of them share: a codec of `ClientCodec`'s shape for a line without messages.

    Raises
    ------
    MissingDependency
        If Opus cannot be coded here.
    """

    is_ready_at_once = True

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.user_audio = AudioFormat(CODEC, RATE_HZ)
        self.capabilities = Capabilities(continuous_stream=True)
        self._coder = _coder(self.user_audio)
        self._rtp = RtpReader()

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the packet of one frame of 16-bit mono PCM."""
        return self._coder.encode(samples(pcm))

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio: the packet alone."""
        return CODEC, "binary", "0"

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one packet of RTP or one message; a breach is a `Fault`."""
        return self._intake.take(data, at, self._events)

    def _events(self, data: Wire, at: Instant) -> list[Event]:
        if isinstance(data, bytes):
            return self._rtp.read(data, at)
        if len(data) > self.limits.max_control_bytes:
            raise LimitExceeded("max_control_bytes")
        return self._message(data, at)

    def _message(self, text: str, at: Instant) -> list[Event]:
        return [Unknown(at=at, name=clean(text, 100))]


class WhipClient(RtpClient):
    """WHIP (RFC 9725): a line without messages."""

    name = "whip"
    is_experimental = True
    signalling = Signalling(channel=None, form="sdp", goodbye="delete")


class OpenAICallClient(RtpClient):
    """OpenAI Realtime as a WebRTC call: the same messages, without audio in them."""

    name = "openai-webrtc"
    is_ready_at_once = False
    signalling = Signalling(channel="oai-events", form="sdp", goodbye="hangup")

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._words = OpenAIRealtimeClient("auto", limits=self.limits, carries_audio=False)
        self._learn()

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url` with the model in its query, unless one is there."""
        return self._words.dial_url(url, config)

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`; the server cuts its items by itself."""
        return [] if isinstance(intent, Truncate) else self._words.send(intent)

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return, once, what must be sent after the last `receive`."""
        return self._words.take_replies(now_ns)

    def _message(self, text: str, at: Instant) -> list[Event]:
        events = self._words.events(text, at)
        self._learn()
        return [_unnamed(event) for event in events]

    def _learn(self) -> None:
        self.capabilities = replace(
            self._words.capabilities,
            response_ids=False,
            response_end=False,
            continuous_stream=True,
        )


def _unnamed(event: Event) -> Event:
    """Return `event` without the response's name, by which no sound of the line could be found."""
    # Only some kinds of events have the field.
    if getattr(event, "response_id", None) is None:
        return event
    fields: dict[str, Any] = {"response_id": None}
    return replace(event, **fields)


class SmallWebRtcClient(RtpClient):
    """Pipecat's SmallWebRTC: RTVI messages, and a ping every second."""

    name = "smallwebrtc"
    signalling = Signalling(channel="rtvi-ai")

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.capabilities = Capabilities(
            server_vad_events=True,
            transcripts=True,
            text_before_audio=True,
            continuous_stream=True,
            tools=True,
        )
        self._rtvi = RtviClient()
        self._ping_ns: int | None = None

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`."""
        return list(self._rtvi.send(intent))

    @property
    def next_reply_ns(self) -> int | None:
        """When the next ping is due."""
        return self._ping_ns

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return the ping that is due."""
        if self._ping_ns is not None and now_ns < self._ping_ns:
            return []
        self._ping_ns = now_ns + _PING_NS
        return [f"ping: {now_ns // NS_PER_MS}"]

    def _message(self, text: str, at: Instant) -> list[Event]:
        message = parse_object(text, self.limits.max_control_bytes)
        if message.get("type") == "signalling":
            return []
        return self._rtvi.read(message, at)


class FastRtcClient(RtpClient):
    """fastrtc: a log of what its handler notices."""

    name = "fastrtc"

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.capabilities = Capabilities(server_vad_events=True, continuous_stream=True)
        # The server keeps what belongs to a call under this.
        self.signalling = Signalling(channel="text", fields={"webrtc_id": uuid4().hex})

    def _message(self, text: str, at: Instant) -> list[Event]:
        message = parse_object(text, self.limits.max_control_bytes)
        kind, data = message.get("type"), message.get("data")
        if not isinstance(kind, str):
            raise StrictError("message has no type")
        if kind == "error":
            return [ServerError(at=at, message=clean(str(data), 500))]
        reader = _LOG.get(data) if kind == "log" and isinstance(data, str) else None
        if reader is not None:
            return [reader(at)]
        return [] if kind in _NOT_ASKED else [Unknown(at=at, name=clean(kind, 100))]


_LOG: dict[str, Callable[[Instant], Event]] = {
    "started_talking": lambda at: SpeechStarted(at=at),
    "pause_detected": lambda at: TurnCommitted(at=at),
    "response_starting": lambda at: ResponseStarted(at=at),
    "interrupted": lambda at: Interrupt(at=at),
}
_NOT_ASKED = frozenset({"log", "send_input", "fetch_output", "stopword", "end_stream"})
