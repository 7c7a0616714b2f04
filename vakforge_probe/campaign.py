"""Many calls: their order, repeats, seeds and concurrency; base and tuned interleaved.

Systems take turns within each scenario and repeat, and the one that goes first alternates, so that
a drift of the machine or the network falls on both alike.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vakforge_eval.timeline.events import Event
from vakforge_probe.call import Call, CallOutcome, CallPlan
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.scenario.compile import Compiled, compile_scenario
from vakforge_probe.scenario.loaded import LoadedScenario
from vakforge_probe.target import Target

__all__ = ["Progress", "System", "plan_campaign", "run_campaign"]


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
        If a scenario cannot be compiled for a system's protocol; nothing has been dialled then.
    """
    limits = limits or Limits()
    compiled = _compile(systems, scenarios)
    rounds = max((repeats or s.repeats for s in scenarios), default=0)
    plans: list[CallPlan] = []
    for repeat in range(rounds):
        for n, loaded in enumerate(scenarios):
            if repeat >= (repeats or loaded.repeats):
                continue
            turn = repeat * len(scenarios) + n
            call_seed = seed + loaded.seed + repeat
            order = list(systems) if turn % 2 == 0 else list(reversed(systems))
            for system in order:
                name = _folder_name(
                    f"{len(plans):04d}-{system.name}-{loaded.scenario.id}-r{repeat}"
                )
                plans.append(
                    CallPlan(
                        call_id=name,
                        system=system.name,
                        target=system.target,
                        compiled=compiled[system.name, n],
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
    out: dict[tuple[str, int], Compiled] = {}
    by_protocol: dict[tuple[str, int], Compiled] = {}
    for system in systems:
        codec = make_client(system.target.protocol)
        for n, loaded in enumerate(scenarios):
            key = (system.target.protocol, n)
            if key not in by_protocol:
                by_protocol[key] = compile_scenario(
                    loaded,
                    rate_hz=codec.user_audio.rate_hz,
                    frame_samples=codec.user_audio.frame_samples,
                    capabilities=codec.capabilities,
                )
            out[system.name, n] = by_protocol[key]
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
    and returned like any other.
    """
    stop = stop or asyncio.Event()
    progress = Progress(planned=len(plans))
    outcomes: list[CallOutcome] = []
    waiting = iter(plans)

    def tell() -> None:
        if on_progress is not None:
            on_progress(progress)

    async def worker() -> None:
        for plan in waiting:
            if stop.is_set():
                return
            call = Call(plan, on_event=_bound(on_event, plan))
            progress.running[plan.call_id] = plan.compiled.script.id
            tell()
            outcome = await _run_until(call, stop)
            del progress.running[plan.call_id]
            progress.done += 1
            progress.failed += outcome.failure is not None
            outcomes.append(outcome)
            tell()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(plans))):
            group.create_task(worker())
    outcomes.sort(key=lambda outcome: outcome.plan.order)
    return outcomes


def _bound(
    on_event: Callable[[CallPlan, Event], None] | None, plan: CallPlan
) -> Callable[[Event], None] | None:
    if on_event is None:
        return None
    return lambda event: on_event(plan, event)


async def _run_until(call: Call, stop: asyncio.Event) -> CallOutcome:
    async def watch() -> None:
        await stop.wait()
        call.stop("stopped")

    watcher = asyncio.ensure_future(watch())
    try:
        return await call.run()
    finally:
        watcher.cancel()
