"""Many calls: their order, repeats, seeds and concurrency; base and tuned interleaved.

Systems take turns within each scenario and repeat, and the one that goes first alternates, so that
a drift of the machine or the network falls on both alike.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from vakforge_eval.timeline.events import Event
from vakforge_probe.call import Call, CallOutcome, CallPlan
from vakforge_probe.errors import CaptureFault, ConfigError
from vakforge_probe.heap import frozen_heap
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.scenario.compile import Compiled, compile_scenario
from vakforge_probe.scenario.loaded import LoadedScenario, refuse_twins
from vakforge_probe.target import Target

__all__ = [
    "Progress",
    "System",
    "new_folder",
    "plan_campaign",
    "run_campaign",
    "systems_of",
]

_SYSTEM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_BASE = "base"


@dataclass(frozen=True, slots=True)
class System:
    """One side of a comparison: ``base``, ``tuned`` or a name of its own."""

    name: str
    target: Target


@dataclass(slots=True)
class Progress:
    """Live state of a campaign, handed to the progress callback."""

    planned: int
    done: int = 0
    failed: int = 0
    running: dict[str, str] = field(default_factory=dict)


def systems_of(target: Target, baseline: Target | None, name: str) -> list[System]:
    """Return the system to probe, called `name`, after the baseline if there is one.

    Raises
    ------
    ConfigError
        If the name cannot be used.
    """
    if not _SYSTEM_NAME.fullmatch(name):
        raise ConfigError("letters, digits, '.', '_' and '-', at most 40", key="--name", value=name)
    if baseline is None:
        return [System(name, target)]
    if name == _BASE:
        raise ConfigError("is the baseline's name", key="--name", value=name)
    return [System(_BASE, baseline), System(name, target)]


def new_folder(out: Path | None = None) -> Path:
    """Make and return the empty folder of a run; ``runs/<UTC time>`` by default.

    Raises
    ------
    ConfigError
        If `out` is not empty, or cannot be made.
    """
    try:
        if out is None:
            return _free_folder()
        out.mkdir(parents=True, exist_ok=True)
        is_empty = not any(out.iterdir())
    except OSError as error:
        raise ConfigError(
            f"cannot be made: {error.strerror}", key="--out", value=str(error.filename or out)
        ) from None
    if not is_empty:
        raise ConfigError("the run's folder must be new or empty", key="--out", value=str(out))
    return out


def _free_folder() -> Path:
    name = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder, n = Path("runs") / name, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            n += 1
            folder = folder.with_name(f"{name}-{n}")
        else:
            return folder


def plan_campaign(
    systems: Sequence[System],
    scenarios: Sequence[LoadedScenario],
    *,
    folder: Path,
    repeats: int | None = None,
    seed: int = 0,
    limits: Limits | None = None,
) -> list[CallPlan]:
    """Return the calls in the order in which they start.

    `repeats` overrides each scenario's own number. Both systems get the same seed, clips and
    order; frames of different calls are spread over the 20 ms grid by the seed.

    Raises
    ------
    ConfigError
        If a scenario cannot be compiled for a system's protocol, or two have the same id; nothing
        has been dialled then.
    """
    limits = limits or Limits()
    refuse_twins(scenarios)
    compiled = _compile(systems, scenarios)
    rounds = max((repeats or s.repeats for s in scenarios), default=0)
    # One report may hold runs that differ in nothing else.
    run = uuid.uuid4().hex[:8]
    plans: list[CallPlan] = []
    for repeat in range(rounds):
        for n, loaded in enumerate(scenarios):
            if repeat >= (repeats or loaded.repeats):
                continue
            call_seed = seed + loaded.seed + repeat
            # Alternating from scenario to scenario and from repeat to repeat of each scenario.
            in_turn = systems if (repeat + n) % 2 == 0 else systems[::-1]
            for system in in_turn:
                name = _folder_name(
                    f"{len(plans):04d}-{system.name}-{loaded.scenario.id}-r{repeat}"
                )
                plans.append(
                    CallPlan(
                        call_id=f"{name}-{run}",
                        system=system.name,
                        target=system.target,
                        compiled=compiled[system.target.protocol, n],
                        folder=folder / name,
                        seed=call_seed,
                        repeat=repeat,
                        order=len(plans),
                        limits=limits,
                    )
                )
    return plans


def _compile(
    systems: Sequence[System], scenarios: Sequence[LoadedScenario]
) -> dict[tuple[str, int], Compiled]:
    """Return each scenario made ready for each protocol."""
    out: dict[tuple[str, int], Compiled] = {}
    for protocol in dict.fromkeys(system.target.protocol for system in systems):
        codec = make_client(protocol)
        for n, loaded in enumerate(scenarios):
            out[protocol, n] = compile_scenario(
                loaded,
                rate_hz=codec.user_audio.rate_hz,
                frame_samples=codec.user_audio.frame_samples,
                capabilities=codec.capabilities,
                codec=codec.user_audio.codec,
            )
    return out


def _folder_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:120]


async def run_campaign(
    plans: Sequence[CallPlan],
    *,
    concurrency: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[CallPlan, Event], None] | None = None,
    stop: asyncio.Event | None = None,
) -> list[CallOutcome]:
    """Run the calls in order, at most `concurrency` at once, and return what became of each.

    When `stop` is set no new call starts and the running ones hang up; their captures are closed
    and returned like any other. A call whose capture cannot be begun is an outcome too.

    Raises
    ------
    Exception
        A bug in a call or a callback, and a `ConfigError` that only dialling shows; the other calls
        have hung up and closed their captures then.
    """
    if concurrency < 1:
        raise ValueError(f"{concurrency} calls at once would never begin")
    run = _Run(plans, on_progress, on_event)
    stopping = asyncio.create_task(run.stop_when(stop)) if stop is not None else None
    try:
        with frozen_heap():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(plans))):
                    group.create_task(run.work())
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    finally:
        if stopping is not None:
            stopping.cancel()
            await asyncio.wait({stopping})
    return sorted(run.outcomes, key=lambda outcome: outcome.plan.order)


class _Run:
    """One campaign under way."""

    def __init__(
        self,
        plans: Sequence[CallPlan],
        on_progress: Callable[[Progress], None] | None,
        on_event: Callable[[CallPlan, Event], None] | None,
    ) -> None:
        self.outcomes: list[CallOutcome] = []
        self._waiting = iter(plans)
        self._progress = Progress(planned=len(plans))
        self._on_progress, self._on_event = on_progress, on_event
        self._calls: set[Call] = set()
        self._is_stopping = False

    async def stop_when(self, stop: asyncio.Event) -> None:
        """Hang up all calls once `stop` is set."""
        await stop.wait()
        self._is_stopping = True
        for call in self._calls:
            call.stop("stopped")

    async def work(self) -> None:
        """Run calls, one after the other, until none waits."""
        for plan in self._waiting:
            if self._is_stopping:
                return
            self._progress.running[plan.call_id] = plan.compiled.script.id
            self._tell()
            outcome = await self._run(plan)
            del self._progress.running[plan.call_id]
            self._progress.done += 1
            self._progress.failed += outcome.failure is not None
            self.outcomes.append(outcome)
            self._tell()

    async def _run(self, plan: CallPlan) -> CallOutcome:
        try:
            call = Call(plan, on_event=self._event_sink(plan))
        except CaptureFault as fault:
            return CallOutcome(plan, plan.folder, "failure", fault, str(fault))
        self._calls.add(call)
        try:
            return await call.run()
        finally:
            self._calls.discard(call)

    def _event_sink(self, plan: CallPlan) -> Callable[[Event], None] | None:
        sink = self._on_event
        return None if sink is None else lambda event: sink(plan, event)

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._progress)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error inside: the others are what it led to."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
