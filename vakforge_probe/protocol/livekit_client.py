"""The probe's side of a room of LiveKit's, whose own protocol its SDK speaks.

Audio is what the SDK takes and gives: PCM, which it codes, and decodes out of its jitter buffer.
Messages are those of `net/livekit.py`, which tell what happens in the room.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    ResponseAudioEnd,
    ResponseStarted,
    TextDelta,
    ToolCall,
    Unknown,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import (
    AudioFormat,
    Intent,
    StartSession,
    ToolResult,
    Wire,
)
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.plain_client import PlainClient
from vakforge_probe.protocol.strict import LimitExceeded, StrictError, dump, parse_object
from vakforge_probe.text import clean

__all__ = ["LiveKitClient"]

_CODEC, _RATE_HZ = "pcm_s16le", 48_000
_STATE = "lk.agent.state"
_SEGMENT, _FINAL = "lk.segment_id", "lk.transcription_final"
_TRACK = "lk.transcribed_track_id"
_BUSY = frozenset({"thinking", "speaking"})

Data = dict[str, Any]


class LiveKitClient(PlainClient):
    """A user in a room with an agent; a codec of `ClientCodec`'s shape.

    An agent of LiveKit's framework tells its state and transcripts, and calls tools as RPC methods
    of the user. When it thinks, or speaks without having thought, it has begun a response; when it
    speaks no more, it has sent the audio of one, in whole or until it was interrupted. Text goes
    along with the speech that it transcribes, and so is no witness of an early first token.
    """

    name = "livekit"
    is_experimental = True
    is_ready_at_once = True
    signalling = RoomJoin(_RATE_HZ)

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        # What the SDK sends at once, without a queue of its own, is 10 ms long.
        self.user_audio = AudioFormat(_CODEC, _RATE_HZ, frame_ms=10)
        self.capabilities = Capabilities(transcripts=True, continuous_stream=True, tools=True)
        self._ours: set[str] = set()
        """The names by which transcripts are said to be ours: of participant and track."""
        self._state = ""
        self._read: dict[str, Callable[[Data, Instant], list[Event]]] = {
            "ours": self._on_ours,
            "attributes": self._on_attributes,
            "text": self._on_text,
            "rpc": self._on_rpc,
        }

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`."""
        match intent:
            case StartSession(config) if config.tools:
                names = [tool.name for tool in config.tools]
                return [dump({"type": "tools", "names": names})]
            case ToolResult(call_id, output):
                return [dump({"type": "rpc_result", "id": call_id, "payload": output})]
            case _:
                return []

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return one frame of 16-bit mono PCM as it is."""
        return pcm

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio: the message alone."""
        return _CODEC, "binary", "0"

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one frame or one message; a breach is a `Fault`."""
        return self._intake.take(data, at, self._events)

    def _events(self, data: Wire, at: Instant) -> list[Event]:
        if isinstance(data, bytes):
            return _audio(data, at)
        if len(data) > self.limits.max_control_bytes:
            raise LimitExceeded("max_control_bytes")
        message = parse_object(data, self.limits.max_control_bytes)
        kind = _text(message, "type")
        reader = self._read.get(kind)
        return [Unknown(at=at, name=clean(kind, 100))] if reader is None else reader(message, at)

    def _on_ours(self, message: Data, at: Instant) -> list[Event]:
        self._ours.add(_text(message, "name"))
        return []

    def _on_attributes(self, message: Data, at: Instant) -> list[Event]:
        state = _attributes(message).get(_STATE)
        if not isinstance(state, str):
            return []
        before, self._state = self._state, state
        events: list[Event] = []
        if before == "speaking" != state:
            events.append(ResponseAudioEnd(at=at))
        if state in _BUSY and before not in _BUSY:
            events.append(ResponseStarted(at=at))
        return events

    def _on_text(self, message: Data, at: Instant) -> list[Event]:
        attributes = _attributes(message)
        segment, text = attributes.get(_SEGMENT), _text(message, "text")
        item_id = clean(segment, 200) if isinstance(segment, str) else None
        if self._ours & {_text(message, "identity"), str(attributes.get(_TRACK))}:
            is_final = attributes.get(_FINAL) == "true"
            return [UserTranscript(at=at, text=text, is_final=is_final, item_id=item_id)]
        return [TextDelta(at=at, text=text, item_id=item_id)]

    def _on_rpc(self, message: Data, at: Instant) -> list[Event]:
        call_id, name = _text(message, "id"), clean(_text(message, "method"), 200)
        payload = _text(message, "payload")
        # An RPC carries any text; arguments are JSON.
        try:
            arguments = dump(parse_object(payload, self.limits.max_control_bytes))
        except StrictError:
            arguments = json.dumps(payload)
        return [ToolCall(at=at, call_id=call_id, name=name, arguments=arguments)]


def _audio(data: bytes, at: Instant) -> list[Event]:
    if len(data) % 2:
        raise StrictError("half a sample")
    return [
        AudioChunk(at=at, codec=_CODEC, rate_hz=_RATE_HZ, transfer="binary", locator="0", data=data)
    ]


def _text(message: Data, name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise StrictError(f"{name} is not text")
    return value


def _attributes(message: Data) -> Data:
    value = message.get("attributes")
    if not isinstance(value, dict):
        raise StrictError("attributes is no object")
    return value
