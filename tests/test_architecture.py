"""The source obeys the project's own rules: who may import whom, and how large things may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EVAL = ROOT / "eval" / "vakforge_eval"
PROBE = ROOT / "vakforge_probe"

# A package may import itself and what is named here; nothing else of ours.
EVAL_MAY_IMPORT = {
    "timeline": set[str](),
    "signal": {"timeline"},
    "stats": {"timeline"},
    "capture": {"timeline", "signal"},
    "metrics": {"timeline", "signal", "stats"},
    "scoring": {"timeline", "signal", "stats", "capture", "metrics"},
    "report": {"timeline", "signal", "stats", "capture", "metrics", "scoring"},
}
PROBE_MAY_NOT_IMPORT = {
    "protocol": {"scenario", "net", "recorder", "call", "campaign", "agent", "api", "cli"},
    "scenario": {"net", "recorder", "call", "campaign", "agent", "api", "cli"},
    "net": {"scenario", "recorder", "call", "campaign", "agent", "api", "cli"},
    "recorder": {"scenario", "net", "call", "campaign", "agent", "api", "cli"},
    "call": {"campaign", "agent", "api", "cli"},
    "campaign": {"agent", "api", "cli"},
    "agent": {"call", "campaign", "api", "cli"},
    "api": {"agent", "cli"},
}
LIVE = {"asyncio", "socket", "ssl", "selectors", "http", "urllib.request", "websockets", "aiohttp"}
CLOCKS = {"time", "datetime"}


def modules(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def ours(path: Path, package: str) -> set[str]:
    return {n.split(".")[1] for n in imported(path) if n.startswith(f"{package}.")}


def test_the_scoring_core_never_imports_the_probe_nor_dials() -> None:
    for path in modules(EVAL):
        found = {n for n in imported(path) if n.split(".")[0] == "vakforge_probe" or n in LIVE}
        assert not found, path


def test_below_the_edges_no_clock_is_read() -> None:
    for name in ("timeline", "signal", "stats", "metrics", "scoring"):
        for path in modules(EVAL / name):
            assert not CLOCKS & set(imported(path)), path
    for name in ("protocol", "scenario"):
        for path in modules(PROBE / name):
            assert not CLOCKS & set(imported(path)), path


def test_the_scoring_core_is_built_in_layers() -> None:
    for path in modules(EVAL):
        name = part(path, EVAL)
        if name in EVAL_MAY_IMPORT:
            known = ours(path, "vakforge_eval") & EVAL_MAY_IMPORT.keys()
            assert known <= EVAL_MAY_IMPORT[name] | {name}, path


def test_the_probe_is_built_in_layers() -> None:
    for path in modules(PROBE):
        banned = PROBE_MAY_NOT_IMPORT.get(part(path, PROBE), set())
        assert not ours(path, "vakforge_probe") & banned, path


def test_wire_formats_have_no_input_and_output() -> None:
    for path in modules(PROBE / "protocol"):
        assert not LIVE & set(imported(path)), path


@pytest.mark.parametrize("package", ["vakforge_eval", "vakforge_eval.scoring.captures"])
def test_importing_the_scoring_core_leaves_asyncio_unloaded(package: str) -> None:
    code = f"import sys, {package}; print(int('asyncio' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_no_file_is_longer_than_600_lines() -> None:
    for path in modules(EVAL) + modules(PROBE):
        assert len(path.read_text("utf-8").splitlines()) <= 600, path


def test_each_module_says_what_it_is_and_what_it_exports() -> None:
    for path in modules(EVAL) + modules(PROBE):
        tree = ast.parse(path.read_text("utf-8"))
        assert ast.get_docstring(tree), path
        if path.name in ("__init__.py", "__main__.py"):
            continue
        names = next(
            (
                ast.literal_eval(node.value)
                for node in tree.body
                if isinstance(node, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
            ),
            None,
        )
        assert names is not None, f"{path}: no __all__"
        defined = {
            n
            for node in ast.walk(tree)
            for n in (
                [node.name]
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                else [t.id for t in node.targets if isinstance(t, ast.Name)]
                if isinstance(node, ast.Assign)
                else [node.target.id]
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
                else [a.asname or a.name for a in node.names]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert set(names) <= defined, path
