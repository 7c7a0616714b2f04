"""Suite files as pytest tests: one test a scenario and repeat."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

import pytest

from vakforge_probe.errors import ProbeError
from vakforge_probe.pytest_calls import Case, file_cases
from vakforge_probe.pytest_plugin import calls_of, note_case

__all__ = ["ScenarioItem", "SuiteFile"]


class SuiteFile(pytest.File):
    """A suite, or a scenario alone, in a YAML file."""

    def collect(self) -> Iterator[ScenarioItem]:
        """Yield the tests, in the order of the file."""
        try:
            found = file_cases(self.config, self.path)
        except ProbeError as error:
            raise self.CollectError(str(error)) from None
        for case in found:
            yield ScenarioItem.from_parent(self, name=case.name, case=case)


class ScenarioItem(pytest.Item):
    """One call by a scenario; what the scenario expects is asserted."""

    def __init__(self, *, case: Case, **of_item: Any) -> None:
        super().__init__(**of_item)
        self.case = case

    def runtest(self) -> None:
        """Place the call; the verdict on it follows in the plugin's hook."""
        calls_of(self.config).place(self.case)
        note_case(self, self.case)

    def reportinfo(self) -> tuple[PathLike[str], int | None, str]:
        """Return where the scenario stands."""
        loaded = self.case.loaded
        line = loaded.source.lines.get(loaded.path)
        return self.path, None if line is None else line - 1, f"scenario {self.name}"
