"""Agents that name no responses, against the reference agent's truth, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.values import Flag, Measured, Reason, Undefined
from vakforge_probe.calibrate import Row, Verdict, compare, compare_duplex

pytestmark = [pytest.mark.no_cover, pytest.mark.xdist_group("unnamed")]

PROTOCOLS = ("gpt-live", "twilio")
PAUSES: dict[str, object] = {"stop_delay": "never", "say": "generic_2", "segments": 2}
AGENTS: dict[str, dict[str, object]] = {
    "stops": {"stop_delay": 0.2, "reply_delay": 0.6, "reply_length": 3.0},
    "stops late": {"stop_delay": 0.8, "reply_delay": 0.3, "reply_length": 3.0},
    "pauses of 0.75 s": {**PAUSES, "segment_gap": 0.75},
    "pauses of 1.2 s": {**PAUSES, "segment_gap": 1.2},
}
SCENARIO: dict[str, Any] = {
    "id": "one",
    "steps": [
        {"say": None, "clip": "en/order_delivery_date", "at": "0.3073 s"},
        {"barge_in": None, "clip": "en/booking_confirm", "at": "1613.7 ms after agent onset"},
        {"hang_up": None, "at": "1.6 s after previous"},
    ],
}
DEFAULTS = {
    "locale": "en-US",
    "language": {"primary": "en"},
    "budgets": {"call": "30 s", "reply": "4 s", "greeting": "1 s"},
}


@pytest.fixture(scope="module")
def found(with_truth: Callable[..., Any]) -> tuple[list[Row], list[Verdict], dict[str, CallView]]:
    targets = {
        f"{agent}, {protocol}": (
            {"greeting": False, "say": "long_1", "chunk": "20ms", **knobs},
            protocol,
        )
        for agent, knobs in AGENTS.items()
        for protocol in PROTOCOLS
    }
    timelines, truth = with_truth(targets, [SCENARIO], defaults=DEFAULTS)
    duplex = compare_duplex(timelines, truth)
    rows = [*compare(timelines, truth), *duplex.rows]
    return rows, duplex.verdicts, {t.system: CallView(t) for t in timelines}


def cases(*agents: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [f"{a}, {p}" for a in agents for p in PROTOCOLS])


@cases(*AGENTS)
def test_what_is_measured_is_so(found: Any, name: str) -> None:
    """Of what cannot be told nothing is said, and nothing else is left out."""
    rows, verdicts, views = found
    known = [row for row in rows if row.condition == name and row.truth is not None]
    # The call ends while the agent speaks: no protocol here tells the end of a reply.
    mine = [row for row in known if row.measured != Undefined(Reason.CUT_OFF)]
    assert mine
    is_untold = name == "stops late, gpt-live"
    for row in mine:
        assert row.counts, row
        if isinstance(row.measured, Measured):
            assert row.covered, row
            assert abs(row.error or 0.0) <= 0.001, row
        else:
            assert is_untold, row
            assert row.measured == Undefined(Reason.STOP_AMBIGUOUS), row
    assert any(isinstance(row.measured, Undefined) for row in mine) is is_untold
    (verdict,) = (v for v in verdicts if v.condition == name)
    assert verdict.counts
    assert verdict.found == ("ambiguous" if is_untold else verdict.truth)
    assert not any(Flag.EARLY in view.flags for view in views[name].turn_views)


@cases("pauses of 0.75 s", "pauses of 1.2 s")
def test_the_rest_of_a_reply_is_carried_over(found: Any, name: str) -> None:
    first, second = found[2][name].turns.turns
    assert [str(heard.role) for heard in first.segments] == ["reply", "carry_over"]
    assert first.segments[1].segment.start.when.at < second.end.at
    assert second.segments == []
