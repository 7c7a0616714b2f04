"""The probe's side of a declared protocol, as a state machine without I/O.

Where the protocol has marks the client is the telephone network: what it holds it plays in order,
a mark comes back when all audio before it has been played, and an order to drop everything gives
back the marks that wait. Such an order while nothing is held interrupts nothing.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from vakforge_eval.signal.pcm import CODECS, encode, sample_bytes
from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    AudioChunk,
    Claim,
    Event,
    GoAway,
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
    TurnCommitted,
    Unknown,
    UserTranscript,
)
from vakforge_eval.timeline.instant import NS_PER_S, Instant
from vakforge_probe.limits import Limits
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
from vakforge_probe.protocol.declared import ClientMessage, Profile
from vakforge_probe.protocol.intake import Intake
from vakforge_probe.protocol.ogg_voice import OGG_OPUS, OggVoice
from vakforge_probe.protocol.strict import (
    LimitExceeded,
    StrictError,
    decode_base64,
    dump,
    parse_object,
)
from vakforge_probe.protocol.template import Template
from vakforge_probe.protocol.twiml import VoiceWebhook
from vakforge_probe.text import clean

__all__ = ["DeclaredClient"]

Values = Mapping[str, Any]
_NAMED: tuple[Literal["stream", "call", "account"], ...] = ("stream", "call", "account")
MAX_ORDER_CHARS = 20
MAX_NUMBER = 10**12


class DeclaredClient:
    """Codec of `ClientCodec`'s shape for one profile."""

    signalling = None

    def __init__(self, profile: Profile, limits: Limits | None = None) -> None:
        self._p = profile
        self.limits = limits or Limits()
        self.name, self.profile = profile.name, ""
        user = profile.user_audio
        self.user_audio = AudioFormat(user.codec, user.rate_hz, user.frame_ms)
        self.capabilities = _capabilities(profile)
        self.subprotocols = tuple(profile.subprotocols)
        self.headers = dict(profile.headers)
        self.flush_on = profile.flushes
        self.is_experimental = profile.is_experimental
        self.is_ready_at_once = "ready" not in profile.server
        self._call: dict[str, Any] = {"seq": 0, "chunk": 0}
        for name in _NAMED:
            self._call[name] = profile.id_prefixes.get(name, "") + secrets.token_hex(16)
        self.webhook = (
            VoiceWebhook(self._call["call"], self._call["account"])
            if profile.webhook == "twiml"
            else None
        )
        self._replies: list[Wire] = []
        self._tools: dict[str, str] = {}
        self._marks: deque[tuple[int, Any]] = deque()
        self._drained_at = 0
        self._dropped_to = -1
        """Audio up to this place in the server's own order is never played."""
        self._intake = Intake(self.limits)
        self._is_ready = False
        self._has_hello = profile.start_after is None
        self._is_started = False
        is_opus = user.codec == OGG_OPUS
        self._voice = OggVoice(self.user_audio) if is_opus else None

    # What the probe sends

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url`: a declared protocol has no place for a model there."""
        return url

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`."""
        match intent:
            case StartSession(config):
                tools = [tool.model_dump(include={"name", "description", "parameters"})
                         for tool in config.tools]  # fmt: skip
                self._call |= {
                    "model": config.model,
                    "instructions": config.instructions,
                    "tools": tools,
                    "parameters": {} if self.webhook is None else self.webhook.parameters,
                    "codec": self.user_audio.codec,
                    "rate_hz": self.user_audio.rate_hz,
                    "agent_codec": self._p.agent_audio.codec,
                    "agent_rate_hz": self._p.agent_audio.rate_hz,
                }
                self._is_started = True
                return self._messages("start", {}) if self._has_hello else []
            case ToolResult(call_id, output):
                name = self._tools.get(call_id, "")
                values = {"call_id": call_id, "name": name, "output": output}
                return self._messages("tool_result", values)
            case Truncate(item_id, audio_end_ms):
                return self._messages("truncate", {"item": item_id, "ms": audio_end_ms})
            case CancelResponse(response_id):
                return self._messages("cancel", {"response": response_id})
            case CommitAudio():
                return self._messages("commit", {})
            case PressKey(key):
                ts_ms = self._call["chunk"] * self.user_audio.frame_ms
                return self._messages("dtmf", {"key": key, "ts_ms": ts_ms})
            case EndSession():
                return self._messages("hang_up", {})

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the message that carries one frame of 16-bit mono PCM."""
        codec = self.user_audio.codec
        if self._voice is not None:
            pcm = self._voice.next_bytes(pcm)
        elif codec != "pcm_s16le":
            pcm = encode(np.frombuffer(pcm, "<i2").astype(np.int16), codec)
        template = self._p.user_template
        if template is None:
            return pcm
        self._call["chunk"] += 1
        ts_ms = self._call["chunk"] * self.user_audio.frame_ms
        return self._built(template, {"audio": base64.b64encode(pcm).decode(), "ts_ms": ts_ms})

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio in its messages."""
        template = self._p.user_template
        if template is None:
            return self.user_audio.codec, "binary", "0"
        return self.user_audio.codec, "json_base64", template.holes["audio"]

    @property
    def next_reply_ns(self) -> int | None:
        """When a mark is due to be given back."""
        return self._marks[0][0] if self._marks else None

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return, once, what the codec itself must send by now."""
        while self._marks and self._marks[0][0] <= now_ns:
            _, mark = self._marks.popleft()
            self._replies += self._messages("played", {"mark": mark})
        replies, self._replies = self._replies, []
        return replies

    def _messages(self, name: ClientMessage, values: Values) -> list[Wire]:
        templates = self._p.client_templates.get(name, ())
        return [self._built(template, values) for template in templates]

    def _built(self, template: Template, values: Values) -> Wire:
        if "seq" in template.holes:
            self._call["seq"] += 1
        return dump(template.build({**self._call, **values}))

    # What the target sends

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message; a breach is a `Fault`, after which nothing comes."""
        return self._intake.take(data, at, self._events)

    def _events(self, data: Wire, at: Instant) -> list[Event]:
        if isinstance(data, bytes) and not self._p.audio_templates:
            if len(data) > self.limits.max_message_bytes:
                raise LimitExceeded("max_message_bytes")
            if _is_json(data):
                raise StrictError("JSON where sound should be")
            return self._audio(data, at, "binary", "0", {})
        message = parse_object(data, self.limits.max_message_bytes)
        for template in self._p.audio_templates:
            values = template.read(message)
            if values is not None:
                audio = decode_base64(values["audio"], self.limits.max_message_bytes)
                return self._audio(audio, at, "json_base64", template.holes["audio"], values)
        if len(data) > self.limits.max_control_bytes:
            raise LimitExceeded("max_control_bytes")
        for to, reply in self._p.reply_templates:
            values = to.read(message)
            if values is not None:
                self._replies.append(self._built(reply, values))
                return []
        for name, templates in self._p.server_templates.items():
            for template in templates:
                values = template.read(message)
                if values is not None:
                    return _READERS[name](self, values, at)
        return [Unknown(at=at, name=_name_of(message))]

    def _audio(
        self, data: bytes, at: Instant, transfer: str, locator: str, values: Values
    ) -> list[Event]:
        if (order := _order(values)) is not None and order <= self._dropped_to:
            return [Unknown(at=at, name="audio of what was interrupted")]
        audio = self._p.agent_audio
        if audio.codec in CODECS:
            n_played = -(-len(data) // audio.packet_bytes) * audio.packet_bytes
            n_samples = n_played // sample_bytes(audio.codec)
            start = max(at.at, self._drained_at)
            self._drained_at = start + n_samples * NS_PER_S // audio.rate_hz
        response = _text(values, "response")
        said = [] if values.get("text") is None else _READERS["text"](self, values, at)
        return [
            *said,
            AudioChunk(
                at=at,
                response_id=response,
                item_id=_text(values, "item") or response,
                codec=audio.codec,
                rate_hz=audio.rate_hz,
                transfer=transfer,
                locator=locator,
                data=data,
            ),
        ]

    def _on_ready(self, values: Values, at: Instant) -> list[Event]:
        if self._is_ready:
            return []
        self._is_ready = True
        return [Ready(at=at)]

    def _on_hello(self, values: Values, at: Instant) -> list[Event]:
        if not self._has_hello and self._is_started:
            self._replies += self._messages("start", {})
        self._has_hello = True
        return []

    def _on_interrupt(self, values: Values, at: Instant) -> list[Event]:
        is_held = self._drained_at > at.at
        self._drained_at = min(self._drained_at, at.at)
        self._marks = deque((at.at, mark) for _, mark in self._marks)
        self._replies += self._messages("cleared", {})
        if (order := _order(values)) is not None:
            self._dropped_to = max(self._dropped_to, order)
        if ("mark" in self._p.server or self._p.drops_nothing) and not is_held:
            return [Unknown(at=at, name="an order to drop audio while none was held")]
        return [Interrupt(at=at, response_id=_text(values, "response"))]

    def _on_mark(self, values: Values, at: Instant) -> list[Event]:
        if len(self._marks) >= self.limits.max_events:
            raise LimitExceeded("max_events")
        self._marks.append((max(at.at, self._drained_at), values["mark"]))
        return []

    def _on_tool_call(self, values: Values, at: Instant) -> list[Event]:
        arguments = values.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(values.get("parameters", {}), allow_nan=False)
        call_id, name = _text(values, "call_id"), _text(values, "name")
        if call_id is None or name is None:
            raise StrictError("a call of a tool without id or name")
        self._tools[call_id] = name
        return [ToolCall(at=at, call_id=call_id, name=clean(name, 200), arguments=arguments,
                         response_id=_text(values, "response"))]  # fmt: skip


def _capabilities(profile: Profile) -> Capabilities:
    known = profile.server
    return Capabilities(
        server_vad_events="speech_started" in known or "speech_stopped" in known,
        transcripts="user_final" in known,
        text_before_audio="text" in known,
        explicit_interrupt="interrupt" in known,
        response_ids=profile.names_responses,
        response_end="response_ended" in known,
        continuous_stream=profile.is_continuous,
        barge_in=not profile.is_half_duplex,
        manual_commit="commit" in profile.client,
        dtmf="dtmf" in profile.client,
        tools="tool_call" in known and "tool_result" in profile.client,
    )


def _is_json(data: bytes) -> bool:
    """Whether binary data is a JSON object, as no sound is; asked by its ends first."""
    if data[:1] != b"{" or data[-1:] != b"}":
        return False
    try:
        parse_object(data, len(data))
    except StrictError:
        return False
    return True


def _text(values: Values, name: str) -> str | None:
    """Return a short text or number as text; None for anything else."""
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return clean(str(value), 200)


def _order(values: Values) -> int | None:
    text = _text(values, "order")
    is_number = text is not None and len(text) <= MAX_ORDER_CHARS and text.isascii()
    return int(text) if text is not None and is_number and text.isdigit() else None


def _number(values: Values, name: str) -> float | None:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < MAX_NUMBER else None


def _said(values: Values) -> str:
    text = values["text"]
    if not isinstance(text, str):
        raise StrictError("a text that is none")
    return text


def _name_of(message: dict[str, Any]) -> str:
    """Return what a message calls itself, as far as anyone can tell."""
    kinds = (message.get(key) for key in ("type", "event", "event_type", "label", "state"))
    name = next((kind for kind in kinds if isinstance(kind, str)), None)
    return clean(name if name is not None else " ".join(sorted(message)[:5]), 100)


_Reader = Callable[[DeclaredClient, Values, Instant], list[Event]]
_READERS: dict[str, _Reader] = {
    "hello": DeclaredClient._on_hello,
    "ready": DeclaredClient._on_ready,
    "speech_started": lambda c, v, at: [
        SpeechStarted(at=at, offset_ms=_number(v, "offset_ms"), item_id=_text(v, "item"))
    ],
    "speech_stopped": lambda c, v, at: [
        SpeechStopped(at=at, offset_ms=_number(v, "offset_ms"), item_id=_text(v, "item"))
    ],
    "turn_committed": lambda c, v, at: [TurnCommitted(at=at, item_id=_text(v, "item"))],
    "user_partial": lambda c, v, at: [UserTranscript(at=at, text=_said(v))],
    "user_final": lambda c, v, at: [UserTranscript(at=at, text=_said(v), is_final=True)],
    "response_started": lambda c, v, at: [ResponseStarted(at=at, response_id=_text(v, "response"))],
    "text": lambda c, v, at: [
        TextDelta(at=at, text=_said(v), response_id=_text(v, "response"), item_id=_text(v, "item"))
    ],
    "audio_end": lambda c, v, at: [
        ResponseAudioEnd(at=at, response_id=_text(v, "response"), item_id=_text(v, "item"))
    ],
    "response_ended": lambda c, v, at: [
        ResponseEnded(at=at, response_id=_text(v, "response"), status="completed")
    ],
    "cancelled": lambda c, v, at: [
        ResponseEnded(at=at, response_id=_text(v, "response"), status="cancelled")
    ],
    "interrupt": DeclaredClient._on_interrupt,
    "tool_call": DeclaredClient._on_tool_call,
    "claim": lambda c, v, at: [Claim(at=at, name="latency", value_s=_number(v, "latency_s"))],
    "error": lambda c, v, at: [
        ServerError(at=at, code=_text(v, "code"), message=_text(v, "message") or "")
    ],
    "go_away": lambda c, v, at: [GoAway(at=at, message=_text(v, "message") or "")],
    "mark": DeclaredClient._on_mark,
}
