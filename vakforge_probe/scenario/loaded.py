"""A loaded suite: validated scenarios that still know where they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vakforge_probe.errors import ConfigError
from vakforge_probe.scenario.clips import ClipLibrary
from vakforge_probe.scenario.grammar import Scenario
from vakforge_probe.scenario.yaml_tree import Path, Source

__all__ = ["LoadedScenario", "LoadedSuite", "refuse_twins"]


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario with its suite's defaults; `path` is its place in `source`.

    `suite` is the file that the defaults stand in, if there is one.
    """

    scenario: Scenario
    source: Source
    path: Path
    library: ClipLibrary
    repeats: int
    seed: int
    suite: Source | None = None

    def error(
        self, path: Path, message: str, *, value: object = None, nearest: str | None = None
    ) -> ConfigError:
        """Return the error for what stands at `path` inside this scenario or in the defaults."""
        own, shared = (*self.path, *path), ("defaults", *path)
        is_own = (*self.path, *path[:1]) in self.source.lines
        if self.suite is not None and not is_own and shared[:2] in self.suite.lines:
            return self.suite.error(shared, message, value=value, nearest=nearest)
        return self.source.error(own, message, value=value, nearest=nearest)


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite; a scenario file alone is a suite of one."""

    name: str
    title: str
    scenarios: tuple[LoadedScenario, ...]


def refuse_twins(scenarios: Iterable[LoadedScenario]) -> None:
    """Refuse two scenarios of one id: their turns would be taken for repeats of each other.

    Raises
    ------
    ConfigError
        Naming the second one's file and line.
    """
    seen: set[str] = set()
    for loaded in scenarios:
        if loaded.scenario.id in seen:
            raise loaded.error(("id",), "another scenario has this id", value=loaded.scenario.id)
        seen.add(loaded.scenario.id)
