import re
from typing import Any

import pytest

from vakforge_eval.report.charts import distribution, lanes, text_strip

Row = dict[str, Any]


def turn(value: Row, system: str = "tuned", **more: Any) -> Row:
    return {
        "system": system,
        "call": "c",
        "scenario": "s",
        "turn": 0,
        "valid": True,
        "metrics": {"ttfa": value},
        **more,
    }


def measured(value: float, error: float = 0.0) -> Row:
    return {"value": value, "u": [error, error], "u_detect": [0, 0]}


def strip_of(*turns: Row, cell: Row | None = None, systems: tuple[str, ...] = ("tuned",)) -> Any:
    row = {"metric": "ttfa", "systems": {"tuned": cell or {}}}
    return distribution(row, turns, [], systems, "")


def test_every_turn_is_one_dot_on_a_common_scale() -> None:
    strip = strip_of(turn(measured(0.2), "base"), turn(measured(0.4)), systems=("base", "tuned"))
    (base,), (tuned,) = (row.dots for row in strip.rows)
    zero = strip.ticks[0].x
    assert tuned.x - zero == pytest.approx(2 * (base.x - zero), abs=0.02)
    assert [row.role for row in strip.rows] == ["base", "tuned"]


def test_early_turns_lie_left_of_the_scale_and_missing_replies_right_of_it() -> None:
    strip = strip_of(
        turn(measured(-0.2), flags=["early"]), turn(measured(0.4)), turn({"censored": 10.0})
    )
    by_kind = {dot.kind: dot.x for dot in strip.rows[0].dots}
    ticks = [tick.x for tick in strip.ticks]
    assert by_kind["early"] < ticks[0] <= by_kind["measured"] <= ticks[-1] < by_kind["censored"]
    assert strip.rows[0].counts == "1 measured, 1 early, 1 never came"


def test_a_negative_value_of_a_turn_that_was_not_early_is_on_the_scale() -> None:
    strip = strip_of(turn(measured(-0.00075)), turn(measured(0.0002)))
    (row,) = strip.rows
    low, high = sorted(dot.x for dot in row.dots)
    assert row.counts == "2 measured"
    assert strip.ticks[0].x <= low < high <= strip.ticks[-1].x
    assert strip.bottom_s < -0.00075
    text = text_strip(row.values, strip.top_s, strip.bottom_s)
    assert sum(cell != "·" for cell in text) == 2


def test_negative_values_alone_have_a_scale_that_ends_at_zero() -> None:
    strip = strip_of(turn(measured(-0.2)), turn(measured(-0.1)))
    assert strip.bottom_s < -0.2
    assert [tick.label for tick in strip.ticks][-1] == "0 ms"


def test_an_error_that_reaches_below_zero_does_not_move_the_scale() -> None:
    assert strip_of(turn(measured(0.0, 0.0006)), turn(measured(0.1))).bottom_s == 0.0


def test_a_bound_that_never_came_does_not_stretch_the_scale() -> None:
    assert strip_of(turn(measured(0.4)), turn({"censored": 10.0})).top_s < 1.0


def test_spoilt_and_undefined_turns_have_no_dot_but_are_counted() -> None:
    strip = strip_of(
        turn(measured(0.4)),
        turn(measured(0.9), valid=False),
        turn({"undefined": "not_audible"}),
    )
    assert len(strip.rows[0].dots) == 1
    assert strip.rows[0].counts == "1 measured, 2 without a number"


def test_equal_values_are_stacked_so_that_each_can_be_seen() -> None:
    dots = strip_of(*(turn(measured(0.4)) for _ in range(3))).rows[0].dots
    assert len({dot.y for dot in dots}) == 3


def test_an_error_bound_is_drawn_to_scale() -> None:
    (dot,) = strip_of(turn(measured(0.4, 0.1))).rows[0].dots
    assert dot.hi - dot.x == pytest.approx(dot.x - dot.lo, abs=0.02)
    assert dot.lo < dot.x < dot.hi


def test_percentiles_are_marked_with_their_interval_and_their_true_name() -> None:
    cell = {"p50": 0.4, "p50_ci": [0.3, None], "p95": {"censored": 10.0}, "p95_label": "max"}
    (mark,) = strip_of(turn(measured(0.4)), cell=cell).rows[0].percentiles
    assert (mark.label, mark.hi) == ("p50", None)
    cell["p95"] = 0.4
    marks = strip_of(turn(measured(0.4)), cell=cell).rows[0].percentiles
    assert [mark.label for mark in marks] == ["p50", "max"]


def test_a_metric_without_a_point_has_no_picture() -> None:
    assert strip_of(turn({"undefined": "no_audio"})) is None
    assert strip_of() is None


def test_only_missing_replies_still_make_a_picture() -> None:
    assert strip_of(turn({"censored": 10.0})).rows[0].dots[0].kind == "censored"


def test_call_metrics_are_drawn_from_the_calls() -> None:
    call = {"system": "tuned", "call": "c1", "metrics": {"setup": measured(0.02)}}
    row = {"metric": "setup", "systems": {}}
    strip = distribution(row, [], [call], ("tuned",), "")
    assert strip is not None
    assert strip.rows[0].dots[0].title == "c1: 20 ms ±0"


def test_the_text_strip_shows_where_values_lie() -> None:
    line = text_strip([0.0, 0.5, 0.5, 0.999], 1.0)
    assert len(line) == 40
    assert [match.start() for match in re.finditer("[^·]", line)] == [0, 20, 39]
    assert line[20] == "█"


def test_lanes_place_speech_and_marks_in_time() -> None:
    timeline = {
        "duration": 4.0,
        "user": [[0.0, 1.0]],
        "agent": [[2.0, 4.0]],
        "marks": [{"name": "user_end", "at": 1.0}],
    }
    picture = lanes(timeline, 4.0)
    assert picture is not None
    (user,), (agent,), (mark,) = picture.user, picture.agent, picture.marks
    assert mark.x == pytest.approx(user.x + user.width)
    assert agent.width == pytest.approx(2 * user.width)
    assert mark.label == "user_end at 1,000 ms"


def test_there_are_no_lanes_without_a_timeline() -> None:
    assert lanes(None, 4.0) is None
    assert lanes({"duration": 0.0, "user": [], "agent": []}, 0.0) is None


def stops_of(*turns: Row) -> Any:
    row = {"metric": "ttfa", "systems": {"tuned": {}}, "competing_end": True}
    return distribution(row, list(turns), [], ("tuned",), "")


def test_a_wait_that_something_else_ended_lies_at_its_bound() -> None:
    strip = stops_of(turn({"censored": 0.2}), turn(measured(0.4)))
    by_kind = {dot.kind: dot.x for dot in strip.rows[0].dots}
    zero = strip.ticks[0].x
    assert 2 * (by_kind["open"] - zero) == pytest.approx(by_kind["measured"] - zero, abs=0.02)
    assert strip.rows[0].counts == "1 measured, 1 censored"


def test_a_wait_that_ended_late_does_not_stretch_the_scale() -> None:
    strip = stops_of(turn({"censored": 11.5}), turn(measured(0.4)))
    assert strip.top_s < 1.0
    beyond = next(dot for dot in strip.rows[0].dots if dot.kind == "beyond")
    assert beyond.x == strip.late_x
    assert stops_of(turn({"censored": 11.5})).top_s > 11.5


def test_a_reply_that_never_came_is_no_wait_that_something_else_ended() -> None:
    strip = stops_of(turn({"censored": 10.0}, flags=["no_reply"]), turn(measured(0.4)))
    assert strip.rows[0].counts == "1 measured, 1 never came"


def test_turns_that_a_metric_has_no_meaning_for_are_not_counted() -> None:
    strip = strip_of(turn(measured(0.4)), turn({"undefined": "not_applicable"}))
    assert strip.rows[0].counts == "1 measured"
