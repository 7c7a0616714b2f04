"""The probe's side of Gemini Live (BidiGenerateContent), as a state machine without I/O.

Frames are JSON in binary or text messages, in camel or snake case, and one may hold several things
at once. Nothing is named: a response is what lies between the first sign of it and
``turnComplete``, which comes when the server supposes that all has been played. Where
``interrupted`` came before, the response was cancelled.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    GoAway,
    Interrupt,
    Ready,
    ResponseAudioEnd,
    ResponseEnded,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    ToolCall,
    Unknown,
    Usage,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.limits import Limits
from vakforge_probe.protocol import gemini_fields as read
from vakforge_probe.protocol.base import (
    AudioFormat,
    EndSession,
    Intent,
    SessionConfig,
    StartSession,
    ToolResult,
    Wire,
)
from vakforge_probe.protocol.intake import Intake
from vakforge_probe.protocol.strict import (
    LimitExceeded,
    decode_base64,
    dump,
    parse_object,
)
from vakforge_probe.text import clean

__all__ = ["GeminiLiveClient"]

AGENT_HZ = 24_000
USER_HZ = 16_000
_IGNORED = frozenset({"sessionResumptionUpdate", "interactionStatus", "waitingForInput"})


class GeminiLiveClient:
    """Codec of `ClientCodec`'s shape."""

    signalling = None
    name = "gemini-live"
    is_experimental = False
    is_ready_at_once = False
    webhook: None = None
    subprotocols: tuple[str, ...] = ()

    profile = ""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.headers: dict[str, str] = {}
        self.user_audio = AudioFormat("pcm_s16le", USER_HZ)
        self.flush_on = frozenset({Interrupt.TYPE})
        self.capabilities = Capabilities(
            transcripts=True,
            text_before_audio=True,
            explicit_interrupt=True,
            response_end=True,
            tools=True,
        )
        self._names: dict[str, str] = {}
        self._withdrawn: set[str] = set()
        self._intake = Intake(self.limits)
        self._is_ready = self._was_interrupted = False

    # What the probe sends

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url`: the model is named in the first message."""
        return url

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`."""
        match intent:
            case StartSession(config):
                return [dump({"setup": self._setup(config)})]
            case ToolResult(call_id, output):
                return self._tool_result(call_id, output)
            case EndSession():
                return [dump({"realtimeInput": {"audioStreamEnd": True}})]
            case _:
                return []

    def _setup(self, config: SessionConfig) -> dict[str, Any]:
        setup: dict[str, Any] = {
            "generationConfig": {"responseModalities": ["AUDIO"]},
            "inputAudioTranscription": {},
            "outputAudioTranscription": {},
        }
        if config.model is not None:
            is_full = "/" in config.model
            setup["model"] = config.model if is_full else f"models/{config.model}"
        if config.instructions is not None:
            setup["systemInstruction"] = {"parts": [{"text": config.instructions}]}
        if config.tools:
            declared = [
                tool.model_dump(include={"name", "description", "parameters"})
                for tool in config.tools
            ]
            setup["tools"] = [{"functionDeclarations": declared}]
        return setup | config.extra

    def _tool_result(self, call_id: str, output: str) -> list[Wire]:
        if call_id in self._withdrawn:
            return []
        response = json.loads(output)
        if not isinstance(response, dict):
            response = {"output": response}
        answer = {"id": call_id, "name": self._names.get(call_id, ""), "response": response}
        return [dump({"toolResponse": {"functionResponses": [answer]}})]

    @property
    def next_reply_ns(self) -> None:
        """Nothing waits for a time."""

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return nothing: the protocol asks for no answer of the codec's own."""
        return []

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the message that carries one frame of 16-bit mono PCM."""
        data = base64.b64encode(pcm).decode("ascii")
        return (
            f'{{"realtimeInput":{{"audio":{{"mimeType":"audio/pcm;rate={USER_HZ}",'
            f'"data":"{data}"}}}}}}'
        )

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio in its messages."""
        return "pcm_s16le", "json_base64", "/realtimeInput/audio/data"

    # What the target sends

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message; a breach is a `Fault`, after which nothing comes."""
        return self._intake.take(data, at, self._events)

    def _events(self, data: Wire, at: Instant) -> list[Event]:
        events = self._all_in(parse_object(data, self.limits.max_message_bytes), at)
        is_audio = any(isinstance(event, AudioChunk) for event in events)
        if len(data) > self.limits.max_control_bytes and not is_audio:
            raise LimitExceeded("max_control_bytes")
        return events

    def _all_in(self, message: dict[str, Any], at: Instant) -> list[Event]:
        events: list[Event] = []
        known = 0
        if read.get(message, "setupComplete") is not None:
            known += 1
            if not self._is_ready:
                self._is_ready = True
                events.append(Ready(at=at))
        for name, handler in (
            ("serverContent", self._content),
            ("toolCall", self._tool_calls),
            ("toolCallCancellation", self._withdraw),
            ("voiceActivity", self._activity),
        ):
            if read.get(message, name) is not None:
                known += 1
                events += handler(message, name, at)
        if read.get(message, "usageMetadata") is not None:
            known += 1
            events.append(Usage(at=at, usage=read.mapping(message, "usageMetadata")))
        if read.get(message, "goAway") is not None:
            known += 1
            left = read.get(read.mapping(message, "goAway"), "timeLeft")
            events.append(GoAway(at=at, message=clean(f"time left: {left}", 100)))
        is_known = known or any(read.get(message, name) is not None for name in _IGNORED)
        if not is_known:
            name = clean(" ".join(sorted(message)[:5]), 100)
            events.append(Unknown(at=at, name=name))
        return events

    def _content(self, message: dict[str, Any], name: str, at: Instant) -> list[Event]:
        content = read.mapping(message, name)
        events: list[Event] = []
        if said := read.text(read.mapping(content, "inputTranscription"), "text"):
            events.append(UserTranscript(at=at, text=said))
        if read.get(content, "interrupted") is True:
            self._was_interrupted = True
            events += [Interrupt(at=at), ResponseEnded(at=at, status="cancelled")]
        if said := read.text(read.mapping(content, "outputTranscription"), "text"):
            events.append(TextDelta(at=at, text=said))
        where = f"/{read.key_in(message, name)}/{read.key_in(content, 'modelTurn')}/parts"
        for i, part in enumerate(read.items(read.mapping(content, "modelTurn"), "parts")):
            events += self._part(part, f"{where}/{i}", at)
        if read.get(content, "generationComplete") is True:
            events.append(ResponseAudioEnd(at=at))
        if read.get(content, "turnComplete") is True:
            if not self._was_interrupted:
                events.append(ResponseEnded(at=at, status="completed"))
            self._was_interrupted = False
        return events

    def _part(self, part: dict[str, Any], where: str, at: Instant) -> list[Event]:
        events: list[Event] = []
        spoken = read.text(part, "text")
        if spoken and read.get(part, "thought") is not True:
            events.append(TextDelta(at=at, text=spoken))
        inline = read.mapping(part, "inlineData")
        mime_type = read.text(inline, "mimeType")
        if mime_type.startswith("audio/"):
            data = decode_base64(inline.get("data"), self.limits.max_message_bytes)
            events.append(
                AudioChunk(
                    at=at,
                    rate_hz=read.rate_of(mime_type, AGENT_HZ),
                    transfer="json_base64",
                    locator=f"{where}/{read.key_in(part, 'inlineData')}/data",
                    data=data,
                )
            )
        return events

    def _tool_calls(self, message: dict[str, Any], name: str, at: Instant) -> list[Event]:
        events: list[Event] = []
        for call in read.items(read.mapping(message, name), "functionCalls"):
            call_id, tool = read.text(call, "id"), read.text(call, "name")
            self._names[call_id] = tool
            arguments = json.dumps(read.mapping(call, "args"), allow_nan=False)
            events.append(
                ToolCall(at=at, call_id=call_id, name=clean(tool, 200), arguments=arguments)
            )
        return events

    def _withdraw(self, message: dict[str, Any], name: str, at: Instant) -> list[Event]:
        ids = read.get(read.mapping(message, name), "ids")
        if isinstance(ids, list):
            self._withdrawn |= {call_id for call_id in ids if isinstance(call_id, str)}
        return [Unknown(at=at, name="toolCallCancellation")]

    def _activity(self, message: dict[str, Any], name: str, at: Instant) -> list[Event]:
        kind = read.text(read.mapping(message, name), "voiceActivityType")
        if kind == "ACTIVITY_START":
            return [SpeechStarted(at=at)]
        return [SpeechStopped(at=at)] if kind == "ACTIVITY_END" else []
