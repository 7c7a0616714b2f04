"""Pacing of 1, 10 and 50 calls in one process against an echo server in another.

Run it from the project's root::

    python benchmarks/performance/pacing.py

Each number of calls is paced twice, one after the other: by the probe's pacer on its own loop, and
by absolute asyncio sleeps on the stock loop, a task a call. Lateness is the start of the send call
minus the frame's deadline. It also measures what the loop costs while it idles with a stamped
socket. Results go to ``pacing.json`` and ``pacing.md`` beside this file; a bar that is missed is
printed as missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from vakforge_probe.net.alarm import Alarm
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.pacer import Pacer
from vakforge_probe.net.stamps import stamped_listener
from vakforge_probe.net.websocket import WebSocketShell

T = TypeVar("T")

FRAME_NS = 20_000_000
FRAME_BYTES = 960
CALLS = (1, 10, 50)

MAX_P50_MS = 0.15
MIN_RATIO = 5.0
MAX_DRIFT_MS_PER_S = 1.0
MAX_IDLE_CPU_PERCENT = 3.0


@dataclass(frozen=True)
class Row:
    """How late frames left, in ms; drift is the slope of lateness over time."""

    calls: int
    method: str
    frames: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    drift_ms_per_s: float
    reanchors: int
    cpu_percent: float


@dataclass(frozen=True)
class Bar:
    """A value and what it should be."""

    name: str
    value: float
    limit: str
    met: bool


def serve_echoes(ready: Connection) -> None:
    """Echo until killed, in a process of its own."""

    async def echo(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                await connection.send(message)

    async def main() -> None:
        listener = stamped_listener("127.0.0.1", 0)
        async with serve(echo, sock=listener, compression=None, ping_interval=None):
            ready.send(listener.getsockname()[1])
            await asyncio.get_running_loop().create_future()

    asyncio.run(main())


async def open_calls(url: str, n_calls: int) -> list[WebSocketShell]:
    shells = [
        WebSocketShell(
            url,
            on_message=lambda data, stamp: None,
            on_closed=lambda code, reason: None,
            on_fault=lambda error: print(f"  {error}"),
        )
        for _ in range(n_calls)
    ]
    for shell in shells:
        await shell.open()
    return shells


Log = list[tuple[int, int]]
"""Deadline and lateness (ns) of each frame."""


async def with_pacer(shells: list[WebSocketShell], first: int, end: int) -> tuple[Log, int]:
    alarm = Alarm.of(asyncio.get_running_loop())
    log: Log = []
    reanchors: list[int] = []
    payload = bytes(FRAME_BYTES)

    def sender(shell: WebSocketShell) -> Callable[[int, int], None]:
        def on_frame(frame: int, due: int) -> None:
            log.append((due, shell.send(payload).before - due))

        return on_frame

    pacers = [
        Pacer(
            alarm,
            time.monotonic_ns,
            FRAME_NS,
            first + n * FRAME_NS // len(shells),
            sender(shell),
            lambda frame, shift, late: reanchors.append(late),
        )
        for n, shell in enumerate(shells)
    ]
    await alarm.sleep_until(end)
    for pacer in pacers:
        pacer.stop()
    return log, len(reanchors)


async def with_sleeps(shells: list[WebSocketShell], first: int, end: int) -> tuple[Log, int]:
    log: Log = []
    payload = bytes(FRAME_BYTES)

    async def send(shell: WebSocketShell, due: int) -> None:
        while due < end:
            await asyncio.sleep((due - time.monotonic_ns()) / 1e9)
            log.append((due, shell.send(payload).before - due))
            due += FRAME_NS

    async with asyncio.TaskGroup() as group:
        for n, shell in enumerate(shells):
            group.create_task(send(shell, first + n * FRAME_NS // len(shells)))
    return log, 0


async def measure(url: str, n_calls: int, method: str, seconds: float) -> Row:
    shells = await open_calls(url, n_calls)
    first = time.monotonic_ns() + 50_000_000
    end = first + int(seconds * 1e9)
    cpu, wall = time.process_time(), time.monotonic()
    pace = with_pacer if method == "pacer" else with_sleeps
    log, n_reanchors = await pace(shells, first, end)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    for shell in shells:
        await shell.close()
    late = sorted(lateness for _, lateness in log)
    slope = statistics.linear_regression([due / 1e9 for due, _ in log], [x / 1e6 for _, x in log])
    return Row(
        calls=n_calls,
        method=method,
        frames=len(late),
        p50_ms=nearest_rank(late, 0.50),
        p99_ms=nearest_rank(late, 0.99),
        max_ms=late[-1] / 1e6,
        drift_ms_per_s=slope.slope,
        reanchors=n_reanchors,
        cpu_percent=100 * cpu / wall,
    )


def nearest_rank(ordered_ns: list[int], share: float) -> float:
    return ordered_ns[max(0, -(-int(share * 100) * len(ordered_ns) // 100) - 1)] / 1e6


async def idle_cpu_percent(url: str, seconds: float) -> float:
    """CPU of this process while one call is open and nothing happens."""
    (shell,) = await open_calls(url, 1)
    cpu, wall = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    await shell.close()
    return 100 * cpu / wall


def on(factory: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def run_all(url: str, seconds: float) -> tuple[list[Row], float]:
    rows = []
    for n_calls in CALLS:
        for method, factory in (
            ("pacer", new_event_loop),
            ("asyncio sleep", asyncio.new_event_loop),
        ):
            rows.append(on(factory, measure(url, n_calls, method, seconds)))
            print(line_of(rows[-1]), flush=True)
    return rows, on(new_event_loop, idle_cpu_percent(url, seconds))


def bars_of(rows: list[Row], idle_percent: float) -> list[Bar]:
    bars = []
    for n_calls in CALLS:
        ours, theirs = (
            next(row for row in rows if row.calls == n_calls and row.method == method)
            for method in ("pacer", "asyncio sleep")
        )
        ratio = theirs.p50_ms / ours.p50_ms
        drift = abs(ours.drift_ms_per_s)
        name = f"{n_calls} calls"
        bars += [
            Bar(f"{name}: p50 (ms)", ours.p50_ms, f"<= {MAX_P50_MS}", ours.p50_ms <= MAX_P50_MS),
            Bar(f"{name}: p50 against sleep (times)", ratio, f">= {MIN_RATIO}", ratio >= MIN_RATIO),
            Bar(
                f"{name}: drift (ms/s)",
                drift,
                f"<= {MAX_DRIFT_MS_PER_S}",
                drift <= MAX_DRIFT_MS_PER_S,
            ),
        ]
    limit = f"< {MAX_IDLE_CPU_PERCENT}"
    return [*bars, Bar("idle CPU (%)", idle_percent, limit, idle_percent < MAX_IDLE_CPU_PERCENT)]


def line_of(row: Row) -> str:
    return (
        f"| {row.calls} | {row.method} | {row.frames} | {row.p50_ms:.3f} | {row.p99_ms:.3f} "
        f"| {row.max_ms:.2f} | {row.drift_ms_per_s:+.3f} | {row.reanchors} "
        f"| {row.cpu_percent:.0f} |"
    )


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "scheduling": "SCHED_OTHER" if os.sched_getscheduler(0) == os.SCHED_OTHER else "other",
    }


def cpu_model() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.machine()


def markdown(facts: dict[str, Any], rows: list[Row], bars: list[Bar], seconds: float) -> str:
    lines = [
        "# Pacing",
        "",
        f"`python benchmarks/performance/pacing.py`: frames of {FRAME_BYTES} bytes every 20 ms, "
        f"{seconds:g} s a row, against an echo server in another process on the same machine.",
        "Lateness is the start of the send call minus the deadline.",
        "",
        *(f"- {name.replace('_', ' ')}: {value}" for name, value in facts.items()),
        "",
        "| calls | method | frames | p50 ms | p99 ms | max ms | drift ms/s | re-anchored | CPU % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(line_of(row) for row in rows),
        "",
        "| bar | value | limit | |",
        "| --- | --- | --- | --- |",
        *(f"| {b.name} | {b.value:.3f} | {b.limit} | {verdict(b)} |" for b in bars),
    ]
    return "\n".join(lines) + "\n"


def verdict(bar: Bar) -> str:
    return "met" if bar.met else "**missed**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of a row (5)")
    seconds = parser.parse_args().seconds
    facts = machine()
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    server = spawn.Process(target=serve_echoes, args=(theirs,), daemon=True)
    server.start()
    try:
        url = f"ws://127.0.0.1:{ours.recv()}/"
        rows, idle_percent = run_all(url, seconds)
    finally:
        server.terminate()
        server.join()
    bars = bars_of(rows, idle_percent)
    for bar in bars:
        print(f"{verdict(bar).strip('*'):6} {bar.name}: {bar.value:.3f} (bar {bar.limit})")
    folder = Path(__file__).parent
    result = {
        "machine": facts,
        "seconds": seconds,
        "rows": [asdict(row) for row in rows],
        "bars": [asdict(bar) for bar in bars],
    }
    (folder / "pacing.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    (folder / "pacing.md").write_text(markdown(facts, rows, bars, seconds))


if __name__ == "__main__":
    main()
