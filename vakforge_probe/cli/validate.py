"""``validate``: check scenario and target files without dialling anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vakforge_probe.cli.common import JsonFlag, command, human, print_json
from vakforge_probe.errors import ConfigError, ExitCode

__all__ = ["validate"]


@command
def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Suites, scenarios or targets files.")
    ],
    protocol: Annotated[
        str, typer.Option(metavar="NAME[/PROFILE]", help="Check anchors against this protocol.")
    ] = "openai-realtime",
    as_json: JsonFlag = False,
) -> ExitCode:
    """Check files; a wrong one names file, line, key, the wrong value and the nearest right one."""
    console = human(as_json=as_json)
    rows = []
    for name in files:
        try:
            what = _check(name, protocol)
        except ConfigError as error:
            rows.append({"file": name, "ok": False, "error": str(error)})
            console.print(str(error), markup=False, style="red")
        else:
            rows.append({"file": name, "ok": True, "holds": what})
            console.print(f"{name}: ok, {what}", markup=False)
    if as_json:
        print_json({"files": rows})
    return ExitCode.OK if all(row["ok"] for row in rows) else ExitCode.CONFIG


def _check(name: str, protocol: str) -> str:
    from vakforge_probe.protocol.registry import make_client
    from vakforge_probe.scenario.compile import compile_scenario
    from vakforge_probe.scenario.loader import load_suite
    from vakforge_probe.target import is_targets_file, load_targets

    if is_targets_file(name):
        return f"{len(load_targets(Path(name)))} targets"
    codec = make_client(protocol)
    scenarios = load_suite(name).scenarios
    for loaded in scenarios:
        compile_scenario(
            loaded,
            rate_hz=codec.user_audio.rate_hz,
            frame_samples=codec.user_audio.frame_samples,
            capabilities=codec.capabilities,
        )
    return f"{len(scenarios)} scenarios"
