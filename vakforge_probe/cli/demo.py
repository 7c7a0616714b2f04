"""``demo``: the whole instrument against its own reference agent, in a minute, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, human
from vakforge_probe.errors import ExitCode

__all__ = ["BASE", "TUNED", "demo"]

BASE = {
    "reply_delay": 0.9,
    "endpoint_silence": 0.5,
    "leading_silence": 0.12,
    "jitter_ms": 30,
    "filler": "true",
    "answer_delay": 0.35,
    "reply_length": 5.0,
    "stop_delay": 0.8,
    "backchannel_words": 1,
    "on_backchannel": "pause",
    "resume_delay": 0.6,
}
"""The demo's slower setting of the reference agent: it answers and stops late, falters at a word of
assent and falls silent at two."""
TUNED = {
    "reply_delay": 0.5,
    "endpoint_silence": 0.3,
    "filler": "true",
    "answer_delay": 0.15,
    "reply_length": 5.0,
    "stop_delay": 0.2,
    "backchannel_words": 2,
}
"""The demo's faster setting of the reference agent; it talks on through signs of listening.

Like the slower one it stops for words to somebody else: it knows an aside from a barge-in by its
number of words alone, and the demo's aside is longer than its barge-ins."""


@command
def demo(
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder of the run.")] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Calls of each scenario [default: the file's own]."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, max=50, help="Calls at once.")] = 4,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> ExitCode:
    """Start the reference agent in its own process, probe it as base and as tuned, and report.

    No network beyond loopback, no key, under 90 seconds. What its agent misses by design is no
    error; exit code 4 only where this machine was too busy for a valid measurement.
    """
    from vakforge_probe.agent.process import AgentProcess
    from vakforge_probe.campaign import System, new_folder, plan_campaign
    from vakforge_probe.cli.session import conclude, dial_all
    from vakforge_probe.scenario.loader import load_suite
    from vakforge_probe.target import Target

    suite = load_suite("demo")
    folder = new_folder(out)
    console = human(as_json=json, quiet=quiet)
    with AgentProcess(truth=folder / "truth.jsonl") as agent:
        systems = [
            System(
                name,
                Target(
                    url=f"{agent.url}?{urlencode(settings)}",
                    label=f"reference agent, {name} setting",
                    hardware={
                        "serving path": "reference agent on this machine",
                        "settings": "those of `agent --settings`; times in s",
                        **settings,
                    },
                ),
            )
            for name, settings in (("base", BASE), ("tuned", TUNED))
        ]
        plans = plan_campaign(
            systems,
            suite.scenarios,
            folder=folder / "calls",
            repeats=repeats,
            seed=seed,
        )
        outcomes, stopped = dial_all(plans, concurrency=concurrency, console=console)
    return conclude(
        outcomes, folder=folder, stopped=stopped, console=console, as_json=json, is_demo=True
    )
