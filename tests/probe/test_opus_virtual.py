"""Talk through Opus, in frames of any length: what was programmed lies within what is stated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("av", reason="Opus needs PyAV")

from vakforge_eval.timeline.values import Measured
from vakforge_probe.calibrate import Row, compare, compare_duplex

pytestmark = pytest.mark.no_cover

FRAMES = {"10ms": "generic_1", "20ms": "generic_3", "60ms": "long_2"}
KNOBS: dict[str, object] = {"greeting": False, "reply_delay": 0.6, "stop_delay": 0.2,
                            "reply_length": 2.0}  # fmt: skip
SCENARIO: dict[str, Any] = {
    "id": "one",
    "steps": [
        {"say": None, "clip": "en/order_delivery_date", "at": "0.3073 s"},
        {"barge_in": None, "clip": "en/booking_confirm", "at": "613.7 ms after agent onset"},
        {"hang_up": None, "at": "1.5 s after agent onset"},
    ],
}
DEFAULTS = {
    "locale": "en-US",
    "language": {"primary": "en"},
    "budgets": {"call": "60 s", "reply": "4 s", "greeting": "1 s"},
}


@pytest.fixture(scope="module")
def rows(with_truth: Callable[..., Any]) -> list[Row]:
    targets = {
        frame: ({**KNOBS, "chunk": frame, "say": say}, "moshi") for frame, say in FRAMES.items()
    }
    # The caller's own voice comes back, and what the codec makes of it is no path's doing.
    targets["echo"] = ({**KNOBS, "echo_db": -20, "say": "long_1"}, "moshi")
    timelines, truth = with_truth(targets, [SCENARIO], defaults=DEFAULTS)
    return [*compare(timelines, truth), *compare_duplex(timelines, truth).rows]


@pytest.mark.parametrize("frame", [*FRAMES, "echo"])
@pytest.mark.parametrize(("metric", "early_s", "late_s"), [
    ("ttfa", 0.004, 0.0), ("ttfa_heard", 0.004, 0.0), ("ttfs", 0.004, 0.0),
    ("stop_heard", 0.0005, 0.022), ("stop_network", 0.0005, 0.022),
    ("interruption_response", 0.004, 0.0),
])  # fmt: skip
def test_edges_are_found_where_the_codec_smears_them(
    rows: list[Row], frame: str, metric: str, early_s: float, late_s: float
) -> None:
    mine = [row for row in rows if (row.condition, row.metric) == (frame, metric)]
    known = [row for row in mine if row.truth is not None and row.counts]
    assert known
    for row in known:
        assert isinstance(row.measured, Measured), row
        assert row.covered, row
        assert row.error is not None
        assert -early_s <= row.error <= late_s, row
