"""``run``: probe a live endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, human
from vakforge_probe.errors import ConfigError, ExitCode

__all__ = ["run"]


@command
def run(
    scenarios: Annotated[
        list[str],
        typer.Argument(metavar="SUITE|SCENARIO…", help="Shipped suites by name, or files."),
    ],
    target: Annotated[str, typer.Option(help="URL (ws:// or wss://) or alias of the target.")],
    protocol: Annotated[
        str | None, typer.Option(metavar="NAME[/PROFILE]", help="How the target speaks.")
    ] = None,
    baseline_target: Annotated[
        str | None, typer.Option(help="The system to compare with; calls are interleaved.")
    ] = None,
    targets: Annotated[
        Path | None, typer.Option(metavar="FILE", help="targets.yaml with aliases.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Handshake header; secrets as ${env:NAME} or file:PATH."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to ask for.")] = None,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="CA bundle for wss.")] = None,
    hardware: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML: the serving path's hardware, as its owner says."),
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, max=10_000, help="Repeats of each.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, max=150, help="Calls at once.")] = 1,
    name: Annotated[str, typer.Option(metavar="SYSTEM", help="The system's name.")] = "tuned",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder of the run.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> ExitCode:
    """Probe a live endpoint: captures first, then the report made of them.

    Example: vakforge-probe run latency --target wss://agent.example/v1/realtime
    --header 'Authorization=Bearer ${env:API_KEY}'
    """
    from vakforge_probe.campaign import System, plan_campaign
    from vakforge_probe.cli.session import conclude, dial_all, fresh_folder
    from vakforge_probe.scenario.loader import load_model, load_suite
    from vakforge_probe.target import Hardware, load_targets, resolve_target

    known = load_targets(targets) if targets is not None else {}
    stated = load_model(hardware, Hardware).root if hardware is not None else None
    if name == "base" and baseline_target is not None:
        raise ConfigError("'base' is the baseline's name", key="--name", value=name)

    def system(alias: str, called: str) -> System:
        return System(
            called,
            resolve_target(
                alias,
                targets=known,
                protocol=protocol,
                model=model,
                headers=tuple(header or ()),
                ca=ca,
                hardware=stated,
            ),
        )

    systems = [system(baseline_target, "base")] if baseline_target is not None else []
    systems.append(system(target, name))
    chosen = [loaded for each in scenarios for loaded in load_suite(each).scenarios]
    folder = fresh_folder(out)
    plans = plan_campaign(systems, chosen, folder=folder / "calls", repeats=repeats, seed=seed)
    console = human(as_json=as_json)
    outcomes, stopped = dial_all(plans, concurrency=concurrency, console=console, quiet=quiet)
    return conclude(
        outcomes,
        folder=folder,
        stopped=stopped,
        console=console,
        as_json=as_json,
        quiet=quiet,
    )
