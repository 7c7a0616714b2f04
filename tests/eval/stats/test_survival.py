"""Times that something else may cut short, against worked examples and scipy's estimator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import CensoredData, ecdf

from vakforge_eval.stats import survival as module
from vakforge_eval.stats.bootstrap import draw_weights
from vakforge_eval.stats.intervals import delta_interval, percentile_interval
from vakforge_eval.stats.percentiles import percentile, percentile_method
from vakforge_eval.stats.survival import (
    Sample,
    greenwood,
    quantile,
    survival,
    survival_replicates,
)
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Reason, Undefined

# Fan belts, thousands of miles until they broke or the test ended (Conover 1999, page 91).
BROKEN, UNBROKEN = [77, 47, 81, 56, 80], [62, 60, 43, 71, 37]
# Weeks of remission under 6-MP; 6+, 9+, … were still in remission (Freireich and others, 1963).
REMISSION = [6, 6, 6, 7, 10, 13, 16, 22, 23]
STILL = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]


def sample(events: Sequence[float], censored: Sequence[float]) -> Sample:
    times = np.array([*events, *censored], dtype=np.float64)
    return Sample(times, np.arange(len(times)) < len(events))


def values(*groups: list[MetricValue]) -> Values:
    """Return a sample of one cluster a group, cut short by something that says nothing of it."""
    return Values.of(
        ((f"c{g}", value) for g, group in enumerate(groups) for value in group),
        has_competing_end=True,
    )


def stops(times: list[float], ends: list[float]) -> list[MetricValue]:
    return [*map(Measured, times), *map(Censored, ends)]


def test_the_curve_of_the_fan_belts_is_the_textbook_one() -> None:
    times, left = survival(sample(BROKEN, UNBROKEN))
    assert list(times) == [37, 43, 47, 56, 60, 62, 71, 77, 80, 81]
    assert left == pytest.approx([1, 1, 0.875, 0.75, 0.75, 0.75, 0.75, 0.5, 0.25, 0])
    assert quantile(sample(BROKEN, UNBROKEN), 0.5) == 77


def test_the_median_remission_is_the_published_23_weeks() -> None:
    # S(22) = 0.538, S(23) = 0.448; Greenwood's error at 23 weeks is 0.1346.
    treated = sample(REMISSION, STILL)
    assert quantile(treated, 0.5) == 23
    assert math.sqrt(greenwood(treated, 23)) == pytest.approx(0.1346, abs=5e-5)
    assert quantile(treated, 0.95) == math.inf


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 99),
)
def test_curve_and_quantile_agree_with_scipy(rows: list[tuple[int, bool]], percent: int) -> None:
    events = [float(t) for t, is_event in rows if is_event]
    censored = [float(t) for t, is_event in rows if not is_event]
    theirs = ecdf(CensoredData(uncensored=events, right=censored)).sf
    times, left = survival(sample(events, censored))
    assert np.array_equal(times, theirs.quantiles)
    assert left == pytest.approx(theirs.probabilities, abs=1e-12)
    reached = theirs.quantiles[theirs.probabilities <= 1 - percent / 100 + 1e-9]
    assert quantile(sample(events, censored), percent / 100) == min(reached, default=math.inf)


def test_without_censoring_the_quantile_is_the_nearest_rank() -> None:
    for n in range(1, 40):
        for percent in (5, 50, 95):
            rank = -(-percent * n // 100)
            assert quantile(sample([float(k) for k in range(1, n + 1)], []), percent / 100) == rank


def test_a_resample_counts_each_cluster_as_often_as_it_was_drawn() -> None:
    names, clusters = ["a", "b"], ["a", "b", "a", "b"]
    found = sample([1.0, 2.0, 3.0], [2.5])
    twice_a = np.array([[2, 0], [1, 1], [0, 0]])
    reached, left = survival_replicates(found, clusters, names, twice_a, 0.5, 2.0)
    # a holds 1 and 3; both: 1, 2, then 2.5+ and 3; nothing drawn: nothing known.
    assert list(reached[:2]) == [1.0, 2.0]
    assert list(left[:2]) == [0.5, 0.5]
    assert math.isnan(reached[2])
    assert math.isnan(left[2])


def test_blocks_of_resamples_change_no_replicate(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    found = Sample(rng.random(30), rng.random(30) < 0.7)
    names = [f"c{k}" for k in range(6)]
    clusters = [names[k % 6] for k in range(30)]
    inputs = found, clusters, names, draw_weights(6, n_resamples=50), 0.5, 0.4
    whole = survival_replicates(*inputs)
    monkeypatch.setattr(module, "_MAX_CELLS", 70)
    parts = survival_replicates(*inputs)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(whole, parts, strict=True))


def test_a_natural_end_is_no_slow_stop() -> None:
    # Half of the replies end by themselves at once: they say nothing of a stop at 0.6 s.
    found = percentile(values(stops([0.6, 0.6, 0.6, 0.7], [0.1, 0.1, 0.2, 0.3])), 50)
    assert found.value == Measured(0.6)


def test_a_percentile_that_the_curve_does_not_reach_exceeds_the_last_wait() -> None:
    found = percentile(values(stops([0.4, 0.5], [0.3, 0.6, 1.5, 2.0])), 95)
    assert found.value == Censored(2.0)
    assert found.bound[1] == math.inf


def test_under_one_bound_beyond_all_values_both_estimators_agree() -> None:
    never = stops([0.2, 0.3, 0.4, 0.9], [2.0, 2.0, 2.0])
    plain = Values.of(("c", value) for value in never)
    assert percentile_method(values(never)) == percentile_method(plain) == "nearest rank"
    for percent in (5, 50, 57, 95):
        assert percentile(values(never), percent) == percentile(plain, percent)
        reached = quantile(Sample.of(plain), percent / 100)
        known = percentile(plain, percent).value
        assert known == (Censored(2.0) if math.isinf(reached) else Measured(reached))


def test_the_method_is_named_where_bounds_differ_and_only_for_competing_ends() -> None:
    cut_short = stops([0.4, 0.5], [0.1, 0.3])
    assert percentile_method(values(cut_short)) == "Kaplan-Meier"
    # A mute agent is not one whose answer was cut short: its bound stays a bound.
    mute = Values.of(("c", value) for value in cut_short)
    assert percentile_method(mute) == "nearest rank"


def test_the_bound_is_the_estimate_of_all_lower_and_of_all_upper_ends() -> None:
    found = percentile(
        values(
            [
                Measured(0.5, u=(0.1, 0.2)),
                Measured(0.6, u=(0.0, 0.3)),
                Censored(0.2),
                Censored(0.55),
            ]
        ),
        50,
    )
    # S(0.5) = 2/3 of three, S(0.6) = 0; lower ends: S(0.4) = 2/3, S(0.6) = 0; upper ends: both
    # other ends came first, so S(0.7) = 1/2 of two.
    assert isinstance(found.value, Measured)
    assert found.value.value == 0.6
    assert found.bound == pytest.approx((0.6, 0.7))


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1), st.booleans()), min_size=1, max_size=20)
)
def test_the_bound_always_holds_the_percentile(rows: list[tuple[float, float, bool]]) -> None:
    found = percentile(
        values([Measured(v, u=(u, u)) if is_event else Censored(v) for v, u, is_event in rows]), 50
    )
    if isinstance(found.value, Measured):
        assert found.bound[0] <= found.value.value <= found.bound[1]


def test_an_empty_sample_has_no_percentile() -> None:
    assert percentile(values([Undefined(Reason.NOT_APPLICABLE)]), 50).value == Undefined(
        Reason.TOO_FEW
    )


def drawn(n_clusters: int, *, shift: float = 0.0, seed: int = 3) -> Values:
    """Return five stops a cluster around 0.6 s, some of which a natural end comes before."""
    rng = np.random.default_rng(seed)
    groups: list[list[MetricValue]] = []
    for _ in range(n_clusters):
        times, ends = rng.normal(0.6 + shift, 0.1, 5), rng.uniform(0.1, 2.0, 5)
        pairs = zip(times, ends, strict=True)
        groups.append([Measured(float(t)) if t <= e else Censored(float(e)) for t, e in pairs])
    return values(*groups)


@pytest.mark.parametrize(
    ("n_clusters", "method"),
    [(1, "none: one cluster"), (8, "Kaplan-Meier, t interval"), (25, "Kaplan-Meier, cluster boot")],
)
def test_the_interval_names_its_method_by_the_number_of_clusters(
    n_clusters: int, method: str
) -> None:
    found = percentile_interval(drawn(n_clusters), 50)
    assert found.method.startswith(method)
    if n_clusters > 1:
        assert found.ends is not None
        low, high = found.ends
        assert low is not None
        assert high is not None
        assert 0.45 < low < 0.6 < high < 0.75


def test_one_stop_a_cluster_gives_no_order_statistics_where_some_are_cut_short() -> None:
    single = values(*([value] for value in stops([0.1 * k for k in range(4, 14)], [0.2, 0.3])))
    assert percentile_interval(single, 50).method.startswith("Kaplan-Meier, t interval")
    whole = values(*([value] for value in stops([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], [])))
    assert percentile_interval(whole, 50).method == "order statistics"


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(60):
        ends = percentile_interval(drawn(8, seed=seed), 50).ends
        assert ends is not None
        low, high = ends
        covered += (low is None or low <= 0.6) and (high is None or high >= 0.6)
    assert covered >= 54


def test_an_end_that_the_curve_does_not_reach_is_open() -> None:
    groups = [stops([0.5], [0.3, 1.0, 1.2]) for _ in range(25)]
    ends = percentile_interval(values(*groups), 50).ends
    assert ends is not None
    assert ends[1] is None


def test_a_change_between_two_curves_is_resampled_together() -> None:
    base, tuned = drawn(25), drawn(25, shift=-0.2)
    ends = delta_interval(base, tuned, 50).ends
    assert ends is not None
    assert ends == pytest.approx((-0.2, -0.2), abs=0.07)
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0] < -0.2 < ends[1]


def test_a_change_from_a_curve_that_is_not_reached_is_open_on_that_side() -> None:
    never = values(*(stops([0.9], [1.5, 1.8, 2.0]) for _ in range(25)))
    ends = delta_interval(never, drawn(25), 50).ends
    assert ends is not None
    assert ends[0] is None
    assert ends[1] is not None
    assert ends[1] < -1.0
