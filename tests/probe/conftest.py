"""Suites written by a test, and targets on virtual time: the reference agent, or a script."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.call import CallTimeline
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import serve as serve_agent
from vakforge_probe.calibrate import Truth, labelled, read_truth
from vakforge_probe.call import Call, CallOutcome, CallPlan
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.limits import Limits
from vakforge_probe.net.virtual import VirtualLoop, run
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

Play = Callable[[str], Coroutine[Any, Any, CallOutcome]]

T = TypeVar("T")

DEFAULTS = {"locale": "en-US", "language": {"primary": "en"}}
QUESTION = "en/order_delivery_date"


class Peer:
    """A target's side of a connection, to be told what to do."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.got: list[dict[str, Any]] = []

    async def say(self, kind: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def take(self, *kinds: str) -> dict[str, Any]:
        """Return the client's next message of one of these types."""
        while True:
            message: dict[str, Any] = json.loads(await self.connection.recv())
            self.got.append(message)
            if message["type"] in kinds:
                return message

    async def open_session(self, **session: Any) -> None:
        await self.say("session.created", session={"type": "realtime"})
        await self.take("session.update")
        await self.say("session.updated", session={"type": "realtime", **session})

    async def audio(self, n_ms: int = 500, response: str = "r", item: str = "i") -> None:
        delta = base64.b64encode(b"\x00\x20\x00\xe0" * (12 * n_ms)).decode()
        await self.say(
            "response.output_audio.delta", response_id=response, item_id=item, delta=delta
        )

    async def listen(self) -> None:
        """Read until the caller goes."""
        async for data in self.connection:
            self.got.append(json.loads(data))


@pytest.fixture
def write_suite(tmp_path: Path) -> Callable[..., Path]:
    """Return a writer of suites: ``write_suite(scenario, ..., name="own")``."""

    def write(*scenarios: dict[str, Any], name: str = "own", **facts: Any) -> Path:
        path = tmp_path / f"{name}.yaml"
        suite = {"schema": 1, "defaults": DEFAULTS, **facts, "scenarios": scenarios}
        path.write_text(json.dumps(suite))
        return path

    return write


@pytest.fixture
def one_question() -> dict[str, Any]:
    """A scenario of one turn, some 4 s long against the reference agent."""
    return {
        "id": "one",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }


@pytest.fixture
def plan(tmp_path: Path, write_suite: Callable[..., Path]) -> Callable[..., CallPlan]:
    """Return a maker of call plans: ``plan(url, scenario, **facts of the target)``."""

    def make(
        url: str, scenario: dict[str, Any], *, limits: Limits | None = None, **facts: Any
    ) -> CallPlan:
        return plan_campaign(
            [System("tuned", Target(url=url, label="target", **facts))],
            load_suite(write_suite(scenario)).scenarios,
            folder=tmp_path / "calls",
            limits=limits,
        )[0]

    return make


@pytest.fixture
def playing(plan: Any) -> Callable[..., Play]:
    """Return a maker of plays: ``playing(scenario)(url)`` runs the call."""

    def make(scenario: dict[str, Any], **facts: Any) -> Play:
        async def play(url: str) -> CallOutcome:
            return await Call(plan(url, scenario, **facts)).run()

        return play

    return make


@pytest.fixture
def with_agent(tmp_path: Path) -> Callable[..., Any]:
    """Return a runner on virtual time: ``with_agent(play, **knobs)`` gives ``play(url)``."""

    def go(play: Callable[[str], Awaitable[T]], **knobs: Any) -> T:
        async def main() -> T:
            clips = data_root() / "clips"
            truth = tmp_path / "truth.jsonl"
            async with await serve_agent(
                Behaviour(**{"greeting": False, **knobs}), "127.0.0.1", 0, truth, clips
            ) as agent:
                return await play(agent.url)

        return run(main())

    return go


@pytest.fixture(scope="session")
def with_truth(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a runner of all scenarios with each target, all calls at once on virtual time.

    ``with_truth(targets, scenarios, before=None, **facts of the suite)`` takes, by name, the knobs
    of the reference agent and the protocol to call it by; it gives timelines and the agent's truth.
    """

    def go(
        targets: Mapping[str, tuple[Mapping[str, object], str]],
        scenarios: Sequence[Mapping[str, Any]],
        before: Callable[[VirtualLoop], object] = lambda loop: None,
        **facts: Any,
    ) -> tuple[list[CallTimeline], Truth]:
        folder = tmp_path_factory.mktemp("calls")
        suite, log = folder / "suite.yaml", folder / "truth.jsonl"
        whole = {"schema": 1, "defaults": DEFAULTS, **facts, "scenarios": scenarios}
        suite.write_text(json.dumps(whole), "utf-8")

        async def main() -> list[CallOutcome]:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            clips = data_root() / "clips"
            async with await serve_agent(Behaviour(), "127.0.0.1", 0, log, clips) as agent:
                systems = [
                    System(
                        name,
                        Target(f"{agent.url_for(protocol)}?{urlencode(knobs)}", "agent", protocol),
                    )
                    for name, (knobs, protocol) in targets.items()
                ]
                plans = plan_campaign(systems, load_suite(suite).scenarios, folder=folder)
                before(loop)
                return await run_campaign(
                    [labelled(plan) for plan in plans], concurrency=len(plans)
                )

        outcomes = run(main())
        assert [outcome.failure for outcome in outcomes] == [None] * len(outcomes)
        timelines = [build_timeline(Capture.open(outcome.capture)) for outcome in outcomes]
        return timelines, read_truth(log)

    return go


@pytest.fixture
def with_target() -> Callable[..., Any]:
    """Return a runner on virtual time against a script: ``with_target(script, play)``."""

    def go(
        script: Callable[[Peer], Awaitable[None]], play: Callable[[str], Awaitable[T]]
    ) -> tuple[T, Peer]:
        peers: list[Peer] = []
        errors: list[BaseException] = []

        async def handle(connection: ServerConnection) -> None:
            peers.append(Peer(connection))
            try:
                await script(peers[-1])
            except ConnectionClosed:
                pass
            except BaseException as error:
                errors.append(error)

        async def main() -> T:
            async with serve(
                handle, "127.0.0.1", 0, compression=None, ping_interval=None, close_timeout=0.2
            ) as server:
                port = next(iter(server.sockets)).getsockname()[1]
                return await play(f"ws://127.0.0.1:{port}/")

        result = run(main())
        assert errors == []
        return result, peers[0]

    return go


@pytest.fixture
def truth(tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Return a reader of the reference agent's truth log: ``truth(kind)``."""

    def read(kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (tmp_path / "truth.jsonl").read_text().splitlines())
        return [line for line in lines if line["type"] == kind]

    return read


@pytest.fixture
def journal() -> Callable[..., list[dict[str, Any]]]:
    """Return a reader of captures, which must be whole: ``journal(folder, kind, what=None)``."""

    def read(folder: Path, kind: str, what: str | None = None) -> list[dict[str, Any]]:
        capture = Capture.open(folder)
        assert capture.verify() == []
        found = [line for line in capture.journal if line["type"] == kind]
        return [line for line in found if what is None or line["what"] == what]

    return read
