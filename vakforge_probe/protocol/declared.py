"""Protocols that are declared and not coded: JSON messages with holes and audio beside or in them.

A profile says by shapes (see `template`) what either side sends. The same shapes serve the probe,
which builds the client's and reads the server's, and the reference agent, which does it the other
way round; of several shapes under one name the first is built and all are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from vakforge_eval.timeline.events import Interrupt, SpeechStarted
from vakforge_eval.timeline.faults import first_fault
from vakforge_probe.errors import ConfigError
from vakforge_probe.protocol.template import Template
from vakforge_probe.text import nearest

__all__ = ["ClientMessage", "Profile", "ServerMessage", "load_profile", "shipped_profiles"]

MAX_PROFILE_BYTES = 256 * 1024

ClientMessage = Literal[
    "start", "hang_up", "tool_result", "truncate", "cancel", "commit", "played", "cleared", "dtmf"
]
ServerMessage = Literal[
    "hello",
    "ready",
    "speech_started",
    "speech_stopped",
    "turn_committed",
    "user_partial",
    "user_final",
    "response_started",
    "text",
    "audio_end",
    "response_ended",
    "cancelled",
    "interrupt",
    "tool_call",
    "claim",
    "error",
    "go_away",
    "mark",
]

_OF_CALL = frozenset({"stream", "call", "account", "seq", "event", "model", "instructions",
                      "tools", "parameters"})  # fmt: skip
_SPAN = frozenset({"start_ms", "end_ms"})
_CLIENT_HOLES: dict[str, frozenset[str]] = {
    "start": frozenset({"codec", "rate_hz", "agent_codec", "agent_rate_hz"}),
    "hang_up": frozenset(),
    "tool_result": frozenset({"call_id", "name", "output"}),
    "truncate": frozenset({"item", "ms"}),
    "cancel": frozenset({"response"}),
    "commit": frozenset(),
    "played": frozenset({"mark"}),
    "cleared": frozenset(),
    "dtmf": frozenset({"key", "ts_ms"}),
}
_SERVER_HOLES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "hello": (frozenset(), frozenset()),
    "ready": (frozenset(), frozenset()),
    "speech_started": (frozenset(), frozenset({"offset_ms", "item"})),
    "speech_stopped": (frozenset(), frozenset({"offset_ms", "item"})),
    "turn_committed": (frozenset(), frozenset({"item"})),
    "user_partial": (frozenset({"text"}), frozenset({"item"}) | _SPAN),
    "user_final": (frozenset({"text"}), frozenset({"item"}) | _SPAN),
    "response_started": (frozenset(), frozenset({"response"})),
    "text": (frozenset({"text"}), frozenset({"response", "item"}) | _SPAN),
    "audio_end": (frozenset(), frozenset({"response", "item"})),
    "response_ended": (frozenset(), frozenset({"response"})),
    "cancelled": (frozenset(), frozenset({"response"})),
    "interrupt": (frozenset(), frozenset({"response", "order"})),
    "tool_call": (
        frozenset({"call_id", "name"}),
        # As JSON text, or as the value itself.
        frozenset({"arguments", "parameters", "response"}),
    ),
    "claim": (frozenset({"latency_s"}), frozenset()),
    "error": (frozenset({"message"}), frozenset({"code"})),
    "go_away": (frozenset(), frozenset({"message"})),
    "mark": (frozenset({"mark"}), frozenset()),
}
"""Holes that a server's message must have, and may have beside those of every message."""


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


Shapes = Annotated[list[JsonValue], BeforeValidator(_as_list)]
Codec = Literal["pcm_s16le", "pcmu", "pcma", "float32le", "ogg_opus"]
OPUS_HZ = 48_000
"""What a decoder of Opus gives."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class UserAudio(_Strict):
    """How the user's audio is sent; without a message each frame is a binary message.

    In ``ogg_opus`` all frames are one stream, a page each. Where the network does not keep their
    order, whoever is sent them sorts them by ``$chunk``.
    """

    codec: Codec = "pcm_s16le"
    rate_hz: int = Field(24_000, ge=8000, le=48_000)
    frame_ms: int = Field(20, ge=10, le=1000)
    message: JsonValue = None
    is_unordered: bool = False


class AgentAudio(_Strict):
    """How the agent's audio comes; without messages all binary ones are audio.

    In ``ogg_opus`` all of it is one stream, at 48 kHz. A network that plays packets of
    `packet_bytes` leaves a gap behind a message that is no multiple of it.
    """

    codec: Codec = "pcm_s16le"
    rate_hz: int = Field(24_000, ge=8000, le=48_000)
    packet_bytes: int = Field(1, ge=1, le=65_536)
    messages: Shapes | None = None


class Reply(_Strict):
    """What the client answers at once: holes of `to` may be used in `send`."""

    to: JsonValue
    send: JsonValue


class Profile(_Strict):
    """One declared protocol.

    Attributes
    ----------
    confirmed_by
        Which server, SDK or recording has shown that this profile is right; without any it is
        experimental.
    client
        What the client says. Where ``dtmf`` is in it, a key is told by that message when it is let
        go, and its tones are not in the audio: networks take them out.
    webhook
        How an ``http(s)://`` target is asked where the call's audio goes; None: it cannot be one.
    id_prefixes
        What the names of a stream, call and account begin with.
    path, query
        Where the reference agent serves it, and what clients put into a URL's query.
    is_continuous
        The target streams its silence too.
    is_half_duplex
        The target does not listen while it speaks.
    drops_nothing
        The server also says "interrupt" when there is nothing to drop, and means nothing by it.
    start_after
        The message of the server that the client waits for before it says anything.
    flush_on
        Names of messages at which clients drop what they hold.
    """

    schema_: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")]
    about: str
    confirmed_by: str | None = None
    webhook: Literal["twiml"] | None = None
    id_prefixes: dict[Literal["stream", "call", "account"], str] = Field(default_factory=dict)
    path: Annotated[str, Field(pattern=r"^/[A-Za-z0-9/._-]+$")]
    query: list[str] = Field(default_factory=list)
    headers: dict[str, str] = Field(default_factory=dict)
    subprotocols: list[str] = Field(default_factory=list)
    user_audio: UserAudio
    agent_audio: AgentAudio
    client: dict[ClientMessage, Shapes] = Field(default_factory=dict)
    server: dict[ServerMessage, Shapes] = Field(default_factory=dict)
    replies: list[Reply] = Field(default_factory=list)
    is_continuous: bool = False
    is_half_duplex: bool = False
    drops_nothing: bool = False
    start_after: Literal["hello"] | None = None
    flush_on: list[Literal["interrupt", "speech_started"]] = ["interrupt"]

    @model_validator(mode="after")
    def _can_work(self) -> Profile:
        for where, shape, must, may in self._shapes():
            try:
                holes = frozenset(Template(shape).holes)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            if missing := sorted(must - holes):
                raise ValueError(f"{where}: has no ${missing[0]}")
            if unknown := sorted(holes - must - may - _OF_CALL):
                near = nearest(unknown[0], must | may | _OF_CALL, least=0)
                raise ValueError(f"{where}: ${unknown[0]} is not known; nearest is ${near}")
        heard = self.user_template
        if self.user_audio.is_unordered and (heard is None or "chunk" not in heard.holes):
            raise ValueError("user_audio.is_unordered: user_audio.message has no $chunk")
        if "mark" in self.server and "played" not in self.client:
            raise ValueError("server.mark: client.played does not say how it is answered")
        if self.start_after is not None and self.start_after not in self.server:
            raise ValueError(f"start_after: server.{self.start_after} is not declared")
        self._can_be_coded()
        for name in self.flush_on:
            if name not in self.server and name != "interrupt":
                raise ValueError(f"flush_on: server.{name} is not declared")
        return self

    def _can_be_coded(self) -> None:
        user, agent = self.user_audio, self.agent_audio
        if user.codec == "ogg_opus":
            if user.rate_hz not in (8000, 12_000, 16_000, 24_000, OPUS_HZ):
                raise ValueError("user_audio.rate_hz: Opus has 8000, 12000, 16000, 24000, 48000")
            if user.frame_ms not in (10, 20, 40, 60):
                raise ValueError("user_audio.frame_ms: Opus has 10, 20, 40 and 60")
        if agent.codec == "ogg_opus":
            if agent.rate_hz != OPUS_HZ:
                raise ValueError("agent_audio.rate_hz: Opus is always decoded to 48000")
            if "mark" in self.server:
                raise ValueError("server.mark: when Opus has been played is not counted")

    def _shapes(self) -> Iterator[tuple[str, JsonValue, frozenset[str], frozenset[str]]]:
        none = frozenset[str]()
        if self.user_audio.message is not None:
            audio, stamps = frozenset({"audio"}), frozenset({"chunk", "ts_ms"})
            yield "user_audio.message", self.user_audio.message, audio, stamps
        for shape in self.agent_audio.messages or ():
            names = frozenset({"response", "item", "order", "text"})
            yield "agent_audio.messages", shape, frozenset({"audio"}), names
        for client, shapes in self.client.items():
            for shape in shapes:
                yield f"client.{client}", shape, none, _CLIENT_HOLES[client]
        for server, shapes in self.server.items():
            for shape in shapes:
                yield f"server.{server}", shape, *_SERVER_HOLES[server]
        for i, reply in enumerate(self.replies):
            read = frozenset(Template(reply.to).holes)
            yield f"replies.{i}.send", reply.send, none, read

    @property
    def is_experimental(self) -> bool:
        """Whether nothing outside of this project has confirmed it."""
        return self.confirmed_by is None

    @property
    def flushes(self) -> frozenset[str]:
        """Types of the events at which clients drop what they hold."""
        types = {"interrupt": Interrupt.TYPE, "speech_started": SpeechStarted.TYPE}
        return frozenset(types[name] for name in self.flush_on)

    @cached_property
    def names_responses(self) -> bool:
        """Whether audio says which response it belongs to."""
        return any("response" in template.holes for template in self.audio_templates)

    @cached_property
    def user_template(self) -> Template | None:
        """Shape of a frame of the user's audio; None: it is binary."""
        shape = self.user_audio.message
        return None if shape is None else Template(shape)

    @cached_property
    def audio_templates(self) -> tuple[Template, ...]:
        """Shapes of the agent's audio; none: it is binary."""
        return tuple(Template(shape) for shape in self.agent_audio.messages or ())

    @cached_property
    def client_templates(self) -> dict[ClientMessage, tuple[Template, ...]]:
        """Shapes of what the client sends beside audio and replies."""
        return {name: tuple(map(Template, shapes)) for name, shapes in self.client.items()}

    @cached_property
    def server_templates(self) -> dict[ServerMessage, tuple[Template, ...]]:
        """Shapes of what the server sends beside audio."""
        return {name: tuple(map(Template, shapes)) for name, shapes in self.server.items()}

    @cached_property
    def reply_templates(self) -> tuple[tuple[Template, Template], ...]:
        """What is answered, and how."""
        return tuple((Template(reply.to), Template(reply.send)) for reply in self.replies)


def load_profile(path: Path) -> Profile:
    """Return the profile in a YAML file.

    Raises
    ------
    ConfigError
        If it cannot be read or cannot work; names the file and the key.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROFILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None
    return _parsed(data, str(path))


@cache
def shipped_profiles() -> dict[str, Profile]:
    """Return the profiles that come with the package, by name."""
    folder = files("vakforge_probe.protocol") / "profiles"
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    profiles = (_parsed(file.read_bytes(), file.name) for file in found)
    return {profile.name: profile for profile in profiles}


def _parsed(data: bytes, file: str) -> Profile:
    if len(data) > MAX_PROFILE_BYTES:
        raise ConfigError(f"longer than {MAX_PROFILE_BYTES} bytes", file=file)
    try:
        text = data.decode("utf-8")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ConfigError("aliases are not allowed", file=file)
        obj: Any = yaml.safe_load(text)
        return Profile.model_validate(obj)
    except ValidationError as error:
        key, words = first_fault(error)
        raise ConfigError(words, file=file, key=key or None) from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise ConfigError("not YAML", file=file, line=line) from None
