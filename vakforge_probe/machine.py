"""A short examination of the machine that the probe runs on: can it measure, and how well."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.limits import Limits
from vakforge_probe.loopback import StampTrial, try_alarm, try_stamps
from vakforge_probe.net.pacer import MAX_LATE_NS
from vakforge_probe.net.stamps import ClockMap
from vakforge_probe.text import clean

__all__ = ["Finding", "examine"]

_CALL_BYTES_PER_S = 2 * 24_000 * 2 * 4 // 3
"""A capture of both directions at 24 kHz, 16 bit, in base64."""
_LIBRARIES = (
    "jinja2",
    "jsonschema",
    "numpy",
    "pydantic",
    "pyyaml",
    "rich",
    "scipy",
    "soundfile",
    "soxr",
    "typer",
    "webrtcvad-wheels",
    "websockets",
)

_TRANSPORTS = (("aiortc", "webrtc", "WebRTC"), ("livekit", "livekit", "LiveKit"))
"""What carries calls that no WebSocket does: package, extra and what it speaks."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination: ``bad`` means that calls cannot be measured here.

    Attributes
    ----------
    facts
        Its numbers; times in ns.
    """

    name: str
    verdict: Literal["ok", "note", "bad"]
    text: str
    facts: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return asdict(self)


def examine() -> list[Finding]:
    """Return all findings; takes about two seconds and touches loopback only."""
    checks: tuple[Callable[[], Finding], ...] = (
        _machine,
        _clock,
        _pacing,
        _stamps,
        _disk,
        _voice_detector,
        _sound_devices,
        _transports,
        _libraries,
    )
    return [check() for check in checks]


def _machine() -> Finding:
    host, granted = probe_host(), scheduling()
    text = f"{host['cpu']}, {host['cores']} cores, {host['system']}; {granted['class']}"
    return Finding("machine", "ok", clean(text, 300), {"host": host, "scheduling": granted})


def _clock() -> Finding:
    info = time.get_clock_info("monotonic")
    spread_ns = ClockMap().spread_ns
    facts = {"resolution_ns": round(info.resolution * 1e9), "spread_ns": spread_ns}
    text = (
        f"monotonic, resolution {facts['resolution_ns']} ns; kernel stamps convert to it within "
        f"±{spread_ns / 1e3:.1f} µs"
    )
    return Finding("clock", "ok" if info.monotonic else "bad", text, facts)


def _pacing() -> Finding:
    late = try_alarm()
    facts = {**_spread(late), "n": len(late)}
    text = "deadlines missed by " + _in_ms(facts)
    if facts["p99_ns"] > MAX_LATE_NS:
        return Finding("pacing", "bad", f"{text}: too busy to pace a call", facts)
    if facts["max_ns"] > MAX_LATE_NS:
        text += "; a frame as late as the worst spoils its turn"
        return Finding("pacing", "note", text, facts)
    return Finding("pacing", "ok", text, facts)


def _stamps() -> Finding:
    try:
        trial = try_stamps()
    except (OSError, TimeoutError) as error:
        return Finding("stamps", "bad", f"loopback cannot be used: {error or 'timed out'}", {})
    return _judged_stamps(trial)


def _judged_stamps(trial: StampTrial) -> Finding:
    n = len(trial.widths)
    if not n:
        return Finding("stamps", "bad", "no message arrived over loopback", {})
    facts = {**_spread(trial.widths), "n": n, "n_own": trial.n_own, "n_wrong": trial.n_wrong}
    text = f"arrivals on loopback known to {_in_ms(facts)}; {trial.n_own} of {n} by kernel stamp"
    if trial.n_wrong:
        return Finding("stamps", "bad", f"{text}; {trial.n_wrong} before their sending", facts)
    if not trial.has_kernel_stamps:
        return Finding("stamps", "note", f"{text} (this system gives none)", facts)
    if 2 * trial.n_own < n:
        return Finding("stamps", "note", f"{text}: bounds are wider than they could be", facts)
    return Finding("stamps", "ok", text, facts)


def _disk() -> Finding:
    try:
        free = shutil.disk_usage(Path.cwd()).free
    except OSError as error:
        return Finding("disk", "bad", f"this folder cannot be used: {error.strerror}", {})
    hours = free / _CALL_BYTES_PER_S / 3600
    text = f"{free / 1e9:.1f} GB free in this folder, about {hours:,.0f} h of calls"
    if free < Limits().min_free_bytes:
        return Finding("disk", "bad", f"{text}: too little to begin a call", {"free_bytes": free})
    return Finding("disk", "ok", text, {"free_bytes": free})


def _voice_detector() -> Finding:
    try:
        import webrtcvad

        webrtcvad.Vad(2).is_speech(bytes(320), 16_000)
    except ImportError:
        text = "webrtcvad is missing, the second witness of speech: pip install webrtcvad-wheels"
        return Finding("voice detector", "bad", text, {})
    return Finding("voice detector", "ok", "webrtcvad, the second witness of speech", {})


def _sound_devices() -> Finding:
    name = "sound devices"
    try:
        import sounddevice
    except ImportError:
        text = "optional, not installed: pip install 'vakforge-probe[device]'"
        return Finding(name, "note", text, {})
    except OSError:
        text = "optional, PortAudio is missing: apt install libportaudio2"
        return Finding(name, "note", text, {})
    try:
        found = [dict(device) for device in sounddevice.query_devices()]
    except Exception as error:  # whatever a sound system says, calls need none
        return Finding(name, "note", f"cannot be listed: {clean(str(error), 200)}", {})
    n_in = sum(device.get("max_input_channels", 0) > 0 for device in found)
    n_out = sum(device.get("max_output_channels", 0) > 0 for device in found)
    names = [clean(str(device.get("name")), 80) for device in found]
    text = f"{n_in} for input, {n_out} for output"
    return Finding(name, "ok" if n_in and n_out else "note", text, {"devices": names})


def _transports() -> Finding:
    found = {name: _version(name) for name, _, _ in _TRANSPORTS}
    text = "; ".join(
        f"{what} by {name} {found[name]}"
        if found[name]
        else f"{what}: optional, not installed: pip install 'vakforge-probe[{extra}]'"
        for name, extra, what in _TRANSPORTS
    )
    return Finding("transports", "ok" if all(found.values()) else "note", text, dict(found))


def _libraries() -> Finding:
    known = {**versions(), **{name: _version(name) for name in _LIBRARIES}}
    missing = [name for name, version in known.items() if version is None]
    text = ", ".join(f"{name} {version}" for name, version in known.items() if version)
    if missing:
        return Finding("libraries", "bad", f"missing: {', '.join(missing)}", dict(known))
    return Finding("libraries", "ok", text, dict(known))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _spread(sorted_ns: Sequence[int]) -> dict[str, int]:
    n = len(sorted_ns)
    return {
        "p50_ns": sorted_ns[(n - 1) // 2],
        "p99_ns": sorted_ns[-(-99 * n // 100) - 1],
        "max_ns": sorted_ns[-1],
    }


def _in_ms(facts: dict[str, Any]) -> str:
    p50, p99, worst = (facts[name] / 1e6 for name in ("p50_ns", "p99_ns", "max_ns"))
    return f"p50 {p50:.3f} ms, p99 {p99:.3f} ms, max {worst:.3f} ms"
