"""The server's side of a declared protocol: the reference agent speaks it by the same shapes."""

from __future__ import annotations

import base64
import json
from typing import Any

from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.declared import OPUS_HZ, Profile, ServerMessage
from vakforge_probe.protocol.server import (
    Answers,
    AudioAppended,
    AudioCommitted,
    CancelRequested,
    ClientEvent,
    HungUp,
    KeyPressed,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
    TruncateRequested,
)
from vakforge_probe.protocol.strict import StrictError, decode_base64, dump, parse_object
from vakforge_probe.protocol.template import Template

__all__ = ["DeclaredServer"]

_WIDTHS = {"pcm_s16le": 2, "float32le": 4, "pcmu": 1, "pcma": 1}
"""Bytes of one sample, apart from the scoring core: the agent must not rest on it."""
MAX_EARLY = 10
"""Frames that are waited with for one that is late; then it counts as lost."""
_KEPT: tuple[str, ...] = ("stream", "call", "tools", "model")
"""What the client says at the start and is repeated later."""


class DeclaredServer(Answers):
    """One connection's server codec.

    Parameters
    ----------
    tag
        Goes into every identifier, so that those of two connections differ.
    """

    is_manual = False

    def __init__(self, profile: Profile, *, tag: str = "0", limits: Limits | None = None) -> None:
        super().__init__(tag)
        self._p = profile
        self._limits = limits or Limits()
        self._call: dict[str, Any] = {
            name: f"{name}_{tag}" for name in ("stream", "call", "account")
        }
        self._call |= {"seq": 0, "model": "reference"}
        self._order = 0
        self._n_heard = self._n_said = 0
        self._early: dict[int, bytes] = {}
        self._next_chunk = 1
        self.is_format_fixed = False
        self.names_responses = profile.names_responses
        self.is_continuous = profile.is_continuous

    @property
    def input_format(self) -> tuple[str, int]:
        """(codec, rate in Hz) of the user's audio."""
        user = self._p.user_audio
        # Opus may be coded from any rate, and is decoded to one.
        return user.codec, OPUS_HZ if user.codec == "ogg_opus" else user.rate_hz

    @property
    def output_format(self) -> tuple[str, int]:
        """(codec, rate in Hz) of the agent's audio."""
        return self._p.agent_audio.codec, self._p.agent_audio.rate_hz

    @property
    def interrupts(self) -> bool:
        """Whether `speech_started` makes clients drop what they hold."""
        return any(name in self._p.server for name in self._p.flush_on)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Tools that the client offers, if the protocol can call them."""
        offered = self._call.get("tools")
        return offered if isinstance(offered, list) and "tool_call" in self._p.server else []

    # What the client sends

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one message; what is none of the protocol is ignored."""
        try:
            return self._events(data)
        except StrictError as error:
            self._replies += self.error("invalid_message", error.what)
            return []

    def _events(self, data: Wire) -> list[ClientEvent]:
        template = self._p.user_template
        if template is None and isinstance(data, bytes):
            return self._appended(data)
        message = parse_object(data, self._limits.max_message_bytes)
        if template is not None and (values := template.read(message)) is not None:
            audio = decode_base64(values["audio"], self._limits.max_message_bytes)
            is_sorted = not self._p.user_audio.is_unordered
            return self._appended(audio) if is_sorted else self._sorted(values.get("chunk"), audio)
        for name, templates in self._p.client_templates.items():
            for i, shape in enumerate(templates):
                values = shape.glean(message)
                if values is not None:
                    return self._understood(name, values, is_last=i == len(templates) - 1)
        return []

    def _sorted(self, chunk: object, data: bytes) -> list[ClientEvent]:
        """Take a numbered frame; return those that are next in order, as far as they have come."""
        text = str(chunk)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if number < self._next_chunk:
            return []
        self._early[number] = data
        if len(self._early) > MAX_EARLY:
            self._next_chunk = min(self._early)
        events: list[ClientEvent] = []
        while self._next_chunk in self._early:
            events += self._appended(self._early.pop(self._next_chunk))
            self._next_chunk += 1
        return events

    def _appended(self, data: bytes) -> list[ClientEvent]:
        self._n_heard += len(data)
        return [AudioAppended(data)]

    def _understood(self, name: str, values: dict[str, Any], *, is_last: bool) -> list[ClientEvent]:
        match name:
            case "start":
                self._call |= {key: values[key] for key in _KEPT if key in values}
                if not is_last:
                    return []
                self._replies += self._messages("ready")
                return [SessionUpdated()]
            case "tool_result":
                output = ToolOutput(str(values.get("call_id")), str(values.get("output")))
                return [output, ResponseRequested()]
            case "truncate":
                ms = values.get("ms")
                if not isinstance(ms, int | float):
                    return []
                return [TruncateRequested(str(values.get("item")), ms)]
            case "cancel":
                response = values.get("response")
                return [CancelRequested(response if isinstance(response, str) else None)]
            case "commit":
                return [AudioCommitted()]
            case "dtmf":
                return [KeyPressed(str(values.get("key")))]
            case "hang_up":
                return [HungUp()]
        return []

    # What the agent sends

    def _messages(self, name: ServerMessage, /, **values: Any) -> list[Wire]:
        templates = self._p.server_templates.get(name)
        if not templates:
            return []
        if "seq" in templates[0].holes:
            self._call["seq"] += 1
        return [dump(self._built(templates[0], values))]

    def _built(self, template: Template, values: dict[str, Any]) -> Any:
        if "event" in template.holes:
            values["event"] = self.new_id("event")
        return template.build({**self._call, **values})

    def created(self) -> list[Wire]:
        """Return what the server says before the client has said anything."""
        return self._messages("hello")

    def error(self, code: str, text: str) -> list[Wire]:
        """Return what refuses something."""
        return self._messages("error", code=code, message=text)

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return what tells that the user began; what makes clients drop audio goes first.

        On the telephone bots give that order whenever a user begins, whether they talk or not.
        """
        told = self._messages("speech_started", offset_ms=audio_start_ms, item=item_id)
        if not is_interruption and "mark" not in self._p.server:
            return told
        return self._messages("interrupt", response=None, order=self._order) + told

    def speech_stopped(self, audio_end_ms: int, item_id: str) -> list[Wire]:
        """Return what tells that the user ended."""
        return self._messages("speech_stopped", offset_ms=audio_end_ms, item=item_id)

    def committed(self, item_id: str) -> list[Wire]:
        """Return what tells that the user's turn is closed."""
        return self._messages("turn_committed", item=item_id)

    def transcript(self, item_id: str, text: str, seconds: float) -> list[Wire]:
        """Return the transcript of the user's turn, as a part of it where none is called final."""
        end = _ms(self._n_heard, self.input_format)
        span = {"start_ms": max(0, end - round(seconds * 1000)), "end_ms": end}
        name: ServerMessage = "user_final" if "user_final" in self._p.server else "user_partial"
        return self._messages(name, text=text, item=item_id, **span)

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return coded audio that belongs to no response."""
        return self._audio(data, None)

    def _text(self, **values: Any) -> list[Wire]:
        # How long it takes to say is not known here: it is told for the instant when it begins.
        now = _ms(self._n_said, self.output_format)
        return self._messages("text", start_ms=now, end_ms=now, **values)

    def _audio(self, data: bytes, response: str | None) -> list[Wire]:
        self._n_said += len(data)
        self._order += 1
        if not self._p.audio_templates:
            return [data]
        audio = base64.b64encode(data).decode("ascii")
        values = {"audio": audio, "response": response, "item": response, "order": self._order}
        return [dump(self._built(self._p.audio_templates[0], values))]

    def response(self) -> _Writer:
        """Return the writer of a new response."""
        return _Writer(self, self.new_id("resp"))


def _ms(n_bytes: int, audio: tuple[str, int]) -> int:
    codec, rate_hz = audio
    if codec not in _WIDTHS:
        return 0  # the bytes do not tell
    return n_bytes * 1000 // (_WIDTHS[codec] * rate_hz)


class _Writer:
    """Writes one response; see `server.ResponseWriter`."""

    def __init__(self, server: DeclaredServer, name: str) -> None:
        self._server = server
        self.id = name
        self._facts = {"response": name, "item": name}
        self._is_speech_open = False

    def begin(self) -> list[Wire]:
        """Return what announces the response."""
        return self._server._messages("response_started", **self._facts)

    def begin_message(self) -> list[Wire]:
        """Announce nothing: the first audio does."""
        self._is_speech_open = True
        return []

    def text(self, delta: str) -> list[Wire]:
        """Return a piece of the transcript of the agent's speech."""
        return self._server._text(text=delta, **self._facts)

    def audio(self, data: bytes) -> list[Wire]:
        """Return a piece of coded audio."""
        return self._server._audio(data, self.id)

    def end_message(self, status: str = "completed") -> list[Wire]:
        """Return what closes the speech: its end, and a mark behind it."""
        if not self._is_speech_open:
            return []
        self._is_speech_open = False
        ended = self._server._messages("audio_end", **self._facts)
        return ended + (
            self._server._messages("mark", mark=self.id) if status == "completed" else []
        )

    def tool_call(self, call_id: str, name: str, arguments: str) -> list[Wire]:
        """Return a whole call of a tool."""
        call = {"call_id": call_id, "name": name, "response": self.id}
        parameters = json.loads(arguments)
        return self._server._messages(
            "tool_call", arguments=arguments, parameters=parameters, **call
        )

    def end(self, status: str = "completed", reason: str | None = None) -> list[Wire]:
        """Return the end of the response; nothing where the protocol does not tell it."""
        closing = self.end_message("completed" if status == "completed" else "incomplete")
        name: ServerMessage = "response_ended" if status == "completed" else "cancelled"
        return closing + self._server._messages(name, **self._facts)
