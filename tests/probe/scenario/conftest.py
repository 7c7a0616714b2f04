"""Scenarios written in the test, loaded and compiled as a user's would be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vakforge_eval.timeline.call import Capabilities
from vakforge_probe.scenario.compile import Compiled, compile_scenario
from vakforge_probe.scenario.loaded import LoadedSuite
from vakforge_probe.scenario.loader import load_suite

FULL = Capabilities(response_ids=True, response_end=True, tools=True, transcripts=True)

HEAD = """\
schema: 1
id: call
locale: en-GB
language: {primary: en}
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], LoadedSuite]:
    def loaded(text: str) -> LoadedSuite:
        file = tmp_path / "suite.yaml"
        file.write_text(text if text.startswith("schema") else HEAD + text, encoding="utf-8")
        return load_suite(file)

    return loaded


@pytest.fixture
def compiled(load: Callable[[str], LoadedSuite]) -> Callable[..., Compiled]:
    def build(text: str, rate_hz: int = 24000, can: Capabilities = FULL) -> Compiled:
        scenario = load(text).scenarios[0]
        return compile_scenario(
            scenario, rate_hz=rate_hz, frame_samples=rate_hz // 50, capabilities=can
        )

    return build
