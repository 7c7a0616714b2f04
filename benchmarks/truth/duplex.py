"""Interruptions, disturbances and overlap against the reference agent's truth, on the wall clock.

Run it from the project's root, on a machine that is idle otherwise::

    python benchmarks/truth/duplex.py --out benchmarks/truth/duplex.json

See README.md beside this file for what is measured and which bars it is held to.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
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
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Censored, Flag, Measured
from vakforge_probe.calibrate import (
    Duplex,
    Row,
    Summary,
    Verdict,
    compare,
    compare_duplex,
    read_truth,
    summarize,
)

SUITE = Path(__file__).with_name("duplex.yaml")
RIVALS = Path(__file__).with_name("rivals.json")
N_VALID = 600
STOPS = ("stop_reaction", "stop_network", "stop_heard")
METRICS = (*STOPS, "interruption_response", "stutter_gap", "overlap_rate")

CLEAN, JITTER, NOISE, ECHO = "clean", "jitter", "noise", "echo"
NEVER, ENDS, NODS = "never stops", "ends by itself", "backchannels"
SHAMS, NOISY_SHAMS, AS_RIVALS = "shams", "shams in noise", "as rivals"
SCENARIOS = {
    **dict.fromkeys((CLEAN, JITTER, NOISE, ECHO, AS_RIVALS), "interrupts"),
    NEVER: "insists",
    ENDS: "cuts-in-late",
    NODS: "nods",
    **dict.fromkeys((SHAMS, NOISY_SHAMS), "disturbs"),
}
LIMITS_MS = {JITTER: 10, NOISE: 20, NOISY_SHAMS: 20}

Knobs = dict[str, object]
LIVE: Knobs = {"stream": "continuous", "playout": "live"}
HUM: Knobs = {"hum_dbfs": -24}
SILENT: Knobs = {"interrupt_response": False}
HOLDS: Knobs = {"backchannel_words": 2, "reply_length": 8.0}
PAUSES: Knobs = {"stop_delay": "never", "segments": 12}
LONG: Knobs = {"reply_length": 20.0}


def live(name: str, kind: str, knobs: Knobs) -> Condition:
    """Return a condition with a continuous stream."""
    return Condition(name, kind, {**LIVE, **knobs}, "openai-realtime/continuous")


CONDITIONS = (
    *(
        Condition(
            f"stop-{round(stop * 1000)}ms-{pacing}{'-no-flush' if silent else ''}", CLEAN,
            {"stop_delay": stop, "pacing": pacing,
             **({**SILENT, "reply_length": 2.5} if silent else {})},
        )
        for stop in (0, 0.2, 0.8) for pacing in ("paced", "x10", "burst")
        for silent in (False, True)
    ),
    live("continuous", CLEAN, {}),
    live("continuous+5000ppm", CLEAN, {"skew_ppm": 5000}),
    live("continuous-stall-2s", CLEAN, {"stall": 2.0, "stall_at": 0.3}),
    Condition("jitter-paced", JITTER, {"jitter_ms": 60}),
    Condition("jitter-burst", JITTER, {"jitter_ms": 60, "pacing": "burst"}),
    Condition("jitter-no-flush", JITTER, {"jitter_ms": 60, **SILENT, "reply_length": 2.5}),
    live("jitter-continuous", JITTER, {"jitter_ms": 60}),
    live("noise-50dBFS", NOISE, {"noise_dbfs": -50, **HUM}),
    live("noise-40dBFS", NOISE, {"noise_dbfs": -40, **HUM}),
    live("noise-40dBFS-800ms", NOISE, {"noise_dbfs": -40, "stop_delay": 0.8, **HUM}),
    Condition("echo-turns", ECHO, {"echo_db": -20}),
    live("echo-continuous", ECHO, {"echo_db": -20}),
    Condition("never", NEVER, {"stop_delay": "never", **LONG}),
    Condition("half-duplex", NEVER, {"half_duplex": True, **LONG}),
    Condition("pauses-300ms", NEVER, {**PAUSES, "segment_gap": 0.3}),
    Condition("pauses-750ms", NEVER, {**PAUSES, "segment_gap": 0.75}),
    Condition("pauses-1200ms", NEVER, {**PAUSES, "segment_gap": 1.2}),
    live("pauses-1200ms-noise", NEVER, {**PAUSES, "segment_gap": 1.2, "noise_dbfs": -50}),
    Condition("ends-at-once", ENDS, {"stop_delay": 0.8, "reply_length": 1.65}),
    Condition("ends-first", ENDS, {"stop_delay": 0.8, "reply_length": 2.1}),
    Condition("ends-first-burst", ENDS,
              {"stop_delay": 0.8, "reply_length": 2.1, "pacing": "burst"}),
    Condition("ends-late", ENDS, {"stop_delay": "never", "reply_length": 2.8}),
    Condition("holds", NODS, HOLDS),
    Condition("stutters-500ms", NODS,
              {**HOLDS, "on_backchannel": "pause", "resume_delay": 0.5}),
    Condition("stutters-2s", NODS, {**HOLDS, "on_backchannel": "pause", "resume_delay": 2.0}),
    Condition("stops", NODS, {**HOLDS, "on_backchannel": "stop"}),
    Condition("stops-burst", NODS, {**HOLDS, "on_backchannel": "stop", "pacing": "burst"}),
    Condition("restarts", NODS, {**HOLDS, "on_backchannel": "interrupt"}),
    Condition("held-clean", SHAMS, HOLDS),
    Condition("held-burst", SHAMS, {**HOLDS, "pacing": "burst"}),
    live("held-continuous", SHAMS, HOLDS),
    live("held-50dBFS", NOISY_SHAMS, {**HOLDS, "noise_dbfs": -50, **HUM}),
    live("held-40dBFS", NOISY_SHAMS, {**HOLDS, "noise_dbfs": -40, **HUM}),
)  # fmt: skip
SIDE_BY_SIDE = (
    Condition("plain", AS_RIVALS),
    Condition("burst, with clear", AS_RIVALS, {"pacing": "burst"}),
    Condition("burst, no clear", AS_RIVALS, {"pacing": "burst", **SILENT}),
    Condition("150 ms of silence first", AS_RIVALS, {"leading_silence": 0.15}),
    live("noise at -50 dBFS", AS_RIVALS, {"noise_dbfs": -50}),
    live("noise at -40 dBFS", AS_RIVALS, {"noise_dbfs": -40}),
    live("echo at -20 dB", AS_RIVALS, {"echo_db": -20}),
    Condition("jitter of 0 to 60 ms", AS_RIVALS, {"jitter_ms": 60}),
    Condition("clock 5000 ppm fast", AS_RIVALS, {"skew_ppm": 5000}),
    Condition("reply at -35 dBFS", AS_RIVALS, {"level_dbfs": -35}),
    Condition("never stops", AS_RIVALS, {"stop_delay": "never"}),
)
"""Named as in the other tools' figures."""
KINDS = {c.name: c.kind for c in (*CONDITIONS, *SIDE_BY_SIDE)}


async def play(bench: Bench, repeats: int) -> None:
    """Make all calls, one scenario after the other."""
    every = [*CONDITIONS, *(replace(c, knobs={"reply_length": 3.0, **c.knobs})
                            for c in SIDE_BY_SIDE)]  # fmt: skip
    for scenario in dict.fromkeys(SCENARIOS.values()):
        mine = [c for c in every if SCENARIOS[c.kind] == scenario]
        spoken = [replace(c, knobs={"say": "long_1", **c.knobs}) for c in mine]
        await bench.run(spoken, repeats, scenario=scenario)


def judged(bench: Bench, truth: Path) -> tuple[Duplex, list[Row]]:
    """Return all that was compared, and the latencies."""
    known = read_truth(truth)
    rows: list[Row] = []
    verdicts: list[Verdict] = []
    latencies: list[Row] = []
    for outcome in bench.outcomes:
        timeline = build_timeline(Capture.open(outcome.capture))
        found = compare_duplex([timeline], known)
        rows += found.rows
        verdicts += found.verdicts
        latencies += compare([timeline], known)
    return Duplex(rows, verdicts), latencies


def reported_stops(rows: Sequence[Row]) -> int:
    """Return how many stops were reported where the agent was not stopped."""
    return sum(
        row.metric == "stop_heard"
        and row.counts
        and row.truth is None
        and isinstance(row.measured, Measured)
        for row in rows
    )


def is_flagged(row: Row) -> bool:
    """Whether the probe itself says that the caller's echo may be at the edge."""
    return Flag.ECHO in row.flags


def unnoticed(rows: Sequence[Row], limit: float) -> int:
    """Return how many times are not known to a limit (s) without a word of an echo."""
    mine = [row for row in rows if row.counts and row.truth is not None and not is_flagged(row)]
    return sum(row.error is None or abs(row.error) > limit for row in mine)


def bars_of(kind: str, rows: Sequence[Row], verdicts: Sequence[Verdict]) -> list[Bar]:
    """Return the bars of a class of conditions, each with what was reached."""
    each = list(_by_metric(rows).values())
    covered = summarize(rows).covered.value
    bars = []
    if covered is not None:
        bars.append(Bar("truth inside the interval", "all", covered, covered == 1.0))
    if kind == CLEAN:
        bars += [
            at_most("median error", 1, (s.error_p50 for s in each)),
            at_most("p99 error", 3, (s.error_p99 for s in each)),
        ]
    elif kind == ECHO:
        bars.append(_none("not known to 20 ms and not flagged", unnoticed(rows, 0.020)))
    elif kind in LIMITS_MS:
        bars.append(at_most("largest error", LIMITS_MS[kind], (s.error_max for s in each)))
    if kind in (CLEAN, JITTER, NOISE):
        shares = [share for s in each if (share := s.measured.value) is not None]
        least = min(shares, default=None)
        bars.append(Bar("measured", ">= 95%", least, least is not None and least >= 0.95))
    bars.append(_none("stops reported of none", reported_stops(rows)))
    if kind in (NEVER, ENDS, NODS):
        right = [verdict.is_right for verdict in verdicts if verdict.counts]
        share = sum(right) / len(right) if right else None
        bars.append(Bar("told right", "all", share, share == 1.0))
    if kind in (SHAMS, NOISY_SHAMS):
        limit = 0.01 if kind == SHAMS else 0.03
        shams = [v.is_alarm for v in verdicts if v.counts and v.kind is StepKind.SHAM]
        rate = sum(shams) / len(shams) if shams else None
        is_met = rate is not None and rate <= limit
        bars.append(Bar("false alarms on shams", f"<= {limit:.0%}", rate, is_met))
    return bars


def _none(name: str, n: int) -> Bar:
    return Bar(name, "0", float(n), n == 0)


def _by_metric(rows: Sequence[Row]) -> dict[str, Summary]:
    found = {metric: [row for row in rows if row.metric == metric] for metric in METRICS}
    return {metric: summarize(mine) for metric, mine in found.items() if mine}


def document(bench: Bench, truth: Path) -> dict[str, Any]:
    """Return all results."""
    found, latencies = judged(bench, truth)
    classes: dict[str, Any] = {}
    for kind in dict.fromkeys(KINDS.values()):
        rows = [row for row in found.rows if KINDS[row.condition] == kind]
        verdicts = [v for v in found.verdicts if KINDS[v.condition] == kind]
        if kind != AS_RIVALS and rows:
            classes[kind] = {
                "all": summary_json(summarize(rows)),
                "metrics": {name: summary_json(s) for name, s in _by_metric(rows).items()},
                "bars": [asdict(bar) for bar in bars_of(kind, rows, verdicts)],
            }
    n_valid = sum(verdict.counts for verdict in found.verdicts)
    bars = [
        Bar("valid events", f">= {N_VALID}", n_valid, n_valid >= N_VALID),
        _none("false alarms", sum(v.is_alarm for v in found.verdicts if v.counts)),
    ]
    return {
        **host_of(bench),
        "events": len(found.verdicts),
        "events_valid": n_valid,
        "events_void": sum(verdict.is_void for verdict in found.verdicts),
        "interruptions_excluded": excluded(found.rows, "stop_heard"),
        "bars": [asdict(bar) for bar in bars],
        "classes": classes,
        "conditions": by_condition(found.rows, KINDS),
        "told": told(found.verdicts),
        "side_by_side": side_by_side(found.rows, latencies),
        "outside": [row_json(row) for row in found.rows if row.counts and row.covered is False],
    }


def told(verdicts: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    """Return how often what happened was called what, by condition: ``{"held -> held": 12}``."""
    out: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        if verdict.counts:
            name = f"{verdict.kind}: {verdict.truth} -> {verdict.found}"
            out.setdefault(verdict.condition, Counter())[name] += 1
    return {condition: dict(sorted(counts.items())) for condition, counts in out.items()}


def side_by_side(rows: Sequence[Row], latencies: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return our errors (s) in the conditions of the other tools' figures."""
    wanted = {"ttfa": latencies, "ttfa_heard": latencies, "stop_heard": rows}
    out: dict[str, dict[str, Any]] = {}
    for condition in SIDE_BY_SIDE:
        cell = out[condition.name] = {}
        for metric, known in wanted.items():
            mine = [
                row
                for row in known
                if (row.condition, row.metric) == (condition.name, metric) and row.counts
            ]
            errors = [row.error for row in mine if row.error is not None]
            cell[metric] = {
                "n": len(mine),
                "errors": len(errors),
                "median": statistics.median(errors) if errors else None,
                "min": min(errors, default=None),
                "max": max(errors, default=None),
                "censored": sum(isinstance(row.measured, Censored) for row in mine),
                "flagged": sum(map(is_flagged, mine)),
            }
        cell["stops_reported_of_none"] = reported_stops(
            [row for row in rows if row.condition == condition.name]
        )
    return out


def markdown(doc: dict[str, Any]) -> str:
    """Return the results for people."""
    lines = [
        "# Interruptions, disturbances and overlap against the truth",
        "",
        host_line(doc),
        "",
        f"{doc['calls']} calls, {doc['concurrent_calls']} at a time in one process, the agent in "
        f"another; {doc['events_valid']} of {doc['events']} events count, {doc['events_void']} are "
        f"void since the probe heard what they hung on elsewhere afterwards. Interruptions: "
        f"{excluded_line(doc['interruptions_excluded'])}",
        "",
        *bars_table(doc),
        "",
        *metrics_table(doc),
        "",
        *_told_table(doc),
        "",
        *_rivals_table(doc),
        "",
        *conditions_table(doc),
    ]
    return "\n".join(lines) + "\n"


def _told_table(doc: dict[str, Any]) -> list[str]:
    lines = [
        "## What was called what",
        "",
        "| condition | true -> found | |",
        "| --- | --- | --- |",
    ]
    for condition, counts in doc["told"].items():
        for name, n in counts.items():
            _, _, pair = name.partition(": ")
            truth, _, found = pair.partition(" -> ")
            lines.append(f"| {condition} | {name}: {n} | {'' if truth == found else '**wrong**'} |")
    return lines


def _rivals_table(doc: dict[str, Any]) -> list[str]:
    rivals = json.loads(RIVALS.read_text("utf-8"))
    heads = [f"{tool}: {what}" for tool, what in rivals["tools"].items()]
    lines = [
        "## Beside other tools",
        "",
        f"{rivals['about']} Ours: the same settings on the wall clock in the run above, "
        f"median (least..most).",
        "",
        f"| condition | ours: ttfa / latency / stop | {' | '.join(heads)} |",
        "| --- | --- |" + " --- |" * len(heads),
    ]
    for name, theirs in rivals["rows"].items():
        cells = [cell or "–" for cell in theirs]
        lines.append(f"| {name} | {_ours(doc['side_by_side'][name])} | {' | '.join(cells)} |")
    return lines


def _ours(cell: dict[str, Any]) -> str:
    return " / ".join(_spread(cell[name]) for name in ("ttfa", "ttfa_heard", "stop_heard"))


def _spread(found: dict[str, Any]) -> str:
    if found["errors"]:
        least, most = (f"{found[name] * 1000:+.1f}" for name in ("min", "max"))
        text = f"{found['median'] * 1000:+.1f} ({least}..{most})"
    else:
        text = f"none of {found['n']}, {found['censored']} censored"
    return f"{text}, {found['flagged']} flagged" if found["flagged"] else text


def main() -> int:
    """Run, score, write and print; returns 1 when a bar is missed."""
    options = read_options(__doc__, repeats=4)
    doc = run_bench(options, SUITE, lambda bench: play(bench, options.repeats), document)
    write_results(options.out, doc, markdown(doc))
    return exit_code(doc)


if __name__ == "__main__":
    sys.exit(main())
