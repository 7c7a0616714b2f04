"""The public Python API: probe a voice agent from any test framework, with plain asserts.

One call, which runs while the block runs::

    from vakforge_probe import api as probe

    async def test_answers_within_a_second():
        url = "ws://127.0.0.1:8765/v1/realtime"
        async with probe.call("latency#questions", target=url) as call:
            result = await call.result()
        assert result.failure is None
        assert result.turns[0]["ttfa_heard"] < 1.0

Many calls, base and tuned interleaved::

    result = await probe.run("latency", target=new, baseline_target=old, repeats=20)
    assert result.p50("ttfa_heard") < result.p50("ttfa_heard", system="base")
    result.report(Path("report"))  # report.json, report.md, report.html

An index gives a number (seconds for times) or raises `NotMeasured` with the reason, so that an
assert can never pass on a number that does not exist; ``turn.metric("ttfa")`` gives the value with
its error. It runs on any asyncio loop. One made by `new_event_loop` bounds arrivals best; on
another one the error intervals are wider, and no less true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from vakforge_eval.metrics.expectations import Verdict
from vakforge_eval.timeline.events import Event
from vakforge_eval.timeline.values import Censored, Flag, Measured, Rate, Reason, Undefined
from vakforge_probe.call import Call, CallOutcome, CallPlan
from vakforge_probe.campaign import (
    Progress,
    System,
    new_folder,
    plan_campaign,
    run_campaign,
    systems_of,
)
from vakforge_probe.errors import ConfigError, ProbeError
from vakforge_probe.limits import Limits
from vakforge_probe.net.clock import is_virtual
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.results import (
    CallResult,
    NotMeasured,
    RunResult,
    SideEvent,
    Turn,
    result_of,
)
from vakforge_probe.scenario.choose import choose_scenarios
from vakforge_probe.scenario.loaded import LoadedScenario
from vakforge_probe.target import Target, load_targets, resolve_target

__all__ = [
    "CallResult",
    "Censored",
    "Flag",
    "Limits",
    "LiveCall",
    "LoadedScenario",
    "Measured",
    "NotMeasured",
    "ProbeError",
    "Rate",
    "Reason",
    "RunResult",
    "Scenario",
    "SideEvent",
    "Target",
    "Turn",
    "Undefined",
    "Verdict",
    "call",
    "new_event_loop",
    "run",
]

P = ParamSpec("P")
T = TypeVar("T")

Scenario = str | Path | LoadedScenario
"""A shipped suite's name or a file, either with ``#id``, or a loaded scenario."""


class LiveCall:
    """A call that runs while an ``async with`` block runs; made by `call`.

    Leaving the block early hangs up and closes the capture; `result` still works afterwards, on
    what there is.
    """

    def __init__(self, plan: CallPlan, on_event: Callable[[Event], None] | None) -> None:
        self._plan, self._on_event = plan, on_event
        self._call: Call | None = None
        self._outcome: asyncio.Task[CallOutcome] | None = None
        self._result: CallResult | None = None

    async def __aenter__(self) -> Self:
        self._call = Call(self._plan, on_event=self._on_event)
        self._outcome = asyncio.create_task(self._call.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hang_up()
        outcome = self._running()
        await asyncio.wait({outcome})
        if error is None:
            outcome.result()  # a bug in the call must not go unseen

    @property
    def is_over(self) -> bool:
        """Whether the call has ended and its capture is complete."""
        return self._running().done()

    def hang_up(self) -> None:
        """End the call now; harmless when it is over."""
        if self._call is not None:
            self._call.stop("stopped")

    async def result(self) -> CallResult:
        """Wait for the call's end and return what it gave.

        A failure of the target is not raised: it is ``result.failure``, and the turns up to there
        are measured. A time-out around this leaves the call running.
        """
        outcome = await asyncio.shield(self._running())
        if self._result is None:
            self._result = await _aside(result_of, outcome)
        return self._result

    def _running(self) -> asyncio.Task[CallOutcome]:
        if self._outcome is None:
            raise RuntimeError("the call begins with `async with`")
        return self._outcome


def call(
    scenario: Scenario,
    *,
    target: str | Target,
    protocol: str | None = None,
    targets: Path | None = None,
    headers: Mapping[str, str] | None = None,
    model: str | None = None,
    ca: Path | None = None,
    hardware: dict[str, Any] | None = None,
    seed: int = 0,
    name: str = "tuned",
    out: Path | None = None,
    limits: Limits | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> LiveCall:
    """Return one call, to be run by ``async with``; nothing is dialled before.

    Parameters
    ----------
    scenario
        A shipped suite or a file that holds one scenario, ``suite#id`` for one of several, or a
        loaded scenario.
    target
        A ``ws://`` or ``wss://`` URL, an alias of `targets`, or a resolved target.
    protocol
        ``NAME[/PROFILE]``; by default the alias's own, else ``openai-realtime``.
    targets
        A ``targets.yaml`` with aliases.
    headers
        Handshake headers; a secret by reference only: ``${env:NAME}`` or ``file:PATH``.
    model, ca, hardware
        Model to ask for, a CA bundle for ``wss://``, and the serving path's hardware as its owner
        states it.
    seed
        Of everything random; added to the scenario's own.
    name
        What the system is called in reports.
    out
        New folder for the capture; by default ``runs/<UTC time>``.
    limits
        Deadlines and caps.
    on_event
        Called with each protocol event as it arrives, on the loop: it must be quick.

    Raises
    ------
    ConfigError
        If anything is wrong with what is given here.

    Examples
    --------
    >>> async def refused(folder: Path) -> str:
    ...     closed = "ws://127.0.0.1:1"  # nobody listens there
    ...     async with call("latency#questions", target=closed, out=folder) as live:
    ...         result = await live.result()
    ...     return str(result.failure)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(refused(Path(folder)))
    'refused in phase connect: Connection refused'
    """
    system, *_ = _systems(target, None, name, protocol, targets, headers, model, ca, hardware)
    chosen = _chosen([scenario])
    if len(chosen) > 1:
        ids = ", ".join(f"#{loaded.scenario.id}" for loaded in chosen)
        raise ConfigError(f"holds several scenarios: add one of {ids}", value=str(scenario))
    folder = new_folder(out)
    (plan,) = plan_campaign(
        [system], chosen, folder=folder / "calls", repeats=1, seed=seed, limits=limits
    )
    return LiveCall(plan, on_event)


async def run(
    scenarios: Scenario | Sequence[Scenario],
    *,
    target: str | Target,
    baseline_target: str | Target | None = None,
    protocol: str | None = None,
    targets: Path | None = None,
    headers: Mapping[str, str] | None = None,
    model: str | None = None,
    ca: Path | None = None,
    hardware: dict[str, Any] | None = None,
    repeats: int | None = None,
    seed: int = 0,
    concurrency: int = 1,
    name: str = "tuned",
    out: Path | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: asyncio.Event | None = None,
) -> RunResult:
    """Run suites against a target, interleaved with a baseline if there is one.

    The parameters are those of `call`, and:

    Parameters
    ----------
    scenarios
        One or several of what `call` takes; a suite stands for all its scenarios.
    baseline_target
        The system to compare with, called ``base``; both get the same seeds, clips and order.
    repeats
        Of each scenario; by default its own number.
    concurrency
        Calls at once.
    on_progress
        Called whenever a call begins or ends.
    stop
        Once set, no call starts any more and the running ones hang up; what they gave is returned.

    Raises
    ------
    ConfigError
        If anything is wrong with what is given here; nothing has been dialled then.
    """
    systems = _systems(
        target, baseline_target, name, protocol, targets, headers, model, ca, hardware
    )
    several = [scenarios] if isinstance(scenarios, Scenario) else scenarios
    chosen = _chosen(several)
    folder = new_folder(out)
    plans = plan_campaign(
        systems, chosen, folder=folder / "calls", repeats=repeats, seed=seed, limits=limits
    )
    outcomes = await run_campaign(
        plans, concurrency=concurrency, on_progress=on_progress, stop=stop
    )
    return await _aside(RunResult, folder, [system.name for system in systems], outcomes)


def _systems(
    target: str | Target,
    baseline: str | Target | None,
    name: str,
    protocol: str | None,
    targets: Path | None,
    headers: Mapping[str, str] | None,
    model: str | None,
    ca: Path | None,
    hardware: dict[str, Any] | None,
) -> list[System]:
    known = load_targets(targets) if targets is not None else None

    def resolve(one: str | Target) -> Target:
        if isinstance(one, Target):
            return one
        return resolve_target(
            one,
            targets=known,
            protocol=protocol,
            model=model,
            headers=tuple(f"{key}={value}" for key, value in (headers or {}).items()),
            ca=ca,
            hardware=hardware,
        )

    return systems_of(resolve(target), None if baseline is None else resolve(baseline), name)


def _chosen(scenarios: Sequence[Scenario]) -> list[LoadedScenario]:
    chosen: list[LoadedScenario] = []
    for one in scenarios:
        chosen += [one] if isinstance(one, LoadedScenario) else choose_scenarios(one)
    return chosen


async def _aside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do what takes long without holding up other calls of this loop."""
    if is_virtual(asyncio.get_running_loop()):
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
