"""The shipped duplex suite by the pytest plugin, as a user would run it, on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from vakforge_probe.api import CallResult

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

GOOD: dict[str, Any] = {"reply_length": 14, "backchannel_words": 2, "stop_delay": 0.25}
"""It answers at length, talks on through words of assent and stops for everything else."""


def statuses(call: CallResult) -> set[str]:
    return {verdict.status for verdict in call.expectations}


@pytest.mark.scenario("duplex#nods-return", "duplex#another-question", agent=GOOD)
def test_an_agent_that_listens_is_seen_to_hold_and_to_stop(call: CallResult) -> None:
    assert call.skipped == ()
    assert {event.outcome for event in call.events} == {"held"}
    assert statuses(call) == {"pass"}
    for turn in call.turns:
        if turn.kind == "barge_in":
            assert turn.outcome == "stopped"
            assert turn["stop_heard"] == pytest.approx(0.25, abs=0.01)


@pytest.mark.scenario("duplex#another-question", agent={**GOOD, "stop_delay": "never"}, check=False)
def test_an_agent_that_never_stops_misses_what_the_suite_expects(call: CallResult) -> None:
    first = next(turn for turn in call.turns if turn.kind == "barge_in")
    assert (first.outcome, first["missed_interruption"]) == ("ended", 1.0)
    assert {v.text: v.status for v in first.expectations}["stop within 0.7 s"] == "fail"


@pytest.mark.scenario("duplex#nods-return", agent={**GOOD, "on_backchannel": "stop"}, check=False)
def test_an_agent_that_falls_silent_at_a_nod_misses_what_the_suite_expects(
    call: CallResult,
) -> None:
    nods = [event for event in call.events if event.kind == "backchannel"]
    assert nods[0].outcome == "stopped"
    assert nods[0]["false_interruption"] == 1.0
    assert "fail" in statuses(call)
    assert any("sham" in text or "backchannel" in text for text in call.skipped)
