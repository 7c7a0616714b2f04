"""``validate``: check scenario and target files without dialling anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vakforge_probe.cli.common import (
    JsonFlag,
    QuietFlag,
    command,
    complain,
    facts_of,
    human,
    print_json,
)
from vakforge_probe.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from vakforge_probe.protocol.base import ClientCodec

__all__ = ["validate"]


@command
def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Suites, scenarios or targets files.")
    ],
    protocol: Annotated[
        str, typer.Option(metavar="NAME[/PROFILE]", help="Check anchors against this protocol.")
    ] = "openai-realtime",
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> ExitCode:
    """Check files; a wrong one names file, line, key, the wrong value and the nearest right one."""
    from vakforge_probe.protocol.registry import make_client

    codec = make_client(protocol)
    console = human(as_json=json, quiet=quiet)
    rows = []
    for name in files:
        row = _checked(name, codec)
        rows.append(row)
        if row["ok"]:
            console.print(f"{name}: ok, {row['holds']}", markup=False)
        else:
            complain([row["error"]["message"]])
    if json:
        print_json({"files": rows})
    return ExitCode.OK if all(row["ok"] for row in rows) else ExitCode.CONFIG


def _checked(name: str, codec: ClientCodec) -> dict[str, Any]:
    try:
        return {"file": name, "ok": True, "holds": _contents(name, codec)}
    except ConfigError as error:
        return {"file": name, "ok": False, "error": facts_of(error)}


def _contents(name: str, codec: ClientCodec) -> str:
    """Return what a good file holds."""
    from vakforge_probe.scenario.choose import choose_scenarios
    from vakforge_probe.scenario.compile import compile_scenario
    from vakforge_probe.target import is_targets_file, load_targets

    if is_targets_file(name):
        return _counted(len(load_targets(Path(name))), "target")
    scenarios = choose_scenarios(name)
    for loaded in scenarios:
        compile_scenario(
            loaded,
            rate_hz=codec.user_audio.rate_hz,
            frame_samples=codec.user_audio.frame_samples,
            capabilities=codec.capabilities,
        )
    return _counted(len(scenarios), "scenario")


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
