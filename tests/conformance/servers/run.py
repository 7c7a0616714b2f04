"""Probe servers that others wrote, with models whose delays are programmed.

Run it from the project's root, on a machine that is idle otherwise; it makes a venv of its own (600
MB) and takes about 6 minutes::

    python tests/conformance/servers/run.py --out benchmarks/conformance/servers.json

What a server adds by itself (voice activity, turns, buffers) is not known. But what its models take
is, so two settings of them must differ in the measured latency as they do in the models.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.truth.bench import Bar, bars_table, host_line, ms, write_results
from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.bargein import stop_heard
from vakforge_eval.metrics.interruption import interruption_response
from vakforge_eval.metrics.latency import ttfa_heard, ttft
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.values import Measured
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

HERE = Path(__file__).parent
METRICS = {
    "ttft": ttft,
    "ttfa_heard": ttfa_heard,
    "interruption_response": interruption_response,
    "stop_heard": stop_heard,
}
WITHIN_MS = 40.0
"""A voice activity detector judges by the 32 ms, and a bot sends every 20 to 40 ms."""


@dataclass(frozen=True)
class Server:
    """One server: what to install, how to start it, and at which path it speaks what."""

    name: str
    requirement: str
    script: str
    paths: dict[str, str]


@dataclass(frozen=True)
class Delays:
    """What the models take (s).

    A server transcribes while it waits whether the user goes on, so that what `stt` takes may not
    show; it is the same in all settings.
    """

    llm: float
    tts: float
    stt: float = 0.1

    @property
    def answer(self) -> float:
        """From the end of the turn, as the server judges it, to the first sample of speech."""
        return self.llm + self.tts


SERVERS = (
    Server(
        "pipecat-ai 1.14.0",
        "pipecat-ai[websocket,silero,openai,runner]==1.14.0",
        "pipecat_server.py",
        {"twilio": "/ws", "pipecat": "/ws-client"},
    ),
)
SETTINGS = (Delays(0.1, 0.1), Delays(0.25, 0.45))


def python_of(folder: Path, server: Server) -> Path:
    """Return the Python of a venv that has the server."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", server.requirement], check=True)
    return python


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(python: Path, script: str, port: int, *arguments: str) -> Iterator[None]:
    """Run a script until the end of the context; begin once it listens on its port."""
    process = subprocess.Popen(
        [python, HERE / script, str(port), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{script} does not come up")
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 2):
            return True
    except OSError:
        return False


def measured(url: str, server: Server, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return the values of each metric in valid turns, by protocol."""
    scenarios = load_suite(HERE / "interrupted.yaml").scenarios
    systems = [
        System(protocol, Target(url + path, server.name, protocol))
        for protocol, path in server.paths.items()
    ]
    out: dict[str, dict[str, list[float]]] = {name: {} for name in server.paths}
    with tempfile.TemporaryDirectory() as folder:
        plans = plan_campaign(systems, scenarios, folder=Path(folder), repeats=repeats)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            outcomes = runner.run(run_campaign(plans, concurrency=1))
        for outcome in outcomes:
            view = CallView(build_timeline(Capture.open(outcome.capture)))
            for turn in view.turn_views:
                if any(flag.invalidates for flag in turn.flags):
                    continue
                for name, metric in METRICS.items():
                    value = metric(turn)
                    if isinstance(value, Measured):
                        out[view.timeline.system].setdefault(name, []).append(value.value)
    return out


def probe(server: Server, folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Return what was measured with each setting of the models."""
    python = python_of(folder, server)
    found = []
    for delays in SETTINGS:
        models, bot = free_port(), free_port()
        times = [str(seconds) for seconds in (delays.stt, delays.llm, delays.tts)]
        with (
            started(python, "fake_models.py", models, *times),
            started(python, server.script, bot, f"http://127.0.0.1:{models}/v1"),
        ):
            print(f"{server.name}: answers take {delays.answer:g} s", flush=True)
            measured(f"ws://127.0.0.1:{bot}", server, 1)  # its first call is slow
            found.append(measured(f"ws://127.0.0.1:{bot}", server, repeats))
    return found


def document(results: dict[str, list[dict[str, dict[str, list[float]]]]]) -> dict[str, Any]:
    """Return all results, each held against what was programmed."""
    programmed = SETTINGS[1].answer - SETTINGS[0].answer
    rows, bars = [], []
    for server in SERVERS:
        fast, slow = results[server.name]
        for protocol in server.paths:
            for metric in METRICS:
                values = [found[protocol].get(metric, []) for found in (fast, slow)]
                a, b = (statistics.median(v) if v else None for v in values)
                rows.append({"server": server.name, "protocol": protocol, "metric": metric,
                             "n": [len(v) for v in values], "medians": [a, b]})  # fmt: skip
                if metric == "ttfa_heard":
                    off = None if a is None or b is None else (b - a - programmed) * 1000
                    is_met = off is not None and abs(off) <= WITHIN_MS
                    name = f"{server.name}, {protocol}: {metric}, difference off by (ms)"
                    bars.append(Bar(name, f"<= ±{WITHIN_MS:g}", off, is_met))
    return {
        "measured_on": time.strftime("%Y-%m-%d"),
        "machine": probe_host(),
        "scheduling": scheduling(),
        "versions": versions(),
        "programmed_s": [delays.answer for delays in SETTINGS],
        "bars": [vars(bar) for bar in bars],
        "classes": {},
        "rows": rows,
    }


def markdown(doc: dict[str, Any]) -> str:
    """Return the results for people."""
    fast, slow = doc["programmed_s"]
    lines = [
        "# Servers of others, with models of programmed delays",
        "",
        host_line(doc),
        "",
        f"The models take {fast:g} s for an answer, then {slow:g} s: a difference of "
        f"{(slow - fast) * 1000:g} ms. What the server itself adds is not known.",
        "",
        *bars_table(doc),
        "",
        f"| server | protocol | metric | n | models {fast:g} s (ms) | models {slow:g} s (ms) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in doc["rows"]:
        a, b = row["medians"]
        cells = [row["server"], row["protocol"], row["metric"],
                 "/".join(map(str, row["n"])), ms(a), ms(b)]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Install, start, probe, write and print; returns 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results.json; .md goes beside it")
    parser.add_argument("--repeats", type=int, default=8, help="calls of each kind")
    parser.add_argument("--venv", type=Path, help="venv to use or make [default: a temporary one]")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.venv or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "venv"
        results = {server.name: probe(server, folder, options.repeats) for server in SERVERS}
    doc = document(results)
    write_results(options.out, json.loads(json.dumps(doc)), markdown(doc))
    return int(not all(bar["met"] for bar in doc["bars"]))


if __name__ == "__main__":
    sys.exit(main())
