"""RTVI messages, which Pipecat's bots and their clients exchange beside the audio."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from vakforge_eval.timeline.events import (
    Claim,
    Event,
    ResponseAudioEnd,
    ResponseStarted,
    ServerError,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    ToolCall,
    TurnCommitted,
    Unknown,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.protocol.base import Intent, StartSession, ToolResult
from vakforge_probe.protocol.strict import StrictError, dump
from vakforge_probe.text import clean

__all__ = ["LABEL", "RtviClient"]

LABEL = "rtvi-ai"
VERSION = "1.2.0"

Data = dict[str, Any]


class RtviClient:
    """The client's side of a session.

    It begins with ``client-ready``, without which some bots stay silent; a bot without RTVI never
    answers it, so audio flows at once.
    """

    def __init__(self) -> None:
        self._tools: dict[str, tuple[str, Any]] = {}

    def send(self, intent: Intent) -> list[str]:
        """Return the messages that carry out `intent`."""
        match intent:
            case StartSession():
                about = {"library": "vakforge-probe"}
                return [_message("client-ready", {"version": VERSION, "about": about})]
            case ToolResult(call_id, output):
                name, arguments = self._tools.get(call_id, ("", {}))
                answer = {
                    "function_name": name,
                    "tool_call_id": call_id,
                    "arguments": arguments,
                    "result": json.loads(output),
                }
                return [_message("llm-function-call-result", answer)]
            case _:
                return []

    def read(self, message: Data, at: Instant) -> list[Event]:
        """Return the events in one message.

        Raises
        ------
        StrictError
            If it is not of RTVI's form.
        """
        kind, data = message.get("type"), message.get("data")
        data = data if isinstance(data, dict) else {}
        if not isinstance(kind, str):
            raise StrictError("message has no type")
        if message.get("label") != LABEL:
            return [Unknown(at=at, name=clean(kind, 100))]
        if kind == "llm-function-call":
            return self._tool_call(data, at)
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(data, at)
        return [] if kind in _IGNORED else [Unknown(at=at, name=clean(kind, 100))]

    def _tool_call(self, data: Data, at: Instant) -> list[Event]:
        call_id, name = _text(data, "tool_call_id"), _text(data, "function_name")
        arguments = data.get("args", {})
        self._tools[call_id] = (name, arguments)
        text = json.dumps(arguments, allow_nan=False)
        return [ToolCall(at=at, call_id=call_id, name=clean(name, 200), arguments=text)]


def _message(kind: str, data: Data) -> str:
    return dump({"label": LABEL, "type": kind, "id": kind, "data": data})


def _text(data: Data, name: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise StrictError(f"{name} is not text")
    return value


def _transcript(data: Data, at: Instant) -> list[Event]:
    is_final = data.get("final") is True
    return [UserTranscript(at=at, text=_text(data, "text"), is_final=is_final)]


def _metrics(data: Data, at: Instant) -> list[Event]:
    """Return what the bot says of its own times to first byte, by processor."""
    claims: list[Event] = []
    ttfb = data.get("ttfb")
    for item in ttfb if isinstance(ttfb, list) else []:
        if not isinstance(item, dict):
            continue
        value, processor = item.get("value"), item.get("processor")
        if isinstance(value, int | float) and not isinstance(value, bool):
            name = clean(f"ttfb {processor}", 100)
            claims.append(Claim(at=at, name=name, value_s=float(value)))
    return claims


_Reader = Callable[[Data, Instant], list[Event]]
_READERS: dict[str, _Reader] = {
    "user-started-speaking": lambda d, at: [SpeechStarted(at=at)],
    "user-stopped-speaking": lambda d, at: [SpeechStopped(at=at)],
    "user-transcription": _transcript,
    "user-llm-text": lambda d, at: [TurnCommitted(at=at)],
    "bot-llm-started": lambda d, at: [ResponseStarted(at=at)],
    "bot-llm-text": lambda d, at: [TextDelta(at=at, text=_text(d, "text"))],
    "bot-tts-stopped": lambda d, at: [ResponseAudioEnd(at=at)],
    "metrics": _metrics,
    "error": lambda d, at: [ServerError(at=at, message=clean(str(d.get("message", "")), 500))],
}
_IGNORED = frozenset(
    {
        "bot-ready",
        "bot-llm-stopped",
        "bot-tts-started",
        "bot-tts-text",
        "bot-started-speaking",
        "bot-stopped-speaking",
        "bot-interrupted",
        "bot-transcription",
        "bot-output",
        "vad-user-started-speaking",
        "vad-user-stopped-speaking",
        "llm-function-call-started",
        "llm-function-call-in-progress",
        "llm-function-call-stopped",
    }
)
"""Told twice, or of no use to a caller."""
