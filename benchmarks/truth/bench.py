"""What the truth benchmarks share: conditions, the calls, bars, and how results are written.

The benchmarks are run from the project's root, with the project installed to be worked on or with
``PYTHONPATH=eval:.``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

from vakforge_eval.timeline.values import Censored, Undefined
from vakforge_probe.agent.doors import RTC_PATHS, path_of
from vakforge_probe.agent.process import AgentProcess
from vakforge_probe.calibrate import Row, Summary, labelled, summarize
from vakforge_probe.call import CallOutcome, CallPlan
from vakforge_probe.campaign import Progress, System, plan_campaign, run_campaign
from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

__all__ = [
    "CONCURRENCY",
    "Bar",
    "Bench",
    "Condition",
    "Options",
    "at_most",
    "bars_table",
    "by_condition",
    "conditions_table",
    "excluded",
    "excluded_line",
    "exit_code",
    "host_line",
    "host_of",
    "metrics_table",
    "ms",
    "read_options",
    "row_json",
    "run_bench",
    "summary_json",
    "write_results",
]

CONCURRENCY = 10
STALL_S = 0.3
STALL_EVERY_S = (6.0, 12.0)


@dataclass(frozen=True)
class Condition:
    """What the agent is set to, and the class whose bars apply."""

    name: str
    kind: str
    knobs: dict[str, object] = field(default_factory=dict)
    protocol: str = "openai-realtime"


@dataclass(frozen=True)
class Bar:
    """What a class of conditions is held to; `value` is that of its worst metric."""

    name: str
    limit: str
    value: float | None
    met: bool


class Bench:
    """Runs calls against one agent and keeps what came of them."""

    def __init__(self, agent: AgentProcess, folder: Path, suite: Path, seed: int) -> None:
        self._agent, self._folder, self._suite, self._seed = agent, folder, suite, seed
        self.outcomes: list[CallOutcome] = []
        self.n_stalls = 0

    async def run(
        self,
        conditions: Sequence[Condition],
        repeats: int,
        *,
        scenario: str | None = None,
        stalls: bool = False,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """Call with each condition `repeats` times, several calls at once.

        Parameters
        ----------
        scenario
            The only one of the suite to play; None: all.
        stalls
            Whether the probe's own event loop is blocked now and then.
        concurrency
            How many calls at once.
        """
        print(f"{scenario or 'all'}: {len(conditions)} conditions x {repeats}", flush=True)
        plans = self._plans(conditions, repeats, scenario)
        stalling = asyncio.create_task(self._stall_now_and_then()) if stalls else None
        try:
            self.outcomes += await run_campaign(
                plans, concurrency=concurrency, on_progress=_printer(len(plans))
            )
        finally:
            if stalling is not None:
                stalling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await stalling

    def _plans(
        self, conditions: Sequence[Condition], repeats: int, scenario: str | None
    ) -> list[CallPlan]:
        systems = [
            System(c.name, Target(self._dialled(c), "agent", c.protocol)) for c in conditions
        ]
        known = load_suite(self._suite).scenarios
        scenarios = [s for s in known if scenario in (None, s.scenario.id)]
        plans = plan_campaign(
            systems, scenarios, folder=self._folder, repeats=repeats, seed=self._seed
        )
        return [labelled(_seeded(plan)) for plan in plans]

    def _dialled(self, condition: Condition) -> str:
        is_webrtc = condition.protocol in RTC_PATHS
        base = self._agent.webrtc_url if is_webrtc else self._agent.url
        return f"{urljoin(str(base), path_of(condition.protocol))}?{urlencode(_knobs(condition))}"

    async def _stall_now_and_then(self) -> None:
        moments = random.Random(self._seed)
        while True:
            await asyncio.sleep(moments.uniform(*STALL_EVERY_S))
            time.sleep(STALL_S)  # noqa: ASYNC251 - that is the point
            self.n_stalls += 1


def _knobs(condition: Condition) -> dict[str, object]:
    return {"greeting": False, **condition.knobs}


def _seeded(plan: CallPlan) -> CallPlan:
    """Give each call noise and jitter of its own."""
    target = replace(plan.target, url=f"{plan.target.url}&seed={plan.order}")
    return replace(plan, target=target)


def _printer(n_planned: int) -> Any:
    begun, told = time.monotonic(), 0

    def tell(progress: Progress) -> None:
        nonlocal told
        share = progress.done * 10 // n_planned
        if share > told:
            told = share
            seconds = time.monotonic() - begun
            print(f"  {progress.done}/{n_planned} calls, {seconds:.0f} s", flush=True)

    return tell


@dataclass(frozen=True)
class Options:
    """How a benchmark is run."""

    out: Path
    repeats: int
    seed: int
    keep: Path | None


def read_options(about: str, repeats: int) -> Options:
    """Return what the command line says; `repeats` is the usual number of calls."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results.json; .md goes beside it")
    parser.add_argument("--repeats", type=int, default=repeats, help="calls of each condition")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one call of each: a minute")
    parser.add_argument("--keep", type=Path, help="folder to keep captures and truth log in")
    args = parser.parse_args()
    return Options(args.out, 1 if args.quick else args.repeats, args.seed, args.keep)


def run_bench(
    options: Options,
    suite: Path,
    play: Callable[[Bench], Any],
    judge: Callable[[Bench, Path], dict[str, Any]],
    *,
    has_webrtc: bool = False,
) -> dict[str, Any]:
    """Run an agent and calls to it, and return what `judge` makes of them.

    Parameters
    ----------
    play
        Makes the calls; a coroutine function.
    judge
        Takes the calls and the agent's truth log, once the agent is gone.
    has_webrtc
        Whether the agent answers WebRTC offers, too.
    """
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        truth = folder / "truth.jsonl"
        with AgentProcess(truth=truth, has_webrtc=has_webrtc) as agent:
            bench = Bench(agent, folder / "calls", suite, options.seed)
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(play(bench))
        print(f"scoring {len(bench.outcomes)} captures", flush=True)
        return judge(bench, truth)


def write_results(out: Path, doc: dict[str, Any], text: str) -> None:
    """Write the results as JSON and, beside it, for people."""
    out.write_text(json.dumps(doc, indent=1, allow_nan=False) + "\n", "utf-8")
    out.with_suffix(".md").write_text(text, "utf-8")
    print(text)


def host_of(bench: Bench) -> dict[str, Any]:
    """Return what a document says of where and how the calls were made."""
    return {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "machine": probe_host(),
        "scheduling": scheduling(),
        "versions": versions(),
        "concurrent_calls": CONCURRENCY,
        "calls": len(bench.outcomes),
        "calls_failed": sum(outcome.failure is not None for outcome in bench.outcomes),
    }


def host_line(doc: dict[str, Any]) -> str:
    """Return `host_of` in a line."""
    machine = doc["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python "
        f"{doc['versions']['python']}, {doc['scheduling']['class']}; {doc['measured_on']}."
    )


def _worst(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def at_most(name: str, limit_ms: float, values: Iterator[float | None]) -> Bar:
    """Return the bar that none of `values` (s) is above a limit."""
    most = _worst(values)
    value = None if most is None else most * 1000
    return Bar(name, f"<= {limit_ms:g} ms", value, value is not None and value <= limit_ms)


def summary_json(found: Summary) -> dict[str, Any]:
    """Return a summary for a document."""
    return {
        name: value.to_json() if hasattr(value, "to_json") else value
        for name, value in ((name, getattr(found, name)) for name in Summary.__slots__)
    }


def row_json(row: Row) -> dict[str, Any]:
    """Return a row for a document."""
    measured = row.measured
    found = measured.to_json()
    if not isinstance(measured, Undefined | Censored):
        found |= {"lo": measured.lo, "hi": measured.hi}
    return {
        "metric": row.metric,
        "condition": row.condition,
        "turn": row.turn,
        "truth": None if row.truth is None else row.truth.model_dump(),
        "measured": found,
        "error": row.error,
    }


def ms(value: float | None) -> str:
    """Return a time (s) in ms for a table."""
    return "–" if value is None else f"{value * 1000:.3f}"


def _share(rate: dict[str, Any]) -> str:
    return f"{rate['hits']}/{rate['total']}"


def excluded(rows: Sequence[Row], metric: str) -> dict[str, int]:
    """Return how many rows of `metric` are out, by reason; one with two flags counts for both."""
    reasons: Counter[str] = Counter()
    for row in rows:
        if row.metric != metric or row.counts:
            continue
        flags = [flag.value for flag in row.flags if flag.invalidates]
        if not row.is_matched:
            flags.append("not in the agent's account")
        elif row.is_agent_late:
            flags.append("agent late")
        reasons.update(flags)
    return dict(sorted(reasons.items()))


def excluded_line(reasons: dict[str, int]) -> str:
    """Return `excluded` in words."""
    return f"Out: {', '.join(f'{n} {why}' for why, n in reasons.items()) or 'none'}."


def by_condition(rows: Sequence[Row], kinds: dict[str, str]) -> dict[str, Any]:
    """Return a summary of each condition; `kinds` are the classes by name of condition."""
    out = {}
    for name, kind in kinds.items():
        mine = [row for row in rows if row.condition == name]
        if mine:
            out[name] = {"class": kind, **summary_json(summarize(mine))}
    return out


def bars_table(doc: dict[str, Any]) -> list[str]:
    """Return the table of all bars."""
    lines = [
        "## Bars",
        "",
        "| class | bar | limit | reached | |",
        "| --- | --- | --- | --- | --- |",
        *_bar_lines("all", doc["bars"]),
    ]
    for kind, found in doc["classes"].items():
        lines += _bar_lines(kind, found["bars"])
    return lines


def metrics_table(doc: dict[str, Any]) -> list[str]:
    """Return the table of each class's metrics."""
    lines = [
        "## By metric",
        "",
        "Errors and intervals in ms. The bound of the coverage is the one-sided 95 % "
        "Clopper-Pearson bound.",
        "",
        "| class | metric | turns | measured | error p50 | p99 | max | interval p50 | covered "
        "| at least |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, found in doc["classes"].items():
        for name, cell in {**found["metrics"], "all": found["all"]}.items():
            lines.append(_figures([kind, name], cell))
    return lines


def conditions_table(doc: dict[str, Any]) -> list[str]:
    """Return the table of all conditions."""
    lines = [
        "## By condition",
        "",
        "| condition | class | turns | measured | error p50 | p99 | max | interval p50 | covered "
        "| at least | probe spoilt | agent late |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, cell in doc["conditions"].items():
        row = _figures([name, cell["class"]], cell)
        lines.append(f"{row} {cell['n_invalid']} | {cell['n_agent_late']} |")
    return lines


def exit_code(doc: dict[str, Any]) -> int:
    """Return 1 when a bar is missed, else 0."""
    bars = [*doc["bars"], *(bar for found in doc["classes"].values() for bar in found["bars"])]
    return int(not all(bar["met"] for bar in bars))


def _bar_lines(kind: str, bars: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"| {kind} | {bar['name']} | {bar['limit']} | "
        f"{'–' if bar['value'] is None else format(bar['value'], '.4g')} | "
        f"{'met' if bar['met'] else '**missed**'} |"
        for bar in bars
    ]


def _figures(head: Sequence[str], cell: dict[str, Any]) -> str:
    bound = cell["covered_at_least"]
    cells = [
        *head,
        str(cell["n_turns"]),
        _share(cell["measured"]),
        *(ms(cell[name]) for name in ("error_p50", "error_p99", "error_max", "width_p50")),
        _share(cell["covered"]),
        "–" if bound is None else f"{bound:.4f}",
    ]
    return f"| {' | '.join(cells)} |"
