"""From a suite file to checked scenarios; every fault names file, line, key and the nearest key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vakforge_eval.timeline.faults import fault_words
from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.scenario import yaml_tree
from vakforge_probe.scenario.checks import check_scenario
from vakforge_probe.scenario.clips import ClipLibrary, data_root
from vakforge_probe.scenario.files import inside, read_bounded
from vakforge_probe.scenario.grammar import STEP_KEYS, ScenarioFile, ScenarioRef, Suite
from vakforge_probe.scenario.loaded import LoadedScenario, LoadedSuite, refuse_twins
from vakforge_probe.scenario.yaml_tree import Source, read_yaml
from vakforge_probe.text import nearest

__all__ = ["find_suite", "load_model", "load_suite", "top_level_keys"]

M = TypeVar("M", bound=BaseModel)


def find_suite(name: str) -> Path:
    """Return the file of a suite: a path, or the name of a shipped suite (``demo``)."""
    path = Path(name)
    # Unlike `Path.is_file`, this takes a name too long for any file as one that does not exist.
    if os.path.isfile(path):
        return path
    shipped = data_root() / "suites"
    known = sorted(p.stem for p in shipped.glob("*.yaml"))
    if name in known:
        return shipped / f"{name}.yaml"
    raise ConfigError(
        f"no such file or suite (shipped: {', '.join(known) or 'none'})",
        value=name,
        nearest=nearest(name, known),
    )


def load_suite(file: Path | str, *, limits: Limits | None = None) -> LoadedSuite:
    """Return the suite in `file` (a path or a shipped suite's name).

    Raises
    ------
    ConfigError
        For any fault that can be seen without knowing the target's protocol.
    """
    limits = limits or Limits()
    path = find_suite(str(file))
    source = _read(path, str(path), limits)
    build = _suite if _is_suite(source.data) else _single
    loaded = build(path, source, limits)
    refuse_twins(loaded.scenarios)
    for scenario in loaded.scenarios:
        check_scenario(scenario)
    return loaded


def load_model(file: Path, model: type[M], *, limits: Limits | None = None) -> M:
    """Return a YAML file as `model`, with the same bounds and the same faults as a suite.

    Raises
    ------
    ConfigError
        If it cannot be read or does not fit; names file, line and key.
    """
    return _validated(model, _read(file, str(file), limits or Limits()))


def top_level_keys(file: Path, *, limits: Limits | None = None) -> frozenset[str]:
    """Return the keys at the top of a YAML file; none if it is no mapping."""
    data = _read(file, str(file), limits or Limits()).data
    return frozenset(data) if isinstance(data, dict) else frozenset()


def _is_suite(data: object) -> bool:
    return isinstance(data, dict) and "steps" not in data


def _read(path: Path, shown: str, limits: Limits) -> Source:
    try:
        return read_yaml(read_bounded(path, limits.max_yaml_bytes), shown, limits)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {error}", file=shown) from error


def _suite(path: Path, source: Source, limits: Limits) -> LoadedSuite:
    suite = _validated(Suite, source)
    library = _library(path, source, suite.clips, limits)
    scenarios = []
    for i, item in enumerate(suite.scenarios):
        where: yaml_tree.Path = ("scenarios", i)
        if isinstance(item, ScenarioRef):
            target = _referred(path, source, where, item.file)
            one = _single(target, _read(target, str(target), limits), limits).scenarios[0]
            scenario, origin, where, clips = one.scenario, one.source, one.path, one.library
        else:
            scenario, origin, clips = item, source, library
        scenario = scenario.with_defaults(suite.defaults)
        scenarios.append(
            LoadedScenario(
                scenario,
                origin,
                where,
                clips,
                repeats=scenario.repeats or suite.repeats,
                seed=suite.seed if scenario.seed is None else scenario.seed,
                suite=source,
            )
        )
    return LoadedSuite(path.stem, suite.title, tuple(scenarios))


def _single(path: Path, source: Source, limits: Limits) -> LoadedSuite:
    scenario = _validated(ScenarioFile, source)
    library = _library(path, source, scenario.clips, limits)
    loaded = LoadedScenario(
        scenario, source, (), library, repeats=scenario.repeats or 1, seed=scenario.seed or 0
    )
    return LoadedSuite(path.stem, scenario.title, (loaded,))


def _referred(suite: Path, source: Source, where: yaml_tree.Path, name: str) -> Path:
    try:
        path = inside(suite.parent, name)
    except ValueError as error:
        raise source.error((*where, "file"), str(error), value=name) from error
    if not path.is_file():
        raise source.error((*where, "file"), "no such file", value=name)
    return path


def _library(path: Path, source: Source, clips: str | None, limits: Limits) -> ClipLibrary:
    shipped = data_root() / "clips"
    try:
        own = inside(path.parent, clips or "clips")
    except ValueError as error:
        raise source.error(("clips",), str(error), value=clips) from error
    if clips is not None and not own.is_dir():
        raise source.error(("clips",), "no such folder", value=clips)
    roots = [own, shipped] if own.is_dir() else [shipped]
    return ClipLibrary(*roots, limits=limits)


def _validated(model: type[M], source: Source) -> M:
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        raise _config_error(error, source) from error


_TELLING = ("unknown_key", "step_kind")
"""Faults that explain the others that come with them (every way of a union fails)."""


def _config_error(error: ValidationError, source: Source) -> ConfigError:
    faults: list[Any] = error.errors(include_url=False)
    fault = next((f for kind in _TELLING for f in faults if f["type"] == kind), faults[0])
    path = _plain_path(fault["loc"], source.data)
    message, value, nearest = fault_words(fault), fault["input"], None
    if fault["type"] == "unknown_key":
        path, value = (*path, fault["ctx"]["key"]), None
        nearest = fault["ctx"]["nearest"]
    elif fault["type"] == "step_kind":
        value = None
        nearest = _nearest_step_key(fault["input"])
    elif fault["type"] == "missing":
        path, value, message = (*path, fault["loc"][-1]), None, "is missing"
    elif fault["type"] == "model_type":
        message = "must be a mapping"
    if isinstance(value, dict | list):
        value = None
    return source.error(path, message, value=value, nearest=nearest)


def _nearest_step_key(step: object) -> str | None:
    if not isinstance(step, dict) or any(key in STEP_KEYS for key in step):
        return None
    return next((near for key in step if (near := nearest(key, STEP_KEYS))), None)


def _plain_path(loc: tuple[str | int, ...], data: Any) -> yaml_tree.Path:
    """Return a validator's location without the union tags, which are no keys of the file."""
    path: list[str | int] = []
    for i, part in enumerate(loc):
        follows_item = i >= 2 and isinstance(loc[i - 1], int)
        if follows_item and loc[i - 2] in ("steps", "then", "scenarios") and isinstance(part, str):
            continue
        here: Any = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(here, dict) and part in here:
            data = here[part]
            path.append(part)
    return tuple(path)
