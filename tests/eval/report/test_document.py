import copy
from collections.abc import Callable
from typing import Any

import pytest

from vakforge_eval.report.document import SCHEMA_VERSION, build_document

Row = dict[str, Any]


def kinds(document: Row) -> list[str]:
    return [banner["kind"] for banner in document["banners"]]


def test_the_stable_parts_are_those_that_other_programs_read(document: Row) -> None:
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["systems"] == ["base", "tuned"]
    assert document["summary"][0]["systems"]["tuned"]["p95_label"] == "p95"
    assert document["turns"][0]["metrics"]["ttfa"]["u"] == [0.0002, 0.0002]
    assert document["turns"][0]["metrics"]["tool_wait"] == {"undefined": "not_applicable"}
    assert document["provenance"]["seed"] == 1


def test_building_leaves_the_inputs_alone(inputs: Row) -> None:
    before = copy.deepcopy(inputs)
    build_document(**inputs)
    assert inputs == before


def test_a_valid_comparison_has_no_banner(tiny: Row) -> None:
    assert tiny["banners"] == []


def test_a_report_without_a_baseline_says_so(single: Row) -> None:
    assert single["banners"][-1]["text"] == "no baseline: not a comparison"
    assert single["changes"]["reason"] == "no baseline: not a comparison"


@pytest.mark.parametrize("status", ["invalid", "indeterminate"])
def test_a_measurement_that_must_not_be_used_says_so_first(
    rebuild: Callable[..., Row], status: str
) -> None:
    document = rebuild(verdict={"status": status, "reasons": ["8 % of turns are invalid"]})
    assert kinds(document) == [status, "void"]
    assert "exit code 4" in document["banners"][0]["text"]
    assert document["banners"][0]["reasons"] == ["8 % of turns are invalid"]
    assert {row["arrow"] for row in document["summary"]} == {None}


def test_nothing_measured_outranks_a_valid_verdict(rebuild: Callable[..., Row]) -> None:
    document = rebuild(summary=[], turns=[], breakdowns=[], samples=[])
    assert kinds(document) == ["nothing_measured"]


def test_cells_with_only_reasons_are_nothing_measured(inputs: Row) -> None:
    for row in inputs["summary"]:
        row["systems"] = {
            name: {"n": 0, "p50": {"undefined": "too_few"}} for name in inputs["systems"]
        }
        row["delta"] = row["delta_ci"] = None
    assert build_document(**inputs)["verdict"]["status"] == "nothing_measured"


@pytest.mark.parametrize("flag", ["no_reply", "call_failed"])
def test_turns_that_were_never_answered_are_nothing_measured(inputs: Row, flag: str) -> None:
    for turn in inputs["turns"]:
        turn["flags"] = [flag]
    assert build_document(**inputs)["verdict"]["status"] == "nothing_measured"


def test_turns_without_a_single_number_are_nothing_measured(inputs: Row) -> None:
    for turn in inputs["turns"]:
        turn["metrics"] = {"ttfa": {"undefined": "noise_too_high"}, "ttft": {"censored": 3.0}}
    assert build_document(**inputs)["verdict"]["status"] == "nothing_measured"


def test_calls_that_all_failed_before_a_turn_are_nothing_measured(inputs: Row) -> None:
    inputs["turns"] = []
    for call in inputs["calls"]:
        call["failure"] = {"kind": "refused", "phase": "connect", "message": "no"}
    assert build_document(**inputs)["verdict"]["status"] == "nothing_measured"


def test_failed_calls_are_named_with_their_phase_and_counted(rebuild: Callable[..., Row]) -> None:
    failure = {"kind": "timeout", "phase": "handshake", "message": "no answer in 10 s"}
    calls = [
        {"system": "tuned", "call": "a", "failure": failure},
        {"system": "tuned", "call": "b", "failure": failure},
        {"system": "base", "call": "c", "failure": None},
    ]
    banner = rebuild(calls=calls)["banners"][0]
    assert banner["text"].startswith("2 of 3 calls failed")
    assert banner["reasons"] == [
        "tuned: timeout in phase handshake: no answer in 10 s (2 ×)",
    ]


def test_turns_spoilt_by_the_probe_are_counted_by_reason(document: Row) -> None:
    expected = {"system": "tuned", "flag": "invalid_pacing", "n": 1, "total": 84}
    assert document["excluded"] == [expected]


def test_hardware_that_nobody_stated_is_null_not_absent(document: Row) -> None:
    assert document["hardware"]["base"] is None
    assert document["hardware"]["tuned"]["quantization"] == "int8"


def test_ten_samples_are_kept_at_most(rebuild: Callable[..., Row], inputs: Row) -> None:
    assert len(rebuild(samples=inputs["samples"] * 3)["samples"]) == 10


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "https://example.test/a.wav",
        "//example.test/a.wav",
        "/etc/passwd",
        "../../secret.wav",
        "calls/../../x.wav",
        'a" onclick="x',
        "data:text/html,x",
        "a b.wav",
        "",
    ],
)
def test_a_link_that_is_no_plain_relative_path_is_dropped(
    rebuild: Callable[..., Row], inputs: Row, link: str
) -> None:
    samples = inputs["samples"][:1]
    samples[0]["user_audio"] = link
    samples[0]["answers"]["base"]["audio"] = link
    sample = rebuild(samples=samples)["samples"][0]
    assert sample["user_audio"] is None
    assert sample["answers"]["base"]["audio"] is None


def test_a_relative_link_is_kept(document: Row) -> None:
    assert document["samples"][0]["answers"]["tuned"]["audio"] == "calls/tuned-0/agent.wav"


@pytest.mark.parametrize("systems", [(), ("a", "b", "c")])
def test_a_report_holds_one_or_two_systems(inputs: Row, systems: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="one or two systems"):
        build_document(**{**inputs, "systems": systems})


def test_names_that_look_the_same_once_cleaned_are_refused(inputs: Row) -> None:
    with pytest.raises(ValueError, match="look the same"):
        build_document(**{**inputs, "systems": ("tuned", "tu\u202ened")})
