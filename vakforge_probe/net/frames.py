"""WebSocket frames to whole messages, and where in the byte stream they end."""

from __future__ import annotations

from websockets.frames import Frame, Opcode

__all__ = ["FrameTally", "MessageParts"]


class FrameTally:
    """Tells whether the bytes fed so far end exactly where a frame ends.

    It compares the bytes fed with the size of the frames that came out of them. Frames with a
    length field longer than need be are counted too short; the tally then never agrees again, which
    costs tightness but is never wrong.
    """

    def __init__(self, *, is_masked: bool = False) -> None:
        self._mask_bytes = 4 if is_masked else 0
        self._n_pending = 0

    def feed(self, n_bytes: int) -> None:
        """Count bytes that went into the parser."""
        self._n_pending += n_bytes

    def take(self, frame: Frame) -> None:
        """Count a frame that came out of it."""
        n_payload = len(frame.data)
        n_length = 0 if n_payload < 126 else 2 if n_payload < 65536 else 8
        self._n_pending -= 2 + n_length + self._mask_bytes + n_payload

    @property
    def is_at_boundary(self) -> bool:
        """Whether nothing of a further frame has been fed."""
        return self._n_pending == 0


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
