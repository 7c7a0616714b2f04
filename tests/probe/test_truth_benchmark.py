"""The truth benchmark of interruptions: that its parts fit together, not what it measures."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.truth import duplex
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.scenario.loader import load_suite


def test_every_condition_can_be_asked_of_the_agent_and_has_a_call() -> None:
    calls = {loaded.scenario.id for loaded in load_suite(duplex.SUITE).scenarios}
    for condition in (*duplex.CONDITIONS, *duplex.SIDE_BY_SIDE):
        assert duplex.SCENARIOS[condition.kind] in calls
        Behaviour().overridden({key: str(value) for key, value in condition.knobs.items()})
        is_live = condition.knobs.get("playout") == "live"
        assert make_client(condition.protocol).capabilities.continuous_stream is is_live


def test_conditions_have_names_of_their_own() -> None:
    names = [c.name for c in (*duplex.CONDITIONS, *duplex.SIDE_BY_SIDE)]
    assert len(set(names)) == len(names)


def test_other_tools_figures_are_of_our_conditions() -> None:
    rivals = json.loads(Path(duplex.RIVALS).read_text("utf-8"))
    assert list(rivals["rows"]) == [c.name for c in duplex.SIDE_BY_SIDE]
    assert {len(cells) for cells in rivals["rows"].values()} == {len(rivals["tools"])}
