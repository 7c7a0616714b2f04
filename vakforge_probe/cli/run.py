"""``run``: probe a live endpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, human
from vakforge_probe.errors import ExitCode

if TYPE_CHECKING:
    from vakforge_probe.target import Target

__all__ = ["run"]

_HEADERS = "VAKFORGE_PROBE_RUN_HEADER"
_EXPERIMENTAL = "not run against a server; nothing of others has confirmed how it is spoken"


@command
def run(
    scenarios: Annotated[
        list[str],
        typer.Argument(
            metavar="SUITE|FILE…", help="Shipped suites or files; SUITE#ID is one scenario of it."
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            help="URL (ws:// or wss://; twilio: or http(s)://, its webhook) or alias of the target."
        ),
    ],
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[/PROFILE]|FILE",
            help="How the target speaks: openai-realtime with words such as beta-manual (ga, beta, "
            "pcm, pcmu, pcma, in16k, continuous, manual, halfduplex, flush; azure, azurebeta, xai, "
            "qwen, localai, speaches, vllm), gemini-live, moshi, pipecat, gpt-live, twilio, "
            "telnyx, plivo, exotel, vonage, deepgram-agent, elevenlabs, ultravox, assemblyai, "
            "fastrtc-ws, unmute, minicpm-o, or a "
            "YAML file that declares another one.",
        ),
    ] = None,
    baseline_target: Annotated[
        str | None, typer.Option(help="The system to compare with; calls are interleaved.")
    ] = None,
    targets: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A targets.yaml with aliases.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            # Values hold spaces, at which a list in the environment would be split.
            allow_from_autoenv=False,
            help="Handshake header; secrets only as ${env:NAME} or file:PATH. "
            f"[env var: {_HEADERS}, one a line]",
        ),
    ] = None,
    auth_token: Annotated[
        str | None,
        typer.Option(
            metavar="REFERENCE",
            help="Signs as Twilio does (X-Twilio-Signature), or a LiveKit token (KEY:SECRET): "
            "${env:NAME} or file:PATH.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to ask for.")] = None,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="CA bundle for wss.")] = None,
    hardware: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML: the serving path's hardware, as its owner says."),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Calls of each scenario [default: the file's own]."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, max=150, help="Calls at once.")] = 1,
    name: Annotated[str, typer.Option(metavar="SYSTEM", help="The system's name.")] = "tuned",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New folder of the run. [default: runs/<UTC time>]"),
    ] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> ExitCode:
    """Probe a live endpoint: captures first, then the report made of them.

    Example: vakforge-probe run latency --target wss://agent.example/v1/realtime
    --header 'Authorization=Bearer ${env:API_KEY}'
    """
    from vakforge_probe.campaign import new_folder, plan_campaign, systems_of
    from vakforge_probe.cli.session import conclude, dial_all
    from vakforge_probe.protocol.registry import make_client
    from vakforge_probe.scenario.choose import choose_scenarios
    from vakforge_probe.scenario.loader import load_model
    from vakforge_probe.target import Hardware, load_targets, resolve_target

    known = load_targets(targets) if targets is not None else None
    stated = load_model(hardware, Hardware).root if hardware is not None else None
    headers = tuple(header or filter(None, os.environ.get(_HEADERS, "").splitlines()))

    def resolve(alias: str) -> Target:
        return resolve_target(
            alias,
            targets=known,
            protocol=protocol,
            model=model,
            headers=headers,
            auth_token=auth_token,
            ca=ca,
            hardware=stated,
        )

    baseline = resolve(baseline_target) if baseline_target is not None else None
    systems = systems_of(resolve(target), baseline, name)
    chosen = [loaded for each in scenarios for loaded in choose_scenarios(each)]
    # All is checked before anything is made.
    plan_campaign(systems, chosen, folder=Path(), repeats=1)
    folder = new_folder(out)
    plans = plan_campaign(systems, chosen, folder=folder / "calls", repeats=repeats, seed=seed)
    console = human(as_json=json, quiet=quiet)
    for spoken in dict.fromkeys(system.target.protocol for system in systems):
        if make_client(spoken).is_experimental:
            console.print(f"{spoken} is experimental: {_EXPERIMENTAL}", markup=False)
    outcomes, stopped = dial_all(plans, concurrency=concurrency, console=console)
    return conclude(outcomes, folder=folder, stopped=stopped, console=console, as_json=json)
