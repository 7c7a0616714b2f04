"""Profiles of OpenAI Realtime: in what the servers that speak it differ, as data.

A profile is made of words joined by ``-``, e.g. ``beta-pcmu``. A server's name is a word too, and
stands for what is known of it.
"""

from __future__ import annotations

from typing import Any

from vakforge_eval.timeline.events import Interrupt, SpeechStarted
from vakforge_probe.errors import ConfigError
from vakforge_probe.text import nearest

__all__ = ["FLUSH_ON", "WORDS", "facts_of"]

FLUSH_ON = frozenset({Interrupt.TYPE})
"""Types of events on which any client drops what it holds."""

WORDS: dict[str, dict[str, Any]] = {
    "auto": {"dialect": "auto"},
    "ga": {"dialect": "ga"},
    "beta": {"dialect": "beta"},
    "pcm": {"codec": "pcm_s16le"},
    "pcmu": {"codec": "pcmu"},
    "pcma": {"codec": "pcma"},
    "continuous": {"is_continuous": True},
    "manual": {"is_manual": True},
    "halfduplex": {"is_half_duplex": True},
    "flush": {"flush_on": FLUSH_ON | {SpeechStarted.TYPE}},
    "in16k": {"user_hz": 16_000},
    "azure": {"dialect": "ga", "is_experimental": True},
    "azurebeta": {"dialect": "beta", "is_experimental": True},
    "xai": {"dialect": "ga", "is_experimental": True},
    "qwen": {"dialect": "beta", "user_hz": 16_000, "is_experimental": True},
    "localai": {"dialect": "auto", "is_experimental": True},
    "speaches": {"dialect": "beta", "is_experimental": True},
    "vllm": {"dialect": "ga", "is_experimental": True},
}
"""What each word says of the target, by the names of the client codec's parameters."""


def facts_of(profile: str) -> dict[str, Any]:
    """Return what a profile says; of two words about one thing the later holds.

    Raises
    ------
    ConfigError
        If a word is not known; names the nearest one.
    """
    facts: dict[str, Any] = {}
    for word in filter(None, profile.split("-")):
        if word not in WORDS:
            near = nearest(word, WORDS, least=0)
            raise ConfigError("unknown profile", key="protocol", value=word, nearest=near)
        facts |= WORDS[word]
    return facts
