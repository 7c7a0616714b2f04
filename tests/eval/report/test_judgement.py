from typing import Any

import pytest

from vakforge_eval.report.judgement import central, is_measured, judge

Row = dict[str, Any]
PAIR = ("base", "tuned")


def cell(p50: float, **more: Any) -> Row:
    return {"n": 40, "clusters": 8, "p50": p50, "bound": [p50 - 0.001, p50 + 0.001], **more}


def row(**changed: Any) -> Row:
    return {
        "metric": "ttfa",
        "unit": "s",
        "better": "lower",
        "systems": {"base": cell(0.6), "tuned": cell(0.48)},
        "delta": -0.12,
        "delta_ci": [-0.16, -0.08],
        **changed,
    }


def kinds(judged: Row) -> list[str]:
    return [badge["kind"] for badge in judged["badges"]]


def test_a_clear_change_has_a_direction() -> None:
    judged = judge(row(), PAIR, is_valid=True)
    assert (judged["direction"], judged["direction_withheld"]) == ("better", None)
    assert judged["delta_bound"] == pytest.approx([-0.122, -0.118])


def test_higher_can_be_the_better_direction() -> None:
    assert judge(row(better="higher"), PAIR, is_valid=True)["direction"] == "worse"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"delta_ci": [-0.2, 0.01]}, "the interval contains 0"),
        ({"delta_ci": [None, 0.01]}, "the interval contains 0"),
        ({"delta_ci": None}, "no interval"),
        ({"better": "none"}, "neither direction is better"),
        ({"delta": None}, "no change could be computed"),
        ({"delta": {"censored": 3.0}}, "no change could be computed"),
        ({"systems": {"base": cell(0.6), "tuned": cell(0.48, n_early=2)}}, "early replies rose"),
        (
            {"systems": {"base": cell(0.6), "tuned": cell(0.48, n_no_reply=1)}},
            "missing replies rose",
        ),
    ],
)
def test_a_direction_is_withheld_with_its_reason(changed: Row, why: str) -> None:
    judged = judge(row(**changed), PAIR, is_valid=True)
    assert (judged["direction"], judged["direction_withheld"]) == (None, why)


def test_an_invalid_measurement_shows_no_direction() -> None:
    judged = judge(row(), PAIR, is_valid=False)
    assert judged["direction_withheld"] == "the measurement is not valid"


def test_without_a_baseline_there_is_no_direction() -> None:
    judged = judge(row(systems={"tuned": cell(0.48)}), ("tuned",), is_valid=True)
    assert (judged["direction"], judged["direction_withheld"]) == (None, "no baseline")
    assert judged["delta_bound"] is None


def test_fewer_early_replies_do_not_withhold_the_direction() -> None:
    systems = {"base": cell(0.6, n_early=3), "tuned": cell(0.48, n_early=1)}
    judged = judge(row(systems=systems), PAIR, is_valid=True)
    assert judged["direction"] == "better"
    assert {"kind": "n_early", "text": "early 3 → 1"} in judged["badges"]


def test_early_replies_are_compared_as_shares_of_the_turns() -> None:
    base = cell(0.6, n=10, n_early=1)
    systems = {"base": base, "tuned": cell(0.48, n=100, n_early=2)}
    assert judge(row(systems=systems), PAIR, is_valid=True)["direction"] == "better"


def test_a_change_inside_the_error_bound_is_below_resolution() -> None:
    systems = {"base": cell(0.5), "tuned": cell(0.4985)}
    judged = judge(
        row(systems=systems, delta=-0.0015, delta_ci=[-0.002, -0.001]), PAIR, is_valid=True
    )
    assert "below_resolution" in kinds(judged)
    assert judged["direction_withheld"] == "below resolution"


def test_an_open_error_bound_is_never_resolved() -> None:
    systems = {"base": cell(0.6), "tuned": {"n": 40, "p50": 0.48, "bound": [0.479, None]}}
    judged = judge(row(systems=systems), PAIR, is_valid=True)
    assert judged["delta_bound"] == [pytest.approx(-0.122), None]
    assert judged["direction"] is None


def test_badges_say_low_n_max_and_what_was_left_out() -> None:
    systems = {
        "base": cell(0.6, low_n=True, p95_label="max", n_no_reply=2, n_invalid=0),
        "tuned": cell(0.48, low_n=False, p95_label="p95", n_no_reply=0, n_invalid=1),
    }
    judged = judge(row(systems=systems), PAIR, is_valid=True)
    assert kinds(judged) == ["low_n", "max", "n_no_reply", "n_invalid"]
    assert judged["badges"][2]["text"] == "no reply 2 → 0"


def test_a_reason_is_no_measurement_but_a_bound_is() -> None:
    assert not is_measured(None)
    assert not is_measured({"n": 0, "p50": None})
    assert not is_measured({"n": 0, "p50": {"undefined": "too_few"}})
    assert is_measured({"n": 3, "p50": {"censored": 10.0}})
    assert is_measured({"hits": 0, "total": 3, "value": 0.0})
    assert central({"hits": 1, "total": 4, "value": 0.25}) == 0.25
