from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vakforge_eval.timeline.script import StepKind
from vakforge_probe.scenario.grammar import (
    STEP_KEYS,
    ScenarioFile,
    Suite,
    scenario_schema,
)

BAD = Path(__file__).parent / "bad"

WHOLE: dict[str, Any] = {
    "schema": 1,
    "title": "Everything",
    "repeats": 3,
    "seed": 7,
    "defaults": {
        "locale": "hi-Latn-IN",
        "language": {"primary": "hi", "mix": ["en"]},
        "condition": "phone",
        "source": "real",
        "speaker": "s1",
        "domain": "restaurant",
        "system_prompt": "You take bookings.",
        "persona": ["answers in Hinglish"],
        "user_dictionary": ["Laura Miller"],
        "budgets": {"call": "90 s", "reply": "8 s", "greeting": "2 s"},
        "tools": [
            {
                "name": "book",
                "description": "Books.",
                "parameters": {"type": "object"},
                "result": {"ok": [1, 2.5, None]},
                "delay": "1.5 s",
            }
        ],
    },
    "scenarios": [
        {"file": "other.yaml"},
        {
            "id": "all-steps",
            "conversation_id": "c1",
            "checklist": ["booked"],
            "steps": [
                {
                    "say": "Book a table",
                    "clip": "en/a",
                    "at": "after greeting",
                    "lang": "en-IN",
                    "level": -3.5,
                    "entities": [{"type": "date", "text": "table", "normalized": "x"}],
                    "expect_tool": {"name": "book", "arguments": {"n": 4}, "class": "tool_match"},
                    "relevant": ["table"],
                    "reply_within": "6 s",
                },
                {"correction": None, "parts": ["en/a", {"pause": "600 ms"}, "en/b"]},
                {"barge_in": None, "clip": "en/c", "at": "600 ms after agent onset"},
                {"backchannel": "haan", "clip": "backchannel/haan"},
                {"noise": None, "clip": "noise/cough", "level": -10},
                {"side_talk": None, "clip": "noise/side_talk"},
                {"sham": None},
                {"pause": "2 s"},
                {"dtmf": "12#", "expect_tool": {"class": "non_tool"}},
                {"wait": "8 s", "at": "after tool call book"},
                {
                    "branch": [
                        {"when": {"agent_said": ["when"]}, "then": [{"sham": "x"}]},
                        {"when": {"tool_called": "book"}, "then": []},
                        {"when": {"timeout": "8 s"}, "then": [{"hang_up": None}]},
                        {"when": {"otherwise": True}, "then": []},
                    ]
                },
                {"hang_up": None, "at": "1 s after agent end"},
            ],
        },
    ],
}


def test_a_suite_may_use_every_step_and_key() -> None:
    suite = Suite.model_validate(WHOLE)
    steps = suite.scenarios[1].steps  # type: ignore[union-attr]
    assert [getattr(s, "KIND", "branch") for s in steps] == [
        k if k == "branch" else StepKind(k)
        for k in (
            "say", "correction", "barge_in", "backchannel", "noise", "side_talk", "sham", "pause",
            "dtmf", "wait", "branch", "hang_up",
        )
    ]  # fmt: skip


def test_every_step_kind_has_its_key() -> None:
    assert set(STEP_KEYS) == {kind.value for kind in StepKind} | {"branch"}


def test_defaults_fill_what_a_scenario_leaves_unsaid_and_nothing_else() -> None:
    suite = Suite.model_validate(WHOLE)
    scenario = suite.scenarios[1].with_defaults(suite.defaults)  # type: ignore[union-attr]
    assert scenario.locale == "hi-Latn-IN"
    assert scenario.budgets.reply == 8_000_000_000
    assert scenario.condition == "phone"
    spoken = type(scenario).model_validate({**WHOLE["scenarios"][1], "condition": "clean"})
    assert spoken.with_defaults(suite.defaults).condition == "clean"


def test_the_exported_schema_is_draft_2020_12_and_accepts_a_whole_suite() -> None:
    schema = scenario_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False)
    jsonschema.Draft202012Validator(schema).validate(WHOLE)
    one = {"schema": 1, **WHOLE["scenarios"][1]}
    ScenarioFile.model_validate(one)
    jsonschema.Draft202012Validator(schema).validate(one)


@pytest.mark.parametrize("name", ["key_misspelt", "duration_without_space", "anchor_unknown",
                                  "dtmf_as_number", "condition_unknown", "version_unknown",
                                  "no_scenarios", "step_misspelt"])  # fmt: skip
def test_an_editor_with_the_schema_sees_the_same_fault(name: str) -> None:
    data = yaml.safe_load((BAD / f"{name}.yaml").read_text())
    assert not jsonschema.Draft202012Validator(scenario_schema()).is_valid(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([*STEP_KEYS, "1 s", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*STEP_KEYS, "clip", "at", "when", "then"]), inner)
    ),
    max_leaves=8,
)


@given(steps=_JSON)
def test_what_the_grammar_accepts_the_schema_accepts(steps: Any) -> None:
    data = {"schema": 1, "id": "a", "steps": steps}
    try:
        ScenarioFile.model_validate(data)
    except ValidationError:
        return
    jsonschema.Draft202012Validator(scenario_schema()).validate(data)


@pytest.mark.parametrize(
    "arguments", [{"name": None}, {"name": "book", "class": "tool_macth"}, {"tool_class": "x"}]
)
def test_an_expected_tool_call_is_strict(arguments: dict[str, Any]) -> None:
    step = {"say": "x", "clip": "en/a", "expect_tool": arguments}
    with pytest.raises(ValidationError):
        ScenarioFile.model_validate({"schema": 1, "id": "a", "steps": [step]})


@pytest.mark.parametrize("bad", ["Call", "a/b", "", "..", "a b", "-a", "a" * 65])
def test_ids_can_be_folder_names(bad: str) -> None:
    with pytest.raises(ValidationError):
        ScenarioFile.model_validate({"schema": 1, "id": bad, "steps": [{"pause": "1 s"}]})


def test_a_checklist_names_each_item_once() -> None:
    data = {"schema": 1, "id": "a", "checklist": ["x", "y", "x"], "steps": [{"pause": "1 s"}]}
    with pytest.raises(ValidationError, match="named twice: x"):
        ScenarioFile.model_validate(data)
