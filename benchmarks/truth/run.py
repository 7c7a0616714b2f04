"""The probe's times against the reference agent's truth, on the wall clock.

Run it from the project's root, on a machine that is idle otherwise::

    python benchmarks/truth/run.py --out benchmarks/truth/results.json

See README.md beside this file for what is measured and which bars it is held to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.truth.bench import (
    Bar,
    Bench,
    Condition,
    at_most,
    bars_table,
    by_condition,
    conditions_table,
    excluded,
    excluded_line,
    exit_code,
    host_line,
    host_of,
    metrics_table,
    read_options,
    row_json,
    run_bench,
    summary_json,
    write_results,
)
from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_probe.calibrate import LATENCIES, Row, Summary, compare, read_truth, summarize
from vakforge_probe.call import CallOutcome

SCENARIO = Path(__file__).with_name("scenario.yaml")
N_VALID = 600

CLEAN, JITTER, NOISE, STALLED = "clean", "jitter", "noise", "probe stalls"

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


def _rows(outcomes: Sequence[CallOutcome], truth: Path) -> list[Row]:
    known = read_truth(truth)
    return [
        row
        for outcome in outcomes
        for row in compare([build_timeline(Capture.open(outcome.capture))], known)
    ]


def bars_of(kind: str, metrics: dict[str, Summary], total: Summary) -> list[Bar]:
    """Return the bars of a class of conditions, each with what was reached."""
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


def document(bench: Bench, truth: Path) -> dict[str, Any]:
    """Return all results."""
    rows = _rows(bench.outcomes, truth)
    kinds = {c.name: c.kind for c in (*CONDITIONS, *WITH_STALLS)}
    classes: dict[str, Any] = {}
    for kind in (CLEAN, JITTER, NOISE, STALLED):
        mine = [row for row in rows if kinds[row.condition] == kind]
        if not mine:
            continue
        metrics = {m: summarize([r for r in mine if r.metric == m]) for m in LATENCIES}
        classes[kind] = {
            "all": summary_json(summarize(mine)),
            "metrics": {name: summary_json(found) for name, found in metrics.items()},
            "bars": [asdict(bar) for bar in bars_of(kind, metrics, summarize(mine))],
        }
    n_valid = len({(row.call, row.turn) for row in rows if row.counts})
    return {
        **host_of(bench),
        "turns": len({(row.call, row.turn) for row in rows}),
        "turns_valid": n_valid,
        "turns_excluded": excluded(rows, LATENCIES[0]),
        "stalls_of_the_probe": bench.n_stalls,
        "bars": [asdict(Bar("valid turns", f">= {N_VALID}", n_valid, n_valid >= N_VALID))],
        "classes": classes,
        "conditions": by_condition(rows, kinds),
        "outside": [row_json(row) for row in rows if row.counts and row.covered is False],
    }


def markdown(doc: dict[str, Any]) -> str:
    """Return the results for people."""
    lines = [
        "# Measured against the truth",
        "",
        host_line(doc),
        "",
        f"{doc['calls']} calls, {doc['concurrent_calls']} at a time in one process, the agent in "
        f"another; {doc['turns_valid']} of {doc['turns']} turns count. "
        f"{excluded_line(doc['turns_excluded'])} {doc['stalls_of_the_probe']} stalls of the probe.",
        "",
        *bars_table(doc),
        "",
        *metrics_table(doc),
        "",
        *conditions_table(doc),
    ]
    return "\n".join(lines) + "\n"


async def play(bench: Bench, repeats: int) -> None:
    """Make all calls."""
    await bench.run(_saying(CONDITIONS), repeats)
    await bench.run(_saying(WITH_STALLS), repeats, stalls=True)


def _saying(conditions: Sequence[Condition]) -> list[Condition]:
    return [replace(c, knobs={"say": "short_ok", **c.knobs}) for c in conditions]


def main() -> int:
    """Run, score, write and print; returns 1 when a bar is missed."""
    options = read_options(__doc__, repeats=8)
    doc = run_bench(options, SCENARIO, lambda bench: play(bench, options.repeats), document)
    write_results(options.out, doc, markdown(doc))
    return exit_code(doc)


if __name__ == "__main__":
    sys.exit(main())
