"""Calls to telephone bots as their networks carry them: keys, and orders to drop nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.report.build import make_report
from vakforge_eval.timeline.events import Interrupt, Unknown
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import serve
from vakforge_probe.call import Call, CallPlan
from vakforge_probe.net.virtual import run
from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.scenario.clips import data_root

pytestmark = pytest.mark.no_cover

PROFILES = shipped_profiles()
NETWORKS = [name for name, profile in PROFILES.items() if "mark" in profile.server]


@pytest.fixture
def called(plan: Callable[..., CallPlan], tmp_path: Path) -> Callable[..., Any]:
    """Return a caller of the reference agent: its capture, and the agent's own account."""

    def go(
        protocol: str, scenario: dict[str, Any], **knobs: Any
    ) -> tuple[Path, Capture, list[Any]]:
        truth = tmp_path / "truth.jsonl"

        async def main() -> Path:
            behaviour = Behaviour(**{"greeting": False, **knobs})
            clips = data_root() / "clips"
            async with await serve(behaviour, "127.0.0.1", 0, truth, clips) as agent:
                url = agent.url_for(protocol)
                outcome = await Call(plan(url, scenario, protocol=protocol)).run()
                assert outcome.failure is None
                return outcome.capture

        folder = run(main())
        account = list(map(json.loads, truth.read_text().splitlines()))
        return folder, Capture.open(folder), account

    return go


KEYS = {
    "id": "keys",
    "steps": [
        {"dtmf": "12#", "at": "0.5 s"},
        {"hang_up": None, "at": "2 s"},
    ],
}


@pytest.mark.parametrize("protocol", [name for name, p in PROFILES.items() if "dtmf" in p.client])
def test_a_key_is_a_message_when_it_is_let_go_and_no_sound(called: Any, protocol: str) -> None:
    _, capture, truth = called(protocol, KEYS)
    told = [line for line in capture.journal if line.get("what") == "dtmf"]
    assert [line["key"] for line in told] == ["1", "2", "#"]
    (step,) = (line for line in capture.journal if line["type"] == "step" and line["step"] == 0)
    released = [line["before"] - step["due"] for line in told]
    # With the frame in which the tone of 100 ms ends; the next begins 80 ms later.
    for at, due_ms in zip(released, (100, 280, 460), strict=True):
        assert 0 <= at - due_ms * 1_000_000 <= 40_000_000
    heard = [(line["key"], line["at"]) for line in truth if line["type"] == "dtmf"]
    assert heard == [(line["key"], line["before"]) for line in told]
    assert not [line for line in truth if line["type"] == "utterance"]


def test_where_a_key_is_no_message_it_is_a_sound(called: Any) -> None:
    _, capture, truth = called("openai-realtime", KEYS)
    assert not [line for line in capture.journal if line.get("what") == "dtmf"]
    assert not [line for line in truth if line["type"] == "dtmf"]
    assert [line for line in truth if line["type"] == "utterance"]


def test_every_telephone_network_tells_of_keys() -> None:
    assert {"twilio", "telnyx", "plivo", "exotel", "vonage"} == set(NETWORKS)
    assert all("dtmf" in PROFILES[name].client for name in NETWORKS)


TALK = {
    "id": "talk",
    "steps": [
        {"say": None, "clip": "en/order_delivery_date", "at": "0.3 s"},
        {"barge_in": None, "clip": "en/booking_confirm", "at": "1.2 s after agent onset"},
        {"hang_up": None, "at": "1.5 s after agent onset"},
    ],
}


@pytest.mark.parametrize("protocol", NETWORKS)
def test_an_order_to_drop_nothing_is_no_interruption(called: Any, protocol: str) -> None:
    """The agent gives that order at every onset of the user, as bots do."""
    folder, capture, _ = called(protocol, TALK, pacing="burst", say="long_1", reply_length=4.0)
    timeline = build_timeline(capture)
    told = timeline.events
    idle = [e for e in told if isinstance(e, Unknown) and "none was held" in e.name]
    orders = [event for event in told if isinstance(event, Interrupt)]
    assert len(idle) == len(orders) == 1
    assert idle[0].at.hi < orders[0].at.lo
    assert len([line for line in capture.journal if line["type"] == "flush"]) == 1
    first, second = make_report([folder])["turns"]
    assert "value" not in first["metrics"]["stop_heard"]
    assert second["metrics"]["stop_heard"]["value"] == pytest.approx(0.2, abs=0.002)


def test_a_call_behind_a_webhook_is_measured_as_one_that_is_dialled(
    plan: Callable[..., CallPlan],
) -> None:
    """The webhook takes its time; that is setup, and no part of what the agent is measured by."""

    async def main() -> Path:
        behaviour = Behaviour(greeting=False, reply_delay=0.6)
        clips = data_root() / "clips"
        async with await serve(behaviour, "127.0.0.1", 0, None, clips) as agent:

            async def voice(request: web.Request) -> web.Response:
                await asyncio.sleep(0.25)
                stream = f'<Stream url="{agent.url_for("twilio")}"/>'
                return web.Response(text=f"<Response><Connect>{stream}</Connect></Response>")

            application = web.Application()
            application.add_routes([web.post("/voice", voice)])
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = "http://{}:{}/voice".format(*runner.addresses[0][:2])
            outcome = await Call(plan(url, ASKED, protocol="twilio")).run()
            await runner.cleanup()
            assert outcome.failure is None
            return outcome.capture

    folder = run(main())
    (turn,) = make_report([folder])["turns"]
    assert turn["metrics"]["ttfa_heard"]["value"] == pytest.approx(0.6, abs=0.001)
    start, end = build_timeline(Capture.open(folder)).phases["webhook"]
    assert end - start == 250_000_000


ASKED = {
    "id": "asked",
    "steps": [
        {"say": None, "clip": "en/order_delivery_date", "at": "0.3 s"},
        {"hang_up": None, "at": "100 ms after agent end"},
    ],
}
