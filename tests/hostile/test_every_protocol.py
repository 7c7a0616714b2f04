"""Every protocol's client against servers that misbehave: each call ends, typed, with its capture.

What is in the registry is tried; a new protocol needs no line here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.events import Fault, Unknown
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.doors import DOORS, Knock, path_of
from vakforge_probe.call import Call, CallOutcome
from vakforge_probe.campaign import System, plan_campaign
from vakforge_probe.errors import TargetError, TargetProtocolError
from vakforge_probe.limits import Limits
from vakforge_probe.net.virtual import run
from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.protocol.pipecat_frames import Message, write_frame
from vakforge_probe.protocol.registry import PROTOCOLS, make_client
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

pytestmark = pytest.mark.no_cover

EVERY = [name for name in (*PROTOCOLS, *shipped_profiles()) if make_client(name).signalling is None]
LIMITS = Limits(ready_s=1.0, close_s=0.5, max_message_bytes=200_000, max_control_bytes=100_000,
                max_events=500, max_received_bytes=2_000_000, max_audio_s=20.0)  # fmt: skip
SUITE = {
    "schema": 1,
    "defaults": {
        "locale": "en-US",
        "language": {"primary": "en"},
        "budgets": {"call": "6 s", "reply": "0.5 s", "greeting": "0.2 s"},
    },
    "scenarios": [
        {
            "id": "one",
            "steps": [
                {"say": None, "clip": "en/booking_confirm", "at": "0.1 s"},
                {"hang_up": None, "at": "3 s"},
            ],
        }
    ],
}
WITHIN_S = 9.0
Play = Callable[[ServerConnection, "Voice"], Awaitable[None]]


class Voice:
    """What a good server of the protocol would say."""

    def __init__(self, protocol: str) -> None:
        self._server = DOORS[path_of(protocol)](Behaviour(), Knock({}, {}, "1"))

    def hello(self) -> list[Wire]:
        return self._server.created()

    def hear(self, data: Wire) -> list[Wire]:
        self._server.receive(data)
        return self._server.take_replies()

    def audio(self, n_bytes: int) -> list[Wire]:
        self._server.is_format_fixed = True
        response = self._server.response()
        return [*response.begin(), *response.begin_message(), *response.audio(bytes(n_bytes))]


async def shake_hands(link: ServerConnection, voice: Voice) -> None:
    """Do as the protocol wants until the session is there."""
    for message in voice.hello():
        await link.send(message)
    for _ in range(3):
        for message in voice.hear(await link.recv()):
            await link.send(message)


def repeating(message: Wire) -> Play:
    """Return who says so without end."""

    async def play(link: ServerConnection, voice: Voice) -> None:
        await shake_hands(link, voice)
        for n in itertools.count():
            await link.send(message)
            if n % 50 == 0:
                await asyncio.sleep(0.001)

    return play


def saying(*messages: Wire) -> Play:
    """Return who says just this, and listens."""

    async def play(link: ServerConnection, voice: Voice) -> None:
        for message in messages:
            await link.send(message)
        async for _ in link:
            pass

    return play


async def floods_audio(link: ServerConnection, voice: Voice) -> None:
    await shake_hands(link, voice)
    for n in itertools.count():
        for message in voice.audio(960):
            await link.send(message)
        if n % 50 == 0:
            await asyncio.sleep(0.001)


async def closes_at_once(link: ServerConnection, voice: Voice) -> None:
    await link.close(1011, "no room")


async def closes_when_ready(link: ServerConnection, voice: Voice) -> None:
    await shake_hands(link, voice)
    await link.close(1000)


async def resets_in_speech(link: ServerConnection, voice: Voice) -> None:
    await shake_hands(link, voice)
    for message in voice.audio(1920):
        await link.send(message)
    await asyncio.sleep(0.5)
    link.transport.abort()


async def is_silent(link: ServerConnection, voice: Voice) -> None:
    async for _ in link:
        pass


DEEP = "[" * 50_000 + "]" * 50_000
PLAYS: dict[str, tuple[Play, set[str | None]]] = {
    "garbage text": (saying("\ufffd no JSON {"), {"protocol_error"}),
    "garbage bytes": (
        saying(b"\xff\xfe\xfd" * 1000),
        {"protocol_error", "timeout", None},  # where any bytes are audio, it has been heard
    ),
    "nested without end": (saying(DEEP), {"protocol_error"}),
    "a number without end": (saying('{"type":' + "9" * 5000 + "}"), {"protocol_error"}),
    "a message too long": (saying(" " * 300_000), {"limit_exceeded"}),
    "bytes too long": (saying(bytes(300_000)), {"limit_exceeded"}),
    "a flood of nothing": (repeating("{}"), {"limit_exceeded", "protocol_error"}),
    "a flood of strangers": (
        repeating(json.dumps({"type": "x", "event": "x"})), {"limit_exceeded", "protocol_error"}
    ),
    "a flood of bytes": (repeating(b"\0" * 1000), {"limit_exceeded", "protocol_error"}),
    "a flood of audio": (floods_audio, {"limit_exceeded"}),
    "closed at once": (closes_at_once, {"closed"}),
    "closed when ready": (closes_when_ready, {"closed"}),
    "reset in speech": (resets_in_speech, {"closed"}),
    "silence": (is_silent, {"timeout"}),
}  # fmt: skip


@dataclass
class Ended:
    outcome: CallOutcome
    took_s: float


@pytest.fixture
def calls(tmp_path: Path) -> Callable[..., dict[str, Ended]]:
    """Return a caller of many servers at once by one protocol."""
    suite = tmp_path / "suite.yaml"
    suite.write_text(json.dumps(SUITE))

    def go(protocol: str, plays: dict[str, Play]) -> dict[str, Ended]:
        async def one(name: str, play: Play) -> Ended:
            async def handle(link: ServerConnection) -> None:
                with suppress(ConnectionClosed):
                    await play(link, Voice(protocol))

            server: Server = await serve(
                handle, "127.0.0.1", 0, compression=None, ping_interval=None, close_timeout=0.2,
                max_size=None, max_queue=None,
            )  # fmt: skip
            url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
            target = Target(url=url, label=name, protocol=protocol)
            plan = plan_campaign(
                [System("tuned", target)], load_suite(suite).scenarios,
                folder=tmp_path / name.replace(" ", "-"), limits=LIMITS,
            )[0]  # fmt: skip
            begun = asyncio.get_running_loop().time()
            outcome = await Call(plan).run()
            took_s = asyncio.get_running_loop().time() - begun
            server.close()
            await server.wait_closed()
            return Ended(outcome, took_s)

        async def main() -> list[Ended]:
            return await asyncio.gather(*(one(name, play) for name, play in plays.items()))

        return dict(zip(plays, run(main()), strict=True))

    return go


@pytest.mark.parametrize("protocol", EVERY)
def test_whatever_a_server_does_the_call_ends_typed_with_a_complete_capture(
    calls: Any, protocol: str
) -> None:
    ended = calls(protocol, {name: play for name, (play, _) in PLAYS.items()})
    for name, end in ended.items():
        failure = end.outcome.failure
        kind = failure.kind if isinstance(failure, TargetError) else None
        assert kind in PLAYS[name][1], (name, failure)
        assert end.took_s < WITHIN_S, name
        timeline = build_timeline(Capture.open(end.outcome.capture))
        assert (timeline.failure or {}).get("kind") == kind
        assert (end.outcome.capture / "index.json").exists(), name
        assert end.outcome.recorder_problem is None, name


@pytest.mark.parametrize("protocol", EVERY)
def test_a_flood_costs_little_memory(calls: Any, protocol: str) -> None:
    floods = ("a flood of audio", "a flood of strangers", "a flood of bytes")
    tracemalloc.start()
    try:
        calls(protocol, {name: PLAYS[name][0] for name in floods})
        # Three calls with their clips and limits take 34 MiB; what grows with a flood takes all.
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


FOREIGN: dict[str, Wire] = {
    "openai-realtime": '{"type":"session.created","session":{"type":"realtime"}}',
    "gemini-live": b'{"setupComplete":{}}',
    "deepgram-agent": '{"type":"Welcome","request_id":"r"}',
    "elevenlabs": '{"type":"interruption","interruption_event":{"event_id":1}}',
    "pipecat": write_frame(Message('{"label":"rtvi-ai","type":"bot-ready","id":"1","data":{}}')),
}


def is_strange(protocol: str, message: Wire) -> bool:
    events = make_client(protocol).receive(message, Instant.exact(0))
    return any(isinstance(event, Fault | Unknown) for event in events)


@pytest.mark.parametrize("protocol", EVERY)
def test_another_dialect_is_named(calls: Any, protocol: str) -> None:
    """Unless the protocol knows the message as its own, or takes any bytes for sound."""
    plays = {
        name: saying(message)
        for name, message in FOREIGN.items()
        if name != protocol and is_strange(protocol, message)
    }
    assert len(plays) >= 3
    for name, end in calls(protocol, plays).items():
        failure = end.outcome.failure
        assert isinstance(failure, TargetProtocolError), (name, failure)
        assert f"the target seems to speak {name}, not {protocol}" in str(failure)
