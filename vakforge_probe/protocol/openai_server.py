"""The server's side of OpenAI Realtime over WebSocket, as a state machine without I/O.

`receive` turns a client's message into `ClientEvent`s; what the protocol answers by itself
(``session.updated``, echoes of items, errors) waits in `take_replies`. Everything else is written
by the methods below and by `OpenAIResponseWriter`, in the order in which a real server sends it,
with GA or beta names as the client's header or first ``session.update`` shows.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

from vakforge_probe.limits import Limits
from vakforge_probe.protocol import openai_fields as read
from vakforge_probe.protocol import openai_names as names
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.openai_response import OpenAIResponseWriter
from vakforge_probe.protocol.openai_session import merge
from vakforge_probe.protocol.server import (
    Answers,
    AudioAppended,
    AudioCleared,
    AudioCommitted,
    CancelRequested,
    ClientEvent,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
    TruncateRequested,
)
from vakforge_probe.protocol.strict import StrictError, decode_base64, dump, parse_object

__all__ = ["OpenAIRealtimeServer", "ServerOptions"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What this server grants. `dialect` other than ``auto`` refuses the other form of session."""

    dialect: Literal["auto", "ga", "beta"] = "auto"
    accepts_manual: bool = True
    interrupt_response: bool = True
    has_transcription: bool = True
    silence_ms: int = 500


class OpenAIRealtimeServer(Answers):
    """One connection's server codec.

    Parameters
    ----------
    is_beta_client
        Whether the handshake carried the beta header.
    tag
        Goes into every identifier, so that those of two connections differ.
    """

    names_responses = True
    is_continuous = False

    def __init__(
        self,
        options: ServerOptions | None = None,
        *,
        is_beta_client: bool = False,
        model: str = "reference",
        tag: str = "0",
        limits: Limits | None = None,
    ) -> None:
        super().__init__(tag)
        self.options = options or ServerOptions()
        self.limits = limits or Limits()
        asked: names.Dialect = "beta" if is_beta_client else "ga"
        granted = self.options.dialect
        self.dialect: names.Dialect = asked if granted == "auto" else granted
        self.item_ms: dict[str, float] = {}
        self.is_format_fixed = False
        self._items: dict[str, dict[str, Any]] = {}
        self._previous: dict[str, str | None] = {}
        self._metadata: object = None
        self._may_switch = granted == "auto"
        self._input = ("pcm_s16le", 24000)
        self._output = ("pcm_s16le", 24000)
        self._turn_detection: dict[str, Any] | None = self._full_detection({"type": "server_vad"})
        self._session: dict[str, Any] = {"model": model, "tools": [], "tool_choice": "auto"}

    # State that the agent asks for

    @property
    def input_format(self) -> tuple[str, int]:
        """(codec, rate in Hz) of the user's audio."""
        return self._input

    @property
    def output_format(self) -> tuple[str, int]:
        """(codec, rate in Hz) of the agent's audio."""
        return self._output

    @property
    def is_manual(self) -> bool:
        """Whether the client commits by hand."""
        return self._turn_detection is None

    @property
    def interrupts(self) -> bool:
        """Whether the effective session tells clients that the user's speech interrupts."""
        detection = self._turn_detection
        return detection is not None and detection["interrupt_response"] is True

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Tools that the client offers, as it wrote them."""
        return list(self._session["tools"])

    # What the client sends

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one message; a wrong message is answered by an ``error``."""
        try:
            message = parse_object(data, self.limits.max_message_bytes)
        except StrictError as error:
            self._refuse("invalid_json", error.what)
            return []
        kind, event_id = message.get("type"), message.get("event_id")
        if not isinstance(kind, str) or kind not in names.CLIENT_TYPES:
            self._refuse("invalid_value", f"Invalid value: {kind!r}.", "type", event_id)
            return []
        try:
            return self._handle(kind, message)
        except StrictError as error:
            self._refuse("invalid_value", error.what, None, event_id)
            return []

    def _handle(self, kind: str, message: dict[str, Any]) -> list[ClientEvent]:
        match kind:
            case "input_audio_buffer.append":
                audio = decode_base64(message.get("audio"), self.limits.max_message_bytes)
                return [AudioAppended(audio)]
            case "session.update":
                return self._on_session_update(message)
            case "conversation.item.create":
                return self._on_item_create(read.mapping(message, "item"))
            case "conversation.item.truncate":
                return self._on_truncate(message)
            case "conversation.item.retrieve":
                self._reply("conversation.item.retrieved", item=self._item(message))
            case "conversation.item.delete":
                item_id = self._item(message)["id"]
                del self._items[item_id]
                self._reply("conversation.item.deleted", item_id=item_id)
            case "input_audio_buffer.commit":
                return [AudioCommitted()]
            case "input_audio_buffer.clear":
                self._reply("input_audio_buffer.cleared")
                return [AudioCleared()]
            case "response.create":
                asked = read.mapping(message, "response") if "response" in message else {}
                self._metadata = asked.get("metadata")
                return [ResponseRequested()]
            case "response.cancel":
                return [CancelRequested(read.optional(message, "response_id"))]
        return []

    def _on_session_update(self, message: dict[str, Any]) -> list[ClientEvent]:
        session = read.mapping(message, "session")
        is_beta = names.is_beta_session(session)
        is_ga = names.is_ga_session(session)
        if self._may_switch and (is_beta or is_ga):
            # The first session that shows a form decides; a later other form is a mistake.
            self.dialect, self._may_switch = ("beta" if is_beta else "ga"), False
        wrong = is_ga if self.dialect == "beta" else is_beta
        if wrong:
            name = "type" if "type" in session else next(iter(session))
            text = f"Unknown parameter: 'session.{name}'."
            self._refuse("unknown_parameter", text, f"session.{name}", message.get("event_id"))
            return []
        self._apply(session)
        self._reply("session.updated", session=self.session())
        return [SessionUpdated()]

    def _apply(self, session: dict[str, Any]) -> None:
        detection = names.turn_detection(session)
        if detection is None and not self.options.accepts_manual:
            raise StrictError("turn_detection cannot be null here")
        formats = _formats(session)
        granted = (formats[0] or self._input, formats[1] or self._output)
        if self.is_format_fixed and granted != (self._input, self._output):
            raise StrictError("audio formats cannot change once audio has flowed")
        tools = read.items(session, "tools") if "tools" in session else self._session["tools"]
        if detection != "unstated":
            self._turn_detection = self._full_detection(detection)
        self._input, self._output = granted
        kept = ("instructions", "tool_choice", "output_modalities", "modalities", "tracing")
        merge(self._session, {k: session[k] for k in kept if k in session})
        self._session["tools"] = tools

    def _full_detection(self, stated: dict[str, Any] | None) -> dict[str, Any] | None:
        if stated is None:
            return None
        full = {
            "type": "server_vad",
            "threshold": 0.5,
            "prefix_padding_ms": 0,
            "silence_duration_ms": self.options.silence_ms,
            "create_response": True,
            "interrupt_response": self.options.interrupt_response,
        }
        if stated.get("type") == "semantic_vad":
            full = {k: full[k] for k in ("type", "create_response", "interrupt_response")}
            full["eagerness"] = "auto"
        return {**full, **{k: v for k, v in stated.items() if v is not None}}

    def _on_item_create(self, item: dict[str, Any]) -> list[ClientEvent]:
        item = {**item, "id": read.optional(item, "id") or self.new_id("item")}
        if item["id"] in self._previous:
            raise StrictError(f"Item with item_id {item['id']!r} already exists")
        events: list[ClientEvent] = []
        if item.get("type") == "function_call_output":
            events = [ToolOutput(read.required(item, "call_id"), read.text(item, "output"))]
        self._replies += self.item_messages({**item, "status": "completed"})
        return events

    def _on_truncate(self, message: dict[str, Any]) -> list[ClientEvent]:
        item_id = read.required(message, "item_id")
        cut = read.number(message, "audio_end_ms")
        if item_id not in self.item_ms:
            raise StrictError(f"Item with item_id {item_id!r} not found")
        if cut is None or not 0 <= cut <= self.item_ms[item_id]:
            held = self.item_ms[item_id]
            raise StrictError(f"Audio content of {held:.0f}ms is already shorter than {cut}ms")
        self._reply(
            "conversation.item.truncated",
            item_id=item_id,
            content_index=read.number(message, "content_index") or 0,
            audio_end_ms=int(cut),
        )
        # What was not heard must not be read either.
        self._set_transcript(item_id, None)
        return [TruncateRequested(item_id, cut)]

    def _item(self, message: dict[str, Any]) -> dict[str, Any]:
        item_id = read.required(message, "item_id")
        if item_id not in self._items:
            raise StrictError(f"Item with item_id {item_id!r} not found")
        return self._items[item_id]

    def _set_transcript(self, item_id: str, text: str | None) -> None:
        if item := self._items.get(item_id):  # a client may have deleted it
            content = [{**part, "transcript": text} for part in item["content"]]
            self._items[item_id] = {**item, "content": content}

    def _refuse(
        self, code: str, text: str, param: str | None = None, event_id: object = None
    ) -> None:
        event_id = event_id if isinstance(event_id, str) else None
        self._replies += self.error(code, text, param=param, event_id=event_id)

    def _reply(self, kind: str, /, **fields: Any) -> None:
        self._replies += self.messages(kind, **fields)

    # What the agent sends

    def messages(self, kind: str, /, **fields: Any) -> list[Wire]:
        """Return the message of GA name `kind` in the connection's dialect, if that has one."""
        shown: str | None = kind if self.dialect == "ga" else names.beta_name(kind)
        if shown is None:
            return []
        return [dump({"type": shown, "event_id": self.new_id("event"), **fields})]

    def session(self) -> dict[str, Any]:
        """Return the effective session in the connection's dialect."""
        base = {"id": f"sess_{self.tag}", "object": "realtime.session", **self._session}
        asr = {"model": "script"} if self.options.has_transcription else None
        if self.dialect == "beta":
            return {
                "modalities": ["text", "audio"],
                **base,
                "input_audio_format": names.audio_format(self._input[0], "beta"),
                "output_audio_format": names.audio_format(self._output[0], "beta"),
                "input_audio_transcription": asr,
                "turn_detection": self._turn_detection,
                "voice": "reference",
            }
        heard = {
            "format": names.audio_format(self._input[0], "ga"),
            "noise_reduction": None,
            "transcription": asr,
            "turn_detection": self._turn_detection,
        }
        spoken = {"format": names.audio_format(self._output[0], "ga"), "voice": "reference"}
        return {
            "type": "realtime",
            "output_modalities": ["audio"],
            **base,
            "audio": {"input": heard, "output": {**spoken, "speed": 1.0}},
        }

    def created(self) -> list[Wire]:
        """Return ``session.created``."""
        return self.messages("session.created", session=self.session())

    def error(
        self, code: str, text: str, *, param: str | None = None, event_id: str | None = None
    ) -> list[Wire]:
        """Return an ``error`` message."""
        detail = {
            "type": "invalid_request_error",
            "code": code,
            "message": text,
            "param": param,
            "event_id": event_id,
        }
        return self.messages("error", error=detail)

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return ``input_audio_buffer.speech_started``; ms of input-sample time."""
        name = "input_audio_buffer.speech_started"
        return self.messages(name, audio_start_ms=audio_start_ms, item_id=item_id)

    def speech_stopped(self, audio_end_ms: int, item_id: str) -> list[Wire]:
        """Return ``input_audio_buffer.speech_stopped``; ms of input-sample time."""
        name = "input_audio_buffer.speech_stopped"
        return self.messages(name, audio_end_ms=audio_end_ms, item_id=item_id)

    def committed(self, item_id: str) -> list[Wire]:
        """Return the commit of the user's turn and the item that it became."""
        name = "input_audio_buffer.committed"
        out = self.messages(name, item_id=item_id, previous_item_id=self._last_item)
        item = {
            "id": item_id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        return out + self.item_messages(item)

    @property
    def _last_item(self) -> str | None:
        return next(reversed(self._previous), None)

    def item_messages(self, item: dict[str, Any]) -> list[Wire]:
        """Return the messages that tell a new, whole item of the conversation."""
        return self.item_added(item) + self.item_done(item)

    def item_added(self, item: dict[str, Any]) -> list[Wire]:
        """Return what tells a new item of the conversation."""
        previous, item_id = self._last_item, item["id"]
        self._items[item_id], self._previous[item_id] = item, previous
        return self.messages("conversation.item.added", previous_item_id=previous, item=item)

    def item_done(self, item: dict[str, Any]) -> list[Wire]:
        """Return what tells an item as it has become."""
        previous = self._previous[item["id"]]
        self._items[item["id"]] = item
        return self.messages("conversation.item.done", previous_item_id=previous, item=item)

    def transcript(self, item_id: str, text: str, seconds: float) -> list[Wire]:
        """Return the final transcript of a user item."""
        self._set_transcript(item_id, text)
        return self.messages(
            "conversation.item.input_audio_transcription.completed",
            item_id=item_id,
            content_index=0,
            transcript=text,
            usage={"type": "duration", "seconds": round(seconds, 3)},
        )

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return coded audio that belongs to no response, as a continuous stream has it."""
        delta = base64.b64encode(data).decode("ascii")
        return self.messages("response.output_audio.delta", delta=delta)

    def response(self) -> OpenAIResponseWriter:
        """Return the writer of a new response: of the one that the client asked for, if any."""
        return OpenAIResponseWriter(self, self.take_metadata())

    def take_metadata(self) -> object:
        """Return, once, what the client asked to find again in its response."""
        metadata, self._metadata = self._metadata, None
        return metadata


_GRANTED = (("pcm_s16le", 24000), ("pcmu", 8000), ("pcma", 8000))


def _formats(session: dict[str, Any]) -> list[tuple[str, int] | None]:
    stated = [session.get("input_audio_format"), session.get("output_audio_format")]
    audio = session.get("audio")
    if isinstance(audio, dict):
        stated = [
            side.get("format") if isinstance(side := audio.get(name), dict) else None
            for name in ("input", "output")
        ]
    formats = [names.codec_of_format(value) for value in stated]
    for value, known in zip(stated, formats, strict=True):
        if value is not None and (known is None or known not in _GRANTED):
            raise StrictError("unsupported audio format")
    return formats
