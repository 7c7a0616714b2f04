"""Section 4's duplex part: counted outcomes, tables, and what they say where there is nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from vakforge_eval.metrics.reaction import Fate
from vakforge_eval.report.document import build_document
from vakforge_eval.report.duplex import duplex_blocks
from vakforge_eval.report.layout import lay_out
from vakforge_eval.report.outcomes import count_expectations, count_outcomes
from vakforge_eval.report.page import Block, Cell, Column, Note, Table
from vakforge_eval.report.statistics import without_empty

Row = dict[str, Any]
SYSTEMS = ("base", "tuned")


def titled(document: Row, title: str) -> Block:
    return next(b for b in duplex_blocks(document) if getattr(b, "title", None) == title)


def table_of(document: Row, title: str) -> list[dict[str, str]]:
    """Return a table's rows as text by column."""
    table = titled(document, title)
    assert isinstance(table, Table)
    labels = [column.label for column in table.columns]
    return [dict(zip(labels, (cell.text for cell in row), strict=True)) for row in table.rows]


def event(**changed: Any) -> Row:
    return {
        "system": "tuned",
        "call": "c",
        "scenario": "s",
        "turn": 0,
        "step": 3,
        "kind": "backchannel",
        "valid": True,
        "flags": [],
        "metrics": {},
        "outcome": "held",
        "relevance": None,
        "expectations": [],
        **changed,
    }


def expected(status: str, why: str = "", text: str = "hold") -> Row:
    return {"expect": text, "status": status, "why": why}


def test_outcomes_are_counted_by_kind_and_system_without_spoilt_ones() -> None:
    rows = [
        event(outcome="held"),
        event(outcome="stopped"),
        event(outcome="stopped", valid=False, flags=["back_pressure"]),
        event(outcome="silent", flags=["void"]),
        event(kind="say", outcome=None),
        event(kind="barge_in", system="base", outcome="stopped"),
    ]
    barge_in, backchannel = count_outcomes(rows, SYSTEMS)
    assert barge_in == {
        "system": "base", "kind": "barge_in", "n": 1, "n_invalid": 0, "n_void": 0,
        "outcomes": {"stopped": 1},
    }  # fmt: skip
    assert backchannel == {
        "system": "tuned", "kind": "backchannel", "n": 4, "n_invalid": 1, "n_void": 1,
        "outcomes": {"held": 1, "silent": 1, "stopped": 1},
    }  # fmt: skip


def test_expectations_are_counted_also_of_steps_that_were_left_out() -> None:
    rows = [event(expectations=[expected("pass"), expected("fail")])]
    step = {"step": 3, "kind": "sham", "reason": "x", "expectations": [expected("void")]}
    calls = [{"call": "c", "system": "tuned", "facts": {"skipped": [step]}}]
    assert count_expectations(rows, calls, SYSTEMS) == {
        "base": dict.fromkeys(["pass", "fail", "indeterminate", "void", "not_measurable"], 0),
        "tuned": {"pass": 1, "fail": 1, "indeterminate": 0, "void": 1, "not_measurable": 0},
    }


def test_what_became_of_speech_stands_in_one_row_a_kind_and_system(document: Row) -> None:
    rows = table_of(document, "What became of the agent's speech")
    assert [row["step"] for row in rows] == [
        "barge in",
        "",
        "backchannel",
        "",
        "noise",
        "",
        "sham",
        "",
    ]
    base = rows[0]
    counts = [base[name] for name in ("n", "stopped", "ended", "never stopped", "silent")]
    assert counts == ["12", "8", "2", "1", "1"]
    assert base["void of these"] == "1"


def test_the_three_stops_stand_side_by_side_with_what_is_censored(document: Row) -> None:
    rows = table_of(document, "Stops")
    assert [row["metric"] for row in rows if row["metric"]] == [
        "stop_reaction",
        "stop_network",
        "stop_heard",
    ]
    heard = rows[4]
    assert (heard["system"], heard["n"], heard["censored"]) == ("base", "11", "3")
    assert heard["p50"].startswith("770 ms")
    assert heard["p95"].startswith("not reached (> 11,500 ms)")
    assert heard["no number"] == "agent silent 1"
    assert heard["percentiles by"] == "Kaplan-Meier"


def test_a_false_interruption_has_the_control_beside_it(document: Row) -> None:
    rows = table_of(document, "False interruptions")
    base, tuned = rows[:2]
    assert (base["metric"], base["share"]) == ("false_interruption", "4/12 (33.3 %)")
    assert base["control (nothing played)"] == "0/12 (0 %)"
    assert (base["change"], tuned["change"]) == ("", "−33.3 pp ▼ better")
    assert [row["not counted"] for row in rows[2:4]] == ["natural end 1", "natural end 1"]


def test_without_a_sham_the_control_is_none(document: Row) -> None:
    changed = copy.deepcopy(document)
    sham = next(row for row in changed["summary"] if row["metric"] == "false_alarm")
    for cell in sham["systems"].values():
        cell |= {"hits": 0, "total": 0, "value": None}
    rows = table_of(changed, "False interruptions")
    assert {row["control (nothing played)"] for row in rows[:4]} == {"control: none"}


def test_verdicts_of_repeats_stand_in_one_row_with_why_they_did_not_pass(document: Row) -> None:
    rows = table_of(document, "Expectations")
    assert rows[0]["scenario"] == "booking"
    by_step = {(row["step"], row["expected"]): row for row in rows[-4:]}
    stop = by_step["3 barge in", "stop within 0.8 s"]
    assert (stop["base"], stop["tuned"]) == ("2 failed, 1 void", "2 passed, 1 void")
    assert "tuned: agent silent" in stop["why not passed"]
    assert by_step["12 sham", "hold"]["why not passed"] == ""


def test_a_reason_is_told_once_with_its_count_and_few_of_many() -> None:
    whys = ["a", "a", "b", "c", "d"]
    rows = [event(expectations=[expected("fail", why)]) for why in whys]
    document = build_document(("tuned",), [], rows, [], {})
    (row,) = table_of(document, "Expectations")
    assert row["tuned"] == "5 failed"
    assert row["why not passed"] == "a (2 ×); b; and 2 more"


def test_a_run_without_interruptions_says_that_there_is_no_data_yet() -> None:
    document = build_document(("tuned",), [], [event(kind="say", outcome=None)], [], {})
    block = titled(document, "What became of the agent's speech")
    assert isinstance(block, Note)
    assert block.text.startswith("No data yet")
    assert document["overlap"] is None
    assert document["claimed"] == []


def test_a_table_whose_metrics_have_no_number_says_why(document: Row) -> None:
    changed = copy.deepcopy(document)
    for row in changed["summary"]:
        if row["table"] == "Stops":
            row["systems"] = {
                name: {"n": 0, "p50": {"undefined": "half_duplex"}, "undefined": {"half_duplex": 3}}
                if row["unit"] == "s"
                else {"hits": 0, "total": 0, "value": None, "undefined": {"half_duplex": 3}}
                for name in row["systems"]
            }
    block = titled(changed, "Stops")
    assert isinstance(block, Note)
    assert block.text == "No data yet: half duplex."


def test_overlap_stands_beside_that_of_people_with_the_caveat(document: Row) -> None:
    rows = table_of(document, "Overlap and floor transfers against people")
    assert (rows[0]["what"], rows[0]["people"]) == ("overlap", "3.2 %")
    assert rows[3]["base"].endswith(" of 100")
    table = titled(document, "Overlap and floor transfers against people")
    assert isinstance(table, Table)
    assert document["overlap"]["caveat"] in table.note


def test_what_a_server_claims_stands_beside_what_was_heard(document: Row) -> None:
    base, tuned = table_of(document, "Claimed against heard")
    assert (base["claim"], tuned["claim"]) == ("speech stopped", "")
    assert (base["claimed"], base["heard"]) == ("1,310 ms", "1,000 ms")
    assert base["claimed − heard"] == "+310 ms"


def test_every_fate_of_the_agents_speech_is_explained_below_its_table(document: Row) -> None:
    document["outcomes"][0]["outcomes"] = dict.fromkeys(Fate, 1)
    table = titled(document, "What became of the agent's speech")
    assert isinstance(table, Table)
    for fate in Fate:
        assert f"{fate.replace('_', ' ')}: " in table.note.lower()


def test_events_are_no_turns_of_the_page(document: Row) -> None:
    facts = dict(lay_out(document).facts)
    assert facts["turns"] == "95 valid of 96"
    assert facts["background utterances"] == "72 valid of 72"
    assert facts["expectations of tuned"].startswith("44 pass")


def test_an_answered_event_is_no_answered_turn(rebuild: Callable[..., Row]) -> None:
    turns = [
        event(kind="say", flags=["no_reply"], metrics={"ttfa": {"censored": 4.0}}),
        event(metrics={"stutter_gap": {"value": 0.4, "u": [0, 0], "u_detect": [0, 0]}}),
    ]
    assert rebuild(turns=turns)["verdict"]["status"] == "nothing_measured"


@pytest.mark.parametrize("texts", [("0", "0"), ("—", ""), ("0", "—")])
def test_columns_that_count_nothing_are_left_out(texts: tuple[str, str]) -> None:
    columns = (Column("metric"), Column("invalid"), Column("n"))
    table = Table("", columns, [(Cell("x"), Cell(text), Cell("0")) for text in texts])
    assert [c.label for c in without_empty(table, {"invalid"}).columns] == ["metric", "n"]
    full = Table("", columns, [*table.rows, (Cell("y"), Cell("2"), Cell("0"))])
    assert without_empty(full, {"invalid"}) == full
