"""What a capture says of itself before the call begins: the header, without any secret."""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from vakforge_eval.capture.format import CAPTURE_VERSION
from vakforge_probe import __version__
from vakforge_probe.limits import Limits
from vakforge_probe.net.datagrams import StampLoop
from vakforge_probe.net.stamps import StampedSocket
from vakforge_probe.protocol.base import ClientCodec
from vakforge_probe.protocol.livekit_room import RoomJoin

__all__ = ["header", "probe_host", "scheduling", "stamp_source", "versions"]

_SCHED_NAMES = {0: "SCHED_OTHER", 1: "SCHED_FIFO", 2: "SCHED_RR", 3: "SCHED_BATCH", 5: "SCHED_IDLE"}


# What does not change while the process lives is looked up once: other calls of the same loop are
# being paced while the header of the next one is made.
@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that can move a measured number; of optional parts if they are there."""
    out = {"vakforge-probe": __version__, "python": platform.python_version()}
    for name in ("websockets", "numpy", "soxr"):
        out[name] = metadata.version(name)
    for name in ("aiortc", "av", "livekit"):
        with suppress(metadata.PackageNotFoundError):
            out[name] = metadata.version(name)
    return out


@functools.cache
def probe_host() -> dict[str, Any]:
    """Return what kind of machine the probe runs on; no name, no address."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "implementation": sys.implementation.name,
    }


def stamp_source(codec: ClientCodec) -> str:
    """Return what stamps arrivals on this loop: ``kernel``, or ``loop`` where it does not."""
    if isinstance(codec.signalling, RoomJoin):
        return "loop"  # of packets in an SDK's hands nobody sees a stamp
    if codec.signalling is not None and not isinstance(asyncio.get_running_loop(), StampLoop):
        return "loop"
    return _stamps_here()


@functools.cache
def _stamps_here() -> str:
    with StampedSocket() as trial:
        return "kernel" if trial.has_kernel_stamps else "loop"


def scheduling() -> dict[str, Any]:
    """Return the scheduling class that the probe was granted."""
    if not hasattr(os, "sched_getscheduler"):
        return {"class": "unknown"}
    return {
        "class": _SCHED_NAMES.get(os.sched_getscheduler(0), "other"),
        "nice": os.nice(0),
        "cpus": len(os.sched_getaffinity(0)),
    }


def header(
    *,
    call_id: str,
    system: str,
    target: str,
    codec: ClientCodec,
    seed: int,
    repeat: int,
    order: int,
    monotonic_ns: int,
    is_virtual: bool,
    limits: Limits,
    hardware: dict[str, Any] | None,
    clips: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return ``header.json`` of a call; see the capture format for each field."""
    pcm_codec, transfer, locator = codec.user_payload()
    return {
        "capture_version": CAPTURE_VERSION,
        "call_id": call_id,
        "system": system,
        "target": target,
        "protocol": codec.name,
        "profile": codec.profile,
        "experimental": codec.is_experimental,
        "capabilities": asdict(codec.capabilities),
        "user_audio": {
            "codec": pcm_codec,
            "rate_hz": codec.user_audio.rate_hz,
            "frame_samples": codec.user_audio.frame_samples,
            "transfer": transfer,
            "locator": locator,
        },
        "seed": seed,
        "repeat": repeat,
        "order": order,
        "versions": versions(),
        "probe_host": probe_host(),
        "hardware": hardware,
        "clock": {
            "wall_utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "monotonic_ns": monotonic_ns,
        },
        "stamp_source": "virtual" if is_virtual else stamp_source(codec),
        "scheduling": scheduling(),
        "limits": asdict(limits),
        "redaction": "keep",
        "clips": clips,
    }
