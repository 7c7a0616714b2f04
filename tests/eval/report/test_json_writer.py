import json
from typing import Any

import pytest

from vakforge_eval.report.document import build_document
from vakforge_eval.report.json_writer import to_json

Row = dict[str, Any]


def reordered(obj: Any) -> Any:
    """Return the same data with every dict's keys inserted backwards."""
    if isinstance(obj, dict):
        return {key: reordered(obj[key]) for key in reversed(obj)}
    return [reordered(item) for item in obj] if isinstance(obj, list) else obj


def test_the_same_document_gives_the_same_bytes(inputs: Row, document: Row) -> None:
    again = build_document(**inputs)
    assert to_json(document) == to_json(again) == to_json(reordered(again))


def test_the_file_is_the_document_and_ends_with_one_newline(document: Row) -> None:
    data = to_json(document)
    assert json.loads(data) == document
    assert data.endswith(b"}\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(document: Row, value: float) -> None:
    document["summary"][0]["delta"] = value
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(document)
