"""One scenario over every protocol, against the reference agent with the same programmed delays.

Run it from the project's root, on a machine that is idle otherwise::

    python benchmarks/conformance/protocols.py --out benchmarks/conformance/protocols.json

See README.md beside this file.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.truth.bench import (
    Bar,
    Bench,
    Condition,
    bars_table,
    excluded,
    excluded_line,
    exit_code,
    host_line,
    host_of,
    ms,
    read_options,
    row_json,
    run_bench,
    summary_json,
    write_results,
)
from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.values import Measured
from vakforge_probe.agent.doors import RTC_PATHS
from vakforge_probe.calibrate import Row, compare, compare_duplex, read_truth, summarize
from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.protocol.registry import make_client

SUITE = Path(__file__).with_name("one.yaml")
METRICS = ("ttfa_audible", "ttfa_heard", "interruption_response", "stop_network", "stop_heard")
PROGRAMMED = {"ttfa_heard": 0.6, "interruption_response": 0.6, "stop_heard": 0.2}
PROTOCOLS = (
    "openai-realtime",
    "openai-realtime/beta",
    "openai-realtime/pcmu",
    "gemini-live",
    "moshi",
    "pipecat",
    *(name for name in shipped_profiles() if name != "minicpm-o"),
    *RTC_PATHS,
)
"""But for one whose user is heard by seconds, later than the agent is to answer."""
# Messages of 5 ms: what was sent when a stream without an order to drop it falls silent plays on.
KNOBS: dict[str, object] = {"reply_delay": 0.6, "stop_delay": 0.2, "say": "long_1",
                            "reply_length": 4.0, "chunk": "5ms"}  # fmt: skip
WEBRTC_KNOBS = KNOBS | {"chunk": "10ms"}
"""Of shorter frames aiortc cannot send 200 a second on the same core as all else."""
OPUS = ("moshi", "unmute")
"""Those whose coder looks ahead, by 2.5 ms in such short frames, which is heard."""
AGREE_MS = 5.0
AGREE_OPUS_MS = 10.0
AGREE_WEBRTC_MS = 25.0
CONCURRENCY = 3
"""Messages of 5 ms are four times as many as usual."""


async def play(bench: Bench, repeats: int) -> None:
    """Make the calls."""
    plain = [Condition(name, "any", KNOBS, name) for name in PROTOCOLS if name not in RTC_PATHS]
    await bench.run(plain, repeats, concurrency=CONCURRENCY)
    # One at a time: each decodes in a thread of its own.
    webrtc = [Condition(name, "any", WEBRTC_KNOBS, name) for name in RTC_PATHS]
    await bench.run(webrtc, repeats, concurrency=1)


def document(bench: Bench, truth: Path) -> dict[str, Any]:
    """Return all results."""
    known = read_truth(truth)
    timelines = [build_timeline(Capture.open(outcome.capture)) for outcome in bench.outcomes]
    rows = [
        row
        for row in (*compare(timelines, known), *compare_duplex(timelines, known).rows)
        if row.metric in METRICS
    ]
    used = [row for row in rows if row.counts and row.truth is not None]
    covered = summarize(rows).covered
    bars = [Bar("truth inside the interval", "all", covered.value, covered.value == 1.0)]
    websocket = [name for name in PROTOCOLS if name not in RTC_PATHS]
    plain = [name for name in websocket if name not in OPUS]
    bars += [_agreement(used, metric, plain, AGREE_MS) for metric in METRICS]
    bars += [_agreement(used, metric, websocket, AGREE_OPUS_MS) for metric in METRICS]
    bars += [_agreement(used, metric, PROTOCOLS, AGREE_WEBRTC_MS) for metric in METRICS]
    silent = [name for name in PROTOCOLS if not any(row.condition == name for row in used)]
    bars.append(Bar("protocols without a value", "0", float(len(silent)), not silent))
    return {
        **host_of(bench),
        "concurrent_calls": CONCURRENCY,
        "excluded": excluded(rows, "ttfa_heard"),
        "bars": [asdict(bar) for bar in bars],
        "classes": {},
        "protocols": {name: _of_protocol(name, rows) for name in PROTOCOLS},
        "outside": [row_json(row) for row in rows if row.counts and row.covered is False],
    }


def _values(rows: Sequence[Row], metric: str, protocol: str) -> list[float]:
    mine = [row for row in rows if (row.metric, row.condition) == (metric, protocol)]
    return [row.measured.value for row in mine if isinstance(row.measured, Measured)]


def _agreement(rows: Sequence[Row], metric: str, protocols: Sequence[str], limit_ms: float) -> Bar:
    """Return the bar that the medians of `protocols` lie close together."""
    found = [values for name in protocols if (values := _values(rows, metric, name))]
    medians = [statistics.median(values) for values in found]
    spread = (max(medians) - min(medians)) * 1000 if medians else None
    name = f"{metric}: medians of {len(medians)} protocols apart (ms)"
    return Bar(name, f"<= {limit_ms:g}", spread, spread is not None and spread <= limit_ms)


def _of_protocol(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    mine = [row for row in rows if row.condition == name]
    used = [row for row in mine if row.counts and row.truth is not None]
    medians = {
        metric: statistics.median(values) if (values := _values(used, metric, name)) else None
        for metric in METRICS
    }
    return {
        "experimental": make_client(name).is_experimental,
        "medians": medians,
        **summary_json(summarize(mine)),
    }


def markdown(doc: dict[str, Any]) -> str:
    """Return the results for people."""
    told = ", ".join(f"{name} {seconds * 1000:g} ms" for name, seconds in PROGRAMMED.items())
    lines = [
        "# One scenario over every protocol",
        "",
        host_line(doc),
        "",
        f"{doc['calls']} calls of `one.yaml` against the reference agent, "
        f"{doc['concurrent_calls']} at a time. Programmed: {told}. "
        f"{excluded_line(doc['excluded'])}",
        "",
        *bars_table(doc),
        "",
        "Medians, errors against the agent's truth and stated intervals in ms.",
        "",
        f"| protocol | {' | '.join(METRICS)} | error p50 | p99 | max | interval p50 | covered |",
        "| --- |" + " --- |" * (len(METRICS) + 5),
    ]
    for name, cell in doc["protocols"].items():
        shown = f"{name} (experimental)" if cell["experimental"] else name
        cells = [
            *(ms(cell["medians"][metric]) for metric in METRICS),
            *(ms(cell[key]) for key in ("error_p50", "error_p99", "error_max", "width_p50")),
            f"{cell['covered']['hits']}/{cell['covered']['total']}",
        ]
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run, score, write and print; returns 1 when a bar is missed."""
    options = read_options(__doc__, repeats=4)
    doc = run_bench(
        options, SUITE, lambda bench: play(bench, options.repeats), document, has_webrtc=True
    )
    write_results(options.out, doc, markdown(doc))
    return exit_code(doc)


if __name__ == "__main__":
    sys.exit(main())
