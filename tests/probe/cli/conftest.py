"""The command line in this process and as a process of its own; captures to be looked at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vakforge_eval
import vakforge_probe
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.process import AgentProcess
from vakforge_probe.agent.server import serve
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.cli.app import app
from vakforge_probe.limits import Limits
from vakforge_probe.net.virtual import run
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

ONE_TURN = {
    "schema": 1,
    "scenarios": [
        {
            "id": "one",
            "locale": "en-US",
            "language": {"primary": "en"},
            "budgets": {"reply": "2 s"},
            "steps": [
                {"say": None, "clip": "en/order_delivery_date", "at": "0.2 s"},
                {"hang_up": None, "at": "100 ms after agent end"},
            ],
        }
    ],
}


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in an empty folder, without anybody's options or colours."""
    roots = (Path(module.__file__ or "").parents[1] for module in (vakforge_probe, vakforge_eval))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, roots)))
    for name in list(os.environ):
        if name.startswith("VAKFORGE_PROBE_") or name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli() -> Callable[..., Said]:
    """Return a runner in this process: ``cli("run", ..., env={})``; a bug is raised."""

    def invoke(*args: object, env: dict[str, str] | None = None) -> Said:
        done = CliRunner().invoke(app, list(map(str, args)), env=env)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return invoke


@pytest.fixture
def start_cli() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a starter of processes; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: object, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "vakforge_probe", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def agent_url() -> Iterator[str]:
    """URL of a reference agent in a process of its own."""
    settings = {"greeting": "false", "reply_delay": 0.2, "say": "short_ok"}
    with AgentProcess(settings=settings) as agent:
        yield agent.url


@pytest.fixture
def short_suite(write_suite: Callable[..., Path]) -> Path:
    """A suite of one turn, about 2 s long in real time."""
    return write_suite(
        {
            "id": "short",
            "budgets": {"reply": "3 s"},
            "steps": [
                {"say": None, "clip": "backchannel/mm_hm", "at": "0.1 s"},
                {"hang_up": None, "at": "50 ms after agent end"},
            ],
        },
        name="short",
    )


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, int], Path]:
    """Return the capture of one call on virtual time, made once: ``of(query, system, seed)``."""
    folder = tmp_path_factory.mktemp("recordings")
    suite = folder / "one.yaml"
    suite.write_text(json.dumps(ONE_TURN))
    made: dict[tuple[str, str, int], Path] = {}

    async def make(query: str, system: str, seed: int) -> Path:
        knobs = Behaviour(greeting=False)
        async with await serve(knobs, "127.0.0.1", 0, None, data_root() / "clips") as agent:
            target = Target(url=f"{agent.url}{query}", label="target")
            (outcome,) = await run_campaign(
                plan_campaign(
                    [System(system, target)],
                    load_suite(suite).scenarios,
                    folder=folder / str(len(made)),
                    seed=seed,
                    limits=Limits(handshake_s=1.0, ready_s=1.0),
                )
            )
        return outcome.capture

    def of(query: str, system: str, seed: int) -> Path:
        key = query, system, seed
        if key not in made:
            made[key] = run(make(*key))
        return made[key]

    return of


@pytest.fixture
def record(recordings: Callable[[str, str, int], Path], tmp_path: Path) -> Callable[..., None]:
    """Return a maker of runs: ``record(query, ..., system="tuned", folder="run")``, a call each."""

    def go(*queries: str, system: str = "tuned", folder: str = "run") -> None:
        for n, query in enumerate(queries):
            kept = recordings(query, system, n)
            shutil.copytree(kept, tmp_path / folder / "calls" / f"{n}-{system}")

    return go
