"""Overlap of whole calls against the reference agent's own count, on virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.overlap import (
    agent_overlap_rate,
    overlap_rate,
    overlap_share_of_speech,
)
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.values import Measured
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import serve
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.net.virtual import run
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

QUESTION = "en/order_delivery_date"
LONG = "en/order_stop"
TALK_OVER = {
    "id": "talk-over",
    "steps": [
        {"say": None, "clip": QUESTION, "at": "0.2073 s"},
        {"backchannel": None, "clip": "backchannel/mm_hm", "at": "613.7 ms after agent onset"},
        {"barge_in": None, "clip": LONG, "at": "2337.3 ms after agent onset"},
        {"hang_up": None, "at": "1 s after agent end"},
    ],
}
DEFAULTS = {
    "locale": "en-US",
    "language": {"primary": "en"},
    "budgets": {"call": "60 s", "reply": "4 s", "greeting": "1 s"},
}

Measure = Callable[..., tuple[CallView, dict[str, Any]]]


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """Return a runner of one call, which gives the call and the agent's account of its overlap."""

    def go(scenario: dict[str, Any], **knobs: object) -> tuple[CallView, dict[str, Any]]:
        suite, log = tmp_path / "suite.yaml", tmp_path / "truth.jsonl"
        document = {"schema": 1, "defaults": DEFAULTS, "scenarios": [scenario]}
        suite.write_text(json.dumps(document), "utf-8")
        query = urlencode({"greeting": False, **knobs})

        async def main() -> Any:
            clips = data_root() / "clips"
            async with await serve(Behaviour(), "127.0.0.1", 0, log, clips) as agent:
                system = System("agent", Target(url=f"{agent.url}?{query}", label="agent"))
                plans = plan_campaign([system], load_suite(suite).scenarios, folder=tmp_path)
                return await run_campaign(plans, concurrency=1)

        (outcome,) = run(main())
        assert outcome.failure is None
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        (account,) = [line for line in lines if line["type"] == "overlap"]
        return CallView(build_timeline(Capture.open(outcome.capture))), account

    return go


CONTINUOUS = {"stream": "continuous"}
CASES = [
    pytest.param({"stop_delay": 0.2}, 0.001, id="stops"),
    pytest.param({"stop_delay": 0.6, "pacing": "burst"}, 0.001, id="stops late, burst"),
    # The voice happens to die away in the 22 ms before the stop.
    pytest.param({"stop_delay": 0.8}, 0.025, id="stops while its voice fades"),
    pytest.param({"stop_delay": "never", "pacing": "x10"}, 0.001, id="never stops"),
    pytest.param({"early_talk": 0.4, "jitter_ms": 60}, 0.010, id="talks early, jitter"),
    pytest.param(
        {"early_talk": 0.4, "noise_dbfs": -50, **CONTINUOUS}, 0.020, id="talks early, in noise"
    ),
    pytest.param({"early_talk": 0.4, "echo_db": -20, **CONTINUOUS}, 0.020, id="echo"),
    pytest.param({"stop_delay": 0.2, "echo_db": -20, **CONTINUOUS}, 0.020, id="echo, stops"),
    pytest.param({"segments": 3, "segment_gap": 0.19}, 0.001, id="a gap that is talk"),
    pytest.param({"segments": 3, "segment_gap": 0.21}, 0.001, id="a gap that is none"),
]


@pytest.mark.parametrize(("knobs", "bound"), CASES)
def test_the_overlap_of_a_call_is_that_of_the_agents_own_account(
    measure: Measure, knobs: dict[str, object], bound: float
) -> None:
    view, account = measure(TALK_OVER, reply_length=5, **knobs)
    assert account["overlap_s"] > 0.3
    for metric, part, whole in (
        (overlap_rate, "overlap_s", "total_s"),
        (agent_overlap_rate, "agent_overlap_s", "total_s"),
        (overlap_share_of_speech, "overlap_s", "speech_s"),
    ):
        value, truth = metric(view), account[part] / account[whole]
        assert isinstance(value, Measured)
        assert value.value == pytest.approx(truth, abs=bound / account[whole]), part
        slack = account["error_s"] / account[whole] + 1e-9
        assert value.lo - slack <= truth <= value.hi + slack, part
