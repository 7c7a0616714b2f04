"""A stream that never pauses, from an agent whose clock is off, against the agent's truth.

Half a minute is in the usual run. The ten minutes of which it is promised that no error grows::

    VAKFORGE_PROBE_MINUTES=10 python -m pytest tests/probe/test_long_stream.py --timeout=0

take about a minute of a core.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from vakforge_eval.timeline.values import Measured
from vakforge_probe.calibrate import compare

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

MINUTES = float(os.environ.get("VAKFORGE_PROBE_MINUTES", "0.5"))
TURN_S = 7.0
QUESTION = "en/order_delivery_date"


@pytest.mark.parametrize("ppm", [5000, -5000])
def test_no_error_grows_with_the_length_of_a_stream(
    with_truth: Callable[..., Any], ppm: int
) -> None:
    n_turns = round(MINUTES * 60 / TURN_S)
    asks = {"say": None, "clip": QUESTION}
    steps = [{**asks, "at": f"{0.2073 + k * (TURN_S + 0.0119):.4f} s"} for k in range(n_turns)]
    scenario = {"id": "long", "steps": [*steps, {"hang_up": None, "at": "3 s after agent end"}]}
    knobs = {"greeting": False, "say": "short_ok", "skew_ppm": ppm,
             "stream": "continuous", "playout": "live"}  # fmt: skip
    budgets = {"call": "1800 s", "reply": "4 s", "greeting": "1 s"}
    rows = compare(
        *with_truth(
            {"agent": (knobs, "openai-realtime/continuous")},
            [scenario],
            defaults={"locale": "en-US", "language": {"primary": "en"}, "budgets": budgets},
        )
    )
    heard = [row for row in rows if row.metric in ("ttfa_heard", "total_response")]
    assert len(heard) == 2 * n_turns
    for row in heard:
        assert row.counts
        assert isinstance(row.measured, Measured)
        assert row.error is not None
        assert abs(row.error) <= 0.001, row
        assert row.covered is True
