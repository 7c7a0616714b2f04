"""``schema``: the JSON Schemas of the project's files."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from vakforge_probe.cli.common import JsonFlag, command, print_json

__all__ = ["schema"]


class SchemaName(StrEnum):
    """The files that have a schema."""

    SCENARIO = "scenario"
    TARGETS = "targets"
    REPORT = "report"


@command
def schema(
    name: Annotated[SchemaName, typer.Argument(help="Which file's schema.")],
    json: JsonFlag = False,
) -> None:
    """Print a JSON Schema (draft 2020-12) for an editor; --json changes nothing."""
    print_json(_schema_of(name))


def _schema_of(name: SchemaName) -> dict[str, Any]:
    match name:
        case SchemaName.SCENARIO:
            from vakforge_probe.scenario.grammar import scenario_schema

            return scenario_schema()
        case SchemaName.TARGETS:
            from vakforge_probe.target import targets_schema

            return targets_schema()
        case SchemaName.REPORT:
            from vakforge_eval.report.schema import load_schema

            return load_schema()
