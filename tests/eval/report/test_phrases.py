import pytest

from vakforge_eval.report import phrases


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.512, "s", "512 ms"),
        (0.0452, "s", "45.2 ms"),
        (0.00015, "s", "0.15 ms"),
        (12.0, "s", "12,000 ms"),
        (-0.18, "s", "−180 ms"),
        (-0.0000001, "s", "0.00 ms"),
        (0.075, "rate", "7.5 %"),
        (1.0, "share", "100 %"),
        (1.75, "ratio", "1.75"),
        (-12.5, "ppm", "−12.5 ppm"),
        (3, "count", "3"),
    ],
)
def test_a_value_is_worded_in_the_unit_people_use(value: float, unit: str, text: str) -> None:
    assert phrases.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (-0.12, "s", "−120 ms"),
        (0.0032, "s", "+3.20 ms"),
        (0.0, "s", "0 ms"),
        (0.025, "rate", "+2.5 pp"),
    ],
)
def test_a_change_always_has_its_sign_and_shares_change_by_points(
    value: float, unit: str, text: str
) -> None:
    assert phrases.signed(value, unit) == text


def test_an_interval_is_worded_in_the_scale_of_its_value() -> None:
    assert phrases.interval([-0.16, -0.08], "s") == "[−160, −80]"
    assert phrases.interval([0.01, 0.08], "rate") == "[1.0, 8.0] %"
    assert phrases.interval([-0.06, 0.02], "rate", of_change=True) == "[−6.0, 2.0] pp"


def test_an_interval_without_an_upper_end_stays_open() -> None:
    assert phrases.interval([0.5, None], "s") == "[500, …]"


def test_no_interval_is_a_dash() -> None:
    assert phrases.interval(None, "s") == "—"


def test_an_end_that_is_not_zero_is_never_worded_as_zero() -> None:
    assert phrases.interval([-0.11, -0.0002], "s") == "[−110.0, −0.2]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.09996, "100 ms"), (0.09994, "99.9 ms"), (0.009996, "10.0 ms"), (0.00999, "9.99 ms")],
)
def test_a_value_is_worded_like_the_number_it_rounds_to(seconds: float, text: str) -> None:
    assert phrases.quantity(seconds, "s") == text


def test_an_error_is_rounded_up_because_it_is_a_worst_case() -> None:
    assert phrases.error(0.00021, 0.00021, "s") == "±0.3"
    assert phrases.error(0.000001, 0.000001, "s") == "±0.01"
    assert phrases.error(0.0101, 0.0101, "s") == "±11"


def test_an_error_with_unequal_sides_shows_both() -> None:
    assert phrases.error(0.0001, 0.003, "s") == "−0.1 +3.0"


def test_a_value_carries_its_error() -> None:
    assert phrases.with_error(0.512, [0.5118, 0.5122], "s") == "512 ms ±0.2"
    assert phrases.with_error(0.512, None, "s") == "512 ms"
    assert phrases.with_error(0.512, [0.5118, None], "s") == "512 ms (error bound open)"


def test_a_rate_shows_its_counts() -> None:
    assert phrases.rate({"hits": 3, "total": 40}) == "3/40 (7.5 %)"


def test_a_rate_of_nothing_is_not_zero() -> None:
    assert phrases.rate({"hits": 0, "total": 0}) == "0/0 (no rate)"


def test_a_statistic_may_be_a_bound_or_a_reason() -> None:
    assert phrases.stat({"censored": 10.0}, "s") == "> 10,000 ms"
    assert phrases.stat({"undefined": "too_few"}, "s") == "— (too few)"
    assert phrases.stat(None, "s") == "—"


def test_a_turns_value_adds_stamp_and_detection_error() -> None:
    value = {"value": 0.5, "u": [0.0002, 0.0002], "u_detect": [0.001, 0.001]}
    assert phrases.metric_value(value, "s") == "500 ms ±1.2"
    assert phrases.metric_value({"undefined": "no_audio"}, "s") == "— (no audio)"
    assert phrases.metric_value({"hits": 1, "total": 2, "value": 0.5}, "rate") == "1/2 (50 %)"
    assert phrases.metric_value(None, "s") == "—"


def test_a_change_with_one_known_side_is_a_bound() -> None:
    assert phrases.limits([0.12, None], "s") == "> +120 ms"
    assert phrases.limits([None, -0.12], "s") == "< −120 ms"
    assert phrases.limits([None, None], "s") == "—"


def test_a_curve_that_does_not_reach_a_percentile_says_from_where_on_it_lies() -> None:
    cell = {"p50": {"censored": 1.2}, "percentile_method": "Kaplan-Meier"}
    assert phrases.percentile(cell, "p50", "s") == "not reached (> 1,200 ms)"
    reached = {**cell, "p50": 0.4, "bound": [0.39, 0.4]}
    assert phrases.percentile(reached, "p50", "s") == "400 ms −10 +0"
    assert phrases.percentile({"p95": {"censored": 1.2}}, "p95", "s") == "> 1,200 ms"
