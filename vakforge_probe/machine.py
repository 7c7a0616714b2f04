"""A short examination of the machine that the probe runs on."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata, util
from typing import Any, Literal

from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.limits import Limits
from vakforge_probe.net.alarm import Alarm
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.stamps import ClockMap, StampedSocket
from vakforge_probe.text import clean

__all__ = ["Finding", "examine"]

_TICK_NS = 2_000_000
_TICKS = 300
_LATE_NS = 10_000_000
"""A frame later than this spoils its turn, so a machine whose p99 is worse cannot measure."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination; `facts` are its numbers."""

    name: str
    verdict: Literal["ok", "note", "bad"]
    text: str
    facts: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return asdict(self)


def examine() -> list[Finding]:
    """Return all findings; takes about a second and touches loopback only."""
    checks: tuple[Callable[[], Finding], ...] = (
        _machine,
        _clock,
        _pacing,
        _stamps,
        _disk,
        _device,
    )
    return [check() for check in checks]


def _machine() -> Finding:
    host, granted = probe_host(), scheduling()
    text = (
        f"{host['cpu']}, {host['cores']} cores, {host['system']}; scheduling {granted['class']}; "
        + ", ".join(f"{name} {version}" for name, version in versions().items())
    )
    return Finding("machine", "ok", text, {"host": host, "scheduling": granted, **versions()})


def _clock() -> Finding:
    info = time.get_clock_info("monotonic")
    clock = ClockMap()
    facts = {"resolution_ns": round(info.resolution * 1e9), "spread_ns": clock.spread_ns}
    text = (
        f"monotonic, resolution {facts['resolution_ns']} ns; "
        f"kernel stamps convert to it within ±{clock.spread_ns / 1000:.1f} µs"
    )
    return Finding("clock", "ok" if info.monotonic else "bad", text, facts)


def _pacing() -> Finding:
    late = asyncio.run(_tick(), loop_factory=new_event_loop) if _HAS_LOOP_FACTORY else _run_ticks()
    late.sort()
    p50, p99, worst = late[len(late) // 2], late[len(late) * 99 // 100], late[-1]
    facts = {"p50_ns": p50, "p99_ns": p99, "max_ns": worst, "n": len(late)}
    text = f"alarm late by p50 {p50 / 1e6:.3f} ms, p99 {p99 / 1e6:.2f} ms, max {worst / 1e6:.1f} ms"
    if p99 > _LATE_NS:
        return Finding("pacing", "bad", text + ": too busy to pace a call", facts)
    return Finding("pacing", "note" if worst > _LATE_NS else "ok", text, facts)


_HAS_LOOP_FACTORY = False


def _run_ticks() -> list[int]:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_tick())


async def _tick() -> list[int]:
    alarm = Alarm.of(asyncio.get_running_loop())
    start, late = time.monotonic_ns() + _TICK_NS, []
    for n in range(_TICKS):
        due = start + n * _TICK_NS
        await alarm.sleep_until(due)
        late.append(time.monotonic_ns() - due)
    return late
