import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.metrics.hearing import DETECTOR
from vakforge_eval.report.markdown_writer import escape, to_markdown

Row = dict[str, Any]
GOLDEN = Path(__file__).with_name("golden") / "tiny.md"
SECTIONS = [
    "## 1. Summary",
    "## 2. Where it got better and worse",
    "## 3. Breakdowns",
    "## 4. Latency and duplex",
    "## 5. Samples",
    "## 6. Provenance",
]


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("## ")]


def test_a_small_report_reads_as_agreed(tiny: Row) -> None:
    assert to_markdown(tiny) == GOLDEN.read_text(encoding="utf-8")


def test_the_six_sections_stand_in_the_specified_order(document: Row, single: Row) -> None:
    assert headings(to_markdown(document)) == SECTIONS
    assert headings(to_markdown(single)) == SECTIONS


def test_a_report_of_nothing_still_has_six_sections_that_say_why(
    rebuild: Callable[..., Row],
) -> None:
    empty = rebuild(
        summary=[], turns=[], calls=[], breakdowns=[], samples=[], provenance={}, hardware=None
    )
    text = to_markdown(empty)
    assert headings(text) == SECTIONS
    assert "> **Nothing was measured: no turn of any call gave a number.**" in text
    for reason in (
        "No metric has a number.",
        "No slice was scored.",
        "No latency metric has a number.",
        "No transport metric was computed.",
        "No call says how it was measured.",
        "not stated",
        "not used",
        "none used",
        "No turn with text or audio to show.",
    ):
        assert reason in text


def test_every_row_of_a_table_has_its_columns_and_its_width(document: Row) -> None:
    text = to_markdown(document)
    tables = re.findall(r"(?:^\|.*\|$\n)+", text, flags=re.MULTILINE)
    assert len(tables) >= 8
    for table in tables:
        rows = table.splitlines()
        counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(counts) == 1
        # Devanagari vowel signs take no column of their own.
        if table.isascii() or not re.search("[\u0900-\u097f]", table):
            assert len({len(row) for row in rows}) == 1


def test_a_change_shows_its_sign_direction_and_interval(document: Row) -> None:
    text = to_markdown(document)
    line = next(x for x in text.splitlines() if x.startswith("| ttfa (lower"))
    assert re.search(r"−\d+(\.\d)? ms +\| +\[−\d+, \d+\]", line)
    assert "low-n; early 1 → 0; no reply 1 → 0; invalid 0 → 1" in line
    better = next(x for x in text.splitlines() if x.startswith("| scenario: booking"))
    assert re.search(r"−\d+(\.\d)? ms ▼ better .* \[−\d+, −\d+\]", better)


def test_a_withheld_direction_is_explained(document: Row) -> None:
    text = to_markdown(document)
    assert re.search(r"early_rate, .*\(the interval contains 0\)", text)
    assert "leading_silence, rtf, setup (below resolution)" in text


def test_metrics_without_a_number_are_named_with_their_reason(document: Row) -> None:
    text = to_markdown(document)
    assert "Without a number: ttf_answer (not applicable)" in text
    assert "greeting_latency (no greeting)" in text
    assert "| ttf_answer |" not in text.split("### Definitions")[0]


def test_an_unbounded_change_is_told_as_a_bound(document: Row) -> None:
    row = next(r for r in document["summary"] if r["metric"] == "ttfa")
    row["delta"], row["delta_limits"] = None, [3.2, None]
    line = next(x for x in to_markdown(document).splitlines() if x.startswith("| ttfa (lower"))
    assert "> +3,200 ms" in line.replace("\\", "")


def test_samples_link_to_audio_where_there_is_some(document: Row) -> None:
    assert "[audio](calls/tuned-0/agent.wav)" in to_markdown(document)


def test_samples_without_audio_say_so(rebuild: Callable[..., Row], inputs: Row) -> None:
    samples = inputs["samples"][1:2]
    assert "Audio: not rendered in this report" in to_markdown(rebuild(samples=samples))


def test_a_missing_answer_is_said_not_left_out(rebuild: Callable[..., Row], inputs: Row) -> None:
    samples = inputs["samples"][:1]
    del samples[0]["answers"]["base"]
    assert "- base: no answer for this turn" in to_markdown(rebuild(samples=samples))


def test_transport_and_self_have_their_own_table(document: Row) -> None:
    text = to_markdown(document)
    assert re.search(r"\| frames_late +\| base +\| +0/18000 \(0 %\) ", text)
    assert re.search(r"\| cpu_share +\| base +\| +3\.1 % ", text)
    assert "cpu_share (lower" not in text


def test_how_it_was_measured_shows_what_differed_between_calls(document: Row) -> None:
    document["calls"][0]["facts"]["stamp_source"] = "loop"
    text = to_markdown(document)
    assert "kernel (11 calls), loop (1 call)" in text
    assert re.search(r"\| scheduling\.policy +\| SCHED_OTHER +\| SCHED_OTHER +\|", text)


def test_a_fact_that_differs_in_every_call_does_not_flood_its_cell(document: Row) -> None:
    own = [call for call in document["calls"] if call["system"] == "tuned"]
    for k, call in enumerate(own):
        call["facts"]["echo"] = {"delay_s": (100 + k) / 1000}
    (line,) = (x for x in to_markdown(document).splitlines() if "echo.delay" in x)
    assert "0.1 (1 call), 0.101 (1 call)" in line
    assert f"and {len(own) - 3} more" in line


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("a|b", r"a\|b"),
        ("`code`", r"\`code\`"),
        ("[x](http://y)", r"\[x\](http:\//y)"),
        ("<b> & c", "&lt;b> & c"),
        ("a<b>c", "a&lt;b&gt;c"),
        ("&lt;b&#62;", "&amp;lt;b&amp;#62;"),
        ("> 10 ms", r"\> 10 ms"),
        ("speech >= 400 ms", "speech >= 400 ms"),
        ("*a* __b__", r"\*a\* \_\_b\_\_"),
        ("ttfa_heard", "ttfa_heard"),
        ("$5 {{x}} ~~s~~", r"\$5 \{\{x\}\} \~\~s\~\~"),
        ("www.example.test", r"www\.example.test"),
        ("[−160, −80]", "[−160, −80]"),
        ("[1](x)", r"\[1\](x)"),
        ("[1]: x", r"\[1\]: x"),
        (" # heading", r"\# heading"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("1 item", "1 item"),
        ("1.02", "1.02"),
        ("+2.1 pp", "+2.1 pp"),
        ("---", r"\---"),
    ],
)
def test_foreign_text_is_literal(text: str, literal: str) -> None:
    assert escape(text) == literal


def test_long_cells_are_cut(rebuild: Callable[..., Row]) -> None:
    text = to_markdown(rebuild(provenance={"config_hash": "x" * 500}))
    assert "x" * 239 + "…" in text
    assert "x" * 240 not in text


def test_no_definition_is_cut(document: Row) -> None:
    document["summary"][0]["detector"] = DETECTOR
    text = to_markdown(document)
    section = text[text.index("### Definitions") :]
    assert escape(DETECTOR) in section
    assert "…" not in section


def test_a_scale_that_begins_below_zero_says_so(tiny: Row) -> None:
    for turn in tiny["turns"]:
        turn["metrics"]["ttfa"] = {"value": -0.0007, "u": [0, 0], "u_detect": [0, 0]}
    assert re.search(r"ttfa, from −\S+ ms to 0 ms in equal steps:", to_markdown(tiny))


def test_an_invalid_measurement_withholds_every_direction_in_one_sentence(tiny: Row) -> None:
    for row in tiny["summary"]:
        row["arrow"], row["arrow_withheld"] = None, "the measurement is not valid"
    text = to_markdown(tiny)
    assert "No direction is shown: the measurement is not valid." in text
    assert "would not be sound" not in text


def test_a_metric_that_only_one_system_has_is_shown_beside_a_dash(tiny: Row) -> None:
    del tiny["summary"][0]["systems"]["base"]
    tiny["summary"][0]["delta"] = None
    text = to_markdown(tiny)
    assert re.search(r"\| ttfa \(lower is better\) .*\| +— \| +480 ms ±0\.2 \| +— \|", text)
    assert "2 in 1 cluster" in text


def test_captures_that_say_nothing_of_clusters_or_span_leave_these_out(tiny: Row) -> None:
    row = tiny["summary"][0]
    row["start"] = None
    for cell in row["systems"].values():
        del cell["clusters"]
    line = next(x for x in to_markdown(tiny).splitlines() if x.startswith("| ttfa (lower"))
    assert "cluster" not in line
    assert re.match(r"\| ttfa \(lower is better\) \| — +\|", line)
