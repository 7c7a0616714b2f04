"""The table of what servers claim and what was heard."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vakforge_eval.metrics.claimed import CLAIMS
from vakforge_eval.metrics.view import CallView
from vakforge_eval.scoring.claims import MAX_LATENCIES, claimed_part
from vakforge_eval.scoring.score import score_calls
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.timeline.events import Claim, SpeechStopped


def rows_of(*calls: Any) -> dict[str, dict[str, Any]]:
    views = [CallView(call.build(call_id=f"c{k}")) for k, call in enumerate(calls)]
    rows = claimed_part([score_calls(views, "tuned")])
    json.dumps(rows, allow_nan=False)
    return {row["claim"]: row for row in rows}


def call_with(new_call: Any, delay_ms: float) -> Any:
    """Return a call whose server ends the turn so late by its own offset."""
    call = new_call()
    call.say(1000, 2000)
    call.event(SpeechStopped(at=call.at(2600), offset_ms=2000 + delay_ms))
    call.reply(2800, call.tone(500))
    return call


def test_medians_and_the_worst_of_all_calls_stand_in_one_row(new_call: Any) -> None:
    row = rows_of(*(call_with(new_call, ms) for ms in (-400, 100, 200)))["speech_stopped"]
    assert (row["n"], row["n_unheard"]) == (3, 0)
    assert row["median_claimed"] == pytest.approx(1.1)
    assert row["median_heard"] == pytest.approx(1.0)
    assert row["median_difference"] == pytest.approx(0.1)
    assert row["max_difference"] == pytest.approx(-0.4)
    low, high = row["difference_bound"]
    assert low <= row["median_difference"] <= high


def test_where_nothing_is_claimed_the_row_says_so(new_call: Any) -> None:
    rows = rows_of(call_with(new_call, 100))
    assert list(rows) == [*CLAIMS, "latency"]
    for name in ("truncated", "latency"):
        assert rows[name]["n"] == 0
        assert rows[name]["median_difference"] == {"undefined": "not_observable"}
        assert rows[name]["difference_bound"] is None


def test_a_claim_with_nothing_heard_is_counted_and_has_the_reason(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.event(Claim(at=call.at(2500), name="ttfb", value_s=0.2))
    row = rows_of(call)["latency: ttfb"]
    assert (row["n"], row["n_unheard"]) == (0, 1)
    assert row["max_difference"] == {"undefined": "not_applicable"}


def test_a_server_that_states_endless_latencies_gets_a_table_with_an_end(new_call: Any) -> None:
    call = call_with(new_call, 100)
    for k in range(500):
        call.event(Claim(at=call.at(2900), name=f"stage {k}", value_s=0.2))
    call.event(Claim(at=call.at(2901), name="stage 499", value_s=0.3))
    rows = rows_of(call)
    assert len(rows) == len(CLAIMS) + MAX_LATENCIES
    assert rows["latency: stage 499"]["n"] == 2


def test_each_system_has_its_own_rows() -> None:
    rows = claimed_part([ScoreSet("base", (), ()), ScoreSet("tuned", (), ())])
    assert [row["system"] for row in rows] == ["base"] * 8 + ["tuned"] * 8
