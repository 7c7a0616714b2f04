from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from vakforge_eval.stats.rates import (
    clopper_pearson,
    covers_at_least,
    newcombe,
    rate_interval,
    rate_method,
    wilson,
)
from vakforge_eval.timeline.values import Rate


@given(st.integers(1, 300), st.floats(0, 1))
def test_both_intervals_agree_with_scipy(total: int, share: float) -> None:
    rate = Rate(round(share * total), total)
    test = binomtest(rate.hits, rate.total)
    for ours, method in ((wilson(rate), "wilson"), (clopper_pearson(rate), "exact")):
        theirs = test.proportion_ci(0.95, method=method)
        assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@pytest.mark.parametrize(
    ("rate", "method"),
    [
        (Rate(0, 9), "Clopper-Pearson"),
        (Rate(9, 9), "Clopper-Pearson"),
        (Rate(4, 9), "Wilson"),
        (Rate(0, 0), "none: nothing was counted"),
    ],
)
def test_the_method_is_exact_where_there_are_no_events_or_only_events(
    rate: Rate, method: str
) -> None:
    assert rate_method(rate) == method


def test_no_event_in_ten_does_not_prove_a_rate_of_zero() -> None:
    # 1 - 0.025 ** (1 / 10)
    assert rate_interval(Rate(0, 10)) == pytest.approx((0.0, 0.30849710781876083))


def test_nothing_counted_has_no_interval() -> None:
    assert rate_interval(Rate(0, 0)) is None
    assert covers_at_least(Rate(0, 0)) is None


def test_a_claim_of_coverage_states_what_its_cases_can_prove() -> None:
    # All of n hit: the bound is 0.05 ** (1 / n). 59 cases prove 95 %, 58 do not.
    assert covers_at_least(Rate(59, 59)) == pytest.approx(0.05 ** (1 / 59))
    assert (covers_at_least(Rate(59, 59)) or 0) > 0.95 > (covers_at_least(Rate(58, 58)) or 0)


def test_newcombe_agrees_with_its_published_examples() -> None:
    # Newcombe 1998, table II, method 10: 56/70 - 48/80, 9/10 - 3/10, 10/10 - 0/20.
    for (a, m, b, n), (low, high) in (
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((10, 10, 0, 20), (0.6791, 1.0)),
    ):
        assert newcombe(Rate(b, n), Rate(a, m)) == pytest.approx((low, high), abs=5e-5)


def test_the_change_of_nothing_counted_has_no_interval() -> None:
    assert newcombe(Rate(0, 0), Rate(1, 2)) is None
