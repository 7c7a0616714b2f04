"""The contract of a wire format's server side: what the reference agent speaks a protocol by.

A *server codec* is one connection's state machine without socket, clock or file, like the client's
in `base`. It turns what a client sends into `ClientEvent`s and what the agent does into messages. A
protocol that has no word for something returns no message for it; what that keeps from a client is
said by the attributes, so that the agent's account is of what clients can know.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Protocol

from vakforge_probe.protocol.base import Wire

__all__ = [
    "Answers",
    "AudioAppended",
    "AudioCleared",
    "AudioCommitted",
    "CancelRequested",
    "ClientEvent",
    "HungUp",
    "KeyPressed",
    "ResponseRequested",
    "ResponseWriter",
    "ServerCodec",
    "SessionUpdated",
    "ToolOutput",
    "TruncateRequested",
]


@dataclass(frozen=True, slots=True)
class SessionUpdated:
    """The client configured the session; any answer is already queued."""


@dataclass(frozen=True, slots=True)
class AudioAppended:
    """User audio as it came, in the session's input format."""

    data: bytes


@dataclass(frozen=True, slots=True)
class AudioCommitted:
    """The client closed the user's turn by hand."""


@dataclass(frozen=True, slots=True)
class AudioCleared:
    """The client threw the uncommitted audio away."""


@dataclass(frozen=True, slots=True)
class ResponseRequested:
    """The client asks for a response."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The client asks to stop a response (None: whichever runs)."""

    response_id: str | None


@dataclass(frozen=True, slots=True)
class TruncateRequested:
    """The client says how much of an item was played."""

    item_id: str
    audio_end_ms: float


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The client answers a tool call."""

    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """The client told of a key of the telephone."""

    key: str


@dataclass(frozen=True, slots=True)
class HungUp:
    """The client says that the call is over."""


ClientEvent = (
    SessionUpdated
    | AudioAppended
    | AudioCommitted
    | AudioCleared
    | ResponseRequested
    | CancelRequested
    | TruncateRequested
    | ToolOutput
    | KeyPressed
    | HungUp
)


class ResponseWriter(Protocol):
    """Messages of one response: at most one spoken message item, then any number of tool calls.

    Each method returns wire messages and changes the state as if they had been sent; so write a
    message when it is due, not before.
    """

    id: str
    """Names the response in the agent's account, whether the protocol names it or not."""

    def begin(self) -> list[Wire]:
        """Return what announces the response."""
        ...

    def begin_message(self) -> list[Wire]:
        """Return what announces its speech."""
        ...

    def text(self, delta: str) -> list[Wire]:
        """Return a piece of the transcript of the agent's speech."""
        ...

    def audio(self, data: bytes) -> list[Wire]:
        """Return a piece of coded audio; only its last message carries the last of it."""
        ...

    def end_message(self, status: str = "completed") -> list[Wire]:
        """Return what closes the speech."""
        ...

    def tool_call(self, call_id: str, name: str, arguments: str) -> list[Wire]:
        """Return a whole call of a tool; `arguments` is JSON text."""
        ...

    def end(self, status: str = "completed", reason: str | None = None) -> list[Wire]:
        """Return the end of the response (completed or cancelled); the last message tells it."""
        ...


class ServerCodec(Protocol):
    """One connection's server side of a wire format.

    Attributes
    ----------
    is_format_fixed
        Set by the agent before the first audio; the formats do not change from then on.
    names_responses
        Whether audio says which response it belongs to, so that clients can drop a response's late
        audio.
    is_continuous
        Whether the protocol streams silence too; clients then have a live player.
    """

    is_format_fixed: bool
    names_responses: bool
    is_continuous: bool

    @property
    def input_format(self) -> tuple[str, int]:
        """(codec, rate in Hz) of the user's audio."""
        ...

    @property
    def output_format(self) -> tuple[str, int]:
        """(codec, rate in Hz) of the agent's audio."""
        ...

    @property
    def is_manual(self) -> bool:
        """Whether the client commits by hand."""
        ...

    @property
    def interrupts(self) -> bool:
        """Whether `speech_started` makes clients drop what they hold."""
        ...

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Tools that the client offers: objects with at least ``name``."""
        ...

    def new_id(self, kind: str) -> str:
        """Return a fresh identifier."""
        ...

    def receive(self, data: Wire) -> list[ClientEvent]:
        """Return the events in one message; never raises on bad input."""
        ...

    def take_replies(self) -> list[Wire]:
        """Return, once, what the protocol itself answers to the last `receive`."""
        ...

    def created(self) -> list[Wire]:
        """Return what the server says first, before the client has said anything."""
        ...

    def error(self, code: str, text: str) -> list[Wire]:
        """Return what refuses something and does not end the session."""
        ...

    def speech_started(
        self, audio_start_ms: int, item_id: str, *, is_interruption: bool = False
    ) -> list[Wire]:
        """Return what tells that the user began; ms of input-sample time.

        `is_interruption` says that the agent stops because of it.
        """
        ...

    def speech_stopped(self, audio_end_ms: int, item_id: str) -> list[Wire]:
        """Return what tells that the user ended; ms of input-sample time."""
        ...

    def committed(self, item_id: str) -> list[Wire]:
        """Return what tells that the user's turn is closed."""
        ...

    def transcript(self, item_id: str, text: str, seconds: float) -> list[Wire]:
        """Return the final transcript of the user's turn."""
        ...

    def stream_audio(self, data: bytes) -> list[Wire]:
        """Return coded audio that belongs to no response, as a continuous stream has it."""
        ...

    def response(self) -> ResponseWriter:
        """Return the writer of a new response."""
        ...


class Answers:
    """What every server codec keeps: identifiers of its own, and answers that wait.

    Parameters
    ----------
    tag
        Goes into every identifier, so that those of two connections differ.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._counter = itertools.count(1)
        self._replies: list[Wire] = []

    def new_id(self, kind: str) -> str:
        """Return a fresh identifier such as ``resp_0_12``."""
        return f"{kind}_{self.tag}_{next(self._counter)}"

    def take_replies(self) -> list[Wire]:
        """Return, once, what the protocol itself answers to the last `receive`."""
        replies, self._replies = self._replies, []
        return replies
