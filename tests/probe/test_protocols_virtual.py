"""One scenario over every protocol: the agent's delays come out the same, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vakforge_eval.timeline.values import Measured
from vakforge_probe.calibrate import Row, compare, compare_duplex
from vakforge_probe.protocol.declared import shipped_profiles

pytestmark = pytest.mark.no_cover

PROTOCOLS = ("openai-realtime", "openai-realtime/beta", "openai-realtime/pcmu",
             "gemini-live", "moshi", "pipecat",
             *sorted(set(shipped_profiles()) - {"minicpm-o"}))  # fmt: skip
"""But for one whose user is heard by seconds, later than the agent is to answer."""
LATER = {"moshi": 0.0025}
"""By so much a coder of such short frames looks ahead (s): it is part of the way, and heard."""
LEFT = {"unmute": 0.0025}
"""So much is left in the coder of a reply that breaks off, and opens the next one."""
KNOBS: dict[str, object] = {
    "greeting": False,
    "reply_delay": 0.6,
    "stop_delay": 0.2,
    "say": "long_1",
    "reply_length": 4.0,
    # What was sent when a stream falls silent plays on: so little that it makes no difference.
    "chunk": "5ms",
}
SCENARIO: dict[str, Any] = {
    "id": "one",
    "steps": [
        {"say": None, "clip": "en/order_delivery_date", "at": "0.3073 s"},
        {"barge_in": None, "clip": "en/booking_confirm", "at": "1213.7 ms after agent onset"},
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
    targets = {protocol: (KNOBS, protocol) for protocol in PROTOCOLS}
    timelines, truth = with_truth(targets, [SCENARIO], defaults=DEFAULTS)
    return [*compare(timelines, truth), *compare_duplex(timelines, truth).rows]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("metric", ["ttfa_heard", "stop_heard", "stop_network"])
def test_each_protocol_gives_what_was_programmed(
    rows: list[Row], protocol: str, metric: str
) -> None:
    mine = [row for row in rows if (row.condition, row.metric) == (protocol, metric)]
    known = [row for row in mine if row.truth is not None]
    assert known
    for row in known:
        assert row.counts, row
        assert isinstance(row.measured, Measured), row
        assert row.covered, row
        assert abs(row.error or 0.0) <= 0.001 + LEFT.get(protocol, 0.0), row


@pytest.mark.parametrize(("metric", "programmed"), [("ttfa_heard", 0.6), ("stop_heard", 0.2)])
def test_protocols_agree_within_5_ms(rows: list[Row], metric: str, programmed: float) -> None:
    found = [row for row in rows if row.metric == metric and row.turn == (metric == "stop_heard")]
    values = [
        row.measured.value - LATER.get(row.condition, 0.0)
        for row in found
        if isinstance(row.measured, Measured)
    ]
    assert len(values) == len(PROTOCOLS)
    assert max(values) - min(values) <= 0.005, sorted(values)
    assert min(values) >= programmed - 0.001


def test_where_the_user_is_heard_by_seconds_what_was_programmed_is_still_found(
    with_truth: Callable[..., Any],
) -> None:
    knobs = {**KNOBS, "reply_delay": 1.3, "stop_delay": 1.2}
    timelines, truth = with_truth({"slow": (knobs, "minicpm-o")}, [SCENARIO], defaults=DEFAULTS)
    rows = [*compare(timelines, truth), *compare_duplex(timelines, truth).rows]
    for metric in ("ttfa_heard", "stop_heard", "stop_network", "interruption_response"):
        known = [row for row in rows if row.metric == metric and row.truth is not None]
        assert known
        for row in known:
            assert row.counts, row
            assert row.covered, row
