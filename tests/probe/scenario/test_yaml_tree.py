from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.scenario.yaml_tree import read_yaml


def read(text: str | bytes, **limits: int) -> Any:
    data = text if isinstance(text, bytes) else text.encode()
    return read_yaml(data, "x.yaml", Limits(**limits)).data


def complaint(data: bytes) -> str:
    try:
        read(data)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: -12.5", {"a": -12.5}),
        ("a: true", {"a": True}),
        ("a:", {"a": None}),
        ("a: ~", {"a": None}),
        ("a: '1'", {"a": "1"}),
        ("a: \"no\"", {"a": "no"}),
        ("a: 600 ms", {"a": "600 ms"}),
        ("a: 2026-11-30", {"a": "2026-11-30"}),
        ("a: 12#", {"a": "12#"}),
        ("{n: 4, y: 2}", {"n": 4, "y": 2}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("- [1, {b: c}]", [[1, {"b": "c"}]]),
        ("a: नमस्ते", {"a": "नमस्ते"}),
    ],
)  # fmt: skip
def test_plain_values_mean_what_they_look_like(text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "scalar",
    ["yes", "No", "ON", "off", "True", "FALSE", "1:30", "190:20:30", "1:30.5", "0123",
     "-012", "0x1F", "0o17", "0b1", "1_000", ".inf", "-.INF", ".NaN", "+1", "1.", ".5", "1e5",
     "12345678901234567890", "<<", "="],
)  # fmt: skip
def test_what_yaml_1_1_would_read_as_something_else_must_be_quoted(scalar: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:2: b: write .* in quotes"):
        read(f"a: 1\nb: {scalar}\n")
    assert read(f"a: 1\nb: '{scalar}'\n")["b"] == scalar


@given(st.text("yYnNoOfFsStTrRuUeEaAlL01289:._+-xb<=~ ", max_size=8))
@example("1_0")
def test_an_unquoted_scalar_is_never_read_differently_than_by_yaml_1_1(scalar: str) -> None:
    """Only refused, or the same: nobody's other tool sees another scenario."""
    text = f"a: {scalar}\n"
    try:
        ours = read(text)
    except ConfigError:
        return
    theirs = yaml.safe_load(text)
    assert ours == theirs or isinstance(ours["a"], str)
    if isinstance(ours["a"], str):
        assert isinstance(theirs["a"], str), theirs


def test_every_key_and_item_knows_its_line() -> None:
    source = read_yaml(b"a: 1\nb:\n  - x\n  - c: 2\n", "x.yaml", Limits())
    assert source.lines[("b", 1, "c")] == 4
    assert source.error(("b", 1, "gone"), "is wrong").line == 4
    assert (
        str(source.error(("b", 0), "is wrong", value="x")) == "x.yaml:3: b[0]: is wrong (got 'x')"
    )


def test_a_billion_laughs_are_refused_at_the_first_anchor() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    with pytest.raises(ConfigError, match=r"x\.yaml:1: a: YAML anchors and aliases"):
        read(bomb)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_and_not_recursed_into(opening: str) -> None:
    with pytest.raises(ConfigError, match="nested deeper than 32"):
        read(opening * 5000)


def test_the_limits_on_bytes_and_values_hold() -> None:
    with pytest.raises(ConfigError, match="larger than 100 bytes"):
        read("a: " + "x" * 100, max_yaml_bytes=100)
    with pytest.raises(ConfigError, match="more than 50 values"):
        read("[" + "1," * 60 + "]", max_yaml_nodes=50)
    assert len(read("[" + "1," * 48 + "1]", max_yaml_nodes=50)) == 49


def test_a_megabyte_of_brackets_costs_no_time() -> None:
    begun = time.process_time()
    with pytest.raises(ConfigError):
        read("[" * 1_000_000)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("data", "line"),
    [(b"a: 1\nb: \xff\n", 2), (b"a: 1\nb: 'open\n", 2), (b"a: 1\n\tb: 2\n", 2)],
)
def test_unreadable_text_is_refused_with_its_line(data: bytes, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        read(data)
    assert caught.value.line is not None
    assert caught.value.line >= line


@given(st.binary(max_size=200))
def test_any_bytes_are_data_or_a_config_error(data: bytes) -> None:
    assert "\n" not in complaint(data)


@given(st.text(max_size=100))
def test_any_text_is_data_or_a_config_error(text: str) -> None:
    assert "\x1b" not in complaint(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("text", ["? [a, b]\n: 1\n", "{{a: 1}: 2}\n", "null: 1\n", "1.5: x\n"])
def test_a_key_is_text(text: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:1: a key must be text"):
        read(text)
