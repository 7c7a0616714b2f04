"""The probe's side of OpenAI Realtime over WebSocket, as a state machine without I/O.

Theory. The server speaks first (``session.created``); the probe answers with ``session.update`` in
one dialect, and ``session.updated`` gives the *effective* session: only that says whether
``speech_started`` interrupts, and how audio is coded. `Ready` is emitted then. With the dialect
``auto`` the GA form goes first; an error about an unknown parameter before `Ready` makes the codec
queue the beta form in `take_replies`. Afterwards both dialects' names are understood at any time.

``response.create`` after a tool result is held back while a response runs or another tool call is
unanswered, because the server refuses a second active response; it then comes out of
`take_replies` too.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sized
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from vakforge_eval.signal.pcm import encode, sample_bytes
from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Interrupt,
    Ready,
    ResponseAudioEnd,
    ResponseEnded,
    ResponseStarted,
    ServerError,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    ToolCall,
    Truncated,
    TurnCommitted,
    Unknown,
    Usage,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.limits import Limits
from vakforge_probe.protocol import openai_fields as read
from vakforge_probe.protocol import openai_names as names
from vakforge_probe.protocol import openai_profile as profiles
from vakforge_probe.protocol import openai_session as sessions
from vakforge_probe.protocol.base import (
    AudioFormat,
    CancelResponse,
    CommitAudio,
    EndSession,
    Intent,
    PressKey,
    SessionConfig,
    StartSession,
    ToolResult,
    Truncate,
    Wire,
)
from vakforge_probe.protocol.intake import Intake
from vakforge_probe.protocol.strict import (
    LimitExceeded,
    StrictError,
    decode_base64,
    dump,
    parse_object,
)
from vakforge_probe.text import clean

__all__ = ["OpenAIRealtimeClient"]

_ENDS = frozenset({"completed", "cancelled", "failed", "incomplete"})


@dataclass(slots=True)
class _Response:
    """What is known of one response; `n_bytes` counts its linear PCM."""

    n_bytes: int = 0
    is_over: bool = False


@dataclass(slots=True)
class _Item:
    """Audio received of one item, and the tool that a function call item names."""

    n_bytes: int = 0
    bytes_per_s: int = 48000
    tool: str | None = None
    call_id: str | None = None


@dataclass(slots=True)
class _State:
    session: dict[str, Any] = field(default_factory=dict)
    responses: dict[str, _Response] = field(default_factory=dict)
    items: dict[str, _Item] = field(default_factory=dict)
    transcripts: dict[str, str] = field(default_factory=dict)
    calls_told: set[str] = field(default_factory=set)
    calls_open: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)
    owes_create: bool = False
    is_ready: bool = False
    detects_turns: bool = False


class OpenAIRealtimeClient:
    """Codec of `ClientCodec`'s shape.

    Parameters
    ----------
    dialect
        ``ga``, ``beta`` or ``auto`` (GA first, beta when the server refuses it).
    codec
        Audio in both directions as asked for: ``pcm_s16le`` at 24 kHz, ``pcmu``, ``pcma`` at 8 kHz.
    is_continuous
        The target streams its silence too, so nothing may be concluded from audio messages alone.
    is_manual
        Push-to-talk: the session is asked to detect no turns, and the caller ends and interrupts
        by messages of its own.
    is_half_duplex
        The target does not listen while it speaks.
    flush_on
        Types of events on which its clients drop what they hold, whatever the session says;
        ``speech_started`` is added while the session has interrupt_response.
    user_hz
        Rate of the user's linear audio; that of the agent's is 24 kHz unless the session says else.
    is_experimental
        Nothing but the reference agent has confirmed what the profile says.
    carries_audio
        Whether audio goes in the messages; on WebRTC it goes beside them, and no session says how.

    Attributes
    ----------
    session
        The effective session, merged from what the server said.
    """

    signalling = None
    name = "openai-realtime"
    webhook: None = None
    is_ready_at_once = False

    def __init__(
        self,
        dialect: str = "auto",
        codec: str = "pcm_s16le",
        limits: Limits | None = None,
        *,
        is_continuous: bool = False,
        is_manual: bool = False,
        is_half_duplex: bool = False,
        flush_on: frozenset[str] = profiles.FLUSH_ON,
        user_hz: int = 24_000,
        is_experimental: bool = False,
        carries_audio: bool = True,
        profile: str = "",
    ) -> None:
        self.profile = profile or dialect
        self.limits = limits or Limits()
        self.is_experimental = is_experimental
        self.user_audio = AudioFormat(codec, user_hz if codec == "pcm_s16le" else 8000)
        self.capabilities = Capabilities(
            server_vad_events=True,
            text_before_audio=True,
            response_ids=True,
            response_end=True,
            continuous_stream=is_continuous,
            barge_in=not is_half_duplex,
            manual_commit=is_manual,
            tools=True,
        )
        self.subprotocols: tuple[str, ...] = ()
        self.headers = dict([names.BETA_HEADER]) if dialect == "beta" else {}
        self._is_manual = is_manual
        self._carries_audio = carries_audio
        self._always_flush_on = flush_on
        self._dialect: names.Dialect = "beta" if dialect == "beta" else "ga"
        self._may_fall_back = dialect == "auto"
        self._agent_format = (codec, 24000 if codec == "pcm_s16le" else 8000)
        self._start: StartSession | None = None
        self._replies: list[Wire] = []
        self._intake = Intake(self.limits)
        self._s = _State()
        self._apply_session()

    @classmethod
    def of_profile(cls, profile: str, limits: Limits) -> OpenAIRealtimeClient:
        """Return the codec of a profile: words joined by ``-``, e.g. ``beta-manual``.

        Raises
        ------
        ConfigError
            If a word is not known.
        """
        return cls(limits=limits, profile=profile, **profiles.facts_of(profile))

    @property
    def session(self) -> dict[str, Any]:
        """The effective session as far as the server has told it."""
        return self._s.session

    # What the probe sends

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url` with the model in its query, unless one is there: the server wants it."""
        parts, model = urlsplit(url), config.model
        if model is None or "model" in dict(parse_qsl(parts.query, keep_blank_values=True)):
            return url
        query = "&".join(filter(None, (parts.query, urlencode({"model": model}))))
        return urlunsplit(parts._replace(query=query))

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`."""
        match intent:
            case StartSession():
                self._start = intent
                return [self._session_update(intent)]
            case ToolResult(call_id, output):
                return self._tool_result(call_id, output)
            case Truncate(item_id, audio_end_ms):
                return self._truncate(item_id, audio_end_ms)
            case CancelResponse(response_id):
                which = {"response_id": response_id} if response_id else {}
                return [dump({"type": "response.cancel", **which})]
            case CommitAudio():
                self._s.owes_create = True
                return [dump({"type": "input_audio_buffer.commit"}), *self._owed_create()]
            case PressKey() | EndSession():
                return []

    @property
    def next_reply_ns(self) -> None:
        """Nothing waits for a time."""

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return, once, what the codec itself must send after the last `receive`."""
        replies, self._replies = self._replies, []
        return replies

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the append message for 16-bit mono PCM."""
        if self.user_audio.codec != "pcm_s16le":
            pcm = encode(read.samples(pcm), self.user_audio.codec)
        audio = base64.b64encode(pcm).decode("ascii")
        return f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}'

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio in append messages."""
        return self.user_audio.codec, "json_base64", "/audio"

    def _session_update(self, start: StartSession) -> Wire:
        session = sessions.request(
            start.config,
            self.user_audio.codec if self._carries_audio else None,
            self._dialect,
            is_manual=self._is_manual,
        )
        return dump({"type": "session.update", "session": session})

    def _tool_result(self, call_id: str, output: str) -> list[Wire]:
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        self._s.calls_open.discard(call_id)
        self._s.owes_create = True
        return [dump({"type": "conversation.item.create", "item": item}), *self._owed_create()]

    def _owed_create(self) -> list[Wire]:
        if not self._s.owes_create or self._s.active or self._s.calls_open:
            return []
        self._s.owes_create = False
        return [_CREATE]

    def _truncate(self, item_id: str, audio_end_ms: int) -> list[Wire]:
        item = self._s.items.get(item_id)
        if item is None or not item.n_bytes:
            return []
        received_ms = item.n_bytes * 1000 // item.bytes_per_s
        cut = {
            "type": "conversation.item.truncate",
            "item_id": item_id,
            "content_index": 0,
            "audio_end_ms": max(0, min(audio_end_ms, received_ms)),
        }
        return [dump(cut)]

    # What the target sends

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message; a breach is a `Fault`, after which nothing comes."""
        return self._intake.take(data, at, self.events)

    def events(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message.

        Raises
        ------
        StrictError
            If it breaches the protocol or a limit of one message; `receive` also counts.
        """
        message = parse_object(data, self.limits.max_message_bytes)
        if len(data) > self.limits.max_control_bytes and not _is_audio(message):
            raise LimitExceeded("max_control_bytes")
        return self._dispatch(message, at)

    def _dispatch(self, message: dict[str, Any], at: Instant) -> list[Event]:
        kind = message.get("type")
        if not isinstance(kind, str):
            raise StrictError("message has no type")
        name = names.ga_name(kind)
        handler = _HANDLERS.get(name)
        if handler is not None:
            return handler(self, message, at)
        if name in names.IGNORED_SERVER_TYPES:
            return []
        return [Unknown(at=at, name=clean(kind, 100))]

    def _on_session(self, message: dict[str, Any], at: Instant) -> list[Event]:
        sessions.update_effective(self._s.session, read.mapping(message, "session"))
        self._apply_session()
        if message["type"] != "session.updated":
            return []
        self._check_session()
        if self._s.is_ready:
            return []
        self._s.is_ready = True
        return [Ready(at=at, session=self._s.session)]

    def _apply_session(self) -> None:
        detection = names.turn_detection(self._s.session)
        is_unstated = detection == "unstated" or self._s.detects_turns
        is_manual = self._is_manual if is_unstated else detection is None
        # Where it is not stated, the protocol's default holds, which is true.
        interrupts = not isinstance(detection, dict) or detection.get("interrupt_response")
        by_session = {SpeechStarted.TYPE} if not is_manual and interrupts is not False else set()
        self.flush_on = self._always_flush_on | by_session
        self.capabilities = replace(
            self.capabilities,
            manual_commit=is_manual,
            transcripts=sessions.has_transcription(self._s.session),
        )
        spoken = names.codec_of_format(sessions.stated_format(self._s.session, "output"))
        self._agent_format = spoken or self._agent_format

    def _check_session(self) -> None:
        """Refuse a session in which one side would hear noise where the other one speaks.

        So is one that detects turns although it was asked not to: the caller's own messages would
        come on top of what the target decides.
        """
        if self._is_manual and not self.capabilities.manual_commit:
            raise StrictError("the session detects turns, though asked to leave that to us")
        if not self._carries_audio:
            return
        heard = sessions.stated_format(self._s.session, "input")
        asked = (self.user_audio.codec, self.user_audio.rate_hz)
        found = names.codec_of_format(heard)
        if isinstance(heard, str) and found is not None:
            found = found[0], asked[1]  # a mere name says nothing of the rate
        if heard is not None and found != asked:
            raise StrictError(f"the session takes other audio than {asked[0]} at {asked[1]} Hz")
        spoken = sessions.stated_format(self._s.session, "output")
        if spoken is not None and names.codec_of_format(spoken) is None:
            raise StrictError("the session gives audio of an unknown format")

    def _on_error(self, message: dict[str, Any], at: Instant) -> list[Event]:
        code, text, about = read.error(message)
        if self._s.is_ready:
            return [ServerError(at=at, code=code, message=text)]
        is_too_new = "unknown" in about and "param" in about
        if is_too_new and self._may_fall_back and self._start is not None:
            self._may_fall_back = False
            self._dialect = "beta"
            self._replies.append(self._session_update(self._start))
            return [ServerError(at=at, code=code, message=text)]
        return [ServerError(at=at, code=code, message=text, is_fatal=True)]

    def _on_speech_started(self, message: dict[str, Any], at: Instant) -> list[Event]:
        offset = read.number(message, "audio_start_ms")
        if self.capabilities.manual_commit and not self._is_manual:
            # Its session's null was no answer: some write one for all that they were not told.
            self._s.detects_turns = True
            self._apply_session()
        return [SpeechStarted(at=at, offset_ms=offset, item_id=read.optional(message, "item_id"))]

    def _on_speech_stopped(self, message: dict[str, Any], at: Instant) -> list[Event]:
        offset = read.number(message, "audio_end_ms")
        return [SpeechStopped(at=at, offset_ms=offset, item_id=read.optional(message, "item_id"))]

    def _on_committed(self, message: dict[str, Any], at: Instant) -> list[Event]:
        return [TurnCommitted(at=at, item_id=read.optional(message, "item_id"))]

    def _on_cleared(self, message: dict[str, Any], at: Instant) -> list[Event]:
        return [Interrupt(at=at, response_id=read.optional(message, "response_id"))]

    def _on_transcript_delta(self, message: dict[str, Any], at: Instant) -> list[Event]:
        item_id = read.optional(message, "item_id")
        text = self._s.transcripts.get(item_id or "", "") + read.text(message, "delta")
        return self._transcript(text, item_id, at)

    def _on_transcript_updated(self, message: dict[str, Any], at: Instant) -> list[Event]:
        item_id = read.optional(message, "item_id")
        return self._transcript(read.text(message, "transcript"), item_id, at)

    def _transcript(self, text: str, item_id: str | None, at: Instant) -> list[Event]:
        key = item_id or ""
        self._refuse_many(self._s.transcripts)
        self._s.transcripts[key] = text
        return [UserTranscript(at=at, text=text, item_id=item_id)]

    def _on_transcript_completed(self, message: dict[str, Any], at: Instant) -> list[Event]:
        item_id = read.optional(message, "item_id")
        self._s.transcripts.pop(item_id or "", None)
        text = read.text(message, "transcript")
        return [UserTranscript(at=at, text=text, is_final=True, item_id=item_id)]

    def _on_response_created(self, message: dict[str, Any], at: Instant) -> list[Event]:
        response_id = read.required(read.mapping(message, "response"), "id")
        self._response(response_id)
        self._s.active.add(response_id)
        return [ResponseStarted(at=at, response_id=response_id)]

    def _response(self, response_id: str) -> _Response:
        if response_id not in self._s.responses:
            if len(self._s.responses) >= self.limits.max_responses:
                raise LimitExceeded("max_responses")
            self._s.responses[response_id] = _Response()
        return self._s.responses[response_id]

    def _item(self, item_id: str) -> _Item:
        if item_id not in self._s.items:
            self._refuse_many(self._s.items)
            self._s.items[item_id] = _Item()
        return self._s.items[item_id]

    def _refuse_many(self, known: Sized) -> None:
        # Some servers use several items a response; more than this is no conversation.
        if len(known) >= 16 * self.limits.max_responses:
            raise LimitExceeded("max_responses")

    def _on_text(self, message: dict[str, Any], at: Instant) -> list[Event]:
        return [
            TextDelta(
                at=at,
                response_id=read.optional(message, "response_id"),
                item_id=read.optional(message, "item_id"),
                text=read.text(message, "delta"),
            )
        ]

    def _on_audio(self, message: dict[str, Any], at: Instant) -> list[Event]:
        data = decode_base64(message.get("delta"), self.limits.max_message_bytes)
        response_id = read.optional(message, "response_id")
        item_id = read.optional(message, "item_id")
        codec, rate = self._agent_format
        stated = message.get("sample_rate_hz", rate)
        if type(stated) is not int or not names.MIN_RATE_HZ <= stated <= names.MAX_RATE_HZ:
            raise StrictError("sample_rate_hz is not a usable rate")
        rate = stated
        bytes_per_s = rate * sample_bytes(codec)
        if response_id is not None and codec == "pcm_s16le":
            self._response(response_id).n_bytes += len(data)
        if item_id is not None:
            item = self._item(item_id)
            item.n_bytes, item.bytes_per_s = item.n_bytes + len(data), bytes_per_s
        return [
            AudioChunk(
                at=at,
                response_id=response_id,
                item_id=item_id,
                codec=codec,
                rate_hz=rate,
                locator="/delta",
                data=data,
            )
        ]

    def _on_audio_done(self, message: dict[str, Any], at: Instant) -> list[Event]:
        return [
            ResponseAudioEnd(
                at=at,
                response_id=read.optional(message, "response_id"),
                item_id=read.optional(message, "item_id"),
            )
        ]

    def _on_item_added(self, message: dict[str, Any], at: Instant) -> list[Event]:
        item = read.mapping(message, "item")
        item_id = read.optional(item, "id")
        if item.get("type") == "function_call" and item_id is not None:
            known = self._item(item_id)
            known.tool, known.call_id = read.optional(item, "name"), read.optional(item, "call_id")
        return []

    def _on_item_done(self, message: dict[str, Any], at: Instant) -> list[Event]:
        item = read.mapping(message, "item")
        if item.get("type") != "function_call":
            return []
        return self._tool_call(item, item.get("name"), message.get("response_id"), at)

    def _on_arguments(self, message: dict[str, Any], at: Instant) -> list[Event]:
        known = self._s.items.get(read.optional(message, "item_id") or "")
        name = message.get("name") or (known.tool if known else None)
        if not name:
            # Told again, with its name, by the item's end.
            return []
        if "call_id" not in message and known is not None:
            message = {**message, "call_id": known.call_id}
        return self._tool_call(message, name, message.get("response_id"), at)

    def _tool_call(
        self, call: dict[str, Any], name: object, response_id: object, at: Instant
    ) -> list[Event]:
        call_id, arguments = read.required(call, "call_id"), read.text(call, "arguments")
        if call_id in self._s.calls_told:
            return []
        self._refuse_many(self._s.calls_told)
        self._s.calls_told.add(call_id)
        self._s.calls_open.add(call_id)
        return [
            ToolCall(
                at=at,
                call_id=call_id,
                name=read.required({"name": name}, "name"),
                arguments=arguments,
                response_id=read.optional({"response_id": response_id}, "response_id"),
            )
        ]

    def _on_response_done(self, message: dict[str, Any], at: Instant) -> list[Event]:
        response = read.mapping(message, "response")
        response_id = read.required(response, "id")
        status = response.get("status")
        status = status if isinstance(status, str) and status in _ENDS else "completed"
        events: list[Event] = []
        for item in read.items(response, "output"):
            if item.get("type") == "function_call" and status == "completed":
                events += self._tool_call(item, item.get("name"), response_id, at)
        usage = response.get("usage")
        if isinstance(usage, dict):
            events.append(Usage(at=at, response_id=response_id, usage=usage))
        known = self._response(response_id)
        # A cancelled response is cut wherever it stood; only a whole one must hold whole samples.
        if status == "completed" and known.n_bytes % sample_bytes("pcm_s16le"):
            raise StrictError("audio of a response ends inside a sample")
        if known.is_over:
            return events
        known.is_over = True
        self._s.active.discard(response_id)
        reason = read.reason(response)
        events.append(ResponseEnded(at=at, response_id=response_id, status=status, reason=reason))
        self._replies += self._owed_create()
        return events

    def _on_truncated(self, message: dict[str, Any], at: Instant) -> list[Event]:
        cut = read.number(message, "audio_end_ms") or 0.0
        return [Truncated(at=at, item_id=read.optional(message, "item_id"), audio_end_ms=cut)]


_CREATE = dump({"type": "response.create"})


def _is_audio(message: dict[str, Any]) -> bool:
    return message.get("type") in ("response.output_audio.delta", "response.audio.delta")


_Handler = Callable[[OpenAIRealtimeClient, dict[str, Any], Instant], list[Event]]
_C = OpenAIRealtimeClient
_TRANSCRIPTION = "conversation.item.input_audio_transcription"
_HANDLERS: dict[str, _Handler] = {
    "session.created": _C._on_session,
    "session.updated": _C._on_session,
    "error": _C._on_error,
    "input_audio_buffer.speech_started": _C._on_speech_started,
    "input_audio_buffer.speech_stopped": _C._on_speech_stopped,
    "input_audio_buffer.committed": _C._on_committed,
    "output_audio_buffer.cleared": _C._on_cleared,
    f"{_TRANSCRIPTION}.delta": _C._on_transcript_delta,
    f"{_TRANSCRIPTION}.updated": _C._on_transcript_updated,
    f"{_TRANSCRIPTION}.completed": _C._on_transcript_completed,
    "response.created": _C._on_response_created,
    "response.output_text.delta": _C._on_text,
    "response.output_audio_transcript.delta": _C._on_text,
    "response.output_audio.delta": _C._on_audio,
    "response.output_audio.done": _C._on_audio_done,
    "response.output_item.added": _C._on_item_added,
    "response.output_item.done": _C._on_item_done,
    "response.function_call_arguments.done": _C._on_arguments,
    "response.done": _C._on_response_done,
    "conversation.item.truncated": _C._on_truncated,
}
