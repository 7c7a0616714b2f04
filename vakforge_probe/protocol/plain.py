"""What a wire format does where it has no word for something: bases for codecs of few words."""

from __future__ import annotations

from typing import Any

from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import Intent, SessionConfig, Wire
from vakforge_probe.protocol.intake import Intake
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.server import Answers
from vakforge_probe.protocol.signalling import Signalling
from vakforge_probe.protocol.twiml import VoiceWebhook

__all__ = ["PlainClient", "PlainServer", "PlainWriter"]


class PlainClient:
    """A `ClientCodec` that says nothing; what it hears, and how audio goes, is still to be said."""

    name = ""
    profile = ""
    is_experimental = False
    is_ready_at_once = False
    subprotocols: tuple[str, ...] = ()
    flush_on: frozenset[str] = frozenset()
    signalling: Signalling | RoomJoin | None = None
    webhook: VoiceWebhook | None = None

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.headers: dict[str, str] = {}
        self._intake = Intake(self.limits)

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url`: it names all that is to be dialled."""
        return url

    def send(self, intent: Intent) -> list[Wire]:
        """Return nothing: there is no message for it."""
        return []

    @property
    def next_reply_ns(self) -> int | None:
        """Nothing waits for a time."""
        return None

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return nothing: the protocol asks for no answer of the codec's own."""
        return []


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
