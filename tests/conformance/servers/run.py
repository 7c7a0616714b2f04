"""Probe servers that others wrote, with models whose delays are programmed.

Run it from the project's root, on a machine that is idle otherwise; it makes a venv for each server
(4 GB in all, kept in ``--venvs``), and its calls take half an hour::

    python tests/conformance/servers/run.py --out benchmarks/conformance/servers.json

What a server adds by itself (voice activity, turns, buffers) is not known. But what its models take
is, so two settings of them must differ in the measured latency as they do in the models. With
``--only NAME`` it probes one server, or one protocol, and leaves the other results as they are.
WebRTC and Moshi need the extra ``webrtc``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.truth.bench import Bar, bars_table, host_line, ms, write_results
from tests.conformance.servers.catalogue import SERVERS, Door, Server
from tests.conformance.venvs import python_of
from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.bargein import stop_heard
from vakforge_eval.metrics.interruption import interruption_response
from vakforge_eval.metrics.latency import ttfa_heard, ttft
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.events import Fault, Ready, TextDelta
from vakforge_eval.timeline.values import Measured
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.errors import ConfigError
from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.protocol.registry import make_client
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
"""Voice activity detectors judge by the 32 to 40 ms, and servers send every 20 to 40 ms."""
START_S = 180.0


@dataclass(frozen=True)
class Delays:
    """What the models take (s).

    A server may transcribe while it waits whether the user goes on, so that what `stt` takes need
    not show; it is the same in all settings.
    """

    llm: float
    tts: float
    stt: float = 0.1

    @property
    def answer(self) -> float:
        """From the end of the turn, as the server judges it, to the first sample of speech."""
        return self.llm + self.tts


SETTINGS = (Delays(0.1, 0.1), Delays(0.25, 0.45))


@dataclass
class Found:
    """What some calls gave: values by metric and turn, and what was heard of the server at all."""

    values: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    n_calls: int = 0
    n_ready: int = 0
    audio_s: float = 0.0
    n_texts: int = 0
    n_faults: int = 0
    failures: list[str] = field(default_factory=list)


class NotRun(Exception):
    """A server could not be run here."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(python: Path, script: str, port: int, *arguments: str) -> Iterator[None]:
    """Run a script until the end of the context; begin once it listens on its port."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [python, HERE / script, str(port), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            deadline = time.monotonic() + START_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    errors.seek(0)
                    said = errors.read().decode(errors="replace").split("\n")
                    raise NotRun(next((line for line in reversed(said) if line.strip()), script))
                time.sleep(0.5)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 2):
            return True
    except OSError:
        return False


def measured(port: int, server: Server, doors: list[Door], repeats: int) -> dict[str, Found]:
    """Return what calls through each door gave, by protocol."""
    scenarios = load_suite(HERE / "interrupted.yaml").scenarios
    systems = [
        System(
            door.protocol,
            Target(f"{door.scheme}://127.0.0.1:{port}{door.path}", server.package, door.protocol),
        )
        for door in doors
    ]
    out = {door.protocol: Found() for door in doors}
    with tempfile.TemporaryDirectory() as folder:
        plans = plan_campaign(systems, scenarios, folder=Path(folder), repeats=repeats)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            outcomes = runner.run(run_campaign(plans, concurrency=1))
        for outcome in outcomes:
            view = CallView(build_timeline(Capture.open(outcome.capture)))
            found = out[view.timeline.system]
            _note(found, view)
            if outcome.failure is not None:
                found.failures.append(str(outcome.failure))
    return out


def _note(found: Found, view: CallView) -> None:
    found.n_calls += 1
    found.n_ready += any(isinstance(event, Ready) for event in view.timeline.events)
    found.n_faults += sum(isinstance(event, Fault) for event in view.timeline.events)
    found.n_texts += sum(isinstance(event, TextDelta) for event in view.timeline.events)
    found.audio_s += sum(len(chunk.pcm) / chunk.rate_hz for chunk in view.timeline.audio)
    for number, turn in enumerate(view.turn_views, 1):
        if any(flag.invalidates for flag in turn.flags):
            continue
        for name, metric in METRICS.items():
            value = metric(turn)
            if isinstance(value, Measured):
                found.values.setdefault((name, number), []).append(value.value)


def probe(server: Server, doors: list[Door], venvs: Path, repeats: int) -> list[dict[str, Found]]:
    """Return what was found with each setting of the models.

    Raises
    ------
    NotRun
        If the server cannot be installed or started.
    """
    try:
        python = python_of(venvs / server.package, server.installs)
    except subprocess.CalledProcessError as error:
        raise NotRun(f"cannot be installed: {error}") from None
    found = []
    for delays in SETTINGS if server.has_models else SETTINGS[:1]:
        port, models, arguments = free_port(), free_port(), list[str]()
        with contextlib.ExitStack() as stack:
            if server.has_models:
                times = [str(seconds) for seconds in (delays.stt, delays.llm, delays.tts)]
                # The models need what any of the servers' venvs has.
                stack.enter_context(started(python, "fake_models.py", models, *times))
                arguments = [f"http://127.0.0.1:{models}/v1"]
            stack.enter_context(started(python, server.script, port, *arguments))
            print(f"{server.name}: answers take {delays.answer:g} s", flush=True)
            if server.has_models:
                measured(port, server, doors, 1)  # its first call is slow
            found.append(measured(port, server, doors, repeats))
    return found


def rows_of(server: Server, door: Door, found: list[Found], load: float) -> dict[str, Any]:
    """Return what was found through a door, and what it is held to."""
    row: dict[str, Any] = {
        "server": server.name,
        "protocol": door.protocol,
        "has_models": server.has_models,
        "load": load,
        "n_calls": [f.n_calls for f in found],
        "n_ready": [f.n_ready for f in found],
        "audio_s": [round(f.audio_s, 3) for f in found],
        "n_texts": [f.n_texts for f in found],
        "n_faults": [f.n_faults for f in found],
        "failures": sorted({text for f in found for text in f.failures}),
        "metrics": [],
    }
    if not server.has_models:
        return row
    for name, number in sorted(set(found[0].values) | set(found[1].values)):
        values = [f.values.get((name, number), []) for f in found]
        medians = [statistics.median(v) if v else None for v in values]
        row["metrics"].append(
            {"metric": name, "turn": number, "n": [len(v) for v in values], "medians": medians}
        )
    return row


def bars_of(row: dict[str, Any]) -> list[Bar]:
    """Return what the results through one door are held to."""
    if "not_run" in row:
        return []
    name = f"{row['server']}, {row['protocol']}"
    n_ready, n_calls, audio_s = sum(row["n_ready"]), sum(row["n_calls"]), row["audio_s"]
    n_faults = sum(row["n_faults"])
    bars = [
        Bar(f"{name}: calls begun", f"{n_calls}", n_ready, n_ready == n_calls),
        Bar(f"{name}: breaches of the protocol", "0", n_faults, n_faults == 0),
        Bar(f"{name}: audio heard (s)", "> 0", min(audio_s), min(audio_s) > 0),
    ]
    if not row["has_models"]:
        (n_texts,) = row["n_texts"]
        return [*bars, Bar(f"{name}: pieces of text", "> 0", n_texts, n_texts > 0)]
    programmed = SETTINGS[1].answer - SETTINGS[0].answer
    heard = {m["turn"]: m["medians"] for m in row["metrics"] if m["metric"] == "ttfa_heard"}
    # A later turn may have no value, where nothing tells an answer from the rest of the one before.
    compared = {
        turn: medians for turn, medians in heard.items() if turn == 1 or None not in medians
    }
    for turn, (fast, slow) in {1: (None, None), **compared}.items():
        off = None if None in (fast, slow) else (slow - fast - programmed) * 1000
        what = f"{name}: ttfa_heard, turn {turn}, difference off by (ms)"
        met = off is not None and abs(off) <= WITHIN_MS
        bars.append(Bar(what, f"<= ±{WITHIN_MS:g}", off, met))
    return bars


def document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all results, each held against what was programmed."""
    return {
        "measured_on": time.strftime("%Y-%m-%d"),
        "machine": probe_host(),
        "scheduling": scheduling(),
        "versions": versions(),
        "programmed_s": [delays.answer for delays in SETTINGS],
        "bars": [asdict(bar) for row in rows for bar in bars_of(row)],
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
        f"{(slow - fast) * 1000:g} ms. What the server itself adds is not known. Turn 1 is a "
        "question, turn 2 an interruption of its answer. The load is the machine's, over the "
        "minute before the end of the calls.",
        "",
        *bars_table(doc),
        "",
        f"| server | protocol | load | metric | turn | n | models {fast:g} s (ms) "
        f"| models {slow:g} s (ms) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in doc["rows"]:
        begin = [row["server"], row["protocol"]]
        if "not_run" in row:
            lines.append(f"| {' | '.join([*begin, '–', 'not run: ' + row['not_run']])} | | | | |")
            continue
        begin.append(f"{row['load']:.1f}")
        for found in row["metrics"]:
            cells = [found["metric"], str(found["turn"]), "/".join(map(str, found["n"]))]
            cells += [ms(median) for median in found["medians"]]
            lines.append(f"| {' | '.join(begin + cells)} |")
        if not row["has_models"]:
            calls = f"{row['n_calls'][0]} calls: {row['audio_s'][0]:.1f} s of audio"
            cells = [f"{calls}, {row['n_texts'][0]} pieces of text", "–", "–", "–", "–"]
            lines.append(f"| {' | '.join(begin + cells)} |")
    lines += [
        f"\n{row['server']}, {row['protocol']}: {text}."
        for row in doc["rows"]
        for text in row.get("failures", ())
    ]
    return "\n".join(lines) + "\n"


def rows_for(server: Server, doors: list[Door], venvs: Path, repeats: int) -> list[dict[str, Any]]:
    """Return a row for each door."""
    rows: dict[str, dict[str, Any]] = {}
    known: list[Door] = []
    for door in doors:
        try:
            make_client(door.protocol)
            known.append(door)
        except ConfigError as error:
            rows[door.protocol] = {"not_run": str(error)}
    try:
        found = probe(server, known, venvs, repeats) if known else []
        load = os.getloadavg()[0]
        rows |= {
            door.protocol: rows_of(server, door, [f[door.protocol] for f in found], load)
            for door in known
        }
    except NotRun as error:
        rows |= {door.protocol: {"not_run": str(error)} for door in known}
    return [
        {"server": server.name, "protocol": door.protocol, **rows[door.protocol]} for door in doors
    ]


def _names(server: Server, door: Door) -> set[str]:
    return {server.package, door.protocol, f"{server.package}/{door.protocol}"}


def main() -> int:
    """Install, start, probe, write and print; returns 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results.json; .md goes beside it")
    parser.add_argument("--repeats", type=int, default=8, help="calls of each kind")
    parser.add_argument("--venvs", type=Path, help="folder to keep the venvs in [default: none]")
    parser.add_argument(
        "--only", action="append", help="server, protocol or server/protocol; may be given again"
    )
    options = parser.parse_args()
    kept = json.loads(options.out.read_text())["rows"] if options.only else []
    rows = {(row["server"], row["protocol"]): row for row in kept}
    with tempfile.TemporaryDirectory() as folder:
        for server in SERVERS:
            wanted = options.only or [server.package]
            doors = [door for door in server.doors if _names(server, door) & set(wanted)]
            for row in rows_for(server, doors, options.venvs or Path(folder), options.repeats):
                rows[row["server"], row["protocol"]] = row
    order = [(server.name, door.protocol) for server in SERVERS for door in server.doors]
    doc = document([rows[key] for key in order if key in rows])
    write_results(options.out, json.loads(json.dumps(doc)), markdown(doc))
    return int(not all(bar["met"] for bar in doc["bars"]))


if __name__ == "__main__":
    sys.exit(main())
