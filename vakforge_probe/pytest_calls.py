"""Calls for the pytest plugin: which scenarios are meant, whom they call, what is asserted."""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

import pytest

from vakforge_probe import api
from vakforge_probe.agent.behaviour import Behaviour, parse_pairs
from vakforge_probe.cli.verdict import judge
from vakforge_probe.errors import ConfigError, ExitCode, ProbeError
from vakforge_probe.net import virtual
from vakforge_probe.results import CallResult
from vakforge_probe.scenario.choose import choose_scenarios
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loaded import LoadedScenario
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.story import tell_call

if TYPE_CHECKING:
    from _pytest.outcomes import Failed
else:
    Failed = pytest.fail.Exception

__all__ = ["AgentUrls", "Calls", "Case", "NotMet", "Undecided", "cases", "file_cases", "one_case"]

_NO_TARGET = (
    "no target: --voice-target URL (or voice_target in the configuration), "
    "or --voice-agent KEY=VALUE for the reference agent"
)


class NotMet(Failed):
    """The call failed, or did not lead to what its scenario expects."""


class Undecided(Failed):
    """The call was made, and whether it led to what its scenario expects cannot be told."""


@dataclass(frozen=True)
class Case:
    """One call that tests ask for.

    Attributes
    ----------
    agent
        Settings of a reference agent to call, on virtual time; None to call `target`.
    is_checked
        Whether what the scenario expects is asserted.
    """

    loaded: LoadedScenario = field(compare=False)
    repeat: int = 0
    agent: tuple[tuple[str, str], ...] | None = None
    target: str | None = None
    is_checked: bool = field(default=True, compare=False)

    @property
    def name(self) -> str:
        """The scenario's id, with the number of the repeat after the first."""
        name = self.loaded.scenario.id
        return name if self.repeat == 0 else f"{name}-{self.repeat}"

    @property
    def key(self) -> tuple[object, ...]:
        """What two tests that share a call agree in."""
        loaded = self.loaded
        return loaded.source.file, loaded.path, self.repeat, self.agent, self.target


def cases(config: pytest.Config, marker: pytest.Mark, folder: Path) -> list[Case]:
    """Return the cases of a ``scenario`` marker, in order.

    Parameters
    ----------
    folder
        Where files are looked for first.
    """
    try:
        loaded = [one for text in marker.args for one in _chosen(text, folder)]
        repeats = _repeats(config)
        return [
            _case(config, one, repeat=repeat, **marker.kwargs)
            for one in loaded
            for repeat in range(repeats or one.repeats)
        ]
    except ProbeError as error:
        raise Failed(str(error), pytrace=False) from None


def file_cases(config: pytest.Config, path: Path) -> list[Case]:
    """Return the cases of a suite file, in its order.

    Raises
    ------
    ConfigError
        If the file or an option is wrong.
    """
    repeats = _repeats(config)
    return [
        _case(config, one, repeat=repeat)
        for one in load_suite(path).scenarios
        for repeat in range(repeats or one.repeats)
    ]


def one_case(
    config: pytest.Config, scenario: str | Path | LoadedScenario, folder: Path, **aim: Any
) -> Case:
    """Return the case of a single scenario."""
    if isinstance(scenario, LoadedScenario):
        return _case(config, scenario, **aim)
    found = _chosen(scenario, folder)
    if len(found) > 1:
        ids = ", ".join(f"#{loaded.scenario.id}" for loaded in found)
        raise ConfigError(f"holds several scenarios: add one of {ids}", value=str(scenario))
    return _case(config, found[0], **aim)


def _chosen(reference: str | Path, folder: Path) -> tuple[LoadedScenario, ...]:
    name, mark, wanted = str(reference).partition("#")
    near = folder / name
    return choose_scenarios(f"{near}{mark}{wanted}" if near.is_file() else reference)


def _case(
    config: pytest.Config,
    loaded: LoadedScenario,
    *,
    repeat: int = 0,
    agent: Mapping[str, object] | None = None,
    target: str | None = None,
    check: bool = True,
) -> Case:
    """Return a case whose target is the test's own, else that of the options or settings."""
    if agent is not None and target is not None:
        raise ConfigError("a call has an agent or a target, not both", value=target)
    if agent is not None:
        pairs = {key: _text(value) for key, value in agent.items()}
    elif target is not None:
        return Case(loaded, repeat, None, target, check)
    else:
        knobs, target = _setting(config, "agent"), _setting(config, "target")
        if not knobs:
            return Case(loaded, repeat, None, target, check)
        pairs = parse_pairs(knob for knob in knobs if knob != "default")
    Behaviour().overridden(pairs)
    return Case(loaded, repeat, tuple(sorted(pairs.items())), None, check)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _setting(config: pytest.Config, name: str) -> Any:
    """Return an option, else the setting of its name; None if there is neither."""
    # An agent on the command line also stands against a target in the settings.
    rival = {"agent": "target", "target": "agent"}.get(name)
    if rival is not None and config.getoption(f"voice_{rival}"):
        return None
    return config.getoption(f"voice_{name}") or config.getini(f"voice_{name}") or None


def _repeats(config: pytest.Config) -> int | None:
    text = _setting(config, "repeats")
    return None if text is None else int(text)


class Calls:
    """Places the calls of a pytest run, each once, and judges them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._made: dict[tuple[object, ...], CallResult] = {}
        self._folder: Path | None = None

    def place(self, case: Case) -> CallResult:
        """Return what the call of a case gave; the test is skipped if there is nobody to call."""
        if case.agent is None and case.target is None:
            pytest.skip(_NO_TARGET)
        if case.key not in self._made:
            try:
                self._made[case.key] = self._call(case)
            except ProbeError as error:
                raise NotMet(str(error), pytrace=False) from None
        return self._made[case.key]

    def check(self, case: Case) -> None:
        """Assert that a call was made, was measured, and led to what its scenario expects.

        Raises
        ------
        NotMet
            If it was not; names what was missed.
        Undecided
            If that cannot be told.
        """
        code, why = judge(self._made[case.key].report())
        if code is ExitCode.INVALID:
            raise Undecided(why, pytrace=False)
        if code is not ExitCode.OK:
            raise NotMet(why, pytrace=False)

    def tell(self, case: Case) -> str:
        """Return the call drawn and its numbers, as wide as the terminal."""
        width = self._config.get_terminal_writer().fullwidth
        return tell_call(self._made[case.key], width)

    def _call(self, case: Case) -> CallResult:
        if case.agent is not None:
            return virtual.run(self._call_reference_agent(case, dict(case.agent)))
        assert case.target is not None  # noqa: S101 - checked in `place`
        targets = _setting(self._config, "targets")
        live = api.call(
            case.loaded,
            target=case.target,
            protocol=_setting(self._config, "protocol"),
            targets=None if targets is None else Path(targets),
            headers=_headers(_setting(self._config, "header") or ()),
            seed=case.repeat,
            out=self._out(case),
        )
        with asyncio.Runner(loop_factory=api.new_event_loop) as runner:
            return runner.run(_result(live))

    async def _call_reference_agent(self, case: Case, pairs: dict[str, str]) -> CallResult:
        from vakforge_probe.agent.server import serve

        behaviour = Behaviour().overridden(pairs)
        clips = data_root() / "clips"
        async with await serve(behaviour, "127.0.0.1", 0, None, clips) as agent:
            live = api.call(case.loaded, target=agent.url, seed=case.repeat, out=self._out(case))
            return await _result(live)

    def _out(self, case: Case) -> Path:
        """Return a new folder; two processes of one run may share the folder above it."""
        if self._folder is None:
            self._folder = self._new_root()
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", case.name)[:80]
        return self._folder / f"{name}-{uuid.uuid4().hex[:8]}"

    def _new_root(self) -> Path:
        out = _setting(self._config, "out")
        if out is not None:
            return Path(out)
        factory: pytest.TempPathFactory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        return factory.mktemp("voice")


async def _result(live: api.LiveCall) -> CallResult:
    async with live:
        return await live.result()


def _headers(texts: Any) -> dict[str, str]:
    from vakforge_probe.target import parse_header

    return dict(parse_header(text) for text in texts)


class AgentUrls(contextlib.AbstractContextManager["AgentUrls"]):
    """A reference agent in a process of its own, started when its first URL is asked for."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._url = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def url(self, **knobs: object) -> str:
        """Return a URL; the agent behaves by `knobs` to whoever connects to it.

        Raises
        ------
        ConfigError
            If there is no such setting, or not such a value of it.
        """
        from vakforge_probe.agent.process import AgentProcess

        pairs = {key: _text(value) for key, value in knobs.items()}
        Behaviour().overridden(pairs)
        if not self._url:
            self._url = self._stack.enter_context(AgentProcess()).url
        return f"{self._url}?{urlencode(pairs)}" if pairs else self._url
