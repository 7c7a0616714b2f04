"""The server's side of Gemini Live: JSON in binary messages."""

from __future__ import annotations

import base64
import json
from typing import Any

from vakforge_probe.limits import Limits
from vakforge_probe.protocol import gemini_fields as read
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.server import (
    Answers,
    AudioAppended,
    AudioCommitted,
    ClientEvent,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
)
from vakforge_probe.protocol.strict import StrictError, decode_base64, dump, parse_object

__all__ = ["GeminiLiveServer"]

AGENT_HZ = 24_000
USER_HZ = 16_000
_FROM_URLS = str.maketrans("-_", "+/")


class GeminiLiveServer(Answers):
    """One connection's server codec.

    Parameters
    ----------
    tag
        Goes into every identifier, so that those of two connections differ.
    """

    names_responses = False
    is_continuous = False
    interrupts = True
    input_format = ("pcm_s16le", USER_HZ)
    output_format = ("pcm_s16le", AGENT_HZ)

    def __init__(self, *, tag: str = "0", limits: Limits | None = None) -> None:
        super().__init__(tag)
        self._limits = limits or Limits()
        self.is_format_fixed = False
        self.is_manual = False
        self.tools: list[dict[str, Any]] = []

    # What the client sends

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one message; what is none of the protocol is ignored."""
        try:
            message = parse_object(data, self._limits.max_message_bytes)
            return [
                *self._setup(message),
                *self._input(read.mapping(message, "realtimeInput")),
                *self._tool_response(read.mapping(message, "toolResponse")),
            ]
        except StrictError:
            return []

    def _setup(self, message: dict[str, Any]) -> list[ClientEvent]:
        if read.get(message, "setup") is None:
            return []
        setup = read.mapping(message, "setup")
        self.tools = [
            declared
            for tool in read.items(setup, "tools")
            for declared in read.items(tool, "functionDeclarations")
        ]
        detection = read.mapping(
            read.mapping(setup, "realtimeInputConfig"), "automaticActivityDetection"
        )
        self.is_manual = read.get(detection, "disabled") is True
        self._replies += self.message(setupComplete={})
        return [SessionUpdated()]

    def _input(self, given: dict[str, Any]) -> list[ClientEvent]:
        parts = [read.mapping(given, "audio"), *read.items(given, "mediaChunks")]
        events: list[ClientEvent] = [
            AudioAppended(self._decoded(part["data"])) for part in parts if "data" in part
        ]
        return events + ([AudioCommitted()] if read.get(given, "activityEnd") is not None else [])

    def _decoded(self, text: object) -> bytes:
        # In this protocol's JSON both alphabets are right; the official client uses that of URLs.
        if isinstance(text, str):
            text = text.translate(_FROM_URLS)
        return decode_base64(text, self._limits.max_message_bytes)

    def _tool_response(self, given: dict[str, Any]) -> list[ClientEvent]:
        answers = read.items(given, "functionResponses")
        outputs: list[ClientEvent] = [
            ToolOutput(read.text(answer, "id"), json.dumps(read.mapping(answer, "response")))
            for answer in answers
        ]
        return [*outputs, ResponseRequested()] if outputs else []

    # What the agent sends

    def message(self, **fields: Any) -> list[Wire]:
        """Return one message with these fields."""
        return [dump(fields).encode("utf-8")]

    def content(self, **fields: Any) -> list[Wire]:
        """Return one message of content."""
        return self.message(serverContent=fields)

    def created(self) -> list[Wire]:
        """Return nothing: the client speaks first."""
        return []

    def error(self, code: str, text: str) -> list[Wire]:
        """Return nothing: errors are told by closing."""
        return []

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return the interruption, if it is one; the user's speech is not told otherwise."""
        return self.content(interrupted=True) if is_interruption else []

    def speech_stopped(self, audio_end_ms: int, item_id: str) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def committed(self, item_id: str) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def transcript(self, item_id: str, text: str, seconds: float) -> list[Wire]:
        """Return the transcript of the user's turn."""
        return self.content(inputTranscription={"text": text})

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return coded audio that belongs to no response."""
        return self.content(modelTurn=_audio(data))

    def response(self) -> _Writer:
        """Return the writer of a new response."""
        return _Writer(self)


def _audio(data: bytes) -> dict[str, Any]:
    inline = {"mimeType": f"audio/pcm;rate={AGENT_HZ}", "data": base64.b64encode(data).decode()}
    return {"parts": [{"inlineData": inline}]}


class _Writer:
    """Writes one response; see `server.ResponseWriter`."""

    def __init__(self, server: GeminiLiveServer) -> None:
        self._server = server
        self.id = server.new_id("turn")

    def begin(self) -> list[Wire]:
        """Return nothing: the first of its content announces it."""
        return []

    def begin_message(self) -> list[Wire]:
        """Return nothing: the first of its content announces it."""
        return []

    def text(self, delta: str) -> list[Wire]:
        """Return a piece of the transcript of the agent's speech."""
        return self._server.content(outputTranscription={"text": delta})

    def audio(self, data: bytes) -> list[Wire]:
        """Return a piece of coded audio."""
        return self._server.content(modelTurn=_audio(data))

    def end_message(self, status: str = "completed") -> list[Wire]:
        """Return nothing: the end of the response tells it."""
        return []

    def tool_call(self, call_id: str, name: str, arguments: str) -> list[Wire]:
        """Return a whole call of a tool."""
        call = {"id": call_id, "name": name, "args": json.loads(arguments)}
        return self._server.message(toolCall={"functionCalls": [call]})

    def end(self, status: str = "completed", reason: str | None = None) -> list[Wire]:
        """Return the end of the response; after an interruption nothing was generated whole."""
        if status != "completed":
            return self._server.content(turnComplete=True)
        usage = {"promptTokenCount": 0, "responseTokenCount": 0, "totalTokenCount": 0}
        done = self._server.content(generationComplete=True)
        return done + self._server.message(
            serverContent={"turnComplete": True}, usageMetadata=usage
        )
