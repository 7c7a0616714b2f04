"""What a server codec does where its wire format has no word for something."""

from __future__ import annotations

from typing import Any

from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.server import Answers

__all__ = ["PlainServer", "PlainWriter"]


class PlainServer(Answers):
    """A `ServerCodec` that tells nothing; what it hears and how audio goes out is still to be said.

    Parameters
    ----------
    tag
        Goes into every identifier, so that those of two connections differ.
    """

    names_responses = False
    is_continuous = True
    is_manual = False
    interrupts = False

    def __init__(self, *, tag: str = "0") -> None:
        super().__init__(tag)
        self.is_format_fixed = False
        self.tools: list[dict[str, Any]] = []

    def created(self) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def error(self, code: str, text: str) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def speech_stopped(self, audio_end_ms: int, item_id: str) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def committed(self, item_id: str) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def transcript(self, item_id: str, text: str, seconds: float) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return the next audio as it is."""
        return [data]

    def response(self) -> PlainWriter:
        """Return the writer of a new response."""
        return PlainWriter(self)


class PlainWriter:
    """Writes the audio of one response and nothing else; see `server.ResponseWriter`."""

    def __init__(self, server: PlainServer) -> None:
        self._server = server
        self.id = server.new_id("resp")

    def begin(self) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def begin_message(self) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def text(self, delta: str) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def audio(self, data: bytes) -> list[Wire]:
        """Return the next audio of the stream."""
        return self._server.stream_audio(data)

    def end_message(self, status: str = "completed") -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def tool_call(self, call_id: str, name: str, arguments: str) -> list[Wire]:
        """Return nothing: there are no tools."""
        return []

    def end(self, status: str = "completed", reason: str | None = None) -> list[Wire]:
        """Return nothing: it is not told."""
        return []
