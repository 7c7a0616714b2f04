"""The probe's times against the reference agent's truth, on the wall clock.

Run it from the project's root, on a machine that is idle otherwise::

    python benchmarks/truth/run.py --out benchmarks/truth/results.json

See README.md beside this file for what is measured and which bars it is held to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.values import Censored, Undefined
from vakforge_probe.agent.process import AgentProcess
from vakforge_probe.calibrate import (
    LATENCIES,
    Row,
    Summary,
    compare,
    labelled,
    read_truth,
    summarize,
)
from vakforge_probe.call import CallOutcome, CallPlan
from vakforge_probe.campaign import Progress, System, plan_campaign, run_campaign
from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

SCENARIO = Path(__file__).with_name("scenario.yaml")
CONCURRENCY = 10
STALL_S = 0.3
STALL_EVERY_S = (6.0, 12.0)
N_VALID = 600

CLEAN, JITTER, NOISE, STALLED = "clean", "jitter", "noise", "probe stalls"


@dataclass(frozen=True)
class Condition:
    """What the agent is set to, and the class whose bars apply."""

    name: str
    kind: str
    knobs: dict[str, object] = field(default_factory=dict)


CONTINUOUS = {"stream": "continuous"}
CONDITIONS = (
    *(
        Condition(f"{delay}ms-{pacing}", CLEAN, {"reply_delay": delay / 1000, "pacing": pacing})
        for delay in (200, 500, 1200)
        for pacing in ("paced", "x10", "burst")
    ),
    Condition("lead-150ms", CLEAN, {"leading_silence": 0.15}),
    Condition("lead-300ms", CLEAN, {"leading_silence": 0.3, "pacing": "x10"}),
    Condition("quiet-35dBFS", CLEAN, {"level_dbfs": -35}),
    Condition("skew+5000ppm", CLEAN, {"skew_ppm": 5000}),
    Condition("skew-5000ppm", CLEAN, {"skew_ppm": -5000}),
    Condition("odd-chunks", CLEAN, {"chunk": "961b"}),
    Condition("text-first", CLEAN, {"text_lead_ms": 120}),
    Condition("agent-stalls", CLEAN, {"stall": 0.3, "stall_at": 0.2}),
    Condition("together-clean", CLEAN, {
        "leading_silence": 0.15, "level_dbfs": -35, "skew_ppm": 5000, "chunk": "961b",
        "stall": 0.3, "stall_at": 0.4,
    }),
    Condition("jitter-60ms", JITTER, {"jitter_ms": 60}),
    Condition("jitter-60ms-burst", JITTER, {"jitter_ms": 60, "pacing": "burst"}),
    Condition("together-jitter", JITTER, {
        "jitter_ms": 60, "leading_silence": 0.3, "level_dbfs": -35, "skew_ppm": -5000,
        "chunk": "961b", "stall": 0.3, "stall_at": 0.4,
    }),
    Condition("noise-50dBFS", NOISE, {"noise_dbfs": -50, **CONTINUOUS}),
    Condition("noise-40dBFS", NOISE, {"noise_dbfs": -40, **CONTINUOUS}),
    Condition("together-noise", NOISE, {
        "noise_dbfs": -40, "jitter_ms": 60, "leading_silence": 0.15, "skew_ppm": 5000,
        "stall": 0.3, "stall_at": 0.4, **CONTINUOUS,
    }),
)  # fmt: skip
WITH_STALLS = tuple(
    Condition(f"probe-stalls-{name}", STALLED, {"pacing": pacing, **knobs})
    for name, pacing, knobs in (("paced", "paced", {}), ("burst", "burst", {}),
                                ("jitter", "paced", {"jitter_ms": 60}))
)  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """What a class of conditions is held to; `value` is that of its worst metric."""

    name: str
    limit: str
    value: float | None
    met: bool


class Bench:
    """Runs calls against one agent and keeps what came of them."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._url, self._folder, self._seed = url, folder, seed
        self.outcomes: list[CallOutcome] = []
        self.n_stalls = 0

    async def run(self, conditions: Sequence[Condition], repeats: int, *, stalls: bool) -> None:
        """Call with each condition `repeats` times, several calls at once."""
        plans = self._plans(conditions, repeats)
        stalling = asyncio.create_task(self._stall_now_and_then()) if stalls else None
        try:
            self.outcomes += await run_campaign(
                plans, concurrency=CONCURRENCY, on_progress=_printer(len(plans))
            )
        finally:
            if stalling is not None:
                stalling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await stalling

    def _plans(self, conditions: Sequence[Condition], repeats: int) -> list[CallPlan]:
        systems = [
            System(c.name, Target(url=f"{self._url}?{urlencode(_knobs(c))}", label="agent"))
            for c in conditions
        ]
        suite = load_suite(SCENARIO)
        plans = plan_campaign(
            systems, suite.scenarios, folder=self._folder, repeats=repeats, seed=self._seed
        )
        return [labelled(_seeded(plan)) for plan in plans]

    async def _stall_now_and_then(self) -> None:
        moments = random.Random(self._seed)
        while True:
            await asyncio.sleep(moments.uniform(*STALL_EVERY_S))
            time.sleep(STALL_S)  # noqa: ASYNC251 - that is the point
            self.n_stalls += 1


def _knobs(condition: Condition) -> dict[str, object]:
    return {"greeting": False, "say": "short_ok", **condition.knobs}


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


def _rows(outcomes: Sequence[CallOutcome], truth: Path) -> list[Row]:
    print(f"scoring {len(outcomes)} captures", flush=True)
    known = read_truth(truth)
    return [
        row
        for outcome in outcomes
        for row in compare([build_timeline(Capture.open(outcome.capture))], known)
    ]


def _worst(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def bars_of(kind: str, metrics: dict[str, Summary], total: Summary) -> list[Bar]:
    """Return the bars of a class of conditions, each with what was reached."""

    def at_most(name: str, limit_ms: float, values: Iterator[float | None]) -> Bar:
        worst = _worst(values)
        value = None if worst is None else worst * 1000
        return Bar(name, f"<= {limit_ms:g} ms", value, value is not None and value <= limit_ms)

    each = list(metrics.values())
    covered = total.covered.value
    bars = [Bar("truth inside the interval", "all", covered, covered == 1.0)]
    if kind in (CLEAN, STALLED):
        bars += [
            at_most("median error", 1, (s.error_p50 for s in each)),
            at_most("p99 error", 3, (s.error_p99 for s in each)),
            at_most("median interval", 1, (s.width_p50 for s in each)),
        ]
    else:
        limit = 10 if kind == JITTER else 20
        bars.append(at_most("largest error", limit, (s.error_max for s in each)))
    shares = [share for s in each if (share := s.measured.value) is not None]
    least, share = min(shares, default=None), 0.8 if kind == NOISE else 0.95
    bars.append(Bar("measured", f">= {share:.0%}", least, least is not None and least >= share))
    return bars


def document(rows: Sequence[Row], outcomes: Sequence[CallOutcome], n_stalls: int) -> dict[str, Any]:
    """Return all results."""
    kinds = {c.name: c.kind for c in (*CONDITIONS, *WITH_STALLS)}
    classes: dict[str, Any] = {}
    for kind in (CLEAN, JITTER, NOISE, STALLED):
        mine = [row for row in rows if kinds[row.condition] == kind]
        if not mine:
            continue
        metrics = {m: summarize([r for r in mine if r.metric == m]) for m in LATENCIES}
        classes[kind] = {
            "all": _json(summarize(mine)),
            "metrics": {name: _json(found) for name, found in metrics.items()},
            "bars": [asdict(bar) for bar in bars_of(kind, metrics, summarize(mine))],
        }
    conditions = {
        name: {"class": kinds[name], **_json(summarize([r for r in rows if r.condition == name]))}
        for name in kinds
        if any(row.condition == name for row in rows)
    }
    n_valid = len({(row.call, row.turn) for row in rows if row.counts})
    return {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "machine": probe_host(),
        "scheduling": scheduling(),
        "versions": versions(),
        "concurrent_calls": CONCURRENCY,
        "calls": len(outcomes),
        "calls_failed": sum(outcome.failure is not None for outcome in outcomes),
        "turns": len({(row.call, row.turn) for row in rows}),
        "turns_valid": n_valid,
        "turns_excluded": _excluded(rows),
        "stalls_of_the_probe": n_stalls,
        "bars": [asdict(Bar("valid turns", f">= {N_VALID}", n_valid, n_valid >= N_VALID))],
        "classes": classes,
        "conditions": conditions,
        "outside": [_json_row(row) for row in rows if row.counts and row.covered is False],
    }


def _excluded(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many turns are out, by reason; a turn with two flags counts for both."""
    reasons: Counter[str] = Counter()
    for row in rows:
        if row.metric != LATENCIES[0] or row.counts:
            continue
        flags = [flag.value for flag in row.flags if flag.invalidates]
        if not row.is_matched:
            flags.append("not in the agent's account")
        elif row.is_agent_late:
            flags.append("agent late")
        reasons.update(flags)
    return dict(sorted(reasons.items()))


def _json(found: Summary) -> dict[str, Any]:
    return {
        name: value.to_json() if hasattr(value, "to_json") else value
        for name, value in ((name, getattr(found, name)) for name in Summary.__slots__)
    }


def _json_row(row: Row) -> dict[str, Any]:
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


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value * 1000:.3f}"


def _share(rate: dict[str, Any]) -> str:
    return f"{rate['hits']}/{rate['total']}"


def markdown(doc: dict[str, Any]) -> str:
    """Return the results for people."""
    machine = doc["machine"]
    lines = [
        "# Measured against the truth",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python "
        f"{doc['versions']['python']}, {doc['scheduling']['class']}; {doc['measured_on']}.",
        "",
        f"{doc['calls']} calls, {doc['concurrent_calls']} at a time in one process, the agent in "
        f"another; {doc['turns_valid']} of {doc['turns']} turns count. Out: "
        + (", ".join(f"{n} {why}" for why, n in doc["turns_excluded"].items()) or "none")
        + f". {doc['stalls_of_the_probe']} stalls of the probe.",
        "",
        "## Bars",
        "",
        "| class | bar | limit | reached | |",
        "| --- | --- | --- | --- | --- |",
        *_bar_lines("all", doc["bars"]),
    ]
    for kind, found in doc["classes"].items():
        lines += _bar_lines(kind, found["bars"])
    lines += [
        "",
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
    lines += [
        "",
        "## By condition",
        "",
        "| condition | class | turns | measured | error p50 | p99 | max | interval p50 | covered "
        "| at least | probe spoilt | agent late |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, cell in doc["conditions"].items():
        row = _figures([name, cell["class"]], cell)
        lines.append(f"{row} {cell['n_invalid']} | {cell['n_agent_late']} |")
    return "\n".join(lines) + "\n"


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
        *(_ms(cell[name]) for name in ("error_p50", "error_p99", "error_max", "width_p50")),
        _share(cell["covered"]),
        "–" if bound is None else f"{bound:.4f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Run, score, write and print; returns 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results.json; .md goes beside it")
    parser.add_argument("--repeats", type=int, default=8, help="calls of each condition")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one call of each: a minute")
    parser.add_argument("--keep", type=Path, help="folder to keep captures and truth log in")
    args = parser.parse_args()
    repeats = 1 if args.quick else args.repeats
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        truth = folder / "truth.jsonl"
        with AgentProcess(truth=truth) as agent:
            bench = Bench(agent.url, folder / "calls", args.seed)
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                for conditions, stalls in ((CONDITIONS, False), (WITH_STALLS, True)):
                    print(f"{len(conditions)} conditions x {repeats}", flush=True)
                    runner.run(bench.run(conditions, repeats, stalls=stalls))
        doc = document(_rows(bench.outcomes, truth), bench.outcomes, bench.n_stalls)
    text = markdown(doc)
    args.out.write_text(json.dumps(doc, indent=1, allow_nan=False) + "\n", "utf-8")
    args.out.with_suffix(".md").write_text(text, "utf-8")
    print(text)
    bars = [*doc["bars"], *(bar for found in doc["classes"].values() for bar in found["bars"])]
    return int(not all(bar["met"] for bar in bars))


if __name__ == "__main__":
    sys.exit(main())
