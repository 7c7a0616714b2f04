"""``schema``: the JSON Schemas of the project's files."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from vakforge_probe.cli.common import command, print_json

__all__ = ["schema"]


class SchemaName(StrEnum):
    """The files that have a schema."""

    SCENARIO = "scenario"
    TARGETS = "targets"
    REPORT = "report"


@command
def schema(name: Annotated[SchemaName, typer.Argument(help="Which file's schema.")]) -> None:
    """Print a JSON Schema (draft 2020-12)."""
    print_json(_schema_of(name))


def _schema_of(name: SchemaName) -> dict[str, Any]:
    match name:
        case SchemaName.SCENARIO:
            from vakforge_probe.scenario.grammar import scenario_schema

            return scenario_schema()
        case SchemaName.TARGETS:
            from vakforge_probe.target import TargetsFile

            draft = "https://json-schema.org/draft/2020-12/schema"
            return {"$schema": draft, **TargetsFile.model_json_schema()}
        case SchemaName.REPORT:
            from vakforge_eval.report.schema import report_schema

            return report_schema()
