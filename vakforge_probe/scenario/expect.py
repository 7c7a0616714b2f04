"""What a scenario expects of the agent, in words.

::

    stop                    the agent stops when it is barged in on
    stop within 0.7 s       so soon after the user began
    hold                    it talks on through a disturbance
    reply within 2 s        its reply is heard so soon after the user ended
    reply mentions A, B     its reply holds at least one of these words or phrases

Each goes with the kinds of steps that can show it.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from vakforge_eval.timeline.instant import ns_to_s
from vakforge_eval.timeline.script import (
    BACKGROUND_KINDS,
    FLOOR_TAKING_KINDS,
    Expectation,
    StepKind,
)
from vakforge_probe.scenario.units import DURATION, parse_duration

__all__ = ["KINDS_OF", "ExpectationsField", "parse_expectation"]

KINDS_OF = {
    "stop": frozenset({StepKind.BARGE_IN}),
    "hold": BACKGROUND_KINDS,
    "reply": FLOOR_TAKING_KINDS,
    "mentions": FLOOR_TAKING_KINDS,
}
"""Kind of expectation -> kinds of steps that can show whether it holds."""

_MAX_WORDS = 50
_WORD = r"[^,\s][^,\n]{0,199}"
_EXPECTATION = re.compile(
    rf"stop(?: within (?P<stop>{DURATION}))?|hold|reply within (?P<reply>{DURATION})"
    rf"|reply mentions (?P<words>{_WORD}(?:, ?{_WORD}){{0,{_MAX_WORDS - 1}}})"
)
_PATTERN = re.sub(r"\?P<\w+>", "?:", f"^(?:{_EXPECTATION.pattern})$")


def parse_expectation(text: object) -> Expectation:
    """Return the expectation that `text` says.

    Raises
    ------
    ValueError
        If `text` does not follow the grammar, or no reply could ever fulfil it.
    """
    match = _EXPECTATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            "is no expectation: write 'stop within 0.7 s', 'stop', 'hold', 'reply within 2 s' or "
            "'reply mentions WORD, WORD' (within [...] in quotes)"
        )
    if match["words"]:
        return Expectation(text=match[0], kind="mentions", words=_words(match["words"]))
    limit = match["stop"] or match["reply"]
    limit_ns = None if limit is None else parse_duration(limit)
    if limit_ns == 0:
        raise ValueError("must allow more than no time")
    kind = "hold" if match[0] == "hold" else "stop" if match[0].startswith("stop") else "reply"
    return Expectation(
        text=match[0], kind=kind, within_s=None if limit_ns is None else ns_to_s(limit_ns)
    )


def _words(listed: str) -> list[str]:
    words = [word.strip() for word in listed.split(",")]
    if not all(any(c.isalnum() for c in word) for word in words):
        raise ValueError("has a word without a letter or digit")
    return words


def _as_list(data: object) -> object:
    if not isinstance(data, str | list):
        raise ValueError("must be one expectation or a list of them")
    return [data] if isinstance(data, str) else data


_One = Annotated[Expectation, PlainValidator(parse_expectation)]
_ONE_SCHEMA = {"type": "string", "pattern": _PATTERN}

ExpectationsField = Annotated[
    list[_One],
    Field(min_length=1, max_length=10),
    BeforeValidator(_as_list),
    WithJsonSchema(
        {
            "anyOf": [
                _ONE_SCHEMA,
                {"type": "array", "items": _ONE_SCHEMA, "minItems": 1, "maxItems": 10},
            ]
        }
    ),
]
"""Expectations, written as one text or a list of texts."""
