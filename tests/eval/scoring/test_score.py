from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from vakforge_eval.metrics.view import CallView
from vakforge_eval.scoring.clusters import clustered
from vakforge_eval.scoring.compare import DefinitionMismatch, breakdowns, pairs, summarise
from vakforge_eval.scoring.rows import call_rows, turn_rows
from vakforge_eval.scoring.score import score_calls
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.timeline.values import Censored, Flag, Measured, Rate


def one_call(
    new_call: Any,
    delays: list[float | None],
    *,
    system: str = "tuned",
    repeat: int = 0,
    width_ms: float = 0,
    script: dict[str, Any] | None = None,
    **flaws: Any,
) -> Any:
    """One turn each 10 s, answered after `delays` ms (None: not at all)."""
    call = new_call()
    call.header["repeat"] = repeat
    call.script = script or {}
    for k, delay in enumerate(delays):
        call.say(10_000 * k + 1000, 10_000 * k + 2000, reply_within_s=4, **flaws)
        if delay is not None:
            at = 10_000 * k + 2000 + delay
            call.reply(at, call.tone(500), response_id=f"r{k}", text="ok", width_ms=width_ms)
    ended = 10_000 * len(delays)
    return CallView(call.build(ended, call_id=f"{system}-{repeat}", system=system))


def scored(
    new_call: Any, delays: list[list[float | None]], system: str = "tuned", **more: Any
) -> ScoreSet:
    return score_calls(
        one_call(new_call, row, system=system, repeat=k, **more) for k, row in enumerate(delays)
    )


def row_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["metric"] == name)


def ladder(first: float, n_calls: int = 8) -> list[list[float | None]]:
    return [[first + 10 * k, first + 10 * k + 5, first + 10 * k + 7] for k in range(n_calls)]


def test_the_order_of_captures_changes_no_byte(new_call: Any) -> None:
    calls = [one_call(new_call, [400, 500], repeat=k) for k in range(3)]
    texts = [
        json.dumps([turn_rows(s), call_rows(s), summarise(None, s)], allow_nan=False)
        for s in (score_calls(calls), score_calls(reversed(calls)), score_calls(calls))
    ]
    assert texts[0] == texts[1] == texts[2]


def test_a_turn_row_has_the_documented_shape(new_call: Any) -> None:
    rows = turn_rows(scored(new_call, [[500, None]]))
    assert set(rows[0]) == {
        "system", "call", "scenario", "turn", "step", "kind", "valid", "flags", "metrics",
        "outcome", "relevance", "expectations",
    }  # fmt: skip
    assert rows[0]["metrics"]["ttfa"] == {"value": 0.5, "u": [0.0, 0.0], "u_detect": [0.0, 0.0]}
    assert rows[1]["metrics"]["ttfa"] == {"censored": 4.0}
    assert rows[1]["flags"] == ["no_reply"]
    assert rows[0]["metrics"]["tool_wait"] == {"undefined": "not_applicable"}


def test_a_call_row_keeps_its_failure_and_how_it_was_stamped(new_call: Any) -> None:
    timeline = one_call(new_call, [500]).timeline
    failed = replace(timeline, failure={"kind": "closed", "phase": "call", "message": "bye"})
    row = call_rows(score_calls([CallView(failed)]))[0]
    assert row["failure"]["kind"] == "closed"
    assert row["facts"]["stamp_source"] == "virtual"
    assert row["metrics"]["failed_calls"] == {"hits": 1, "total": 1, "value": 1.0}


def test_a_call_row_tells_the_noise_floor_or_that_there_was_none(new_call: Any) -> None:
    def told(background: Any) -> Any:
        call = new_call(continuous_stream=True)
        call.reply(0, background, response_id=None)
        return call_rows(score_calls([CallView(call.build())]))[0]["facts"]["noise_floor_dbfs"]

    assert told(new_call.noise(4000, -45)) == pytest.approx(-45, abs=1)
    assert told(new_call.hush(4000)) is None


def test_calls_of_two_systems_are_not_scored_as_one(new_call: Any) -> None:
    calls = [one_call(new_call, [400], system=name) for name in ("base", "tuned")]
    with pytest.raises(ValueError, match="several systems"):
        score_calls(calls)
    assert score_calls(calls, "both").system == "both"


def test_a_summary_cell_counts_what_is_in_it_and_what_is_not(new_call: Any) -> None:
    calls = [one_call(new_call, [400, None, -300]), one_call(new_call, [450], repeat=1)]
    spoilt = one_call(new_call, [480], repeat=2, late_ms=50)
    cell = row_of(summarise(None, score_calls([*calls, spoilt])), "ttfa")["systems"]["tuned"]
    counts = ("n", "clusters", "n_early", "n_no_reply", "n_invalid")
    # Of five turns one is early (left out), one spoilt (left out), one a no-reply (in, censored).
    assert [cell[name] for name in counts] == [3, 2, 1, 1, 1]
    assert cell["p50"] == pytest.approx(0.45)
    assert cell["p95"] == {"censored": 4.0}
    assert (cell["p95_label"], cell["low_n"]) == ("max", True)


def test_talking_over_the_user_does_not_improve_the_median(new_call: Any) -> None:
    polite = scored(new_call, [[400, 500, 600]])
    rude = scored(new_call, [[-300, -400, 600]])
    medians = [
        row_of(summarise(None, s), "ttfa_heard")["systems"]["tuned"]["p50"] for s in (polite, rude)
    ]
    assert medians == [pytest.approx(0.5, abs=1e-3), pytest.approx(0.6, abs=1e-3)]


@pytest.mark.parametrize("audible", [True, False])
def test_silence_sent_while_the_user_speaks_does_not_improve_the_median(
    new_call: Any, audible: bool
) -> None:
    call = new_call()
    for k in range(3):
        end = 10_000 * k + 2000
        call.say(end - 1000, end, reply_within_s=4)
        padding = [call.hush(900), call.tone(500 if audible else 0)]
        call.reply(end - 400, *padding, response_id=f"r{k}")
    view = CallView(call.build(30_000))
    rows = summarise(None, score_calls([view]))
    cell = row_of(rows, "ttfa")["systems"]["tuned"]
    assert (cell["n"], cell["n_early"]) == (0, 3)
    assert row_of(rows, "early_rate")["systems"]["tuned"]["hits"] == 0
    heard = row_of(rows, "ttfa_heard")["systems"]["tuned"]
    assert (heard["n"], heard["n_early"]) == (3 if audible else 0, 0)


def test_a_metric_without_any_value_keeps_its_row_and_says_why(new_call: Any) -> None:
    rows = summarise(None, scored(new_call, [[400]]))
    cell = row_of(rows, "endpoint_delay")["systems"]["tuned"]
    assert (cell["n"], cell["p50"]) == (0, {"undefined": "not_observable"})
    assert cell["undefined"] == {"not_observable": 1}
    empty = summarise(None, ScoreSet("tuned", (), ()))
    assert [row["metric"] for row in empty] == [row["metric"] for row in rows]
    assert row_of(empty, "ttfa")["systems"]["tuned"]["p50"] == {"undefined": "too_few"}


def test_a_percentile_is_over_turns_never_a_mean_of_calls(new_call: Any) -> None:
    # Per-call maxima are 500 and 3000, their mean 1750; over all six turns the p95 is 3000.
    cell = row_of(summarise(None, scored(new_call, [[400, 450, 500], [400, 450, 3000]])), "ttfa")
    assert cell["systems"]["tuned"]["p95"] == pytest.approx(3.0)


def test_rates_carry_hits_total_value_and_interval(new_call: Any) -> None:
    rows = summarise(None, scored(new_call, [[400, None], [400, 400]]))
    cell = row_of(rows, "no_reply_rate")["systems"]["tuned"]
    assert (cell["hits"], cell["total"], cell["value"], cell["ci_method"]) == (1, 4, 0.25, "Wilson")
    early = row_of(rows, "early_rate")["systems"]["tuned"]
    # No event in 4: 1 - 0.025 ** (1 / 4)
    assert early["ci"] == [0.0, pytest.approx(1 - 0.025**0.25)]


def test_pooled_rates_are_the_sums_of_their_slices(new_call: Any) -> None:
    plans: list[tuple[list[float | None], str, str]] = [
        ([400, None], "a", "clean"),
        ([-300, 400], "b", "noisy"),
        ([None, None], "c", "noisy"),
    ]
    calls = [
        one_call(new_call, row, repeat=k, script={"id": name, "condition": condition})
        for k, (row, name, condition) in enumerate(plans)
    ]
    whole = score_calls(calls)
    parts = breakdowns(None, whole)
    for name in ("early_rate", "no_reply_rate", "invalid_turns"):
        pooled = row_of(summarise(None, whole), name)["systems"]["tuned"]
        for by in ("scenario", "condition", "locale"):
            cells = [row_of(p["summary"], name)["systems"]["tuned"] for p in parts if p["by"] == by]
            total = sum((Rate(c["hits"], c["total"]) for c in cells), Rate(0, 0))
            assert (total.hits, total.total) == (pooled["hits"], pooled["total"])


def test_without_a_baseline_nothing_is_compared(new_call: Any) -> None:
    for row in summarise(None, scored(new_call, [[400]])):
        assert list(row["systems"]) == ["tuned"]
        assert row["delta"] is row["delta_ci"] is None


def test_a_change_is_told_with_its_bound_its_interval_and_its_direction(new_call: Any) -> None:
    base, tuned = scored(new_call, ladder(900), "base"), scored(new_call, ladder(400))
    row = row_of(summarise(base, tuned), "ttfa")
    assert list(row["systems"]) == ["base", "tuned"]
    assert row["delta"] == pytest.approx(-0.5)
    assert row["delta_bound"] == pytest.approx([-0.5, -0.5])
    # Each cluster is faster by the same 0.5 s, and both systems share each resample.
    assert row["delta_ci"] == pytest.approx([-0.5, -0.5])
    assert row["delta_ci_method"].startswith("paired t interval")
    assert (row["arrow"], row["resolution"]) == ("better", "above resolution")
    assert (row["n_pairs"], row["paired_delta"]) == (24, pytest.approx(-0.5))
    assert row_of(summarise(tuned, replace(base, system="b")), "ttfa")["arrow"] == "worse"


def test_a_change_smaller_than_the_error_is_below_resolution(new_call: Any) -> None:
    # Each arrival is proven to 8 ms only: the change of 5 ms lies inside [-13, 3].
    base = scored(new_call, ladder(405), "base", width_ms=8)
    row = row_of(summarise(base, scored(new_call, ladder(400), width_ms=8)), "ttfa")
    assert row["delta_bound"] == pytest.approx([-0.013, 0.003])
    assert (row["resolution"], row["arrow"]) == ("below resolution", None)
    assert row["arrow_withheld"] == "below resolution"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(None, "no_reply_rate rose"), (-300, "early_rate rose")],
)
def test_a_gain_bought_with_missing_or_early_replies_gets_no_arrow(
    new_call: Any, answer: float | None, reason: str
) -> None:
    base = scored(new_call, ladder(900), "base")
    bought = ladder(400)
    bought[0][0] = answer
    row = row_of(summarise(base, scored(new_call, bought)), "ttfa")
    assert row["delta"] < 0
    assert (row["arrow"], row["arrow_withheld"]) == (None, reason)


def test_a_loss_is_shown_whatever_else_rose(new_call: Any) -> None:
    slower = ladder(900)
    slower[0][0] = None
    row = row_of(summarise(scored(new_call, ladder(400), "base"), scored(new_call, slower)), "ttfa")
    assert row["arrow"] == "worse"


def test_one_conversation_proves_no_direction(new_call: Any) -> None:
    base = scored(new_call, [[900, 910]], "base")
    row = row_of(summarise(base, scored(new_call, [[400, 410]])), "ttfa")
    assert row["delta"] == pytest.approx(-0.5)
    assert (row["arrow"], row["arrow_withheld"]) == (None, "none: one cluster")


def test_a_change_to_a_censored_median_is_a_bound(new_call: Any) -> None:
    base = scored(new_call, [[500, 500, 500]] * 3, "base")
    tuned = scored(new_call, [[None, None, 500]] * 3)
    row = row_of(summarise(base, tuned), "ttfa")
    assert row["systems"]["tuned"]["p50"] == {"censored": 4.0}
    assert row["delta"] is None
    assert row["delta_limits"] == [pytest.approx(3.5), None]
    back = row_of(summarise(tuned, replace(base, system="b")), "ttfa")
    assert back["delta_limits"] == [None, pytest.approx(-3.5)]


def test_different_definitions_are_refused(new_call: Any) -> None:
    base, tuned = scored(new_call, [[400]], "base"), scored(new_call, [[400]])
    older = replace(base, definitions={**base.definitions, "ttfa": "ttfa/0"})
    with pytest.raises(DefinitionMismatch, match="ttfa/0 and ttfa/1"):
        summarise(older, tuned)


def test_two_systems_of_one_name_are_refused(new_call: Any) -> None:
    scores = scored(new_call, [[400]])
    with pytest.raises(ValueError, match="both systems"):
        summarise(scores, scores)


def test_turns_pair_by_scenario_seed_repeat_and_step_never_by_order(new_call: Any) -> None:
    base = scored(new_call, [[400, 500, 600]], "base")
    tuned = scored(new_call, [[300, 400, 500]])
    # The tuned call lost its first turn: the others must not move up.
    tuned = replace(tuned, turns=tuned.turns[1:])
    assert [(a.turn, b.turn) for a, b in pairs(base, tuned)] == [(1, 1), (2, 2)]
    other = replace(tuned, turns=tuple(replace(t, pair_key=("x", 1, 0, 1)) for t in tuned.turns))
    assert pairs(base, other) == []


def test_manual_endpointing_is_never_compared_with_a_server_that_detects_turns(
    new_call: Any,
) -> None:
    base, tuned = scored(new_call, ladder(900), "base"), scored(new_call, ladder(400))
    by_hand = replace(
        tuned,
        turns=tuple(
            replace(
                t, flags=(Flag.ENDPOINTING_MANUAL,), slices={**t.slices, "endpointing": "manual"}
            )
            for t in tuned.turns
        ),
    )
    row = row_of(summarise(base, by_hand), "ttfa")
    assert row["delta"] is None
    assert row["not_compared"] == "endpointing: server against manual"


def test_another_script_under_the_same_name_gets_no_arrow(new_call: Any) -> None:
    base = scored(new_call, ladder(900), "base", script={"content_hash": "old"})
    row = row_of(summarise(base, scored(new_call, ladder(400))), "ttfa")
    assert (row["arrow"], row["arrow_withheld"]) == (None, "the script differs: order")


@pytest.mark.parametrize(
    ("source", "names", "n_clusters"),
    [
        ("human", ["ann", "ann"], 1),
        ("human", ["ann", "bob"], 2),
        ("synthetic", ["ann", "ann"], 2),
        ("human", [None, None], 2),
    ],
)
def test_a_person_who_holds_several_conversations_is_one_cluster(
    new_call: Any, source: str, names: list[str | None], n_clusters: int
) -> None:
    calls = [
        one_call(new_call, [400], repeat=0, script={"id": f"s{k}", "speaker": n, "source": source})
        for k, n in enumerate(names)
    ]
    scores = score_calls(calls)
    assert len({turn.cluster for turn in scores.turns}) == n_clusters


def test_both_systems_agree_on_what_a_cluster_is(new_call: Any) -> None:
    def voice(k: int) -> dict[str, Any]:
        return {"id": f"s{k}", "speaker": "ann", "source": "human"}

    base = score_calls([one_call(new_call, [400], system="base", script=voice(0))])
    tuned = score_calls([one_call(new_call, [400], script=voice(k)) for k in range(2)])
    a, b = clustered(base, tuned)
    assert {t.cluster for t in a.turns} == {t.cluster for t in b.turns} == {"speaker ann"}


def test_clusters_that_are_right_already_are_not_made_anew(new_call: Any) -> None:
    scores = scored(new_call, [[400, 500], [410, None]])
    (again,) = clustered(scores)
    assert all(a is b for a, b in zip(again.turns, scores.turns, strict=True))
    assert all(a is b for a, b in zip(again.calls, scores.calls, strict=True))


def test_the_texts_of_two_responses_of_a_turn_are_two_sentences(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, reply_within_s=9)
    call.reply(2400, call.tone(500), response_id="filler", text="Let me check.")
    call.reply(3600, call.tone(500), response_id="answer", text=" It is on the way. ")
    (turn,) = score_calls([CallView(call.build(10_000))]).turns
    assert turn.agent_text == "Let me check. It is on the way."


def test_a_turn_keeps_what_was_said_and_what_was_expected(new_call: Any) -> None:
    turn = scored(new_call, [[400]]).turns[0]
    assert (turn.user_text, turn.agent_text, turn.kind) == ("hello", "ok", "say")
    assert turn.expected == {"tools": [], "entities": [], "relevant_words": []}
    assert turn.pair_key == ("order", 1, 0, 0)
    assert turn.metrics["ttfa"] == Measured(0.4)


def test_no_number_in_a_report_is_infinite_or_not_a_number(new_call: Any) -> None:
    base = scored(new_call, [[None, None], [None, 500]], "base")
    tuned = scored(new_call, [[None, -300], [400, 500]])
    json.dumps([summarise(base, tuned), breakdowns(base, tuned)], allow_nan=False)
    assert tuned.turns[0].metrics["ttfa"] == Censored(4.0)
