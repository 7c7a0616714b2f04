"""What the reference agent does: every knob, settable per process and per connection.

A process takes ``key=value`` pairs; a connection overrides them in its URL's query. Times are
seconds, except where the name says ms. An unknown key is refused with the nearest right one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vakforge_eval.timeline.faults import first_fault
from vakforge_probe.errors import ConfigError
from vakforge_probe.text import nearest

__all__ = ["Behaviour", "parse_pairs"]

Seconds = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
Dbfs = Annotated[float, Field(ge=-90, le=0, allow_inf_nan=False)]

Fault = Literal[
    "malformed_json",
    "nan_json",
    "invalid_base64",
    "odd_audio",
    "oversize",
    "flood",
    "junk",
    "error_event",
]


class Behaviour(BaseModel):
    """All knobs; frozen and strict."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,160}$")] = ""
    """The caller's name for this connection, kept in the truth log and nowhere else."""
    seed: int = 0
    """Of everything random: jitter and noise."""

    reply_delay: Seconds = 0.5
    """From the caller's last voiced sample to the reply's first audio message."""
    endpoint_silence: Seconds | None = None
    """Silence after which the caller's turn counts as over; the reply never comes earlier. Unset:
    as long as the reply's delay allows, at most 0.5."""
    endpointing: Literal["clip", "energy"] = "clip"
    """`clip`: a recognised clip is over at its last voiced sample, as if the agent understood the
    sentence; `energy`: any silence inside it counts."""
    early_talk: Seconds = 0.0
    """Start this long before the end of a recognised clip (0: do not)."""
    no_reply: int = Field(0, ge=0)
    """Leave every n-th turn unanswered (0: none)."""

    stop_delay: Seconds | Literal["never"] = 0.2
    """From the caller's onset to the agent's stop when it is talked over."""
    stop_on: int = Field(1, ge=1)
    """Stop only when talked over for so many times since the reply began."""
    half_duplex: bool = False
    """Be deaf while talking: what the caller says then is lost, unless it ends later."""
    backchannel_words: int = Field(0, ge=0)
    """Recognised utterances of at most so many words are backchannels."""
    backchannel_seconds: Seconds = 0.0
    """Utterances shorter than this are backchannels."""
    on_backchannel: Literal["hold", "pause", "stop", "interrupt"] = "hold"
    """`pause` stops and resumes the same reply, `stop` falls silent for good, `interrupt` treats
    it as a barge-in that gets an answer."""
    resume_delay: Seconds = 0.5
    """Length of the gap that `pause` makes."""

    say: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] | None = None
    """Answer everything with this clip of the agent's voice (a name without its group)."""
    reply_length: Annotated[float, Field(gt=0, le=120)] | None = None
    """Voice in each reply; clips are joined and cut to it."""
    segments: int = Field(1, ge=1, le=20)
    """Parts of each reply."""
    segment_gap: Seconds = 0.6
    """Silence between two segments, sent as samples."""
    leading_silence: Seconds = 0.0
    """Silence before the voice, sent as samples."""
    level_dbfs: Dbfs | None = None
    """RMS of the voice; unset: as recorded."""
    hum_dbfs: Dbfs | None = None
    """RMS of a hum inside the voice, so that no part of it is too quiet to be heard in noise."""
    noise_dbfs: Dbfs | None = None
    """RMS of comfort noise under the voice; with a continuous stream also between replies."""
    echo_db: Annotated[float, Field(ge=-60, le=0)] | None = None
    """Gain of the caller's own voice in the agent's stream."""
    echo_delay: Seconds = 0.12
    """How much later than it came the caller's voice is in the stream."""

    stream: Literal["turn", "continuous"] = "turn"
    """`turn` sends audio only while it speaks, `continuous` its silence too."""
    pacing: Annotated[str, Field(pattern=r"^(paced|burst|x[0-9]+(\.[0-9]+)?)$")] = "paced"
    """`paced` sends a chunk when it begins to sound, ``x10`` ten times as fast, `burst` at once."""
    chunk: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}(ms|b)?$")] = "20ms"
    """Size of an audio message: ``20ms``, ``480`` samples, or ``961b`` bytes (odd is allowed).
    In Opus a message is a frame of 5, 10, 20, 40 or 60 ms, the longest that is not longer."""
    stall: Seconds = 0.0
    """Stop sending for so long in each reply, then send all that is due at once."""
    stall_at: Seconds = 1.0
    """Where in the reply's audio the stall begins."""
    jitter_ms: Annotated[float, Field(ge=0, le=5000)] = 0.0
    """Each message is late by 0 to this, the order kept."""
    skew_ppm: Annotated[float, Field(ge=-50_000, le=50_000)] = 0.0
    """How much too fast the agent's sample clock runs."""

    greeting: bool = True
    """Speak first."""
    greeting_delay: Seconds = 0.3
    """From the session's configuration to the greeting."""
    own_backchannel: Seconds = 0.0
    """Say a backchannel each time the caller has spoken for so long (0: never)."""
    filler: bool = False
    """Say a filler before a tool is called."""
    answer_delay: Seconds = 0.1
    """From the tool's result to the answer's first audio message."""
    text_lead_ms: Annotated[float, Field(ge=-5000, le=5000)] = 0.0
    """How long before the audio the reply's text is sent (negative: after)."""
    transcript: bool = True
    """Send the recognised clip's text as transcript of the user."""
    tools: bool = True
    """Call the tools that the client offers."""
    interrupt_response: bool = True
    """What the session says; without it clients do not flush on the caller's onset."""
    playout: Literal["fifo", "live"] = "fifo"
    """How the truth log takes clients to play: in order whatever comes, or as on a continuous
    stream, where background is left out while more than 60 ms are held."""
    manual: bool = True
    """Whether a null turn detection is accepted."""
    dialect: Literal["auto", "ga", "beta"] = "auto"
    """Whose event names are used; `auto`: those that the client asks for."""

    refuse: Annotated[int, Field(ge=400, le=599)] | None = None
    """HTTP status to refuse the handshake with."""
    mute: bool = False
    """Accept, then never say or answer anything."""
    close_at: Seconds | None = None
    """Close properly so long after the caller's stream began."""
    abort_at: Seconds | None = None
    """Reset the connection so long after the caller's stream began."""
    fault: Fault | None = None
    """What to do wrong, once in each connection."""
    fault_at: Seconds = 1.0
    """When the fault comes, from the caller's first frame; `odd_audio` is in the next reply."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.stream == "continuous" and self.pacing != "paced":
            raise ValueError("a continuous stream is paced")
        if self.stream == "continuous" and self.chunk.endswith("b"):
            raise ValueError("a continuous stream has chunks of whole samples")
        if self.echo_db is not None and self.pacing != "paced":
            raise ValueError("an echo needs a paced stream: a burst is sent before it is heard")
        if self.echo_db is not None and self.chunk.endswith("b"):
            raise ValueError("an echo needs chunks of whole samples")
        if self.pacing.startswith("x") and float(self.pacing[1:]) == 0:
            raise ValueError("a pace of x0 never ends")
        return self

    @property
    def speed(self) -> float:
        """How many times faster than real time audio is sent; infinite for a burst."""
        if self.pacing == "burst":
            return math.inf
        return 1.0 if self.pacing == "paced" else float(self.pacing[1:])

    @property
    def silence(self) -> float:
        """Endpoint silence in s; by default 50 ms before the reply's first message is due."""
        if self.endpoint_silence is not None:
            return self.endpoint_silence
        first_due = self.reply_delay - max(0.0, self.text_lead_ms / 1000)
        return max(0.1, min(0.5, first_due - 0.05))

    def chunk_bytes(self, rate_hz: int, width: int) -> int:
        """Return the bytes of one audio message for samples of `width` bytes at `rate_hz`."""
        digits = int(self.chunk.rstrip("msb"))
        if self.chunk.endswith("b"):
            return digits
        if self.chunk.endswith("ms"):
            digits = max(1, rate_hz * digits // 1000)
        return digits * width

    def continuous(self) -> Behaviour:
        """Return the same behaviour on a stream that never pauses, whose clients play it live."""
        return self.model_copy(
            update={"stream": "continuous", "playout": "live", "pacing": "paced"}
        )

    def plain(self) -> Behaviour:
        """Return the same behaviour for what is said once and whole: greeting, filler, a nod."""
        return self.model_copy(update={"segments": 1, "reply_length": None})

    def is_backchannel(self, n_words: int | None, seconds: float | None) -> bool | None:
        """Return whether an utterance is a backchannel; None while that cannot be told yet."""
        if n_words is not None and self.backchannel_words:
            return n_words <= self.backchannel_words
        if not self.backchannel_seconds:
            return False
        return None if seconds is None else seconds < self.backchannel_seconds

    def overridden(self, pairs: Mapping[str, str]) -> Behaviour:
        """Return this behaviour with `pairs` of text values set.

        Raises
        ------
        ConfigError
            If a key is unknown or a value is not allowed; names key, value and nearest key.
        """
        own = dict(pairs)
        for key in own:
            if key not in type(self).model_fields:
                near = nearest(key, type(self).model_fields, least=0)
                raise ConfigError("unknown knob", key=key, value=own[key], nearest=near)
        try:
            # Read alone first: text is only ever turned into values by the reader of strings.
            stated = type(self).model_validate_strings(own).model_dump(include=set(own))
        except ValidationError as error:
            raise _config_error(error, own) from None
        try:
            return type(self).model_validate({**self.model_dump(), **stated})
        except ValidationError as error:
            raise _config_error(error, own) from None


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return ``key=value`` texts as a mapping.

    Raises
    ------
    ConfigError
        If one has no ``=``, or a key comes twice.
    """
    out: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError("a knob is set as key=value", value=pair)
        if key in out:
            raise ConfigError("set twice", key=key, value=value)
        out[key] = value
    return out


def _config_error(error: ValidationError, own: Mapping[str, Any]) -> ConfigError:
    place, words = first_fault(error)
    key = place.partition(".")[0] or None
    return ConfigError(words, key=key, value=own.get(key) if key else None)
