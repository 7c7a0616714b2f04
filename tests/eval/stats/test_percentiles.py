from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.stats.percentiles import nearest_rank, percentile, rank_of, tail_label
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Reason, Undefined


def sample(*values: MetricValue) -> Values:
    return Values.of((str(i), value) for i, value in enumerate(values))


def measured(*values: float) -> list[MetricValue]:
    return [Measured(v) for v in values]


def test_nearest_rank_returns_a_value_that_was_measured_not_one_in_between() -> None:
    # 20 values: rank ceil(0.95 * 20) = 19 -> 1900; interpolation would say 1905.
    assert nearest_rank(np.arange(100.0, 2001.0, 100.0), 95) == 1900


@pytest.mark.parametrize(
    ("percent", "n", "rank"),
    [(50, 4, 2), (50, 5, 3), (95, 20, 19), (95, 19, 19), (100, 7, 7), (1, 3, 1), (55, 100, 55)],
)
def test_ranks_do_not_slip_by_float_error(percent: int, n: int, rank: int) -> None:
    assert rank_of(percent, n) == rank


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_percent_outside_of_its_range_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="percent"):
        rank_of(percent, 10)


def test_an_empty_sample_has_no_percentile_and_is_not_zero() -> None:
    assert percentile(sample(), 50).value == Undefined(Reason.TOO_FEW)


def test_undefined_values_are_no_members_of_a_sample() -> None:
    assert len(sample(Measured(1.0), Undefined(Reason.NO_TEXT))) == 1


def test_a_rank_beyond_the_common_bound_is_only_known_to_exceed_it() -> None:
    values = sample(*measured(0.4, 0.6, 0.8), Censored(2.0), Censored(2.0))
    assert percentile(values, 50).value == Measured(0.8)
    assert percentile(values, 95).value == Censored(2.0)
    assert percentile(values, 95).bound[1] == math.inf


def test_an_early_censored_value_does_not_hide_ranks_that_hold_whatever_it_was() -> None:
    # Were the censored one 0.31 or 31, the third of five is 0.5 in both cases.
    values = sample(Censored(0.3), *measured(0.5, 0.5, 0.5, 0.5))
    assert percentile(values, 50).value == Measured(0.5)
    # The second of three is 0.7 or 0.9, depending on it: only "> 0.7" holds.
    assert percentile(sample(Censored(0.7), *measured(0.2, 0.9)), 50).value == Censored(0.7)


def test_missing_replies_cannot_improve_a_percentile() -> None:
    fast = sample(*measured(0.4, 0.5, 0.6, 0.7))
    mute = sample(*measured(0.4, 0.5), Censored(2.0), Censored(2.0))
    assert percentile(fast, 95).value == Measured(0.7)
    assert percentile(mute, 95).value == Censored(2.0)


def test_the_bound_is_the_same_percentile_of_all_lower_and_all_upper_ends() -> None:
    # Lower ends 0.4 0.1 0.8 -> 0.4; upper ends 0.6 1.1 1.0 -> 1.0; they come from other turns.
    values = sample(
        Measured(0.5, u=(0.1, 0.1)),
        Measured(0.6, u=(0.5, 0.2), u_detect=(0.0, 0.3)),
        Measured(0.9, u=(0.1, 0.1)),
    )
    found = percentile(values, 50)
    assert found.bound == pytest.approx((0.4, 1.0))
    assert isinstance(found.value, Measured)
    assert (found.value.lo, found.value.hi) == pytest.approx((0.4, 1.0))


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_the_bound_holds_the_percentile_of_any_truth_inside_the_errors(
    rows: list[tuple[float, float, float]],
) -> None:
    values = sample(*(Measured(v, u=(a, b)) for v, a, b in rows))
    truths = np.array([v - a / 2 + b / 3 for v, a, b in rows])
    low, high = percentile(values, 95).bound
    assert low - 1e-9 <= nearest_rank(truths, 95) <= high + 1e-9


def test_the_p95_of_fewer_than_20_values_is_called_max() -> None:
    assert (tail_label(19), tail_label(20)) == ("max", "p95")
    assert nearest_rank(np.arange(19.0), 95) == 18.0
