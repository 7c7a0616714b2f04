from typing import Any

import pytest

from vakforge_eval.report.changes import breakdown_sections, find_changes
from vakforge_eval.report.judgement import judge

Row = dict[str, Any]
PAIR = ("base", "tuned")


def row(metric: str, base: float, tuned: float, **more: Any) -> Row:
    delta = round(tuned - base, 9)
    raw = {
        "metric": metric,
        "unit": "s",
        "better": "lower",
        "systems": {"base": {"n": 10, "p50": base}, "tuned": {"n": 10, "p50": tuned}},
        "delta": delta,
        "delta_ci": [delta - 0.01, delta + 0.01],
        **more,
    }
    return judge(raw, PAIR, is_valid=True)


def share(metric: str, base: int, tuned: int) -> Row:
    def cell(hits: int) -> Row:
        return {"hits": hits, "total": 10, "value": hits / 10}

    systems = {"base": cell(base), "tuned": cell(tuned)}
    return row(metric, base / 10, tuned / 10, unit="rate", systems=systems)


def part(by: str, value: str, *rows: Row) -> Row:
    return {"by": by, "value": value, "summary": list(rows)}


def changes(*parts: Row) -> Row:
    return find_changes(breakdown_sections(parts), PAIR)


def names(found: list[Row]) -> list[str]:
    return [change["value"] for change in found]


def test_slices_are_ranked_by_relative_change() -> None:
    found = changes(
        part("scenario", "a", row("ttfa", 0.5, 0.4)),
        part("scenario", "b", row("ttfa", 0.2, 0.1)),
        part("scenario", "c", row("ttfa", 1.0, 1.3)),
    )
    assert names(found["improvements"]) == ["b", "a"]
    assert names(found["regressions"]) == ["c"]
    assert found["improvements"][0]["relative"] == pytest.approx(-0.5)


def test_a_slice_appears_once_with_the_metric_that_moved_most() -> None:
    found = changes(
        part("scenario", "a", row("ttfa", 0.5, 0.4), row("ttft", 0.5, 0.3)),
        part("scenario", "b", row("ttfa", 0.5, 0.49)),
    )
    assert [c["row"]["metric"] for c in found["improvements"]] == ["ttft", "ttfa"]


def test_at_most_five_slices_are_listed() -> None:
    parts = [part("scenario", f"s{i}", row("ttfa", 0.5, 0.4 - i / 100)) for i in range(8)]
    assert names(changes(*parts)["improvements"]) == ["s7", "s6", "s5", "s4", "s3"]


def test_slices_of_the_same_turns_share_a_place() -> None:
    found = changes(
        part("scenario", "booking", row("ttfa", 0.5, 0.3)),
        part("scenario", "other", row("ttfa", 0.5, 0.45)),
        part("locale", "en-GB", row("ttfa", 0.5, 0.3)),
        part("locale", "en-US", row("ttfa", 0.5, 0.45)),
    )
    assert names(found["improvements"]) == ["booking", "other"]
    assert found["improvements"][0]["same_turns"] == [{"by": "locale", "value": "en-GB"}]


def test_a_dimension_with_one_value_is_the_summary_and_no_slice() -> None:
    found = changes(part("locale", "en-GB", row("ttfa", 0.5, 0.3)))
    assert found["improvements"] == []
    assert "all turns" in found["reason"]


def test_a_change_below_resolution_is_no_change() -> None:
    found = changes(
        part("scenario", "a", row("ttfa", 0.5, 0.499, resolution="below resolution")),
        part("scenario", "b", row("ttfa", 0.5, 0.5)),
    )
    assert found["reason"] == "no slice changed by more than the measurement can resolve"


def test_a_gain_that_was_bought_is_no_improvement() -> None:
    found = changes(
        part("scenario", "a", row("ttfa", 0.5, 0.3, bought="early_rate rose"), share("x", 1, 4)),
        part("scenario", "b", row("ttfa", 0.5, 0.45), share("x", 4, 1)),
    )
    assert [(c["value"], c["row"]["metric"]) for c in found["improvements"]] == [("b", "x")]
    assert [(c["value"], c["row"]["metric"]) for c in found["regressions"]] == [("a", "x")]


def test_a_share_is_ranked_by_points_and_has_no_relative_change() -> None:
    found = changes(
        part("scenario", "a", share("failed_calls", 0, 2)),
        part("scenario", "b", row("ttfa", 0.5, 0.6)),
    )
    assert [c["relative"] for c in found["regressions"]] == [None, pytest.approx(0.2)]


def test_what_the_probe_spoilt_is_no_regression_of_the_target() -> None:
    found = changes(
        part("scenario", "a", {**share("invalid_turns", 0, 2), "of_probe": True}),
        part("scenario", "b", {**share("invalid_turns", 0, 0), "of_probe": True}),
    )
    assert found["regressions"] == []


def test_a_metric_without_a_better_direction_is_left_out() -> None:
    found = changes(
        part("scenario", "a", row("tool_wait", 0.5, 0.2, better=None)),
        part("scenario", "b", row("tool_wait", 0.5, 0.2, better=None)),
    )
    assert found["improvements"] == []


def test_without_a_baseline_nothing_is_compared() -> None:
    found = find_changes(breakdown_sections([]), ("tuned",))
    assert found["reason"] == "no baseline: not a comparison"


def test_dimensions_without_data_stay_with_their_reason() -> None:
    sections = breakdown_sections([part("locale", "en-GB", row("ttfa", 0.5, 0.3))])
    reasons = {section["by"]: section["reason"] for section in sections}
    assert list(reasons) == [
        "scenario",
        "locale",
        "condition",
        "language",
        "source",
        "entity_type",
        "tool_class",
    ]
    assert reasons["locale"] is None
    assert reasons["source"] == "no slice was scored"
    assert reasons["entity_type"].startswith("not measured yet in this report")


def test_other_dimensions_follow_the_specified_ones() -> None:
    sections = breakdown_sections([part("domain", "bank", row("ttfa", 0.5, 0.3))])
    assert sections[-1]["by"] == "domain"


def test_a_large_share_of_next_to_nothing_ranks_below_a_real_change() -> None:
    tiny = row("endpoint_delay_claimed", -0.0008, -0.0003, delta_ci=[0.0004, 0.0006])
    found = changes(part("scenario", "a", tiny), part("scenario", "b", row("ttfa", 0.5, 0.6)))
    assert names(found["regressions"]) == ["b", "a"]


def test_changes_that_chance_may_have_made_come_after_those_it_has_not() -> None:
    found = changes(
        part("scenario", "a", row("ttfa", 0.5, 1.5, delta_ci=[-3.0, 5.0])),
        part("scenario", "b", row("ttfa", 0.5, 0.6)),
        part("scenario", "c", row("ttfa", 0.5, 0.9, delta_ci=None)),
    )
    assert names(found["regressions"]) == ["b", "a", "c"]
