"""The agent's truth must not rest on the code that it is there to check."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import vakforge_probe.agent

PACKAGE = Path(vakforge_probe.agent.__file__).parent
FORBIDDEN = ("vakforge_eval.signal", "vakforge_eval.metrics", "vakforge_eval.stats")


def _imports(path: Path) -> set[str]:
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            out |= {f"{node.module}.{alias.name}" for alias in node.names}
    return out


def test_no_module_of_the_agent_names_the_scoring_core() -> None:
    for path in PACKAGE.glob("*.py"):
        wrong = [name for name in _imports(path) if name.startswith(FORBIDDEN)]
        assert not wrong, f"{path.name} imports {wrong}"


def test_running_agent_has_not_loaded_the_scoring_core_by_any_way() -> None:
    code = (
        "import sys, vakforge_probe.agent.server\n"
        f"print([m for m in sys.modules if m.startswith({FORBIDDEN!r})])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
