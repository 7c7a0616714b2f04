from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from vakforge_eval.report.schema import ReportInvalid, load_schema, validate

Row = dict[str, Any]


def test_the_schema_is_itself_valid() -> None:
    Draft202012Validator.check_schema(load_schema())


def test_every_kind_of_document_follows_the_schema(
    document: Row, single: Row, tiny: Row, rebuild: Callable[..., Row]
) -> None:
    empty = rebuild(summary=[], turns=[], calls=[], breakdowns=[], samples=[], provenance={})
    for item in (document, single, tiny, empty):
        validate(item)


def test_every_value_form_of_scoring_is_allowed(document: Row) -> None:
    document["turns"][0]["metrics"] = {
        "a": {"value": -0.1, "u": [0, 0], "u_detect": [0, 0]},
        "b": {"censored": 10.0},
        "c": {"undefined": "not_applicable"},
        "d": {"hits": 0, "total": 0, "value": None},
    }
    validate(document)


def drop(name: str) -> Callable[[Row], None]:
    def change(document: Row) -> None:
        del document[name]

    return change


def turn_value(value: Any) -> Callable[[Row], None]:
    def change(document: Row) -> None:
        document["turns"][0]["metrics"]["ttfa"] = value

    return change


def in_row(**changed: Any) -> Callable[[Row], None]:
    def change(document: Row) -> None:
        document["summary"][0].update(changed)

    return change


def in_first(name: str, **changed: Any) -> Callable[[Row], None]:
    def change(document: Row) -> None:
        document[name][0].update(changed)

    return change


def at_top(**changed: Any) -> Callable[[Row], None]:
    def change(document: Row) -> None:
        document.update(changed)

    return change


@pytest.mark.parametrize(
    ("break_it", "pointer"),
    [
        (drop("summary"), "/"),
        (drop("provenance"), "/"),
        (at_top(schema_version=1), "/schema_version"),
        (at_top(schema_version="2"), "/schema_version"),
        (at_top(scored_on="host"), "/"),
        (at_top(systems=[]), "/systems"),
        (at_top(verdict={"status": "fine", "reasons": []}), "/verdict/status"),
        (turn_value(0.5), "/turns/0/metrics/ttfa"),
        (turn_value(None), "/turns/0/metrics/ttfa"),
        (turn_value({"value": 0.5}), "/turns/0/metrics/ttfa"),
        (turn_value({"value": 0.5, "u": [-1, 0], "u_detect": [0, 0]}), "/turns/0/metrics/ttfa"),
        (turn_value({"value": 0.5, "undefined": "no_audio"}), "/turns/0/metrics/ttfa"),
        (turn_value({"hits": 3, "total": 2.5, "value": 1}), "/turns/0/metrics/ttfa"),
        (in_row(definition="ttfa"), "/summary/0/definition"),
        (in_first("turns", relevance="maybe"), "/turns/0/relevance"),
        (in_first("turns", expectations=[{"expect": "hold"}]), "/turns/0/expectations/0"),
        (at_top(outcomes=[{"system": "tuned", "kind": "say"}]), "/outcomes/0"),
        (at_top(expectations={"tuned": {"pass": 1}}), "/expectations/tuned"),
        (at_top(overlap={"systems": {}}), "/overlap"),
        (at_top(claimed=[{"claim": "x"}]), "/claimed/0"),
        (in_row(better="faster"), "/summary/0/better"),
        (in_row(arrow="great"), "/summary/0/arrow"),
        (in_row(delta="−120 ms"), "/summary/0/delta"),
        (in_row(delta_ci=[0.1]), "/summary/0/delta_ci"),
        (in_row(systems={"tuned": {"p50": 0.5}}), "/summary/0/systems/tuned"),
        (in_row(systems={"tuned": {"n": -1, "p50": 0.5}}), "/summary/0/systems/tuned"),
        (in_row(systems={"tuned": {"hits": 3, "total": 5}}), "/summary/0/systems/tuned"),
    ],
)
def test_a_broken_document_is_refused_at_the_right_place(
    tiny: Row, break_it: Callable[[Row], None], pointer: str
) -> None:
    break_it(tiny)
    with pytest.raises(ReportInvalid) as caught:
        validate(tiny)
    assert (caught.value.pointer or "/") == pointer


def test_a_link_that_leaves_the_folder_is_refused(document: Row) -> None:
    document["samples"][0]["user_audio"] = "../x.wav"
    with pytest.raises(ReportInvalid, match="/samples/0/user_audio"):
        validate(document)


@pytest.mark.parametrize("layout", ["vakforge_eval/data/report_schema.json", "report_schema.json"])
def test_the_schema_is_found_in_a_wheel_and_in_a_source_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    target = tmp_path / layout
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text('{"title": "found"}')
    monkeypatch.setattr("importlib.resources.files", lambda name: tmp_path / name)
    load_schema.cache_clear()
    try:
        assert load_schema() == {"title": "found"}
    finally:
        load_schema.cache_clear()
