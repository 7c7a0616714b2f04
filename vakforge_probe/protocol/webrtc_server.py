"""The server's side of protocols over WebRTC: a binary message is a packet of Opus."""

from __future__ import annotations

from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.openai_response import OpenAIResponseWriter
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer
from vakforge_probe.protocol.pipecat_server import RtviServer
from vakforge_probe.protocol.plain_server import PlainServer, PlainWriter
from vakforge_probe.protocol.rtp import CODEC, RATE_HZ
from vakforge_probe.protocol.server import AudioAppended, ClientEvent
from vakforge_probe.protocol.strict import StrictError, dump, parse_object

__all__ = ["FastRtcServer", "OpenAICallServer", "SmallWebRtcServer", "WhipServer"]

_LINE = (CODEC, RATE_HZ)


class WhipServer(PlainServer):
    """A line without messages."""

    input_format = output_format = _LINE

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the event of a packet; there is nothing else to say."""
        return [AudioAppended(data)] if isinstance(data, bytes) else []


class FastRtcServer(WhipServer):
    """fastrtc: what its handler notices is logged."""

    def log(self, what: str) -> list[Wire]:
        """Return what tells of something that was noticed."""
        return [dump({"type": "log", "data": what})]

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return what tells that the user began."""
        return self.log("started_talking")

    def committed(self, item_id: str) -> list[Wire]:
        """Return what tells that the user's turn is closed."""
        return self.log("pause_detected")

    def response(self) -> _LogWriter:
        """Return the writer of a new response."""
        return _LogWriter(self)


class _LogWriter(PlainWriter):
    """Tells that a response begins, and nothing else of it."""

    def __init__(self, server: FastRtcServer) -> None:
        super().__init__(server)
        self._log = server.log

    def begin(self) -> list[Wire]:
        """Return what announces the response."""
        return self._log("response_starting")


class SmallWebRtcServer(RtviServer):
    """Pipecat's SmallWebRTC: RTVI messages beside the audio."""

    is_continuous = True
    input_format = output_format = _LINE

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one packet or message; pings are heard and not answered."""
        if isinstance(data, bytes):
            return [AudioAppended(data)]
        try:
            return self.read(parse_object(data, self._limits.max_message_bytes))
        except StrictError:
            return []


class OpenAICallServer(OpenAIRealtimeServer):
    """OpenAI Realtime as a WebRTC call: the same messages, without audio in them."""

    names_responses = False
    is_continuous = True
    interrupts = False
    input_format = output_format = _LINE

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one packet or message."""
        return [AudioAppended(data)] if isinstance(data, bytes) else super().receive(data)

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return the next packet of the line."""
        return [data]

    def response(self) -> OpenAIResponseWriter:
        """Return the writer of a new response."""
        return _CallWriter(self, self.take_metadata())


class _CallWriter(OpenAIResponseWriter):
    """Also tells when the line begins and ends to sound, as the server that mixes it does."""

    _is_sounding = False

    def begin_message(self) -> list[Wire]:
        """Return what announces the speech."""
        self._is_sounding = True
        told = self._server.messages("output_audio_buffer.started", response_id=self.id)
        return [*super().begin_message(), *told]

    def audio(self, data: bytes) -> list[Wire]:
        """Return the next packet of the line."""
        return [data]

    def end(self, status: str = "completed", reason: str | None = None) -> list[Wire]:
        """Return the end of the response."""
        if not self._is_sounding:
            return super().end(status, reason)
        what = "stopped" if status == "completed" else "cleared"
        told = self._server.messages(f"output_audio_buffer.{what}", response_id=self.id)
        return [*told, *super().end(status, reason)]
