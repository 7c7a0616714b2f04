from __future__ import annotations

import ast
import importlib
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vakforge_eval
from vakforge_eval.metrics.registry import METRICS, definitions
from vakforge_eval.metrics.spec import MetricSpec
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.values import Measured, Rate, Reason, Undefined

OF_THE_LATENCY_TABLE = {
    "ttft", "ttfa", "ttfa_audible", "ttfa_heard", "ttfs", "leading_silence", "ttf_answer",
    "tool_wait", "dead_air_max", "total_response", "rtf", "rtf_inverse", "endpoint_delay",
    "endpoint_delay_claimed", "setup", "greeting_latency", "early_rate", "no_reply_rate",
}  # fmt: skip

OF_THE_DUPLEX_TABLE = {
    "stop_reaction", "stop_network", "stop_heard", "interruption_response", "missed_interruption",
    "void_barge_ins", "relevant_reply", "false_interruption", "false_interruption_noise",
    "false_interruption_side_talk", "false_alarm", "stutter_gap", "void_events", "overlap_rate",
    "floor_transfer_offset", "talk_ratio", "reprompts", "agent_interruptions",
}  # fmt: skip


def named(spec: MetricSpec) -> str:
    return spec.name


def test_every_row_of_the_tables_of_definitions_is_registered_once() -> None:
    names = [spec.name for spec in METRICS]
    assert len(set(names)) == len(names)
    assert set(names) >= OF_THE_LATENCY_TABLE
    assert {spec.name for spec in METRICS if spec.group == "duplex"} >= OF_THE_DUPLEX_TABLE


def test_a_metric_that_improves_at_the_cost_of_a_rate_names_one_that_exists() -> None:
    rates = {spec.name for spec in METRICS if spec.unit == "rate"}
    assert {name for spec in METRICS for name in spec.bought_by} <= rates


@pytest.mark.parametrize("spec", METRICS, ids=named)
def test_a_metric_documents_its_anchor_its_value_and_when_there_is_none(spec: MetricSpec) -> None:
    text = inspect.getdoc(spec.compute) or ""
    assert "**Anchor**" in text
    assert re.search(r"Returns\n-------\n(MetricValue|Rate)\n", text)
    assert "Undefined" in text


@pytest.mark.parametrize("spec", METRICS, ids=named)
def test_a_reason_that_a_metric_documents_is_one_of_the_closed_list(spec: MetricSpec) -> None:
    text = (inspect.getdoc(spec.compute) or "").split("Returns")[1].split("Notes")[0]
    told = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text)) - {spec.name for spec in METRICS}
    assert told <= {reason.value for reason in Reason} | {"user_end"}


@pytest.mark.parametrize("spec", METRICS, ids=named)
def test_a_metric_names_its_definition_start_stop_and_detector(spec: MetricSpec) -> None:
    assert re.fullmatch(rf"{spec.name}/[1-9][0-9]*", spec.definition)
    assert all(spec.span)
    assert spec.detector
    assert definitions()[spec.name] == spec.definition


@pytest.mark.parametrize("spec", METRICS, ids=named)
def test_a_metric_of_an_empty_call_is_undefined_or_nothing_counted(
    new_call: Any, spec: MetricSpec
) -> None:
    if spec.on_call is None:
        return
    value = spec.on_call(CallView(new_call().build(ended=0)))
    is_fact = spec.name.startswith("setup") or spec.name == "failed_calls"
    assert isinstance(value, Undefined | Rate) or (is_fact and isinstance(value, Measured))


def test_a_metric_without_a_function_is_refused() -> None:
    with pytest.raises(ValueError, match="one function"):
        replace(METRICS[0], on_turn=None)


@pytest.mark.parametrize("package", ["stats", "metrics", "scoring"])
def test_offline_code_opens_no_socket_reads_no_clock_and_does_not_know_the_probe(
    package: str,
) -> None:
    forbidden = {"asyncio", "socket", "time", "datetime", "random", "vakforge_probe", "requests"}
    for file in (Path(vakforge_eval.__file__).parent / package).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & forbidden, file


@pytest.mark.parametrize("package", ["stats", "metrics", "scoring"])
def test_what_a_module_exports_exists(package: str) -> None:
    for file in (Path(vakforge_eval.__file__).parent / package).glob("[a-z]*.py"):
        module = importlib.import_module(f"vakforge_eval.{package}.{file.stem}")
        assert all(hasattr(module, name) for name in module.__all__)
