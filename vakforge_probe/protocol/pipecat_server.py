"""The server's side of Pipecat's WebSocket: protobuf frames, with RTVI messages inside of them."""

from __future__ import annotations

import json
from typing import Any

from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.pipecat_frames import (
    Audio,
    Interruption,
    Message,
    read_frame,
    write_frame,
)
from vakforge_probe.protocol.rtvi import LABEL
from vakforge_probe.protocol.server import (
    Answers,
    AudioAppended,
    ClientEvent,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
)
from vakforge_probe.protocol.strict import StrictError, dump, parse_object

__all__ = ["PipecatServer", "RtviServer"]

AGENT_HZ = 24_000
USER_HZ = 16_000
VERSION = "1.2.0"


class RtviServer(Answers):
    """One connection's server codec: RTVI messages, and audio apart from them.

    Parameters
    ----------
    tag
        Goes into every identifier, so that those of two connections differ.
    """

    names_responses = False
    is_continuous = False
    is_manual = False
    interrupts = False

    def __init__(self, *, tag: str = "0", limits: Limits | None = None) -> None:
        super().__init__(tag)
        self._limits = limits or Limits()
        self.is_format_fixed = False
        self.tools: list[dict[str, Any]] = []

    # What the client sends

    def read(self, message: dict[str, Any]) -> list[ClientEvent]:
        """Return the events in one message."""
        data = message.get("data")
        data = data if isinstance(data, dict) else {}
        match message.get("type"):
            case "client-ready":
                self._replies += self.rtvi("bot-ready", version=VERSION)
                return [SessionUpdated()]
            case "llm-function-call-result":
                output = json.dumps(data.get("result"))
                return [ToolOutput(str(data.get("tool_call_id")), output), ResponseRequested()]
        return []

    # What the agent sends

    def rtvi(self, kind: str, **data: Any) -> list[Wire]:
        """Return one RTVI message."""
        return [dump({"label": LABEL, "type": kind, "data": data})]

    def created(self) -> list[Wire]:
        """Return nothing: the client speaks first."""
        return []

    def error(self, code: str, text: str) -> list[Wire]:
        """Return what refuses something."""
        return self.rtvi("error", message=text, fatal=False)

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return what tells that the user began."""
        return self.rtvi("user-started-speaking")

    def speech_stopped(self, audio_end_ms: int, item_id: str) -> list[Wire]:
        """Return what tells that the user ended."""
        return self.rtvi("user-stopped-speaking")

    def committed(self, item_id: str) -> list[Wire]:
        """Return what tells that the user's turn is closed."""
        return self.rtvi("user-llm-text", text="")

    def transcript(self, item_id: str, text: str, seconds: float) -> list[Wire]:
        """Return the final transcript of the user's turn."""
        return self.rtvi("user-transcription", text=text, final=True)

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return audio that belongs to no response."""
        return [data]

    def response(self) -> _Writer:
        """Return the writer of a new response."""
        return _Writer(self)


class _Writer:
    """Writes one response; see `server.ResponseWriter`."""

    def __init__(self, server: RtviServer) -> None:
        self._server = server
        self._is_speech_open = False
        self.id = server.new_id("resp")

    def begin(self) -> list[Wire]:
        """Return what announces the response."""
        return self._server.rtvi("bot-llm-started")

    def begin_message(self) -> list[Wire]:
        """Return what announces its speech."""
        self._is_speech_open = True
        return self._server.rtvi("bot-tts-started")

    def text(self, delta: str) -> list[Wire]:
        """Return a piece of the text."""
        return self._server.rtvi("bot-llm-text", text=delta)

    def audio(self, data: bytes) -> list[Wire]:
        """Return a piece of audio."""
        return self._server.stream_audio(data)

    def end_message(self, status: str = "completed") -> list[Wire]:
        """Return what closes the speech."""
        is_open, self._is_speech_open = self._is_speech_open, False
        return self._server.rtvi("bot-tts-stopped") if is_open else []

    def tool_call(self, call_id: str, name: str, arguments: str) -> list[Wire]:
        """Return a whole call of a tool."""
        call = {"function_name": name, "tool_call_id": call_id, "args": json.loads(arguments)}
        return self._server.rtvi("llm-function-call", **call)

    def end(self, status: str = "completed", reason: str | None = None) -> list[Wire]:
        """Return the end of the speech: that of a response is not told apart from it."""
        return self.end_message() if status == "completed" else []


class PipecatServer(RtviServer):
    """Pipecat's WebSocket: all in protobuf frames."""

    interrupts = True
    input_format = ("pcm_s16le", USER_HZ)
    output_format = ("pcm_s16le", AGENT_HZ)

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one message; what is none of the protocol is ignored."""
        if isinstance(data, str):
            return []
        try:
            match read_frame(data):
                case Audio(pcm, rate_hz) if rate_hz == USER_HZ:
                    return [AudioAppended(pcm)]
                case Message(text):
                    return self.read(parse_object(text, self._limits.max_message_bytes))
        except StrictError:
            pass
        return []

    def rtvi(self, kind: str, **data: Any) -> list[Wire]:
        """Return one RTVI message."""
        return [write_frame(Message(str(text))) for text in super().rtvi(kind, **data)]

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return what tells that the user began; such bots interrupt whether they talk or not."""
        told = super().speech_started(audio_start_ms, item_id, is_interruption=is_interruption)
        return [write_frame(Interruption()), *told]

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return audio that belongs to no response."""
        return [write_frame(Audio(data, AGENT_HZ))]
