"""Whole calls over WebRTC to peers that misbehave: each ends, typed, with its capture.

The real clock runs, as no other drives the library; what is judged is how calls end, never when.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_probe.call import CallOutcome
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.errors import TargetError
from vakforge_probe.limits import Limits
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.peer import Peer
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

pytestmark = [pytest.mark.wallclock, pytest.mark.no_cover]

LIMITS = Limits(max_control_bytes=20_000, max_events=200, close_s=5.0)
SUITE = {
    "schema": 1,
    "defaults": {
        "locale": "en-US",
        "language": {"primary": "en"},
        "budgets": {"call": "20 s", "reply": "0.5 s", "greeting": "0.2 s"},
    },
    "scenarios": [
        {
            "id": "one",
            "steps": [
                {"say": None, "clip": "backchannel/mm_hm", "at": "0.1 s"},
                {"hang_up": None, "at": "2 s"},
            ],
        }
    ],
}
Play = Callable[[Peer], None]


def saying(*texts: str) -> Play:
    def play(peer: Peer) -> None:
        for text in texts:
            peer.send_text(text)

    return play


def flooding(text: str) -> Play:
    """Return who says so again and again, as fast as the line takes it."""

    def play(peer: Peer) -> None:
        if peer.send_text(text):
            asyncio.get_running_loop().call_later(0.001, play, peer)

    return play


def sounding(data: bytes, *, n: int = 1) -> Play:
    """Return who sends that as sound, `n` packets at once."""

    def play(peer: Peer) -> None:
        for _ in range(n):
            peer.send_audio(data, 960)
        if peer.connection.connectionState == "connected":
            asyncio.get_running_loop().call_later(0.02, play, peer)

    return play


def leaving(peer: Peer) -> None:
    TASKS.add(asyncio.ensure_future(peer.close()))


TASKS: set[asyncio.Future[None]] = set()
"""Of the peers; kept, since a loop does not keep its tasks."""

PLAYS: dict[str, tuple[str, Play, tuple[str | None, str | None]]] = {
    "no JSON": ("smallwebrtc", saying("{"), ("protocol_error", "call")),
    "no JSON to fastrtc": ("fastrtc", saying("\x00"), ("protocol_error", "call")),
    "nested without end": ("openai-webrtc", saying("[" * 9000), ("protocol_error", "ready")),
    "too long": ("smallwebrtc", saying("x" * 30_000), ("limit_exceeded", "call")),
    "a flood of strangers": ("openai-webrtc", flooding('{"type":"x"}'),
                             ("limit_exceeded", "ready")),
    "a flood of sound": ("whip", sounding(b"\xf8\xff\xfe", n=100), ("limit_exceeded", "call")),
    "an error": ("smallwebrtc", saying('{"label":"rtvi-ai","type":"error","data":7}'),
                 ("timeout", "first_audio")),
    "no Opus": ("whip", sounding(b"\xff" * 50), (None, None)),
    "silence": ("fastrtc", saying(), ("timeout", "first_audio")),
    "no message is small enough": ("smallwebrtc", saying(), ("protocol_error", "ready")),
    "it leaves": ("whip", leaving, ("closed", "call")),
    "it leaves before it is ready": ("openai-webrtc", leaving, ("closed", "ready")),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CallOutcome]:
    """What became of a call to each of them; all are called at once."""
    folder = tmp_path_factory.mktemp("calls")
    suite = folder / "suite.yaml"
    suite.write_text(json.dumps(SUITE))
    strays: list[dict[str, Any]] = []
    peers: list[Peer] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        name = request.query["play"]
        protocol, play, _ = PLAYS[name]
        peer = Peer(on_packet=lambda *_: None, on_text=lambda *_: None, decodes=False)
        peers.append(peer)
        is_json = request.content_type == "application/json"
        offer = (await request.json())["sdp"] if is_json else await request.text()
        answer = await peer.answer(offer)
        if name == "no message is small enough":
            answer = re.sub(r"a=max-message-size:\d+", "a=max-message-size:1", answer)

        async def begin() -> None:
            await peer.until_found()
            await peer.until_secured()
            if protocol != "whip":
                await peer.until_open()
            asyncio.get_running_loop().call_soon(play, peer)

        TASKS.add(asyncio.ensure_future(begin()))
        if is_json:
            return web.json_response({"sdp": answer, "type": "answer"})
        return web.Response(status=201, text=answer)

    async def main() -> list[CallOutcome]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: strays.append(context))
        application = web.Application()
        application.add_routes([web.post("/", handle)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = "http://{}:{}/?play=".format(*runner.addresses[0][:2])
        systems = [
            System(f"s{n}", Target(url + name.replace(" ", "%20"), name, protocol))
            for n, (name, (protocol, *_)) in enumerate(PLAYS.items())
        ]
        plans = plan_campaign(systems, load_suite(suite).scenarios, folder=folder, limits=LIMITS)
        found = await run_campaign(plans, concurrency=len(plans))
        for peer in peers:
            await peer.close()
        await runner.cleanup()
        return found

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        found = runner.run(main())
    TASKS.clear()
    assert strays == []
    return {outcome.plan.target.label: outcome for outcome in found}


@pytest.mark.parametrize("name", PLAYS)
def test_whatever_a_peer_does_the_call_ends_typed_with_a_complete_capture(
    outcomes: dict[str, CallOutcome], name: str
) -> None:
    outcome, ending = outcomes[name], PLAYS[name][2]
    failure = outcome.failure
    assert failure is None or isinstance(failure, TargetError), failure
    kind, phase = (None, None) if failure is None else (failure.kind, failure.phase)
    assert (kind, phase) == ending, failure
    capture = Capture.open(outcome.capture)
    assert capture.verify() == []
    assert not capture.is_truncated
    assert (build_timeline(capture).failure or {}).get("kind") == kind
    assert outcome.recorder_problem is None


def test_the_captures_are_where_they_should_be(outcomes: dict[str, CallOutcome]) -> None:
    assert len({Path(outcome.capture) for outcome in outcomes.values()}) == len(PLAYS)
