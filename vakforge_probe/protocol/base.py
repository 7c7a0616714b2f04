"""The contract of a wire format: a state machine without socket, clock or file.

A *client codec* turns what the target sends into events and what the probe intends into wire
data. Adding a protocol is one file with a class of this shape and one line in `registry.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import Event
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.script import ToolSpec
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.signalling import Signalling
from vakforge_probe.protocol.twiml import VoiceWebhook

__all__ = [
    "AudioFormat",
    "CancelResponse",
    "ClientCodec",
    "CommitAudio",
    "EndSession",
    "Intent",
    "PressKey",
    "SessionConfig",
    "StartSession",
    "ToolResult",
    "Truncate",
    "Wire",
]

Wire = str | bytes
"""One message: text or binary."""


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How one direction's audio is coded; `codec` as in `vakforge_eval.signal.pcm`."""

    codec: str = "pcm_s16le"
    rate_hz: int = 24000
    frame_ms: int = 20

    @property
    def frame_samples(self) -> int:
        """Samples in one frame."""
        return self.rate_hz * self.frame_ms // 1000


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What the probe asks of the session."""

    model: str | None = None
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    voice: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartSession:
    """Begin the session with this configuration."""

    config: SessionConfig


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Answer a tool call; `output` is the JSON text."""

    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tell the server how much of an item was really played (ms)."""

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Ask the server to stop a response."""

    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommitAudio:
    """Close the user's turn by hand and ask for a response (push-to-talk targets)."""


@dataclass(frozen=True, slots=True)
class EndSession:
    """Say that the call is over, before the connection is closed."""


@dataclass(frozen=True, slots=True)
class PressKey:
    """Tell of a key of the telephone, where that is a message and no sound."""

    key: str


Intent = StartSession | ToolResult | Truncate | CancelResponse | CommitAudio | PressKey | EndSession


class ClientCodec(Protocol):
    """The probe's side of a wire format."""

    name: str
    profile: str
    capabilities: Capabilities
    user_audio: AudioFormat
    subprotocols: tuple[str, ...]
    headers: dict[str, str]
    """Extra, non-secret handshake headers of the dialect."""
    flush_on: frozenset[str]
    """Types of events that empty the caller's queue: by the profile, and as the effective session
    now says. Whatever is in it, audio of a cancelled response is never played."""
    is_experimental: bool
    """Whether nothing but this project's own agent has confirmed what it says and reads."""
    is_ready_at_once: bool
    """Whether no answer to the start of the session is to be waited for."""

    @property
    def signalling(self) -> Signalling | RoomJoin | None:
        """How a session is agreed on in which audio goes beside the messages: WebRTC, or a room.

        None: all goes by one WebSocket.
        """
        ...

    @property
    def webhook(self) -> VoiceWebhook | None:
        """What is asked of an ``http(s)://`` target before the connection; None: no such step."""
        ...

    @property
    def next_reply_ns(self) -> int | None:
        """When the codec has something to send by itself; None: nothing that waits for a time."""
        ...

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return the URL to dial for a session that some dialects configure in the query."""
        ...

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message that arrived at `at`; never raises on bad input."""
        ...

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`; empty when the protocol has no need."""
        ...

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return, once, what the codec itself must send after the last `receive`, or by now."""
        ...

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the message that carries one frame of 16-bit mono PCM at `user_audio`."""
        ...

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio in `audio_frame` messages."""
        ...
