"""The benchmark of killed calls, with a few kills: nothing unreadable, nothing with a hole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "truth" / "kill.py"

LIMIT_MS = 1000.0
"""Ten times the benchmark's bar, which is for a machine that is not busy with other tests."""


@pytest.mark.wallclock
@pytest.mark.timeout(180)
def test_a_killed_call_is_recovered_and_agrees_with_what_the_agent_knows(tmp_path: Path) -> None:
    out = tmp_path / "kill.json"
    subprocess.run(
        [sys.executable, str(BENCHMARK), "--out", str(out), "--kills", "3", "--latest", "2.5"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=150,
        check=False,  # it returns 1 when a bar is missed, as on a busy machine
    )
    kills = json.loads(out.read_text("utf-8"))["each"]
    assert len(kills) == 3
    for kill in kills:
        assert kill["problem"] is None
        assert kill["lost_user_ms"] <= LIMIT_MS
        assert kill["lost_agent_ms"] <= LIMIT_MS
    assert any(kill["n_user"] > 50 for kill in kills), "a call was under way"
    assert "Killed in the middle" in out.with_suffix(".md").read_text("utf-8")
