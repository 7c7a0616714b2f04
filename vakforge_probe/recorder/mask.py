"""Keeps secrets out of a capture, byte for byte, so that no offset moves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["Mask"]


class Mask:
    r"""Replaces every occurrence of a secret by as many asterisks.

    A secret is known as it is and as JSON writes it (with and without ``\u`` escapes), since a
    target may echo it inside a message.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms: set[str] = set()
        for secret in filter(None, secrets):
            forms |= {secret, json.dumps(secret)[1:-1]}
            forms.add(json.dumps(secret, ensure_ascii=False)[1:-1])
        # Longest first: one secret may be part of another.
        self._texts = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = [form.encode("utf-8", "surrogatepass") for form in self._texts]

    def data(self, data: bytes) -> bytes:
        """Return `data` with every secret masked."""
        for form in self._forms:
            if form in data:
                data = data.replace(form, b"*" * len(form))
        return data

    def value(self, value: Any) -> Any:
        """Return a JSON value with every secret masked in its strings and keys."""
        if not self._texts:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        for form in self._texts:
            if form in text:
                text = text.replace(form, "*" * len(form))
        return text
