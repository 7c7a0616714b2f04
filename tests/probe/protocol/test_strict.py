from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_probe.protocol.strict import (
    StrictError,
    decode_base64,
    dump,
    excerpt,
    parse_object,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=5), JSON))
def test_what_is_written_is_read_back(obj: dict[str, Any]) -> None:
    assert parse_object(dump(obj), 10**6) == obj
    assert parse_object(json.dumps(obj, ensure_ascii=False).encode(), 10**6) == obj


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ('{"a":NaN}', "NaN is not JSON"),
        ('{"a":-Infinity}', "-Infinity is not JSON"),
        ('{"a":1e999}', "number out of range"),
        ('{"a":' + "9" * 5000 + "}", "number out of range"),
        ('{"a":1,"a":2}', "same key twice"),
        ('{"a":{"b":1,"b":1}}', "same key twice"),
        ('{"a":', "malformed JSON"),
        ("", "malformed JSON"),
        ('{"a":1} x', "malformed JSON"),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"a":"\\ud800"}', "lone surrogate"),
        ('{"\\uDFFF":1}', "lone surrogate"),
        ('{"a":' * 70 + "1" + "}" * 70, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        (b'{"a":"\xff"}', "not UTF-8"),
        ('{"a":"' + "x" * 2_000_000 + '"}', "longer than"),
    ],
)
def test_each_breach_is_named(data: str | bytes, what: str) -> None:
    with pytest.raises(StrictError, match=what):
        parse_object(data, 1_000_000)


def test_many_small_objects_are_not_deep() -> None:
    assert len(parse_object(json.dumps({"a": [{"b": {}}] * 500}), 10**6)["a"]) == 500


def test_paired_surrogate_escapes_are_one_character() -> None:
    assert parse_object('{"a":"\\ud83d\\ude00"}', 100) == {"a": "😀"}


@given(st.binary(max_size=200))
def test_base64_is_read_back(data: bytes) -> None:
    assert decode_base64(base64.b64encode(data).decode(), 1000) == data


@pytest.mark.parametrize(
    "text", ["@@@@", "AAA", "AAAA=", "AA==AA==", "AA AA", "AAAA\n", "=AAA", "ÄÄÄÄ", None, 5, ["AA"]]
)
def test_what_is_not_canonical_base64_is_refused(text: object) -> None:
    with pytest.raises(StrictError, match="base64"):
        decode_base64(text, 1000)


def test_base64_beyond_the_limit_is_refused_before_decoding() -> None:
    with pytest.raises(StrictError, match="longer than 10 bytes"):
        decode_base64("A" * 100, 10)


@given(st.text(max_size=2000) | st.binary(max_size=2000))
def test_excerpt_is_one_short_printable_line(data: str | bytes) -> None:
    shown = excerpt(data)
    assert len(shown) <= 200
    assert not any(c in "\n\r\x1b\u202e" for c in shown)


def test_nothing_infinite_is_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        dump({"a": float("inf")})
