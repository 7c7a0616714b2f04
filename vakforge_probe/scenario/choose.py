"""Scenarios by reference: a shipped suite's name or a file, and one scenario of it by ``#id``."""

from __future__ import annotations

import os
from pathlib import Path

from vakforge_probe.errors import ConfigError
from vakforge_probe.scenario.loaded import LoadedScenario
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.text import nearest

__all__ = ["choose_scenarios"]


def choose_scenarios(reference: str | Path) -> tuple[LoadedScenario, ...]:
    """Return the scenarios that `reference` means.

    Parameters
    ----------
    reference
        ``latency`` (shipped), ``my/suite.yaml``, or either with ``#scenario-id``.

    Raises
    ------
    ConfigError
        If there is no such file, suite or scenario, or it is not valid.
    """
    name, mark, wanted = str(reference).rpartition("#")
    if not mark or os.path.isfile(reference):
        return load_suite(reference).scenarios
    scenarios = load_suite(name).scenarios
    found = tuple(loaded for loaded in scenarios if loaded.scenario.id == wanted)
    if not found:
        known = [loaded.scenario.id for loaded in scenarios]
        raise ConfigError(
            f"no such scenario (it holds {', '.join(known)})",
            file=name,
            key="#",
            value=wanted,
            nearest=nearest(wanted, known),
        )
    return found
