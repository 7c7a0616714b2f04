"""A call by each protocol over WebRTC, on the real clock: the truth lies in the stated bounds."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.values import Measured
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.doors import RTC_PATHS
from vakforge_probe.agent.server import serve
from vakforge_probe.calibrate import Row, compare, compare_duplex, labelled, read_truth
from vakforge_probe.call import CallOutcome
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

pytestmark = [pytest.mark.wallclock, pytest.mark.no_cover]

KNOBS = {"greeting": False, "reply_delay": 0.4, "stop_delay": 0.2, "say": "long_1"}
SCENARIO: dict[str, Any] = {
    "id": "one",
    "steps": [
        {"say": None, "clip": "backchannel/mm_hm", "at": "0.2 s"},
        {"barge_in": None, "clip": "en/booking_confirm", "at": "0.8 s after agent onset"},
        {"hang_up": None, "at": "1 s after agent onset"},
    ],
}
DEFAULTS = {
    "locale": "en-US",
    "language": {"primary": "en"},
    "budgets": {"call": "20 s", "reply": "3 s", "greeting": "1 s"},
}


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[CallTimeline], list[Row]]:
    """One call by each protocol, all at once, and what was measured beside what was true."""
    folder = tmp_path_factory.mktemp("live")
    suite, log = folder / "suite.yaml", folder / "truth.jsonl"
    suite.write_text(json.dumps({"schema": 1, "defaults": DEFAULTS, "scenarios": [SCENARIO]}))

    async def main() -> list[CallOutcome]:
        clips = data_root() / "clips"
        async with await serve(
            Behaviour(), "127.0.0.1", 0, log, clips, webrtc_port=0
        ) as agent:  # fmt: skip
            systems = [
                System(name, Target(f"{agent.url_for(name)}?{urlencode(KNOBS)}", "agent", name))
                for name in RTC_PATHS
            ]
            plans = plan_campaign(systems, load_suite(suite).scenarios, folder=folder)
            return await run_campaign([labelled(plan) for plan in plans], concurrency=len(plans))

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        outcomes = runner.run(main())
    assert [outcome.failure for outcome in outcomes] == [None] * len(RTC_PATHS)
    timelines = [build_timeline(Capture.open(outcome.capture)) for outcome in outcomes]
    truth = read_truth(log)
    return timelines, [*compare(timelines, truth), *compare_duplex(timelines, truth).rows]


@pytest.mark.parametrize("protocol", RTC_PATHS)
def test_what_is_stated_is_true(called: Any, protocol: str) -> None:
    _, rows = called
    mine = [row for row in rows if row.condition == protocol]
    known = {row.metric for row in mine if row.is_matched and row.truth is not None}
    assert {"ttfa_heard", "stop_heard", "stop_network"} <= known
    # A machine too busy to answer in time has told nothing; then nothing is judged.
    for row in mine:
        if row.counts:
            assert row.covered is not False, row
            if row.metric in ("ttfa_heard", "stop_heard") and row.truth is not None:
                assert isinstance(row.measured, Measured), row
                assert row.measured.value > 0.1, row


@pytest.mark.parametrize("protocol", RTC_PATHS)
def test_the_capture_tells_how_the_call_was_made(called: Any, protocol: str) -> None:
    timelines, _ = called
    (timeline,) = [found for found in timelines if found.system == protocol]
    phases = [line["name"] for line in timeline.journal if line["type"] == "phase"]
    messages = [] if protocol == "whip" else ["channel"]
    assert phases == ["gather", "signal", "ice", "dtls", *messages, "ready"]
