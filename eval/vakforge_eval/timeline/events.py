"""Normalised protocol events: what any wire format says, in one vocabulary.

A wire codec turns messages into these; a missing one means "not observable", never a guess. Every
event carries `at`, the arrival of the message that told it. In the journal an event is one JSON
object with ``type``, ``lo``, ``hi``, ``seq`` (the agent-direction message that it came from) and
its own fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from vakforge_eval.timeline.instant import Instant

__all__ = [
    "EVENT_TYPES",
    "AudioChunk",
    "Claim",
    "Closed",
    "Event",
    "Fault",
    "GoAway",
    "Interrupt",
    "Ready",
    "ResponseAudioEnd",
    "ResponseEnded",
    "ResponseStarted",
    "ServerError",
    "SpeechStarted",
    "SpeechStopped",
    "TextDelta",
    "ToolCall",
    "Truncated",
    "TurnCommitted",
    "Unknown",
    "Usage",
    "UserTranscript",
    "event_from_json",
    "event_to_json",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all protocol events."""

    TYPE: ClassVar[str] = ""
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Event):
    """The session is accepted; user audio may flow. `session` is the effective session."""

    TYPE: ClassVar[str] = "ready"
    session: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStarted(Event):
    """The server says that the user began to speak; `offset_ms` in input-sample time."""

    TYPE: ClassVar[str] = "speech_started"
    offset_ms: float | None = None
    item_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStopped(Event):
    """The server says that the user stopped; `offset_ms` in input-sample time."""

    TYPE: ClassVar[str] = "speech_stopped"
    offset_ms: float | None = None
    item_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTranscript(Event):
    """The target's transcript of the user."""

    TYPE: ClassVar[str] = "user_transcript"
    text: str = ""
    is_final: bool = False
    item_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCommitted(Event):
    """The server closed the user's turn."""

    TYPE: ClassVar[str] = "turn_committed"
    item_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStarted(Event):
    """A response was begun."""

    TYPE: ClassVar[str] = "response_started"
    response_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """A piece of the reply's text (or of the transcript of its speech)."""

    TYPE: ClassVar[str] = "text_delta"
    response_id: str | None = None
    item_id: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioChunk(Event):
    """A piece of the agent's audio.

    The journal does not repeat the audio: `transfer` and `locator` say where in the recorded
    message it lies. ``json_base64`` with a JSON pointer, or ``binary`` with ``locator`` the byte
    offset at which the payload begins, or ``begin:end`` where something follows it. `data` is the
    decoded payload, live only.
    """

    TYPE: ClassVar[str] = "audio_chunk"
    response_id: str | None = None
    item_id: str | None = None
    codec: str = "pcm_s16le"
    rate_hz: int = 24000
    transfer: str = "json_base64"
    locator: str = ""
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseAudioEnd(Event):
    """The server says that it *sent* the last audio of a response (not: heard)."""

    TYPE: ClassVar[str] = "response_audio_end"
    response_id: str | None = None
    item_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnded(Event):
    """A response ended: `status` is completed, cancelled, failed or incomplete."""

    TYPE: ClassVar[str] = "response_ended"
    response_id: str | None = None
    status: str = "completed"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt(Event):
    """The server tells the client to drop queued audio (clear, interrupted, …)."""

    TYPE: ClassVar[str] = "interrupt"
    response_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(Event):
    """The server confirms that it cut an item at `audio_end_ms`."""

    TYPE: ClassVar[str] = "truncated"
    item_id: str | None = None
    audio_end_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Event):
    """The agent calls a tool; `arguments` is the JSON text as it came."""

    TYPE: ClassVar[str] = "tool_call"
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    response_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Event):
    """What the server says the response cost."""

    TYPE: ClassVar[str] = "usage"
    response_id: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Event):
    """What the server says of its own latency: `name` is its word for it, `value_s` in seconds.

    `response_id` is the response that it is said of, None where the server does not tell.
    """

    TYPE: ClassVar[str] = "claim"
    name: str = ""
    value_s: float | None = None
    response_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError(Event):
    """The server reports an error; the session survives unless `is_fatal`."""

    TYPE: ClassVar[str] = "server_error"
    code: str | None = None
    message: str = ""
    is_fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GoAway(Event):
    """The server announces that it will close soon."""

    TYPE: ClassVar[str] = "go_away"
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Event):
    """The connection is closed; `by` is ``target`` or ``probe``."""

    TYPE: ClassVar[str] = "closed"
    code: int | None = None
    reason: str = ""
    by: str = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Event):
    """The peer broke the protocol. The codec is in a terminal state after `is_fatal`.

    `limit` names the cap that it exceeded, if that is what it did.
    """

    TYPE: ClassVar[str] = "fault"
    what: str = ""
    excerpt: str = ""
    limit: str | None = None
    is_fatal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """A message type that the codec does not know: kept, counted, ignored."""

    TYPE: ClassVar[str] = "unknown"
    name: str = ""


EVENT_TYPES: dict[str, type[Event]] = {cls.TYPE: cls for cls in Event.__subclasses__()}

_LIVE_ONLY = frozenset({"at", "data"})


def event_to_json(event: Event, seq: int | None) -> dict[str, Any]:
    """Return the journal object of `event`, which came in agent-direction message `seq`."""
    out: dict[str, Any] = {
        "type": event.TYPE,
        "lo": event.at.lo,
        "hi": event.at.hi,
        "seq": seq,
    }
    for f in fields(event):
        if f.name not in _LIVE_ONLY:
            out[f.name] = getattr(event, f.name)
    return out


def event_from_json(obj: dict[str, Any]) -> Event:
    """Return the event of a journal object.

    Raises
    ------
    KeyError
        If ``type`` is not a protocol event.
    TypeError
        If a field is unknown.
    """
    cls = EVENT_TYPES[obj["type"]]
    own = {k: v for k, v in obj.items() if k not in ("type", "lo", "hi", "seq")}
    return cls(at=Instant.arrival(obj["lo"], obj["hi"]), **own)
