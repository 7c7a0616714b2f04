"""``schema``: the JSON Schemas of the project's files."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from vakforge_probe.cli.common import JsonFlag, command, print_json
from vakforge_probe.errors import ConfigError
from vakforge_probe.text import nearest

__all__ = ["schema"]

_NAMES = ("scenario", "targets", "report")


@command
def schema(
    name: Annotated[str, typer.Argument(metavar="|".join(_NAMES), help="Which file's schema.")],
    json: JsonFlag = False,
) -> None:
    """Print a JSON Schema (draft 2020-12) for an editor; --json changes nothing."""
    print_json(_schema_of(name))


def _schema_of(name: str) -> dict[str, Any]:
    match name:
        case "scenario":
            from vakforge_probe.scenario.grammar import scenario_schema

            return scenario_schema()
        case "targets":
            from vakforge_probe.target import targets_schema

            return targets_schema()
        case "report":
            from vakforge_eval.report.schema import load_schema

            return load_schema()
    message = f"no such schema; there are {', '.join(_NAMES)}"
    raise ConfigError(message, value=name, nearest=nearest(name, _NAMES))
