"""A loaded suite: validated scenarios that still know where they stand."""

from __future__ import annotations

from dataclasses import dataclass

from vakforge_probe.errors import ConfigError
from vakforge_probe.scenario.clips import ClipLibrary
from vakforge_probe.scenario.grammar import Scenario
from vakforge_probe.scenario.yaml_tree import Path, Source

__all__ = ["LoadedScenario", "LoadedSuite"]


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario with its suite's defaults; `path` is its place in `source`."""

    scenario: Scenario
    source: Source
    path: Path
    library: ClipLibrary
    repeats: int
    seed: int

    def error(
        self, path: Path, message: str, *, value: object = None, nearest: str | None = None
    ) -> ConfigError:
        """Return the error for what stands at `path` inside this scenario."""
        return self.source.error((*self.path, *path), message, value=value, nearest=nearest)


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite; a scenario file alone is a suite of one."""

    name: str
    title: str
    scenarios: tuple[LoadedScenario, ...]
