"""Where a value or a sample stands in a reference that is known by its bins."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vakforge_eval.shipped import shipped_text
from vakforge_eval.stats.reference import Distance, Histogram, distance, human_reference
from vakforge_eval.timeline.values import Measured, Reason, Undefined

HUMANS = human_reference()
SMALL = Histogram(lo=-1.0, step=0.5, counts=(1, 2, 4, 2), below=1, above=2)
HISTOGRAMS = [
    pytest.param(histogram, HUMANS.quantiles[name], id=name)
    for name, histogram in (
        ("per_call_overlap_over_total", HUMANS.per_call["overlap_over_total"]),
        ("per_call_overlap_over_speech", HUMANS.per_call["overlap_over_speech"]),
        ("per_call_fto_median", HUMANS.per_call["floor_transfer_offset_median"]),
        ("floor_transfer_offset", HUMANS.pooled["floor_transfer_offset"]),
        ("within_overlap", HUMANS.pooled["within_overlap"]),
        ("pause", HUMANS.pooled["pause"]),
    )
]

fast = settings(max_examples=60, deadline=None)


def exact(values: Any) -> list[Measured]:
    return [Measured(float(value)) for value in values]


def found(value: Distance | Undefined) -> Distance:
    assert isinstance(value, Distance), value
    return value


@pytest.mark.parametrize(("histogram", "quantiles"), HISTOGRAMS)
@pytest.mark.parametrize("percent", [5, 10, 25, 50, 75, 90, 95])
def test_the_quantiles_told_of_the_reference_have_their_own_percentile(
    histogram: Histogram, quantiles: dict[str, float], percent: int
) -> None:
    # They were rounded to 1 ms or 0.1 %.
    value = Measured(quantiles[f"p{percent}"], u=(0.0005, 0.0005))
    rank = histogram.percentile(value)
    assert rank.lo <= percent <= rank.hi
    widest = 100 * max(histogram.counts) / histogram.n
    assert rank.value == pytest.approx(percent, abs=widest)
    assert rank.hi - rank.lo <= 2 * widest


@pytest.mark.parametrize(("histogram", "quantiles"), HISTOGRAMS)
def test_the_bins_agree_with_the_mean_that_is_told(
    histogram: Histogram, quantiles: dict[str, float]
) -> None:
    assert histogram.n == quantiles["n"]
    middles = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    inside = float(np.average(middles, weights=histogram.counts))
    assert inside == pytest.approx(quantiles["mean"], abs=histogram.step / 2 + 0.005)


def test_a_percentile_is_a_mid_rank_and_its_interval_the_bins_that_the_error_touches() -> None:
    # 12 values: 1 below, then 1, 2, 4, 2 in bins of 0.5 from -1 on, 2 above.
    assert SMALL.percentile(Measured(0.2)).value == pytest.approx(100 * 6 / 12)
    rank = SMALL.percentile(Measured(0.2, u=(0.3, 0.1), u_detect=(0.0, 0.3)))
    assert rank.lo == pytest.approx(100 * 2 / 12)
    assert rank.hi == pytest.approx(100 * 10 / 12)


@pytest.mark.parametrize(
    ("value", "rank"), [(-7, 0.5), (-1, 1.5), (-0.5, 3), (0.999, 9), (1, 11), (7, 11)]
)
def test_a_value_on_a_border_or_outside_has_the_rank_of_those_beyond(
    value: float, rank: float
) -> None:
    assert SMALL.percentile(Measured(value)).value == pytest.approx(100 * rank / 12)


@pytest.mark.parametrize("k", range(80))
def test_no_border_slips_into_the_bin_before_it(k: int) -> None:
    histogram = HUMANS.per_call["overlap_over_total"]
    below = sum(histogram.counts[:k])
    rank = histogram.percentile(Measured(k * 25 / 10_000))
    assert rank.lo == pytest.approx(100 * below / histogram.n, abs=1e-9)


@fast
@given(st.lists(st.floats(-3, 3), min_size=5, max_size=60))
def test_both_distances_agree_with_scipy(values: list[float]) -> None:
    reference = HUMANS.pooled["floor_transfer_offset"]
    edges, passed = reference.edges, reference.cumulative
    ours = found(distance(exact(values), reference))
    inside = [v for v in values if edges[0] < v < edges[-1]]
    if len(inside) == len(values):
        theirs = stats.ks_1samp(values, lambda x: np.interp(x, edges, passed)).statistic
        assert ours.ks.value == pytest.approx(theirs, abs=1e-9)
    fine = np.linspace(0, 1, 20, endpoint=False) + 1 / 40
    atoms = (edges[:-1, None] + fine * reference.step).ravel()
    weights = np.repeat(np.array(reference.counts) / 20, 20)
    atoms = np.concatenate([edges[:1], atoms, edges[-1:]])
    weights = np.concatenate([[reference.below], weights, [reference.above]])
    theirs = stats.wasserstein_distance(np.clip(values, -3, 3), atoms, None, weights)
    assert ours.wasserstein.value == pytest.approx(theirs, abs=reference.step / 40)


def test_distances_of_a_small_case_by_hand() -> None:
    even = Histogram(lo=0, step=1, counts=(1, 1))
    ours = found(distance(exact([2, 2, 2, 2, 2]), even))
    assert ours.ks.value == pytest.approx(1)
    assert ours.wasserstein.value == pytest.approx(1)
    # All five in the middle: half of the curve lies to either side of it.
    ours = found(distance(exact([1, 1, 1, 1, 1]), even))
    assert ours.ks.value == pytest.approx(0.5)
    assert ours.wasserstein.value == pytest.approx(0.5)


def test_the_reference_has_no_distance_from_itself() -> None:
    for histogram in (HUMANS.pooled["floor_transfer_offset"], HUMANS.pooled["pause"]):
        sample = np.interp(np.linspace(0, 1, 4001), histogram.cumulative, histogram.edges)
        ours = found(distance(exact(sample), histogram))
        assert ours.ks.value < 0.002
        assert ours.wasserstein.value < 0.002
        assert ours.ks.lo < 0.0005


@fast
@given(
    people=st.lists(st.integers(-1500, 1500), min_size=1, max_size=60),
    agent=st.lists(st.integers(-1500, 1500), min_size=5, max_size=30),
    errors=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    data=st.data(),
)
def test_the_intervals_hold_what_the_values_behind_bins_and_errors_give(
    people: list[int], agent: list[int], errors: tuple[int, int], data: Any
) -> None:
    truth = np.array(people) / 1000
    edges = np.linspace(-1, 1, 11)
    reference = Histogram(
        lo=-1,
        step=0.2,
        counts=tuple(int(c) for c in np.histogram(truth[truth < 1], edges)[0]),
        below=int((truth < -1).sum()),
        above=int((truth >= 1).sum()),
    )
    minus, plus = (e / 1000 for e in errors)
    sample = [Measured(a / 1000, u=(minus, plus)) for a in agent]
    real = np.array([data.draw(st.integers(a - errors[0], a + errors[1])) for a in agent]) / 1000
    ours = found(distance(sample, reference))
    ks = stats.ks_2samp(real, truth, method="asymp").statistic
    moved = stats.wasserstein_distance(np.clip(real, -1, 1), np.clip(truth, -1, 1))
    for value, true in ((ours.ks, ks), (ours.wasserstein, moved)):
        assert value.lo - 1e-9 <= true <= value.hi + 1e-9
        assert value.lo <= value.value + 1e-12
        assert value.value <= value.hi + 1e-12


@fast
@given(st.lists(st.floats(-4, 4), min_size=5, max_size=30), st.integers(2, 4))
def test_a_sample_taken_several_times_over_is_as_far_away(values: list[float], times: int) -> None:
    reference = HUMANS.pooled["floor_transfer_offset"]
    once = found(distance(exact(values), reference))
    often = found(distance(exact(values * times), reference))
    assert often.ks.value == pytest.approx(once.ks.value, abs=1e-9)
    assert often.wasserstein.value == pytest.approx(once.wasserstein.value, abs=1e-9)


def test_a_shift_of_the_reference_moves_it_by_the_shift() -> None:
    reference = HUMANS.pooled["floor_transfer_offset"]
    middle = np.interp(np.linspace(0.001, 0.999, 999), reference.cumulative, reference.edges)
    # So far inside that nothing reaches the outer borders.
    middle = middle[(middle > -2) & (middle < 2)]
    ours = found(distance(exact(middle + 0.4), reference))
    assert ours.wasserstein.value == pytest.approx(0.4, abs=0.01)


def test_fewer_than_five_values_have_no_distance() -> None:
    assert found(distance(exact([0.1] * 5), SMALL)).n == 5
    assert distance(exact([0.1] * 4), SMALL) == Undefined(Reason.TOO_FEW)


@pytest.mark.parametrize(
    "change",
    [{"n": 11}, {"step": 0}, {"counts": []}, {"below": -1}, {"counts": [0], "n": 0, "below": 0}],
)
def test_what_is_no_histogram_is_refused(change: dict[str, Any]) -> None:
    good = {"lo": 0, "step": 1, "counts": [4, 5], "below": 1, "above": 0, "n": 10}
    assert Histogram.from_json(good).n == 10
    with pytest.raises(ValueError, match="not a histogram"):
        Histogram.from_json({**good, **change})


def test_the_reference_says_where_it_is_from_and_how_it_was_counted() -> None:
    assert "Switchboard" in HUMANS.what
    assert HUMANS.rules["words_joined_below_s"] == 0.2
    assert HUMANS.rules["calls"] == HUMANS.per_call["overlap_over_total"].n
    notes = shipped_text("reference/README.md")
    assert "Mississippi State" in notes
    assert f"{HUMANS.rules['calls']:,}" in notes
    assert json.loads(shipped_text("reference/human_turn_taking.json"))["what"] == HUMANS.what
