from typing import Any

import pytest

from vakforge_eval.report.terminal import banner_lines, summary_notes, summary_rows, to_lines

Row = dict[str, Any]


def texts(document: Row, width: int) -> list[list[str]]:
    return [[cell.text for cell in row] for row in summary_rows(document, width)]


def test_the_terminal_prints_the_summary_of_the_report(tiny: Row) -> None:
    assert texts(tiny, 200) == [
        ["metric", "base →", "tuned", "change", "95 % interval", "n"],
        ["ttfa", "600 ms ±0.2", "480 ms ±0.2", "−120 ms", "—", "2 in 1 cluster"],
    ]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(rebuild: Any, single: Row, width: int) -> None:
    for document in (rebuild(), single):
        lines = to_lines(summary_rows(document, width))
        assert max(map(len, lines)) <= width
        assert len(lines) > 5


def test_more_is_shown_where_there_is_more_room(rebuild: Any) -> None:
    document = rebuild()
    narrow, wide = (texts(document, width) for width in (80, 200))
    assert len(narrow) == len(wide)
    assert [row[0] for row in narrow] == [row[0] for row in wide]
    assert "clusters" in wide[1][-1]
    assert "clusters" not in narrow[1][-1]


def test_an_asymmetric_error_is_told_by_its_worse_side_where_room_is_short(tiny: Row) -> None:
    cell = tiny["summary"][0]["systems"]["tuned"]
    cell["bound"] = [0.4790, 0.4803]
    assert texts(tiny, 200)[1][2] == "480 ms −1.0 +0.3"
    assert texts(tiny, 50)[1][2] == "480 ms ±1.0"


def test_a_change_for_the_better_is_marked_and_says_so_where_there_is_room(tiny: Row) -> None:
    tiny["summary"][0] |= {"arrow": "better"}
    wide, narrow = (summary_rows(tiny, width)[1][3] for width in (200, 50))
    assert (wide.text, wide.tone) == ("−120 ms ▼ better", "better")
    assert (narrow.text, narrow.tone) == ("−120 ms ▼", "better")


def test_a_terminal_too_narrow_for_anything_gets_the_shortest_form(tiny: Row) -> None:
    assert texts(tiny, 10)[0] == ["metric", "base →", "tuned", "change", "n"]


def test_rows_are_as_long_as_the_header_with_one_system_too(single: Row) -> None:
    header, *rows = texts(single, 100)
    assert "change" not in header
    assert {len(row) for row in rows} == {len(header)}


def test_an_arrow_is_explained_only_where_one_is_shown(tiny: Row) -> None:
    for arrow in (None, "better"):
        tiny["summary"][0] |= {"arrow": arrow}
        assert ("arrow" in summary_notes(tiny)[0]) is (arrow is not None)


def test_badges_are_told_once_below_the_table(tiny: Row) -> None:
    _, *notes = summary_notes(tiny)
    assert notes == ["low-n: ttfa"]


def test_a_badge_of_every_row_does_not_list_them_all(rebuild: Any) -> None:
    assert "low-n: all rows" in summary_notes(rebuild())


def test_a_badge_of_many_rows_names_some_and_counts_the_rest(rebuild: Any) -> None:
    document = rebuild()
    for row in document["summary"]:
        row["badges"] = [b for b in row["badges"] if b["kind"] != "low_n"]
    for row in document["summary"][:6]:
        row["badges"].append({"kind": "n_early", "text": "early 9 → 7"})
    (line,) = [line for line in summary_notes(document) if line.startswith("early 9")]
    assert line == "early 9 → 7: ttft, ttfa, ttfa_audible, ttfa_heard and 1 more"


def test_numbers_are_aligned_to_the_right_and_names_to_the_left(tiny: Row) -> None:
    header, row = to_lines(summary_rows(tiny, 200))
    assert header.startswith("metric  ")
    assert row.startswith("ttfa    ")
    assert header.index("tuned") + len("tuned") == row.index("480 ms ±0.2") + len("480 ms ±0.2")


def test_banners_come_as_lines(single: Row) -> None:
    void, *counts, last = banner_lines(single)
    assert void.startswith("2 of 48 barge-ins and background utterances are void")
    assert counts == ["  tuned, barge in: 1 of 12", "  tuned, noise: 1 of 12"]
    assert last == "no baseline: not a comparison"
