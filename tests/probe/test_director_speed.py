"""The benchmark of hearing and deciding: its reaction on virtual time, and that its cost runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the benchmark's module."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.performance.director")


def test_a_step_follows_the_agents_onset_within_30_ms_and_a_frame(benchmark: Any) -> None:
    reacted = benchmark.reaction()
    assert reacted.calls == 400
    assert 0 < reacted.p50_ms <= reacted.p99_ms <= reacted.max_ms <= 50.0


def test_the_cost_is_counted_for_each_kind_of_audio(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "WARM_UP_S", 0)
    costs = benchmark.costs_of(seconds=1, calls=3)
    assert [cost.messages for cost in costs] == [150] * len(costs)
    assert all(cost.cpu_percent > 0 for cost in costs)
    reacted = benchmark.reaction()
    bars = benchmark.bars_of(costs, reacted)
    page = benchmark.markdown({"cpu": "some"}, costs, reacted, bars)
    assert page.count("\n| ") >= len(costs) + len(bars)
