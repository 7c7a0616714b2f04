"""A shape reads what it builds, and nothing of another shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_probe.protocol.template import Template

MEDIA = {"event": "media", "sequence": "${seq}", "media": {"payload": "$audio", "track": "in"}}
VALUES = {"seq": 3, "audio": "AAA="}


def test_a_message_is_built_from_its_shape() -> None:
    assert Template(MEDIA).build(VALUES) == {
        "event": "media", "sequence": "3", "media": {"payload": "AAA=", "track": "in"},
    }  # fmt: skip


def test_holes_are_told_by_pointer() -> None:
    assert Template({"a/b": [{"x~": "$one"}], "t": "n ${two}"}).holes == {
        "one": "/a~1b/0/x~0",
        "two": "/t",
    }


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ({"event": "media", "sequence": "3", "media": {"payload": 1, "track": "in"}, "more": []},
         {"seq": "3", "audio": 1}),
        ({"event": "media", "sequence": 3, "media": {"payload": None, "track": "in"}},
         {"seq": "3", "audio": None}),
        ({"event": "clear", "sequence": "3", "media": {"payload": 1, "track": "in"}}, None),
        ({"event": "media", "sequence": "3", "media": {"track": "in"}}, None),
        ({"event": "media", "sequence": [], "media": {"payload": 1, "track": "in"}}, None),
        ({"event": "media", "sequence": "3", "media": "payload"}, None),
        ([], None),
    ],
)  # fmt: skip
def test_a_message_of_the_shape_is_read_and_no_other(message: Any, values: Any) -> None:
    assert Template(MEDIA).read(message) == values


def test_what_may_be_missing_is_left_out_and_not_asked_for() -> None:
    template = Template({"type": "done", "id": "$response?"})
    assert template.build({"response": None}) == {"type": "done"}
    assert template.build({"response": "r"}) == {"type": "done", "id": "r"}
    assert template.read({"type": "done"}) == {}
    assert template.read({"type": "done", "id": "r"}) == {"response": "r"}


def test_what_must_be_there_is_asked_for() -> None:
    with pytest.raises(KeyError):
        Template({"id": "$response"}).build({})


@pytest.mark.parametrize(("shape", "message", "read"), [
    (True, 1, False), (1, True, False), (1, 1, True), (None, None, True), (None, 0, False),
    ("ping ${n}", "ping 7", True), ("ping ${n}", "pong 7", False), ("aa${n}aa", "aaa", False),
    ([], [1], True), (["$x"], [], False), (["$x"], [1, 2], True),
])  # fmt: skip
def test_constants_are_told_by_type_and_value(shape: Any, message: Any, read: bool) -> None:
    assert (Template(shape).read(message) is not None) is read


def test_a_text_has_one_hole() -> None:
    with pytest.raises(ValueError, match="two holes"):
        Template({"t": "${a} ${b}"})


SCALARS = st.none() | st.booleans() | st.integers() | st.text("abc", max_size=4)
SHAPES = st.recursive(
    SCALARS | st.sampled_from(["$one", "$two", "n ${three}"]),
    lambda inner: (
        st.dictionaries(st.text("xyz", max_size=3), inner, max_size=3) | st.lists(inner, max_size=1)
    ),
)


@given(SHAPES, SCALARS, SCALARS, st.text(max_size=5))
def test_what_is_built_is_read_back(shape: Any, one: Any, two: Any, three: str) -> None:
    template = Template(shape)
    values = {"one": one, "two": two, "three": three}
    found = template.read(template.build(values))
    assert found == {name: values[name] for name in template.holes}
