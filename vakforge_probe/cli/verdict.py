"""The exit code of what was measured: nothing measured is never green, blame is placed right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_probe.errors import ExitCode

__all__ = ["judge"]

Row = Mapping[str, Any]


def judge(document: Row) -> tuple[ExitCode, str]:
    """Return the exit code of a report document, and why it is not 0 (else nothing).

    ==========================================  ====
    all calls failed, one at least by target    3
    the target answered no turn of any call     3
    all calls failed by the probe               4
    nothing measured, not valid, indeterminate  4
    a recording stopped before its call did     4
    some calls failed                           5
    ==========================================  ====
    """
    calls, turns, status = document["calls"], document["turns"], document["verdict"]
    failures = [call["failure"] for call in calls if call["failure"]]
    if calls and len(failures) == len(calls):
        return _all_failed(failures)
    if turns and all("no_reply" in turn["flags"] for turn in turns):
        words = f"no answer in any of {len(turns)} turns"
        return ExitCode.TARGET, f"timeout in phase first_audio: {words}"
    if status["status"] == "nothing_measured" or not _is_measured(turns, calls):
        return ExitCode.INVALID, "nothing was measured"
    if status["status"] != "valid":
        return ExitCode.INVALID, f"the measurement is {status['status']}"
    if n := document["provenance"].get("truncated_captures"):
        return ExitCode.INVALID, f"{n} recordings stopped before their calls did"
    if failures:
        return ExitCode.PARTIAL, f"{len(failures)} of {len(calls)} calls failed"
    return ExitCode.OK, ""


def _all_failed(failures: Sequence[Row]) -> tuple[ExitCode, str]:
    blamed = next((f for f in failures if f["kind"] != "probe_fault"), None)
    if blamed is None:
        return ExitCode.INVALID, "all calls failed, by the probe's own fault"
    return ExitCode.TARGET, f"all calls failed: {blamed['kind']} in phase {blamed['phase']}"


def _is_measured(turns: Sequence[Row], calls: Sequence[Row]) -> bool:
    """Whether anything that the agent said was measured: a turn's reply, else a greeting."""
    if turns:
        return any("value" in value for turn in turns for value in turn["metrics"].values())
    return any("value" in call["metrics"].get("greeting_latency", {}) for call in calls)
