"""Overlap of whole calls against the reference agent's own count, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vakforge_eval.metrics.overlap import (
    agent_overlap_rate,
    overlap_rate,
    overlap_share_of_speech,
)
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.values import Measured
from vakforge_probe.calibrate.log import OverlapLine

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

Measure = Callable[..., tuple[CallView, OverlapLine]]


@pytest.fixture
def measure(with_truth: Callable[..., Any]) -> Measure:
    """Return a runner of one call, which gives the call and the agent's account of its overlap."""

    def go(scenario: dict[str, Any], **knobs: object) -> tuple[CallView, OverlapLine]:
        targets = {"agent": ({"greeting": False, **knobs}, "openai-realtime")}
        (timeline,), truth = with_truth(targets, [scenario], defaults=DEFAULTS)
        (account,) = truth.overlaps.values()
        return CallView(timeline), account

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
    assert account.overlap_s > 0.3
    for metric, part, whole in (
        (overlap_rate, "overlap_s", "total_s"),
        (agent_overlap_rate, "agent_overlap_s", "total_s"),
        (overlap_share_of_speech, "overlap_s", "speech_s"),
    ):
        value, truth = metric(view), getattr(account, part) / getattr(account, whole)
        assert isinstance(value, Measured)
        assert value.value == pytest.approx(truth, abs=bound / getattr(account, whole)), part
        slack = account.error_s / getattr(account, whole) + 1e-9
        assert value.lo - slack <= truth <= value.hi + slack, part
