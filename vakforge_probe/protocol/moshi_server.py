"""The server's side of Moshi: one stream of sound that never pauses, and pieces of text."""

from __future__ import annotations

from typing import Any

from vakforge_probe.protocol import moshi_kinds as kinds
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.server import Answers, AudioAppended, ClientEvent

__all__ = ["MoshiServer"]

DECODED_HZ = 48_000


class MoshiServer(Answers):
    """One connection's server codec.

    Parameters
    ----------
    tag
        Goes into every identifier, so that those of two connections differ.
    """

    names_responses = False
    is_continuous = True
    is_manual = False
    interrupts = False
    input_format = ("ogg_opus", DECODED_HZ)
    output_format = ("ogg_opus", DECODED_HZ)

    def __init__(self, *, tag: str = "0") -> None:
        super().__init__(tag)
        self.is_format_fixed = False
        self.tools: list[dict[str, Any]] = []

    # What the client sends

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one message; what is none of the protocol is ignored."""
        if isinstance(data, bytes) and data[:1] == kinds.AUDIO:
            return [AudioAppended(data[1:])]
        return []

    # What the agent sends

    def created(self) -> list[Wire]:
        """Return the handshake."""
        return [kinds.HANDSHAKE]

    def error(self, code: str, text: str) -> list[Wire]:
        """Return what refuses something."""
        return [kinds.ERROR + text.encode()]

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
        """Return the next bytes of the stream."""
        return [kinds.AUDIO + data]

    def response(self) -> _Writer:
        """Return the writer of a new response."""
        return _Writer(self)


class _Writer:
    """Writes one response; see `server.ResponseWriter`."""

    def __init__(self, server: MoshiServer) -> None:
        self._server = server
        self.id = server.new_id("resp")

    def begin(self) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def begin_message(self) -> list[Wire]:
        """Return nothing: it is not told."""
        return []

    def text(self, delta: str) -> list[Wire]:
        """Return a piece of the text."""
        return [kinds.TEXT + delta.encode()]

    def audio(self, data: bytes) -> list[Wire]:
        """Return the next bytes of the stream."""
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
