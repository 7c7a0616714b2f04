"""Where systems stand among people."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vakforge_eval.metrics.view import CallView
from vakforge_eval.scoring.human import CAVEAT, overlap_part
from vakforge_eval.scoring.score import score_calls
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.stats.reference import distance, human_reference
from vakforge_eval.timeline.values import Measured


def call_with(new_call: Any, number: int, offsets: list[float], late_ms: float = 0) -> CallView:
    """Return a call whose replies begin so many ms after the user's ends."""
    call = new_call()
    for k, offset in enumerate(offsets):
        begin = 1000 + 4000 * k
        call.say(begin, begin + 1000, late_ms=late_ms)
        call.reply(begin + 1000 + offset, call.tone(1100), response_id=f"r{k}")
    return CallView(call.build(1000 + 4000 * len(offsets), call_id=f"c{number}"))


def part_of(*calls: CallView) -> dict[str, Any]:
    part = overlap_part([score_calls(list(calls), "tuned")])
    json.dumps(part, allow_nan=False)
    assert part["caveat"] == CAVEAT
    system: dict[str, Any] = part["systems"]["tuned"]
    return system


def test_a_call_stands_where_its_own_overlap_stands_among_peoples_calls(new_call: Any) -> None:
    # 5 turns, 300 ms of overlap in one of them: 0.3 s of 21 s.
    system = part_of(call_with(new_call, 0, [200, 300, -300, 400, 100]))
    assert system["n_calls"] == 1
    assert system["agent_overlap_rate"]["p50"] == pytest.approx(0.3 / 21, abs=1e-4)
    assert system["overlap_rate"]["p50"] == system["agent_overlap_rate"]["p50"]
    people = human_reference().per_call["overlap_over_total"]
    rank = people.percentile(Measured(0.3 / 21)).value
    assert system["percentile"]["p50"] == pytest.approx(rank)
    low, high = system["percentile"]["bound"]
    assert low < rank < high
    assert system["percentile"]["low_n"] is True


def test_offsets_of_all_calls_are_held_against_those_of_people(new_call: Any) -> None:
    offsets = [-200.0, 0.0, 100.0, 150.0, 300.0, 700.0]
    calls = [call_with(new_call, k, [o + 10 * k for o in offsets]) for k in range(4)]
    fto = part_of(*calls)["fto"]
    assert (fto["n"], fto["low_n"]) == (24, False)
    sample = [Measured((o + 10 * k) / 1000) for o in offsets for k in range(4)]
    far = distance(sample, human_reference().pooled["floor_transfer_offset"])
    assert fto["ks"] == pytest.approx(far.ks.value, abs=0.05)  # type: ignore[union-attr]
    assert fto["wasserstein"] == pytest.approx(far.wasserstein.value, abs=1e-3)  # type: ignore[union-attr]
    for name in ("ks", "wasserstein"):
        low, high = fto[f"{name}_bound"]
        assert low <= fto[name] <= high
    assert fto["percentile"]["n"] == 4


def test_a_slow_agent_is_farther_from_people_than_a_quick_one(new_call: Any) -> None:
    slow, quick = (
        part_of(call_with(new_call, 0, [base + 60 * k for k in range(6)]))["fto"]
        for base in (1200, 0)
    )
    assert slow["wasserstein"] > quick["wasserstein"] + 0.8
    assert slow["ks"] > quick["ks"]
    assert slow["percentile"]["p50"] > 99.9


def test_fewer_than_five_transfers_have_no_distance_and_spoilt_ones_do_not_count(
    new_call: Any,
) -> None:
    few = part_of(call_with(new_call, 0, [100, 200, 300, 400]))["fto"]
    assert few["n"] == 4
    assert few["ks"] == few["wasserstein"] == {"undefined": "too_few"}
    assert few["percentile"]["p50"] == {"undefined": "too_few"}
    spoilt = part_of(call_with(new_call, 0, [100] * 6, late_ms=50))["fto"]
    assert spoilt["n"] == 0


def test_a_mute_agent_stands_nowhere_and_the_reason_is_counted(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    system = part_of(CallView(call.build()))
    assert system["overlap_rate"] == {
        "n": 0,
        "low_n": True,
        "p50": {"undefined": "too_few"},
        "bound": None,
        "undefined": {"no_audio": 1},
    }
    assert system["percentile"]["n"] == 0
    assert system["fto"]["n"] == 0


def test_a_system_without_calls_has_a_part_too_and_the_reference_is_told() -> None:
    part = overlap_part([ScoreSet("base", (), ()), ScoreSet("tuned", (), ())])
    assert list(part["systems"]) == ["base", "tuned"]
    assert part["reference"]["calls"] == 2437
    assert part["reference"]["quantiles"]["floor_transfer_offset"]["p50"] == 0.132
    assert "Switchboard" in part["reference"]["what"]
