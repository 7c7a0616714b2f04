from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.capture import strict_json
from vakforge_eval.capture.format import decode_line, encode_line

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(st.dictionaries(st.text(), values))
def test_any_object_survives_its_line(obj: dict[str, Any]) -> None:
    obj["type"] = "note"
    line = encode_line(obj)
    assert decode_line(line) == obj
    assert line.count(b"\n") == 1
    line.decode("ascii")
    crc, length, plain = json.loads(line)
    text = json.dumps(obj, separators=(",", ":"))
    assert (crc, length, plain) == (zlib.crc32(text.encode()), len(text), obj)


@given(st.data())
def test_any_cut_or_changed_byte_is_known(data: st.DataObject) -> None:
    line = encode_line({"type": "note", "text": "hello", "n": 12})
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(ValueError, match=r".+"):
        decode_line(line[:cut])
    changed = bytearray(line)
    changed[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match=r".+"):
        decode_line(bytes(changed))


@pytest.mark.parametrize(
    "text", ['{"type":1}', "{}", "[]", '"x"', '{"type":"x","n":NaN}', '{"type":"x","n":1e999}']
)
def test_line_with_a_right_crc_but_no_strict_object_is_refused(text: str) -> None:
    data = text.encode()
    with pytest.raises(ValueError, match=r".+"):
        decode_line(b"[%d,%d,%b]\n" % (zlib.crc32(data), len(data), data))


@pytest.mark.parametrize(
    "text",
    ["NaN", "[Infinity]", "-Infinity", "1e999", "-1e999", "[" * 100_000, "1" * 5000, "", b"\xff"],
)
def test_what_is_not_strict_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        strict_json.loads(text)


def test_nesting_without_end_is_cut_when_written() -> None:
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    assert len(strict_json.dumps({"deep": deep})) < 200
