from typing import Any

from vakforge_eval.report.judgement import central, is_measured, judge

Row = dict[str, Any]
PAIR = ("base", "tuned")


def cell(p50: float, **more: Any) -> Row:
    return {"n": 40, "clusters": 8, "p50": p50, **more}


def row(**changed: Any) -> Row:
    return {
        "metric": "ttfa",
        "better": "lower",
        "systems": {"base": cell(0.6), "tuned": cell(0.48)},
        "delta": -0.12,
        "arrow": "better",
        "arrow_withheld": None,
        **changed,
    }


def test_the_arrow_of_scoring_is_kept() -> None:
    judged = judge(row(), PAIR, is_valid=True)
    assert (judged["arrow"], judged["arrow_withheld"]) == ("better", None)


def test_a_reason_of_scoring_is_kept() -> None:
    judged = judge(row(arrow=None, arrow_withheld="below resolution"), PAIR, is_valid=True)
    assert (judged["arrow"], judged["arrow_withheld"]) == (None, "below resolution")


def test_an_invalid_measurement_shows_no_arrow_whatever_scoring_said() -> None:
    judged = judge(row(), PAIR, is_valid=False)
    assert (judged["arrow"], judged["arrow_withheld"]) == (None, "the measurement is not valid")


def test_without_a_baseline_there_is_no_arrow() -> None:
    judged = judge(row(), ("tuned",), is_valid=True)
    assert (judged["arrow"], judged["arrow_withheld"]) == (None, "no baseline")


def test_a_row_that_nobody_judged_shows_no_arrow() -> None:
    plain = row()
    del plain["arrow"], plain["arrow_withheld"]
    assert judge(plain, PAIR, is_valid=True)["arrow"] is None


def test_badges_say_low_n_max_resolution_and_what_was_left_out() -> None:
    systems = {
        "base": cell(0.6, low_n=True, p95_label="max", n_early=3, n_no_reply=2, n_invalid=0),
        "tuned": cell(0.48, low_n=False, p95_label="p95", n_early=0, n_no_reply=0, n_invalid=1),
    }
    judged = judge(row(systems=systems, resolution="below resolution"), PAIR, is_valid=True)
    assert [badge["text"] for badge in judged["badges"]] == [
        "low-n",
        "p95 = max",
        "below resolution",
        "early 3 → 0",
        "no reply 2 → 0",
        "invalid 0 → 1",
    ]


def test_a_large_clean_row_has_no_badge() -> None:
    systems = {name: cell(0.5, low_n=False, p95_label="p95", n_early=0) for name in PAIR}
    above = row(systems=systems, resolution="above resolution")
    assert judge(above, PAIR, is_valid=True)["badges"] == []


def test_a_reason_is_no_measurement_but_a_bound_is() -> None:
    assert not is_measured(None)
    assert not is_measured({"n": 0, "p50": None})
    assert not is_measured({"n": 0, "p50": {"undefined": "too_few"}})
    assert is_measured({"n": 3, "p50": {"censored": 10.0}})
    assert is_measured({"hits": 0, "total": 3, "value": 0.0})
    assert central({"hits": 1, "total": 4, "value": 0.25}) == 0.25
