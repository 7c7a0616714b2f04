"""Names and session forms of the OpenAI Realtime dialects: GA (2025-) and beta (2024-10).

Inside, the GA names are used; the beta ones are translated where a message comes in or goes out.
Source: the type definitions of the official Python SDK.
"""

from __future__ import annotations

from typing import Any, Literal

__all__ = [
    "BETA_HEADER",
    "CLIENT_TYPES",
    "GA_OF_BETA",
    "IGNORED_SERVER_TYPES",
    "MAX_RATE_HZ",
    "MIN_RATE_HZ",
    "Dialect",
    "audio_format",
    "beta_name",
    "codec_of_format",
    "ga_name",
    "is_beta_session",
    "is_ga_session",
    "turn_detection",
]

Dialect = Literal["ga", "beta"]

BETA_HEADER = ("OpenAI-Beta", "realtime=v1")

GA_OF_BETA = {
    f"response.{beta}.{end}": f"response.{ga}.{end}"
    for beta, ga in (
        ("text", "output_text"),
        ("audio_transcript", "output_audio_transcript"),
        ("audio", "output_audio"),
    )
    for end in ("delta", "done")
}
GA_OF_BETA["conversation.item.created"] = "conversation.item.added"

_BETA_OF_GA = {ga: beta for beta, ga in GA_OF_BETA.items()}

CLIENT_TYPES = frozenset(
    {
        "session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "conversation.item.create",
        "conversation.item.delete",
        "conversation.item.retrieve",
        "conversation.item.truncate",
        "response.create",
        "response.cancel",
        "output_audio_buffer.clear",
    }
)
"""What a client may send."""

IGNORED_SERVER_TYPES = frozenset(
    {
        "conversation.created",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.deleted",
        "conversation.item.retrieved",
        "conversation.item.input_audio_transcription.failed",
        "conversation.item.input_audio_transcription.segment",
        "input_audio_buffer.cleared",
        "input_audio_buffer.dtmf_event_received",
        "input_audio_buffer.timeout_triggered",
        "output_audio_buffer.started",
        "output_audio_buffer.stopped",
        "rate_limits.updated",
        "response.content_part.added",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.output_audio_transcript.done",
        "response.output_text.done",
    }
)
"""Known messages of a server that tell nothing a metric needs."""

MIN_RATE_HZ = 8_000
MAX_RATE_HZ = 96_000

_FORMATS = {
    "pcm_s16le": ("audio/pcm", "pcm16", 24000),
    "pcmu": ("audio/pcmu", "g711_ulaw", 8000),
    "pcma": ("audio/pcma", "g711_alaw", 8000),
}


def ga_name(name: str) -> str:
    """Return the GA name of a server message."""
    return GA_OF_BETA.get(name, name)


def beta_name(name: str) -> str | None:
    """Return the beta name of a server message, None where beta has no such message."""
    return None if name == "conversation.item.done" else _BETA_OF_GA.get(name, name)


def audio_format(codec: str, dialect: Dialect) -> str | dict[str, Any]:
    """Return how a session names `codec` in `dialect`."""
    ga, beta, rate = _FORMATS[codec]
    if dialect == "beta":
        return beta
    return {"type": ga, "rate": rate} if codec == "pcm_s16le" else {"type": ga}


def codec_of_format(value: object) -> tuple[str, int] | None:
    """Return (codec, rate in Hz) of a session's format in either form, None if it is not known.

    Linear PCM may have any rate that one can listen to, G.711 only its own.
    """
    name, rate = value, None
    if isinstance(value, dict):
        name, rate = value.get("type"), value.get("rate")
    for codec, (ga, beta, default) in _FORMATS.items():
        if name in (ga, beta):
            rates = range(MIN_RATE_HZ, MAX_RATE_HZ + 1) if codec == "pcm_s16le" else (default,)
            rate = default if rate is None else rate
            return (codec, rate) if type(rate) is int and rate in rates else None
    return None


def is_beta_session(session: dict[str, Any]) -> bool:
    """Return whether `session` is written in the flat form of beta."""
    flat = {"modalities", "input_audio_format", "output_audio_format", "turn_detection", "voice"}
    return session.get("type") is None and not flat.isdisjoint(session)


def is_ga_session(session: dict[str, Any]) -> bool:
    """Return whether `session` is written in the nested form of GA."""
    return "audio" in session or session.get("type") is not None


def turn_detection(session: dict[str, Any]) -> dict[str, Any] | Literal["unstated"] | None:
    """Return the turn detection that `session` states in either form; None is push-to-talk."""
    audio = session.get("audio")
    nested = audio.get("input") if isinstance(audio, dict) else None
    for place in (nested, session):
        if isinstance(place, dict) and "turn_detection" in place:
            value = place["turn_detection"]
            return value if value is None or isinstance(value, dict) else "unstated"
    return "unstated"
