"""Barge-ins and background utterances in scores, cells and comparisons; times in ms after ready."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from vakforge_eval.metrics.view import CallView
from vakforge_eval.scoring.compare import breakdowns, pairs, summarise
from vakforge_eval.scoring.rows import call_rows, turn_rows
from vakforge_eval.scoring.score import score_calls
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.timeline.call import Skipped
from vakforge_eval.timeline.events import ResponseEnded
from vakforge_eval.timeline.script import Expectation, StepKind
from vakforge_eval.timeline.values import Flag, Measured, Rate, Reason, Undefined

Row = dict[str, Any]
HOLD = Expectation(text="hold", kind="hold")
STOP = Expectation(text="stop within 0.7 s", kind="stop", within_s=0.7)


class Duplex:
    """Scenes of 20 s each: a turn, speech of the agent, and something that meets it after 1.5 s."""

    def __init__(self, new_call: Any, *, system: str = "tuned", repeat: int = 0) -> None:
        self.call = new_call()
        self.call.header["repeat"] = repeat
        self.system, self.repeat = system, repeat
        self.begin = 0.0
        self.n_replies = 0

    def _speak(self, length_ms: float, *, is_cut: bool) -> None:
        name = f"r{self.n_replies}"
        self.n_replies += 1
        start = self.begin + 2500
        self.call.say(self.begin + 1000, self.begin + 2000)
        status = None if is_cut else "completed"
        self.call.reply(start, self.call.tone(length_ms), response_id=name, status=status)
        if is_cut:
            at = self.call.at(start + length_ms)
            self.call.event(ResponseEnded(at=at, response_id=name, status="cancelled"))

    def barge_in(
        self, stop_ms: float, *, is_cut: bool = True, answer_ms: float | None = 800
    ) -> None:
        """Let the agent fall silent `stop_ms` after the onset, told of (or by itself)."""
        self._speak(1500 + stop_ms, is_cut=is_cut)
        onset = self.begin + 4000
        self.call.say(
            onset, onset + 1500, kind=StepKind.BARGE_IN, reply_within_s=4, expect=[STOP],
            relevant_words=["new"],
        )  # fmt: skip
        if answer_ms is not None:
            name = f"a{self.n_replies}"
            at = onset + 1500 + answer_ms
            self.call.reply(at, self.call.tone(900), response_id=name, text="a new one")
        self.begin += 20_000

    def disturb(self, kind: StepKind, *, stops: bool, **how: Any) -> None:
        """Let the agent stop 300 ms after the onset, or talk on."""
        self._speak(1800 if stops else 4500, is_cut=stops)
        onset = self.begin + 4000
        end = onset if kind is StepKind.SHAM else onset + 400
        self.call.say(onset, end, kind=kind, text="mhm", expect=[HOLD], **how)
        self.begin += 20_000

    def view(self) -> CallView:
        name = f"{self.system}-{self.repeat}"
        return CallView(self.call.build(self.begin, call_id=name, system=self.system))


def scored(new_call: Any, *plans: Any, system: str = "tuned") -> ScoreSet:
    """Return the scores of one call a plan; a plan tells a `Duplex` what happens."""
    calls = []
    for repeat, plan in enumerate(plans):
        scene = Duplex(new_call, system=system, repeat=repeat)
        plan(scene)
        calls.append(scene.view())
    return score_calls(calls)


def row_of(rows: list[Row], name: str) -> Row:
    return next(row for row in rows if row["metric"] == name)


def cell_of(scores: ScoreSet, name: str) -> Row:
    cell: Row = row_of(summarise(None, scores), name)["systems"][scores.system]
    return cell


def test_a_background_utterance_is_an_event_and_opens_no_turn(new_call: Any) -> None:
    scores = scored(new_call, lambda s: s.disturb(StepKind.BACKCHANNEL, stops=True))
    (turn,), (event,) = scores.turns, scores.events
    assert (turn.kind, event.kind, event.turn, event.step) == ("say", "backchannel", 0, 1)
    assert (event.outcome, event.user_text, event.valid) == ("stopped", "mhm", True)
    assert event.rates["false_interruption"] == Rate(1, 1)
    assert event.values["false_interruption_noise"] == Undefined(Reason.NOT_APPLICABLE)
    assert [v.status for v in event.expectations] == ["fail"]
    assert event.cluster == turn.cluster == "order/1/0"
    assert event.pair_key == ("order", 1, 0, 1)


def test_a_barge_in_keeps_its_outcome_its_relevance_and_its_verdicts(new_call: Any) -> None:
    before, turn = scored(new_call, lambda s: s.barge_in(400)).turns
    assert (turn.kind, turn.outcome, turn.relevance) == ("barge_in", "stopped", "relevant")
    assert turn.rates["missed_interruption"] == Rate(0, 1)
    assert turn.rates["relevant_reply"] == Rate(1, 1)
    assert [v.status for v in turn.expectations] == ["pass"]
    assert (before.outcome, before.relevance, before.expectations) == (None, None, ())


def test_what_was_expected_of_what_the_probe_spoilt_is_not_measurable(new_call: Any) -> None:
    late = {"late_ms": 30}
    (event,) = scored(new_call, lambda s: s.disturb(StepKind.NOISE, stops=True, **late)).events
    assert not event.valid
    (verdict,) = event.expectations
    assert (verdict.status, verdict.why) == ("not_measurable", "was spoilt by the probe")


def test_what_was_expected_of_a_step_that_was_left_out_is_void(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.say(4000, 4400, kind=StepKind.NOISE, expect=[HOLD])
    timeline = call.build()
    said, noise = timeline.utterances
    left_out = Skipped(noise.step, "no_agent_speech")
    one = score_calls([CallView(replace(timeline, utterances=(said,), skipped=(left_out,)))])
    why = "was left out, since the agent did not speak so long"
    assert one.events == ()
    (row,) = call_rows(one)
    assert row["facts"]["skipped"] == [
        {
            "step": 1,
            "kind": "noise",
            "reason": "no_agent_speech",
            "expectations": [{"expect": "hold", "status": "void", "why": why}],
        }
    ]


def test_events_stand_among_the_turns_in_the_order_of_the_script(new_call: Any) -> None:
    def plan(scene: Duplex) -> None:
        scene.disturb(StepKind.NOISE, stops=False)
        scene.barge_in(400)
        scene.disturb(StepKind.SHAM, stops=False)

    rows = turn_rows(scored(new_call, plan, plan))
    kinds = ["say", "noise", "say", "barge_in", "say", "sham"]
    assert [row["kind"] for row in rows] == kinds * 2
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5] * 2
    noise, barge_in = rows[1], rows[3]
    assert noise["metrics"]["false_interruption_noise"] == {"hits": 0, "total": 1, "value": 0.0}
    assert noise["expectations"] == [{"expect": "hold", "status": "pass", "why": "talked on"}]
    assert (noise["outcome"], noise["relevance"]) == ("held", None)
    assert (barge_in["outcome"], barge_in["relevance"]) == ("stopped", "relevant")
    json.dumps(rows, allow_nan=False)


def test_a_share_of_events_is_pooled_with_what_is_outside_of_it(new_call: Any) -> None:
    def plan(scene: Duplex) -> None:
        scene.disturb(StepKind.BACKCHANNEL, stops=True)
        scene.disturb(StepKind.BACKCHANNEL, stops=False)
        scene.disturb(StepKind.NOISE, stops=False)
        scene.disturb(StepKind.BACKCHANNEL, stops=True, late_ms=50)
        scene.disturb(StepKind.NOISE, stops=True, late_ms=50)

    cell = cell_of(scored(new_call, plan, plan), "false_interruption")
    assert (cell["hits"], cell["total"], cell["clusters"]) == (2, 4, 2)
    assert (cell["n_invalid"], cell["undefined"]) == (2, {"not_applicable": 2})
    assert (cell["low_n"], cell["ci_method"]) == (True, "Wilson")


def test_a_run_without_events_has_their_rows_with_nothing_counted(new_call: Any) -> None:
    cell = cell_of(scored(new_call, lambda s: s.barge_in(300)), "false_interruption")
    assert (cell["hits"], cell["total"], cell["value"]) == (0, 0, None)


def test_an_event_that_the_probe_spoilt_spoils_its_call(new_call: Any) -> None:
    scores = scored(
        new_call, lambda s: s.disturb(StepKind.NOISE, stops=False, has_back_pressure=True)
    )
    (event,), (call,) = scores.events, scores.calls
    assert Flag.BACK_PRESSURE in event.flags
    assert not event.valid
    assert not call.valid
    assert scores.turns[0].valid


def test_a_natural_end_is_no_slow_stop(new_call: Any) -> None:
    def plan(scene: Duplex) -> None:
        for stop in (300, 400, 500):
            scene.barge_in(stop)
        for end in (100, 200):
            scene.barge_in(end, is_cut=False)

    cell = cell_of(scored(new_call, plan, plan), "stop_heard")
    assert (cell["n"], cell["n_censored"]) == (10, 4)
    assert cell["percentile_method"] == "Kaplan-Meier"
    assert cell["p50"] == pytest.approx(0.4, abs=0.001)
    assert cell["p95"] == pytest.approx(0.5, abs=0.001)
    assert cell["undefined"] == {"not_applicable": 10}
    assert cell["bound"][0] <= cell["p50"] <= cell["bound"][1]


def test_stops_that_mostly_never_came_are_beyond_the_last_wait(new_call: Any) -> None:
    def plan(scene: Duplex) -> None:
        scene.barge_in(300)
        scene.barge_in(200, is_cut=False)
        for length in (7000, 8000, 9000):
            scene.barge_in(length, is_cut=False, answer_ms=None)

    scores = scored(new_call, plan, plan)
    cell = cell_of(scores, "stop_heard")
    # The budget is 4 s after the end of the barge-in, so 5.5 s after its onset.
    assert cell["p50"] == {"censored": pytest.approx(5.5)}
    assert cell_of(scores, "missed_interruption")["hits"] == 6


@cache
def faster(new_call: Any, *, stops_for_all: bool = False, misses: bool = False) -> ScoreSet:
    def plan(scene: Duplex) -> None:
        for k in range(3):
            scene.barge_in(200 + 10 * k + scene.repeat)
        if misses:
            scene.barge_in(8000, is_cut=False, answer_ms=None)
        scene.disturb(StepKind.BACKCHANNEL, stops=stops_for_all)
        scene.disturb(StepKind.BACKCHANNEL, stops=False)

    return scored(new_call, *[plan] * 6)


@cache
def slower(new_call: Any) -> ScoreSet:
    def plan(scene: Duplex) -> None:
        for k in range(3):
            scene.barge_in(500 + 10 * k + scene.repeat)
        for _ in range(2):
            scene.disturb(StepKind.BACKCHANNEL, stops=False)

    return scored(new_call, *[plan] * 6, system="base")


def test_a_shorter_stop_is_better_where_nothing_was_paid_for_it(new_call: Any) -> None:
    row = row_of(summarise(slower(new_call), faster(new_call)), "stop_heard")
    assert row["delta"] == pytest.approx(-0.3, abs=0.001)
    assert (row["arrow"], row["bought"]) == ("better", None)
    assert row["n_pairs"] == 18


@pytest.mark.parametrize("price", ["false_interruption", "missed_interruption"])
def test_a_shorter_stop_that_was_bought_gets_no_arrow(new_call: Any, price: str) -> None:
    tuned = faster(
        new_call,
        stops_for_all=price == "false_interruption",
        misses=price == "missed_interruption",
    )
    rows = summarise(slower(new_call), tuned)
    row = row_of(rows, "stop_heard")
    assert row["delta"] < 0
    assert (row["arrow"], row["arrow_withheld"]) == (None, f"{price} rose")
    # What was paid is told as what it is.
    assert row_of(rows, price)["delta"] > 0
    back = row_of(summarise(tuned, slower(new_call)), "stop_heard")
    assert back["arrow"] == "worse"


def test_deaf_agents_do_not_get_better_at_backchannels(new_call: Any) -> None:
    jumpy = replace(faster(new_call, stops_for_all=True), system="jumpy")
    row = row_of(summarise(jumpy, faster(new_call, misses=True)), "false_interruption")
    assert row["delta"] == -0.5
    assert (row["arrow"], row["arrow_withheld"]) == (None, "missed_interruption rose")


def test_answers_that_became_irrelevant_are_no_gain_in_time(new_call: Any) -> None:
    base, tuned = slower(new_call), faster(new_call)
    quicker = replace(
        tuned,
        turns=tuple(
            replace(
                turn,
                metrics={**turn.metrics, "interruption_response": Measured(0.5)},
                rates={**turn.rates, "relevant_reply": Rate(turn.pair_key[-1] % 2, 2)},
            )
            if turn.kind == "barge_in"
            else turn
            for turn in tuned.turns
        ),
    )
    row = row_of(summarise(base, quicker), "interruption_response")
    assert row["delta"] < 0
    assert (row["arrow"], row["arrow_withheld"]) == (None, "relevant_reply fell")


def test_pooled_events_are_the_sums_of_their_slices(new_call: Any) -> None:
    calls = []
    for repeat, (condition, stops) in enumerate([("clean", False), ("noisy", True)] * 2):
        scene = Duplex(new_call, repeat=repeat)
        scene.call.script = {"condition": condition}
        scene.disturb(StepKind.BACKCHANNEL, stops=stops)
        calls.append(scene.view())
    scores = score_calls(calls)
    parts = [p for p in breakdowns(None, scores) if p["by"] == "condition"]
    found = {
        part["value"]: row_of(part["summary"], "false_interruption")["systems"]["tuned"]
        for part in parts
    }
    assert {name: (cell["hits"], cell["total"]) for name, cell in found.items()} == {
        "clean": (0, 2),
        "noisy": (2, 2),
    }
    whole = cell_of(scores, "false_interruption")
    assert (whole["hits"], whole["total"]) == (2, 4)


def test_events_are_in_no_pair_of_turns(new_call: Any) -> None:
    base, tuned = slower(new_call), faster(new_call)
    kinds = {turn.kind for both in pairs(base, tuned) for turn in both}
    assert kinds == {"say", "barge_in"}


def test_a_person_who_holds_several_conversations_clusters_events_too(new_call: Any) -> None:
    calls = []
    for k in range(2):
        scene = Duplex(new_call)
        scene.call.script = {"id": f"s{k}", "speaker": "ann", "source": "human"}
        scene.disturb(StepKind.BACKCHANNEL, stops=False)
        calls.append(scene.view())
    scores = score_calls(calls)
    assert {event.cluster for event in scores.events} == {"speaker ann"}
    assert {turn.cluster for turn in scores.turns} == {"speaker ann"}


def test_the_order_of_captures_changes_no_byte(new_call: Any) -> None:
    def plan(scene: Duplex) -> None:
        scene.barge_in(300 + scene.repeat)
        scene.disturb(StepKind.BACKCHANNEL, stops=scene.repeat % 2 == 0)

    calls = []
    for repeat in range(3):
        scene = Duplex(new_call, repeat=repeat)
        plan(scene)
        calls.append(scene.view())
    texts = [
        json.dumps([turn_rows(s), summarise(None, s), breakdowns(None, s)], allow_nan=False)
        for s in (score_calls(calls), score_calls(reversed(calls)))
    ]
    assert texts[0] == texts[1]
