"""Sessions of OpenAI Realtime: what the probe asks for, and what a server says it granted."""

from __future__ import annotations

import copy
from typing import Any, Literal

from vakforge_probe.protocol.base import SessionConfig
from vakforge_probe.protocol.openai_names import (
    Dialect,
    audio_format,
    is_beta_session,
    is_ga_session,
)

__all__ = ["has_transcription", "merge", "request", "stated_format", "update_effective"]


def request(
    config: SessionConfig, codec: str | None, dialect: Dialect, *, is_manual: bool = False
) -> dict[str, Any]:
    """Return the session of a ``session.update``; of no `codec` where no audio is in the messages.

    Turn detection is left to the target unless it `is_manual` or `config.extra` states it, so that
    a target is measured as it is deployed. `config.extra` is merged in last, written in `dialect`'s
    form.
    """
    form = None if codec is None else audio_format(codec, dialect)
    if dialect == "beta":
        session: dict[str, Any] = {"modalities": ["text", "audio"]}
        _set(session, "input_audio_format", form)
        _set(session, "output_audio_format", form)
        _set(session, "voice", config.voice)
    else:
        heard: dict[str, Any] = {}
        spoken: dict[str, Any] = {}
        _set(heard, "format", form)
        _set(spoken, "format", form)
        _set(spoken, "voice", config.voice)
        session = {
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {"input": heard, "output": spoken},
        }
        _set(session, "model", config.model)
    if is_manual:
        merge(session, _push_to_talk(dialect))
    _set(session, "instructions", config.instructions)
    if config.tools:
        session["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }
            for tool in config.tools
        ]
        session["tool_choice"] = "auto"
    merge(session, config.extra)
    return session


def _push_to_talk(dialect: Dialect) -> dict[str, Any]:
    off = {"turn_detection": None}
    return off if dialect == "beta" else {"audio": {"input": off}}


def _set(obj: dict[str, Any], key: str, value: object) -> None:
    if value is not None:
        obj[key] = value


def merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    """Merge `new` into `into`, objects key by key; null and a format replace what was there.

    Copies of the protocol answer a ``session.update`` with only what changed.
    """
    for key, value in new.items():
        old = into.get(key)
        # The rate of the old format says nothing of a new one.
        is_whole = key == "format" and isinstance(value, dict) and "type" in value
        if isinstance(old, dict) and isinstance(value, dict) and not is_whole:
            merge(old, value)
        else:
            into[key] = copy.deepcopy(value)


def update_effective(known: dict[str, Any], told: dict[str, Any]) -> None:
    """Bring the effective session up to what the server just told.

    A session told in the other dialect's form replaces the known one: of two statements of one
    thing in two forms the older is void.
    """
    if (is_ga_session(known) and is_beta_session(told)) or (
        is_beta_session(known) and is_ga_session(told)
    ):
        known.clear()
    merge(known, told)


def stated_format(session: dict[str, Any], side: Literal["input", "output"]) -> object:
    """Return the audio format that a session states for one side, None when it does not say."""
    nested = _nested(session, side).get("format")
    return nested if nested is not None else session.get(f"{side}_audio_format")


def has_transcription(session: dict[str, Any]) -> bool:
    """Return whether the session transcribes the user."""
    return bool(
        _nested(session, "input").get("transcription") or session.get("input_audio_transcription")
    )


def _nested(session: dict[str, Any], side: str) -> dict[str, Any]:
    audio = session.get("audio")
    value = audio.get(side) if isinstance(audio, dict) else None
    return value if isinstance(value, dict) else {}
