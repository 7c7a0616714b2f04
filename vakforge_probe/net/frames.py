"""WebSocket frames to whole messages, and where in the byte stream they end."""

from __future__ import annotations

from websockets.frames import Frame, Opcode

__all__ = ["FrameEnds", "MessageParts"]


_LONGER = {126: 2, 127: 8}
"""Values of the short length field that announce a longer one, and its bytes."""


class FrameEnds:
    """Finds where frames end in a stream, by their headers alone."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._n_missing = 0

    def feed(self, data: bytes) -> list[int]:
        """Take the next bytes; return the positions in them at which a frame ends, in order."""
        ends: list[int] = []
        position = 0
        while position < len(data):
            if not self._n_missing:
                n_header = self._header_bytes()
                part = data[position : position + n_header - len(self._header)]
                self._header += part
                position += len(part)
                if len(self._header) < self._header_bytes():
                    continue
                self._n_missing = self._payload_bytes()
                self._header.clear()
            n_taken = min(self._n_missing, len(data) - position)
            position += n_taken
            self._n_missing -= n_taken
            if not self._n_missing:
                ends.append(position)
        return ends

    def _header_bytes(self) -> int:
        """Return the length of the header, as far as its beginning tells."""
        if len(self._header) < 2:
            return 2
        kind = self._header[1]
        return 2 + _LONGER.get(kind & 0x7F, 0) + (4 if kind & 0x80 else 0)

    def _payload_bytes(self) -> int:
        length = self._header[1] & 0x7F
        n_longer = _LONGER.get(length, 0)
        return int.from_bytes(self._header[2 : 2 + n_longer]) if n_longer else length


class MessageParts:
    """Puts the fragments of one message together."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_text = False

    def add(self, frame: Frame) -> str | bytes | None:
        """Take a data frame; return the message if it is complete.

        Raises
        ------
        UnicodeDecodeError
            If a text message is not UTF-8.
        """
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        if frame.fin and not self._data:
            whole = bytes(frame.data)
        else:
            self._data += frame.data
            if not frame.fin:
                return None
            whole = bytes(self._data)
            self._data.clear()
        return whole.decode() if self._is_text else whole
