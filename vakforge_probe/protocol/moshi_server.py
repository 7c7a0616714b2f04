"""The server's side of Moshi: one stream of sound that never pauses, and pieces of text."""

from __future__ import annotations

from vakforge_probe.protocol import moshi_kinds as kinds
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.plain_server import PlainServer, PlainWriter
from vakforge_probe.protocol.server import AudioAppended, ClientEvent

__all__ = ["MoshiServer"]

DECODED_HZ = 48_000


class MoshiServer(PlainServer):
    """One connection's server codec."""

    input_format = ("ogg_opus", DECODED_HZ)
    output_format = ("ogg_opus", DECODED_HZ)

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one message; what is none of the protocol is ignored."""
        if isinstance(data, bytes) and data[:1] == kinds.AUDIO:
            return [AudioAppended(data[1:])]
        return []

    def created(self) -> list[Wire]:
        """Return the handshake."""
        return [kinds.HANDSHAKE]

    def error(self, code: str, text: str) -> list[Wire]:
        """Return what refuses something."""
        return [kinds.ERROR + text.encode()]

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return the next bytes of the stream."""
        return [kinds.AUDIO + data]

    def response(self) -> _Writer:
        """Return the writer of a new response."""
        return _Writer(self)


class _Writer(PlainWriter):
    """Writes one response; see `server.ResponseWriter`."""

    def text(self, delta: str) -> list[Wire]:
        """Return a piece of the text."""
        return [kinds.TEXT + delta.encode()]
