from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from vakforge_eval.timeline.script import StepKind
from vakforge_probe.scenario.anchors import (
    Anchor,
    AnchorField,
    AnchorKind,
    default_anchor,
    parse_anchor,
)
from vakforge_probe.scenario.units import Duration, parse_duration

MS = 1_000_000
S = 1000 * MS


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("600 ms", 600 * MS),
        ("1.5 s", 1500 * MS),
        ("0 s", 0),
        ("0.1 s", 100 * MS),
        ("0.3 ms", 300_000),
        ("0.000001 ms", 1),
    ],
)
def test_durations_are_exact_nanoseconds(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text",
    ["600ms", "600  ms", "ms", "1,5 s", "-1 s", "1 min", "1e3 s", "1 s ", " 1 s", "1. s", ".5 s",
     "١ s", "99999999 s", "1 s\n", "", 600, 1.5, None, True],
)  # fmt: skip
def test_whatever_is_not_number_space_unit_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "kind", "offset", "tool"),
    [
        ("600 ms after agent onset", AnchorKind.ONSET, 600 * MS, None),
        ("500 ms after agent end", AnchorKind.END, 500 * MS, None),
        ("-300 ms after agent end", AnchorKind.END, -300 * MS, None),
        ("4.0 s", AnchorKind.STREAM, 4 * S, None),
        ("after greeting", AnchorKind.GREETING, 0, None),
        ("300 ms after greeting", AnchorKind.GREETING, 300 * MS, None),
        ("after tool call book-it_2", AnchorKind.TOOL, 0, "book-it_2"),
        ("500 ms after tool call previous", AnchorKind.TOOL, 500 * MS, "previous"),
        ("200 ms after previous", AnchorKind.PREVIOUS, 200 * MS, None),
    ],
)
def test_anchors_say_what_they_hang_on(
    text: str, kind: AnchorKind, offset: int, tool: str | None
) -> None:
    assert parse_anchor(text) == Anchor(kind, offset, text, tool)


@pytest.mark.parametrize(
    "text",
    ["after", "agent onset", "600 ms before agent end", "-1 s", "after tool call",
     "after greeting ", "after tool call a b", "600 ms after  agent onset",
     "600 after agent onset", 4.0, None],
)  # fmt: skip
def test_what_is_not_in_the_grammar_is_no_anchor(text: object) -> None:
    with pytest.raises(ValueError, match="is not an anchor"):
        parse_anchor(text)


@pytest.mark.parametrize("what", ["agent onset", "greeting", "previous", "tool call x"])
def test_a_negative_offset_is_refused_where_nothing_is_known_ahead(what: str) -> None:
    with pytest.raises(ValueError, match="only after the agent's end"):
        parse_anchor(f"-300 ms after {what}")


_TEXTS = st.one_of(
    st.text(max_size=30),
    st.builds(
        lambda sign, n, unit, gap, what: f"{sign}{n}{gap}{unit}{what}",
        st.sampled_from(["", "-", "+"]),
        st.sampled_from(["0", "600", "1.5", "1.", "12345678"]),
        st.sampled_from(["ms", "s", "m", ""]),
        st.sampled_from([" ", "", "  "]),
        st.sampled_from(
            ["", " after agent onset", " after agent end", " after tool call x", " after x"]
        ),
    ),
)


@given(text=_TEXTS)
def test_the_exported_patterns_accept_what_the_parsers_accept(text: str) -> None:
    for field, parse in ((Duration, parse_duration), (AnchorField, parse_anchor)):
        pattern = TypeAdapter(field).json_schema()["pattern"]
        try:
            parse(text)
            is_accepted = True
        except ValueError as error:
            # What a pattern cannot say: where a negative offset makes sense.
            is_accepted = "negative" in str(error)
        assert bool(re.search(pattern, text)) == is_accepted or text.endswith("\n")


def test_the_first_speaker_waits_for_the_greeting_and_later_ones_for_the_reply() -> None:
    assert default_anchor(StepKind.SAY, is_opening=True).text == "500 ms after greeting"
    assert default_anchor(StepKind.SAY, is_opening=False).text == "500 ms after agent end"


@pytest.mark.parametrize("kind", list(StepKind))
@pytest.mark.parametrize("is_opening", [True, False])
def test_every_kind_has_a_default_anchor_that_its_place_allows(
    kind: StepKind, is_opening: bool
) -> None:
    anchor = default_anchor(kind, is_opening=is_opening)
    if is_opening:
        assert anchor.kind is not AnchorKind.PREVIOUS
    else:
        assert anchor.kind is not AnchorKind.GREETING
