"""The probe's side of Pipecat's WebSocket: protobuf frames, with RTVI messages inside of them.

The session begins with ``client-ready``, without which some bots stay silent; a bot without RTVI
never answers it, so audio flows at once. An ``interruption`` frame means: drop what is queued.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    AudioChunk,
    Claim,
    Event,
    Interrupt,
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
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import (
    AudioFormat,
    Intent,
    SessionConfig,
    StartSession,
    ToolResult,
    Wire,
)
from vakforge_probe.protocol.intake import Intake
from vakforge_probe.protocol.pipecat_frames import (
    Audio,
    Interruption,
    Message,
    read_frame,
    write_frame,
)
from vakforge_probe.protocol.strict import (
    LimitExceeded,
    StrictError,
    dump,
    parse_object,
)
from vakforge_probe.text import clean

__all__ = ["LABEL", "PipecatClient"]

USER_HZ = 16_000
LABEL = "rtvi-ai"
VERSION = "1.2.0"
MAX_AGENT_HZ = 96_000

Data = dict[str, Any]


class PipecatClient:
    """Codec of `ClientCodec`'s shape."""

    name = "pipecat"
    profile = ""
    is_experimental = False
    is_ready_at_once = True
    webhook: None = None
    subprotocols: tuple[str, ...] = ()

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.headers: dict[str, str] = {}
        self.user_audio = AudioFormat("pcm_s16le", USER_HZ)
        self.flush_on = frozenset({Interrupt.TYPE})
        self.capabilities = Capabilities(
            server_vad_events=True,
            transcripts=True,
            text_before_audio=True,
            explicit_interrupt=True,
            tools=True,
        )
        self._tools: dict[str, tuple[str, Any]] = {}
        self._intake = Intake(self.limits)

    # What the probe sends

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url`: the bot chooses its own models."""
        return url

    def send(self, intent: Intent) -> list[Wire]:
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

    @property
    def next_reply_ns(self) -> None:
        """Nothing waits for a time."""

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return nothing: the protocol asks for no answer of the codec's own."""
        return []

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the message that carries one frame of 16-bit mono PCM."""
        return write_frame(Audio(pcm, USER_HZ))

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio in its messages."""
        n_bytes = 2 * self.user_audio.frame_samples
        begin = len(write_frame(Audio(bytes(n_bytes), USER_HZ))) - n_bytes
        return "pcm_s16le", "binary", str(begin)

    # What the target sends

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message; a breach is a `Fault`, after which nothing comes."""
        return self._intake.take(data, at, self._events)

    def _events(self, data: Wire, at: Instant) -> list[Event]:
        if isinstance(data, str):
            raise StrictError("text where pipecat's serializer has binary frames")
        if len(data) > self.limits.max_message_bytes:
            raise LimitExceeded("max_message_bytes")
        match read_frame(data):
            case Audio() as audio:
                return [self._audio(audio, at)]
            case Interruption():
                return [Interrupt(at=at)]
            case Message(text):
                if len(text) > self.limits.max_control_bytes:
                    raise LimitExceeded("max_control_bytes")
                return self._rtvi(parse_object(text, self.limits.max_message_bytes), at)
            case other:
                return [Unknown(at=at, name=f"frame {other.number}")]

    def _audio(self, audio: Audio, at: Instant) -> Event:
        if audio.channels != 1 or not 0 < audio.rate_hz <= MAX_AGENT_HZ:
            raise StrictError("audio that is not mono at a usable rate")
        data, begin = audio.data, audio.begin
        if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
            # Some bots send each piece as a file of its own, with the usual head.
            data, begin = data[44:], begin + 44
        return AudioChunk(
            at=at,
            rate_hz=audio.rate_hz,
            transfer="binary",
            locator=f"{begin}:{begin + len(data)}",
            data=data,
        )

    def _rtvi(self, message: Data, at: Instant) -> list[Event]:
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


def _message(kind: str, data: Data) -> bytes:
    return write_frame(Message(dump({"label": LABEL, "type": kind, "id": kind, "data": data})))


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
