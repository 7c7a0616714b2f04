from typing import Any

from vakforge_eval.report.terminal import banner_lines, summary_rows

Row = dict[str, Any]


def test_the_terminal_prints_the_summary_of_the_report(tiny: Row) -> None:
    header, row = summary_rows(tiny)
    assert header == [
        "metric",
        "from → to",
        "base →",
        "tuned",
        "change",
        "95 % interval",
        "n",
        "notes",
    ]
    assert row == [
        "ttfa (lower is better)",
        "user_end → first audio message",
        "600 ms ±0.2",
        "480 ms ±0.2",
        "−120 ms",
        "—",
        "2 in 1 cluster",
        "low-n, p95 = max",
    ]


def test_rows_are_as_long_as_the_header_with_one_system_too(single: Row) -> None:
    header, *rows = summary_rows(single)
    assert "change" not in header
    assert {len(row) for row in rows} == {len(header)}


def test_banners_come_as_lines(single: Row) -> None:
    assert banner_lines(single) == ["no baseline: not a comparison"]
