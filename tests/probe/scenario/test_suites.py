"""The shipped suites load, compile, fit their budgets and carry what scoring will need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.script import (
    BACKGROUND_KINDS,
    FLOOR_TAKING_KINDS,
    Script,
    ScriptStep,
    StepKind,
)
from vakforge_probe.agent.clips import ClipStore
from vakforge_probe.agent.dialogue import Dialogue
from vakforge_probe.limits import Limits
from vakforge_probe.scenario.anchors import AnchorKind, parse_anchor
from vakforge_probe.scenario.compile import Compiled, compile_scenario
from vakforge_probe.scenario.grammar import scenario_schema
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.scenario.yaml_tree import read_yaml

SCENARIOS = Path(__file__).parents[3] / "scenarios"
SUITES = sorted(path.stem for path in (SCENARIOS / "suites").glob("*.yaml"))
RATE_HZ, FRAME = 24_000, 480
TURN_BASED = Capabilities(response_ids=True, response_end=True, tools=True, text_before_audio=True)
BARE = Capabilities()
TELEPHONE = Capabilities(text_before_audio=True, continuous_stream=True)
DUPLEX = ["duplex", "duplex-hi", "noisy-duplex"]

# What the reference agent takes when it is slow: seconds.
GREETING_S = 3.5
REPLY_DELAY_S = 1.2
REPLY_S = {"latency": 2.8, "demo": 5.2, **dict.fromkeys(DUPLEX, 9.0)}
FILLER_S = 1.3


def compiled(suite: str, capabilities: Capabilities = TURN_BASED) -> list[Compiled]:
    return [
        compile_scenario(loaded, rate_hz=RATE_HZ, frame_samples=FRAME, capabilities=capabilities)
        for loaded in load_suite(suite).scenarios
    ]


def turns(script: Script) -> list[ScriptStep]:
    return [step for step in script.steps if step.kind in FLOOR_TAKING_KINDS]


def expected_s(suite: str, one: Compiled, *, greets: bool) -> float:
    """Length of a call with a slow agent whose every reply is the longest that fits the suite."""
    script = one.script
    total = GREETING_S if greets else one.flow.greeting_ns / 1e9
    for step in script.steps:
        if step.kind in BACKGROUND_KINDS:
            continue  # it lies within a reply
        anchor = parse_anchor(step.anchor)
        total += step.n_samples / script.rate_hz + anchor.offset_ns / 1e9
        if step.kind is StepKind.BARGE_IN or anchor.kind is AnchorKind.PREVIOUS:
            total -= REPLY_S[suite]  # the reply before it is not heard to its end
        if step.kind not in FLOOR_TAKING_KINDS:
            continue
        total += REPLY_DELAY_S + REPLY_S[suite]
        if step.expect_tool is not None and step.expect_tool.name:
            tool = next(t for t in script.tools if t.name == step.expect_tool.name)
            total += max(FILLER_S, tool.delay_s)
    return total


def suite_s(suite: str, *, greets: bool) -> list[float]:
    return [expected_s(suite, one, greets=greets) for one in compiled(suite)]


@pytest.mark.parametrize("suite", SUITES)
def test_a_shipped_suite_loads_and_compiles(suite: str) -> None:
    for one in compiled(suite):
        assert len(one.pcm) == len(one.script.steps)
        assert one.clips
        assert all(clip["licence"] for clip in one.clips)


@pytest.mark.parametrize("suite", SUITES)
def test_a_shipped_suite_is_valid_under_the_exported_schema(suite: str) -> None:
    path = SCENARIOS / "suites" / f"{suite}.yaml"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=../scenario.schema.json\n")
    schema = json.loads((SCENARIOS / "scenario.schema.json").read_text(encoding="utf-8"))
    data = read_yaml(text.encode(), path.name, Limits()).data
    Draft202012Validator(schema).validate(data)


def test_the_schema_beside_the_suites_is_the_grammars() -> None:
    shipped = json.loads((SCENARIOS / "scenario.schema.json").read_text(encoding="utf-8"))
    assert shipped == scenario_schema()


@pytest.mark.parametrize("suite", SUITES)
def test_every_scenario_says_what_scoring_needs(suite: str) -> None:
    for one in compiled(suite):
        script = one.script
        assert script.locale
        assert script.language.primary
        assert script.speaker
        assert script.conversation_id
        assert script.domain
        assert script.system_prompt
        assert script.checklist
        assert script.persona
        for turn in turns(script):
            assert turn.text
            assert turn.lang
            assert turn.expect_tool is not None


@pytest.mark.parametrize("suite", SUITES)
def test_every_scenarios_speaker_is_the_one_on_its_clips(suite: str) -> None:
    for loaded in load_suite(suite).scenarios:
        one = compile_scenario(
            loaded, rate_hz=RATE_HZ, frame_samples=FRAME, capabilities=TURN_BASED
        )
        spoken = {clip for turn in turns(one.script) for clip in turn.clips}
        assert {loaded.library.get(clip).speaker for clip in spoken} == {one.script.speaker}


@pytest.mark.parametrize("suite", SUITES)
def test_conversation_ids_are_distinct(suite: str) -> None:
    ids = [one.script.conversation_id for one in compiled(suite)]
    assert len(set(ids)) == len(ids)


def test_latency_needs_nothing_of_a_protocol() -> None:
    for one in compiled("latency", BARE):
        assert one.script.tools == []
        for turn in turns(one.script):
            assert turn.kind is StepKind.SAY
            assert turn.expect_tool is not None
            assert turn.expect_tool.tool_class == "non_tool"


@pytest.mark.parametrize("greets", [True, False])
def test_latency_takes_under_forty_seconds(greets: bool) -> None:
    assert sum(suite_s("latency", greets=greets)) < 40.0


def test_latency_has_several_turns_and_one_pause_within_a_turn() -> None:
    steps = [turn for one in compiled("latency") for turn in turns(one.script)]
    assert len(steps) >= 4
    assert len({clip for turn in steps for clip in turn.clips}) > len(steps)
    assert sum(bool(turn.pauses) for turn in steps) == 1


@pytest.mark.parametrize("suite", SUITES)
def test_turns_start_off_the_frame_grid_and_at_different_phases(suite: str) -> None:
    frame_ns = 20_000_000
    phases = [
        anchor.offset_ns % frame_ns
        for one in compiled(suite)
        for turn in turns(one.script)
        if (anchor := parse_anchor(turn.anchor)).kind is not AnchorKind.STREAM
    ]
    off = [phase for phase in phases if phase]
    assert len(off) == len(phases)
    assert len(set(off)) == len(off)


@pytest.mark.parametrize("suite", SUITES)
def test_no_call_is_cut_by_its_own_budget(suite: str) -> None:
    for one in compiled(suite):
        assert expected_s(suite, one, greets=True) < one.script.max_call_s


@pytest.mark.parametrize("greets", [True, False])
def test_a_demo_call_lasts_twenty_to_thirty_five_seconds(greets: bool) -> None:
    lengths = suite_s("demo", greets=greets)
    assert min(lengths) > 20.0
    assert max(lengths) < 35.5


def test_two_systems_four_calls_at_a_time_fit_into_the_demos_minute_and_a_half() -> None:
    lengths = sorted(suite_s("demo", greets=True) * 2, reverse=True)
    assert lanes_s(lengths) < 75.0


def lanes_s(lengths: list[float]) -> float:
    """How long calls of these lengths take, four at a time and in this order."""
    lanes = [0.0] * 4
    for length in lengths:
        lanes[lanes.index(min(lanes))] += length
    return max(lanes)


@pytest.mark.parametrize("suite", DUPLEX)
def test_a_duplex_suite_takes_a_minute_or_so_four_calls_at_a_time(suite: str) -> None:
    assert lanes_s(suite_s(suite, greets=True)) < 90.0


@pytest.mark.parametrize("suite", DUPLEX)
def test_a_duplex_suite_needs_no_tools_no_ids_and_no_told_end(suite: str) -> None:
    for one in compiled(suite, TELEPHONE):
        assert one.script.tools == []
        for turn in turns(one.script):
            assert turn.expect_tool is not None
            assert turn.expect_tool.tool_class == "non_tool"


@pytest.mark.parametrize("suite", [*DUPLEX, "demo"])
def test_every_anchor_of_a_backchannel_is_also_that_of_a_sham(suite: str) -> None:
    steps = [step for one in compiled(suite) for step in one.script.steps]
    shams = {step.anchor for step in steps if step.kind is StepKind.SHAM}
    nods = {step.anchor for step in steps if step.kind is StepKind.BACKCHANNEL}
    assert nods
    assert nods <= shams


@pytest.mark.parametrize("suite", DUPLEX)
def test_a_duplex_suite_has_events_enough_and_expects_something_of_each(suite: str) -> None:
    steps = [step for one in compiled(suite) for step in one.script.steps]
    kinds = [step.kind for step in steps if step.expect]
    assert kinds.count(StepKind.BACKCHANNEL) >= 5
    assert kinds.count(StepKind.SHAM) >= 5
    assert kinds.count(StepKind.BARGE_IN) >= 3
    disturbing = BACKGROUND_KINDS | {StepKind.BARGE_IN}
    assert all(step.expect for step in steps if step.kind in disturbing)


@pytest.mark.parametrize("suite", [*DUPLEX, "demo"])
def test_what_disturbs_lies_off_the_frame_grid(suite: str) -> None:
    for one in compiled(suite):
        for step in one.script.steps:
            if step.kind in BACKGROUND_KINDS | {StepKind.BARGE_IN}:
                assert parse_anchor(step.anchor).offset_ns % 20_000_000


def test_noise_lies_under_every_call_of_noisy_duplex_and_of_no_other() -> None:
    for suite in SUITES:
        for one in compiled(suite):
            is_noisy = one.script.condition == "noisy"
            assert is_noisy == (suite == "noisy-duplex")
            assert is_noisy == (one.background is not None)


def test_hinglish_callers_nod_in_hindi() -> None:
    texts = {
        step.text
        for one in compiled("duplex-hi")
        for step in one.script.steps
        if step.kind is StepKind.BACKCHANNEL
    }
    assert texts == {"haan", "ji", "mm-hm", "achha", "theek hai"}


def test_the_demo_exercises_tools_corrections_pauses_people_and_hinglish() -> None:
    scripts = [one.script for one in compiled("demo")]
    steps = [turn for script in scripts for turn in turns(script)]
    assert {t.expect_tool.name for t in steps if t.expect_tool and t.expect_tool.name} >= {
        "get_order_status",
        "book_table",
    }
    assert all(tool.delay_s > 0 for script in scripts for tool in script.tools)
    assert any(turn.kind is StepKind.CORRECTION for turn in steps)
    assert any(turn.pauses for turn in steps)
    assert any(clip.startswith("human/") for turn in steps for clip in turn.clips)
    assert any(script.locale == "hi-Latn-IN" for script in scripts)
    assert any(turn.entities for turn in steps)
    assert any(turn.reply_within_s < 5 for turn in steps)


def test_expected_tool_arguments_satisfy_the_tools_schema() -> None:
    for suite in SUITES:
        for one in compiled(suite):
            schemas = {tool.name: tool.parameters for tool in one.script.tools}
            for turn in turns(one.script):
                if turn.expect_tool is not None and turn.expect_tool.name:
                    schema = schemas[turn.expect_tool.name]
                    Draft202012Validator(schema).validate(turn.expect_tool.arguments)


@pytest.mark.parametrize("suite", SUITES)
def test_the_reference_agent_calls_the_tools_that_each_turn_expects(suite: str) -> None:
    store = ClipStore(SCENARIOS / "clips")
    for one in compiled(suite):
        offered = [{"name": t.name, "parameters": t.parameters} for t in one.script.tools]
        dialogue = Dialogue(store, has_tools=True)
        for turn in turns(one.script):
            assert turn.expect_tool is not None
            called = dialogue.reply(turn.text, offered).tool
            if not turn.expect_tool.name:
                assert called is None
                continue
            assert called is not None
            assert called[0] == turn.expect_tool.name
            assert json.loads(called[1]) == turn.expect_tool.arguments
