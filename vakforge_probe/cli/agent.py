"""``agent``: the reference agent, to try the probe or a client against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vakforge_probe.cli.common import command
from vakforge_probe.errors import ExitCode

__all__ = ["agent"]


@command
def agent(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of its behaviour."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write its truth log (JSON lines).")
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="List all settings and leave.")
    ] = False,
) -> ExitCode | None:
    """Run the reference agent: OpenAI Realtime dialect at / and /v1/realtime.

    Settings may also be given for one connection by the URL's query:
    ws://127.0.0.1:8765/v1/realtime?reply_delay=0.5
    """
    from vakforge_probe.agent.process import describe_settings, run_agent

    if settings:
        typer.echo(describe_settings())
        return None
    return run_agent(host, port, set_ or [], truth)
