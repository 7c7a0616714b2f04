"""What the agent does wrong on purpose: one fault a connection, once."""

from __future__ import annotations

import base64
from collections.abc import Callable

from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer
from vakforge_probe.protocol.strict import dump

__all__ = ["FAULTS"]

OVERSIZE_BYTES = 24 * 1024 * 1024
"""More than any client should take in one message."""
FLOOD_S = 120
N_JUNK = 20

_DELTA = "response.output_audio.delta"


def _malformed(server: OpenAIRealtimeServer) -> list[Wire]:
    return [f'{{"type":"{_DELTA}","delta":"AAAA"']


def _nan(server: OpenAIRealtimeServer) -> list[Wire]:
    offset = "input_audio_buffer.speech_started"
    return [f'{{"type":"{offset}","event_id":"e","item_id":"i","audio_start_ms":NaN}}']


def _invalid_base64(server: OpenAIRealtimeServer) -> list[Wire]:
    return [dump({"type": _DELTA, "event_id": "e", "delta": "@@not base64@@"})]


def _oversize(server: OpenAIRealtimeServer) -> list[Wire]:
    return [dump({"type": _DELTA, "event_id": "e", "delta": "A" * OVERSIZE_BYTES})]


def _flood(server: OpenAIRealtimeServer) -> list[Wire]:
    second = base64.b64encode(bytes(48000)).decode("ascii")
    return [server.messages(_DELTA, delta=second)[0] for _ in range(FLOOD_S)]


def _junk(server: OpenAIRealtimeServer) -> list[Wire]:
    return [
        dump({"type": f"vendor.note.{i}", "value": {"n": [i, None, "…"]}}) for i in range(N_JUNK)
    ]


def _error_event(server: OpenAIRealtimeServer) -> list[Wire]:
    return server.error("server_error", "The server had an error while processing your request.")


FAULTS: dict[str, Callable[[OpenAIRealtimeServer], list[Wire]]] = {
    "malformed_json": _malformed,
    "nan_json": _nan,
    "invalid_base64": _invalid_base64,
    "oversize": _oversize,
    "flood": _flood,
    "junk": _junk,
    "error_event": _error_event,
}
"""Messages of each fault; ``odd_audio`` is made where replies are made."""
