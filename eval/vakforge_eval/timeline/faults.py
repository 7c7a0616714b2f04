"""What a validator found wrong, in the words that people are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

__all__ = ["fault_words", "first_fault"]


def fault_words(fault: Mapping[str, Any]) -> str:
    """Return what one fault of a `ValidationError` says, without the validator's own prefixes."""
    words: str = fault["msg"]
    return words.removeprefix("Value error, ").removeprefix("Assertion failed, ")


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Return where the first fault is, as a dotted key, and what it says.

    The key is empty where the whole is wrong.
    """
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return ".".join(map(str, fault["loc"])), fault_words(fault)
