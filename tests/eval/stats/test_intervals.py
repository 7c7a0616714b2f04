from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from vakforge_eval.stats.bootstrap import draw_weights, percentile_replicates
from vakforge_eval.stats.intervals import (
    delta_interval,
    percentile_interval,
    rate_delta_interval,
)
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Rate


def clusters(*groups: list[float]) -> Values:
    return Values.of((f"c{g}", Measured(x)) for g, group in enumerate(groups) for x in group)


def singles(values: list[float]) -> Values:
    return clusters(*([x] for x in values))


def drawn(n_clusters: int, n_turns: int, *, seed: int = 0, effect: float = 1.0) -> Values:
    rng = np.random.default_rng(seed)
    means = 5 + effect * rng.normal(size=n_clusters)
    return clusters(*(list(m + rng.normal(size=n_turns)) for m in means))


def test_one_cluster_has_no_interval_and_the_reason_is_told() -> None:
    found = percentile_interval(clusters([1.0, 2.0, 3.0]), 50)
    assert (found.ends, found.bootstrap, found.method) == (None, None, "none: one cluster")


def test_no_values_have_no_interval() -> None:
    assert percentile_interval(Values.of([]), 50).method == "none: no values"


def test_one_turn_a_cluster_gives_order_statistics() -> None:
    # n = 100, p95: P(B <= 89) = 1.1 %, P(B <= 90) = 2.8 % -> x(90); P(B >= 100) = 0.6 % -> x(100).
    found = percentile_interval(singles(list(np.arange(1.0, 101.0))), 95)
    assert (found.ends, found.method) == ((90.0, 100.0), "order statistics")


def test_the_median_of_100_has_the_textbook_ranks() -> None:
    # P(B <= 39) = 1.8 %, P(B <= 40) = 2.8 %: x(40) to x(61) by symmetry.
    assert percentile_interval(singles(list(np.arange(1.0, 101.0))), 50).ends == (40.0, 61.0)


@pytest.mark.parametrize(("n", "is_open"), [(71, True), (72, False)])
def test_a_p95_has_no_upper_end_below_72_values(n: int, is_open: bool) -> None:
    ends = percentile_interval(singles(list(np.arange(float(n)))), 95).ends
    assert ends is not None
    assert (ends[1] is None) == is_open


def test_five_single_turns_prove_nothing_and_say_so() -> None:
    found = percentile_interval(singles([1.0, 2.0, 3.0, 4.0, 5.0]), 50)
    assert found.ends is None
    assert found.method.startswith("none: order statistics need more than 5")


def test_below_20_clusters_the_t_interval_leads_and_the_bootstrap_stands_beside_it() -> None:
    found = percentile_interval(drawn(12, 8), 50)
    assert found.method.startswith("t interval")
    assert found.ends is not None
    assert found.bootstrap is not None
    assert found.ends[0] is not None
    assert found.ends[1] is not None
    wide = found.ends[1] - found.ends[0]
    assert found.bootstrap[1] is not None
    assert found.bootstrap[0] is not None
    assert wide > found.bootstrap[1] - found.bootstrap[0]


def test_from_20_clusters_on_the_bootstrap_leads() -> None:
    found = percentile_interval(drawn(20, 5), 50)
    assert found.method.startswith("cluster bootstrap")
    assert "seed" in found.method


def test_clusters_that_all_hold_the_same_share_do_not_give_a_zero_width() -> None:
    # Every cluster has one value below and one above the median: its share never varies.
    found = percentile_interval(clusters(*([1.0 + g / 100, 2.0 + g / 100] for g in range(10))), 50)
    assert found.ends is not None
    assert found.ends[0] != found.ends[1]


def test_a_cluster_effect_widens_the_interval_as_turns_alone_would_not() -> None:
    values = drawn(40, 10, effect=3.0)
    by_cluster = percentile_interval(values, 50).ends
    by_turn = percentile_interval(singles(list(values.low)), 50).ends
    assert by_cluster is not None
    assert by_turn is not None
    width = [float(b or 0) - float(a or 0) for a, b in (by_cluster, by_turn)]
    assert width[0] > 1.5 * width[1]


def test_the_bootstrap_agrees_with_scipy_on_single_turns() -> None:
    x = np.random.default_rng(3).normal(size=60)
    names = [f"c{i:02d}" for i in range(60)]
    replicates = percentile_replicates(x, names, names, draw_weights(60), 50)
    own = np.quantile(replicates, [0.025, 0.975])
    other = scipy_bootstrap(
        (x,),
        lambda v, axis: np.sort(v, axis=axis)[..., 29],
        method="percentile",
        n_resamples=2000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert own == pytest.approx([other.low, other.high], abs=0.06)


def test_the_same_input_gives_the_same_interval_in_any_order() -> None:
    values = drawn(25, 4)
    order = np.random.default_rng(0).permutation(len(values))
    shuffled = Values.of((values.clusters[i], Measured(float(values.low[i]))) for i in order)
    assert percentile_interval(values, 50) == percentile_interval(shuffled, 50)


def test_blocks_of_resamples_change_no_replicate(monkeypatch: pytest.MonkeyPatch) -> None:
    values = drawn(6, 5)
    names = sorted(set(values.clusters))
    weights = draw_weights(6, n_resamples=50)
    whole = percentile_replicates(values.low, values.clusters, names, weights, 95)
    monkeypatch.setattr("vakforge_eval.stats.bootstrap._MAX_CELLS", 70)
    parts = percentile_replicates(values.low, values.clusters, names, weights, 95)
    assert np.array_equal(whole, parts)


def test_every_resample_draws_as_many_clusters_as_there_are() -> None:
    weights = draw_weights(7)
    assert weights.shape == (2000, 7)
    assert set(weights.sum(axis=1)) == {7}
    assert weights.mean() == pytest.approx(1.0)
    assert weights.std(axis=0) == pytest.approx(np.sqrt(6 / 7), abs=0.06)


def test_sharing_each_resample_takes_out_what_the_systems_share() -> None:
    # The tuned system is 0.5 s faster in every turn, whatever the cluster adds to both.
    base = drawn(30, 5, effect=5.0)
    tuned = Values.of(
        (c, Measured(float(x) - 0.5)) for c, x in zip(base.clusters, base.low, strict=True)
    )
    assert delta_interval(base, tuned, 50).ends == pytest.approx((-0.5, -0.5))


def test_few_clusters_give_a_t_interval_of_the_difference() -> None:
    found = delta_interval(drawn(6, 5, seed=1), drawn(6, 5, seed=2), 50)
    assert found.method.startswith("paired t interval")
    assert found.bootstrap is not None


def test_a_difference_over_one_cluster_has_no_interval() -> None:
    assert delta_interval(clusters([1.0, 2.0]), clusters([3.0]), 50).ends is None


def test_a_difference_to_an_empty_sample_has_no_interval() -> None:
    assert delta_interval(Values.of([]), drawn(5, 2), 50).ends is None


def test_a_censored_side_leaves_the_interval_open() -> None:
    late: list[tuple[str, MetricValue]] = [(f"c{g}", Censored(9.0)) for g in range(25)]
    base = Values.of([(f"c{g}", Measured(1.0)) for g in range(25)])
    ends = delta_interval(base, Values.of(late), 50).ends
    assert ends is not None
    assert ends[0] == pytest.approx(8.0)
    assert ends[1] is None


def test_a_difference_of_shares_is_taken_over_clusters() -> None:
    base = {f"c{g}": Rate(g % 2, 4) for g in range(30)}
    tuned = {f"c{g}": Rate(g % 2 + 1, 4) for g in range(30)}
    assert rate_delta_interval(base, tuned).ends == pytest.approx((0.25, 0.25))


def test_shares_of_nothing_have_no_difference() -> None:
    nothing = {f"c{g}": Rate(0, 0) for g in range(3)}
    assert rate_delta_interval(nothing, nothing).ends is None


def test_shares_without_any_event_on_both_sides_are_not_certain_to_be_equal() -> None:
    none = {f"c{g}": Rate(0, 2) for g in range(4)}
    found = rate_delta_interval(none, none)
    assert found.method == "Newcombe"
    assert found.ends is not None
    low, high = found.ends
    assert low == pytest.approx(-0.3244, abs=1e-3)
    assert high == pytest.approx(0.3244, abs=1e-3)


def test_a_change_of_a_share_lies_between_minus_one_and_one() -> None:
    base = {"a": Rate(1, 1), "b": Rate(0, 1), "c": Rate(0, 1)}
    ends = rate_delta_interval(base, {name: Rate(0, 1) for name in base}).ends
    assert ends is not None
    assert ends[0] == -1.0


def test_a_change_that_is_open_on_both_sides_is_none_and_says_why() -> None:
    groups: list[tuple[str, MetricValue]] = [
        ("a", Measured(1.0)), ("b", Measured(1.0)), ("c", Censored(2.0)),
    ]  # fmt: skip
    found = delta_interval(Values.of(groups), Values.of(groups), 50)
    assert found.ends is None
    assert found.method.startswith("none: too many resamples")
