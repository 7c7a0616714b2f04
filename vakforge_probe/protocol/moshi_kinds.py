"""Kinds of Moshi's messages: the first byte of each."""

from __future__ import annotations

__all__ = ["AUDIO", "CONTROL", "ERROR", "HANDSHAKE", "METADATA", "PING", "TEXT"]

HANDSHAKE = b"\x00"
"""The server's turn has come for this client."""
AUDIO = b"\x01"
"""The next bytes of one Ogg-Opus stream each way."""
TEXT = b"\x02"
"""A piece of what the agent says, in UTF-8."""
CONTROL = b"\x03"
METADATA = b"\x04"
ERROR = b"\x05"
PING = b"\x06"
