"""The JSON Schema of report.json: where it lies, and validation against it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from vakforge_eval.shipped import shipped_text

__all__ = ["ReportInvalid", "load_schema", "validate"]


class ReportInvalid(ValueError):
    """A document does not follow the schema; `pointer` (JSON pointer) says where."""

    def __init__(self, pointer: str, message: str) -> None:
        self.pointer = pointer
        super().__init__(f"report document invalid at {pointer or '/'}: {message[:400]}")


@cache
def load_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12), from the wheel's data or from a source tree.

    Raises
    ------
    FileNotFoundError
        If the installation is incomplete.
    """
    schema: dict[str, Any] = json.loads(shipped_text("report_schema.json"))
    return schema


def validate(document: Any) -> None:
    """Check a report document against the schema.

    Raises
    ------
    ReportInvalid
        At the first place, in document order, that breaks it.
    """
    # Costs as much as the rest of the package to import, and only reports need it.
    from jsonschema import Draft202012Validator

    errors = sorted(
        Draft202012Validator(load_schema()).iter_errors(document),
        key=lambda error: [str(part) for part in error.absolute_path],
    )
    if errors:
        pointer = "".join(f"/{part}" for part in errors[0].absolute_path)
        raise ReportInvalid(pointer, errors[0].message)
