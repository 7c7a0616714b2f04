"""What is left of a capture when the probing process is killed, against what the agent knows.

Run it from the project's root::

    python benchmarks/truth/kill.py --out benchmarks/truth/kill.json

See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import queue
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlencode

import numpy as np

from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.recover import recover
from vakforge_eval.scoring.captures import score_captures
from vakforge_eval.timeline.records import Direction, Kind
from vakforge_probe.agent.process import AgentProcess
from vakforge_probe.calibrate import labelled
from vakforge_probe.campaign import Progress, System, plan_campaign, run_campaign
from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

SCENARIO = Path(__file__).with_name("scenario.yaml")
WORKERS = 2
LATEST_KILL_S = 8.0
"""After dialling; the call goes on for longer."""
PATIENCE_S = 30.0
AGENTS: tuple[dict[str, object], ...] = (
    {},
    {"pacing": "burst"},
    {"stream": "continuous", "noise_dbfs": -50},
)
USUAL_MS, ALWAYS_MS = 40.0, 100.0


@dataclass(frozen=True)
class Moment:
    """A kill that is to be looked into; `at` is when (ns), `capture` the folder that never was."""

    name: str
    call_id: str
    capture: Path
    after_s: float
    at: int


@dataclass(frozen=True)
class Killed:
    """One kill: what the capture lacks of what the agent had got or sent by then.

    Attributes
    ----------
    lost_user_ms, lost_agent_ms
        From the agent's first message in that direction that the capture lacks to the kill; 0 if
        it lacks none. None where the capture cannot be read.
    problem
        Why the capture cannot be read, or is not what was sent.
    """

    name: str
    after_s: float
    n_user: int
    n_agent: int
    lost_user_ms: float | None
    lost_agent_ms: float | None
    problem: str | None

    @property
    def lost_ms(self) -> float | None:
        """The worse direction's loss."""
        if self.lost_user_ms is None or self.lost_agent_ms is None:
            return None
        return max(self.lost_user_ms, self.lost_agent_ms)


def probe(url: str, folder: Path) -> None:
    """Make one call, as a process that is going to be killed; waits for a word first."""
    print("ready", flush=True)
    sys.stdin.readline()
    system = System(folder.name, Target(url=url, label="agent"))
    (plan,) = plan_campaign([system], load_suite(SCENARIO).scenarios, folder=folder)

    def tell(progress: Progress) -> None:
        if progress.running:
            print(json.dumps([plan.call_id, str(plan.folder)]), flush=True)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run_campaign([labelled(plan)], on_progress=tell))


class Victim:
    """A probing process, started ahead of its time so that its start disturbs no measurement."""

    def __init__(self, url: str, folder: Path) -> None:
        self._name = folder.name
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--probe", url, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._stdin = cast(IO[bytes], self._process.stdin)
        self._stdout = cast(IO[bytes], self._process.stdout)

    def kill_after(self, seconds: float) -> Moment:
        """Let it call, and kill it so long after it began."""
        try:
            self._line()
            self._stdin.write(b"go\n")
            self._stdin.flush()
            call_id, capture = json.loads(self._line())
            # Nothing more is printed: this waits for the moment, or for an early end.
            select.select([self._stdout], [], [], seconds)
            killed_at = time.monotonic_ns()
            self._process.send_signal(signal.SIGKILL)
            return Moment(self._name, call_id, Path(capture), seconds, killed_at)
        finally:
            self.end()

    def _line(self) -> str:
        if not select.select([self._stdout], [], [], PATIENCE_S)[0]:
            raise TimeoutError("the probing process says nothing")
        return self._stdout.readline().decode().strip()

    def end(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class Killer:
    """Kills `n_kills` probing processes at random moments of their calls."""

    def __init__(
        self, url: str, folder: Path, n_kills: int, seed: int, latest_s: float = LATEST_KILL_S
    ) -> None:
        self._url, self._folder, self._n_kills = url, folder, n_kills
        self._waiting: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        moments = random.Random(seed)
        for number in range(n_kills):
            self._waiting.put((number, moments.uniform(0, latest_s)))
        self._done: list[Moment] = []
        self._errors: list[BaseException] = []

    def run(self) -> list[Moment]:
        """Kill them all; return when which was killed."""
        n_workers = min(WORKERS, self._n_kills)
        threads = [threading.Thread(target=self._work) for _ in range(n_workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return sorted(self._done, key=lambda moment: moment.name)

    def _work(self) -> None:
        following = self._next()
        try:
            while following is not None:
                (victim, after_s), following = following, self._next()
                self._done.append(victim.kill_after(after_s))
                if len(self._done) % 10 == 0:
                    print(f"  {len(self._done)}/{self._n_kills} killed", flush=True)
        except BaseException as error:
            self._errors.append(error)
        finally:
            if following is not None:
                following[0].end()

    def _next(self) -> tuple[Victim, float] | None:
        with contextlib.suppress(queue.Empty):
            number, after_s = self._waiting.get_nowait()
            knobs = {"greeting": False, **AGENTS[number % len(AGENTS)]}
            url = f"{self._url}?{urlencode(knobs)}"
            return Victim(url, self._folder / f"kill-{number:03d}"), after_s
        return None


class Account:
    """What the agent's truth log says of each call, by the call's label."""

    def __init__(self, path: Path) -> None:
        labels: dict[str, str] = {}
        self.sent: dict[str, list[dict[str, Any]]] = {}
        self.received: dict[str, list[list[int]]] = {}
        for line in path.read_text("utf-8").splitlines():
            obj = json.loads(line)
            if obj["type"] == "connected":
                labels[obj["connection"]] = label = obj["behaviour"]["label"]
                self.sent[label], self.received[label] = [], []
            elif obj["type"] == "sent" and obj["kind"] == "audio":
                self.sent[labels[obj["connection"]]].append(obj)
            elif obj["type"] == "closed":
                self.received[labels[obj["connection"]]] = obj["latest_frames"]


def examine(moment: Moment, account: Account) -> Killed:
    """Recover one capture and compare it with the agent's account."""
    try:
        found = recover(moment.capture)
        capture = Capture.open(found.path)
        problems = [str(problem) for problem in capture.verify()]
        score_captures([found.path])
    except CaptureError as error:
        return Killed(moment.name, moment.after_s, 0, 0, None, None, str(error))
    user, agent = _messages(capture)
    if moment.call_id not in account.received and (user or agent):
        problems.append("the agent knows nothing of this call")
    sent = [m for m in account.sent.get(moment.call_id, []) if m["before"] <= moment.at]
    if [(m["response"], m["n"]) for m in sent[: len(agent)]] != agent[: len(sent)]:
        problems.append("the agent's audio is not what it sent, in order and without a hole")
    frame = capture.script.frame_samples
    got = account.received.get(moment.call_id, [])
    lost_user = [lo for stop, lo, _ in got if stop > user * frame and lo <= moment.at]
    lost_agent = [m["before"] for m in sent[len(agent) :]]
    return Killed(
        name=moment.name,
        after_s=round(moment.after_s, 3),
        n_user=user,
        n_agent=len(agent),
        lost_user_ms=_until(moment.at, lost_user),
        lost_agent_ms=_until(moment.at, lost_agent),
        problem="; ".join(problems) or None,
    )


def _until(at: int, lost: Sequence[int]) -> float:
    return max((at - min(lost)) / 1e6, 0.0) if lost else 0.0


def _messages(capture: Capture) -> tuple[int, list[tuple[str | None, int]]]:
    """Return how many user frames there are, and (response, samples) of each agent's message."""
    frames = capture.frames
    is_audio = (frames["direction"] == Direction.USER) & (frames["kind"] == Kind.AUDIO)
    agent = []
    for record in frames[frames["direction"] == Direction.AGENT]:
        message = json.loads(capture.payload(record))
        if message["type"] == "response.output_audio.delta":
            n_bytes = len(message["delta"]) * 3 // 4 - message["delta"].count("=")
            agent.append((message.get("response_id"), n_bytes // 2))
    return int(np.count_nonzero(is_audio)), agent


def document(killed: Sequence[Killed]) -> dict[str, Any]:
    """Return all results."""
    lost = sorted(k.lost_ms for k in killed if k.lost_ms is not None)
    n, usual = len(killed), -(-99 * len(killed) // 100)
    unreadable = sum(k.lost_ms is None or k.problem is not None for k in killed)
    few = sum(ms <= USUAL_MS for ms in lost)
    within = sum(ms <= ALWAYS_MS for ms in lost)
    return {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "machine": probe_host(),
        "scheduling": scheduling(),
        "versions": versions(),
        "kills": n,
        "calls_at_once": min(WORKERS, n),
        "lost_ms_p50": lost[len(lost) // 2] if lost else None,
        "lost_ms_max": lost[-1] if lost else None,
        "bars": [
            _bar("unreadable or with a hole", "0", unreadable, met=unreadable == 0),
            _bar(f"lost at most {USUAL_MS:g} ms", f">= {usual}", few, met=few >= usual),
            _bar(f"lost at most {ALWAYS_MS:g} ms", str(n), within, met=within == n),
        ],
        "each": [asdict(k) for k in killed],
    }


def _bar(name: str, limit: str, value: int, *, met: bool) -> dict[str, Any]:
    return {"name": name, "limit": limit, "value": value, "met": met}


def markdown(doc: dict[str, Any]) -> str:
    """Return the results for people."""
    return "\n".join(_lines(doc)) + "\n"


def _lines(doc: dict[str, Any]) -> Iterator[str]:
    machine = doc["machine"]
    yield "# Killed in the middle of a call"
    yield ""
    yield (
        f"{doc['kills']} x `kill -9` of a probing process at a random moment of its call, "
        f"{doc['calls_at_once']} calls at once; {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['system']}, Python {doc['versions']['python']}, "
        f"{doc['scheduling']['class']}; {doc['measured_on']}."
    )
    yield ""
    yield "| bar | limit | reached | |"
    yield "| --- | --- | --- | --- |"
    for bar in doc["bars"]:
        met = "met" if bar["met"] else "**missed**"
        yield f"| {bar['name']} | {bar['limit']} | {bar['value']} | {met} |"
    yield ""
    yield "Lost is the time from the first message that the agent had got or sent and the recovered"
    yield "capture lacks, to the kill; the worse direction counts."
    if doc["lost_ms_p50"] is not None:
        yield f"Median {doc['lost_ms_p50']:.1f} ms, at most {doc['lost_ms_max']:.1f} ms."
    for kill in doc["each"]:
        if kill["problem"]:
            yield f"- {kill['name']}: {kill['problem']}"


def main() -> int:
    """Kill, recover, compare, write and print; returns 1 when a bar is missed."""
    if sys.argv[1:2] == ["--probe"]:
        probe(sys.argv[2], Path(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="kill.json; .md goes beside it")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latest", type=float, default=LATEST_KILL_S, metavar="SECONDS")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = folder / "truth.jsonl"
        with AgentProcess(truth=truth) as agent:
            moments = Killer(agent.url, folder, args.kills, args.seed, args.latest).run()
        account = Account(truth)
        doc = document([examine(moment, account) for moment in moments])
    text = markdown(doc)
    args.out.write_text(json.dumps(doc, indent=1, allow_nan=False) + "\n", "utf-8")
    args.out.with_suffix(".md").write_text(text, "utf-8")
    print(text)
    return int(not all(bar["met"] for bar in doc["bars"]))


if __name__ == "__main__":
    sys.exit(main())
