"""Which protocol a message looks like, to tell somebody who chose another one."""

from __future__ import annotations

import itertools

from vakforge_probe.protocol import gemini_fields, moshi_kinds
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.declared import ServerMessage, shipped_profiles
from vakforge_probe.protocol.openai_names import GA_OF_BETA
from vakforge_probe.protocol.pipecat_frames import Audio, Message, read_frame
from vakforge_probe.protocol.rtvi import LABEL
from vakforge_probe.protocol.strict import StrictError, parse_object

__all__ = ["MAX_RECOGNISED_BYTES", "looks_like"]

MAX_RECOGNISED_BYTES = 64 * 1024
_OPENAI = frozenset({*GA_OF_BETA, *GA_OF_BETA.values(), "session.created", "session.updated"})
_GEMINI = ("setupComplete", "serverContent", "toolCall")
_TELLING: tuple[ServerMessage, ...] = (
    "hello",
    "ready",
    "interrupt",
    "speech_started",
    "response_started",
)
"""What no other protocol says in the same words."""


def looks_like(data: Wire) -> str | None:
    """Return the name of the protocol in which a server says `data`; None if none is known."""
    if len(data) > MAX_RECOGNISED_BYTES:
        return None
    try:
        message = parse_object(data, MAX_RECOGNISED_BYTES)
    except StrictError:
        return _of_bytes(data) if isinstance(data, bytes) else None
    kind = message.get("type")
    if isinstance(kind, str) and kind in _OPENAI:
        return "openai-realtime"
    if any(gemini_fields.get(message, name) is not None for name in _GEMINI):
        return "gemini-live"
    best, found = 0, None
    for profile in shipped_profiles().values():
        told = (profile.server_templates.get(name, ()) for name in _TELLING)
        for shape in (*profile.audio_templates, *itertools.chain.from_iterable(told)):
            # Of two that fit, the one of which more is there.
            if (fit := shape.fit(message)) > best:
                best, found = fit, profile.name
    return found


def _of_bytes(data: bytes) -> str | None:
    if data.startswith(moshi_kinds.AUDIO + b"OggS"):
        return "moshi"
    return "pipecat" if _is_frame(data) else None


def _is_frame(data: bytes) -> bool:
    try:
        frame = read_frame(data)
    except StrictError:
        return False
    if isinstance(frame, Message):
        return LABEL in frame.text
    return isinstance(frame, Audio) and frame.rate_hz > 0
