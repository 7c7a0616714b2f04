"""The exit code of what was measured: nothing measured is never green, blame is placed right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_eval.metrics.whys import why
from vakforge_eval.report.outcomes import Expected, expected_of
from vakforge_eval.timeline.script import BACKGROUND_KINDS
from vakforge_probe.errors import ExitCode
from vakforge_probe.text import clean

__all__ = ["judge", "told"]

Row = Mapping[str, Any]

_MEETS_SPEECH = ("barge_in", "backchannel", "noise", "side_talk")
"""What shows nothing unless it meets the agent's speech; a sham is only their control."""
_UNDECIDED = ("indeterminate", "void", "not_measurable")
_TOLD = 20
_NAMED = 2


def judge(document: Row, *, is_demo: bool = False) -> tuple[ExitCode, str]:
    """Return the exit code of a report document, and why it is not 0 (else nothing).

    ==================================================  ====
    all calls failed, one at least by target            3
    the target answered no turn of any call             3
    all calls failed by the probe                       4
    nothing measured, not valid, indeterminate          4
    a recording stopped before its call did             4
    an expectation was missed                           1
    one is indeterminate, or none could be decided      4
    no interruption or disturbance met speech           4
    some calls failed                                   5
    ==================================================  ====

    Expectations count for the probed system, not for its baseline. In the demo they and the events
    decide nothing: it shows an instrument, and judges no agent.
    """
    calls, turns, status = document["calls"], document["turns"], document["verdict"]
    failures = [call["failure"] for call in calls if call["failure"]]
    if calls and len(failures) == len(calls):
        return _all_failed(failures)
    asked = [turn for turn in turns if turn["kind"] not in BACKGROUND_KINDS]
    if asked and all("no_reply" in turn["flags"] for turn in asked):
        words = f"no answer in any of {len(asked)} turns"
        return ExitCode.TARGET, f"timeout in phase first_audio: {words}"
    if status["status"] == "nothing_measured" or not _is_measured(turns, calls):
        return ExitCode.INVALID, "nothing was measured"
    if status["status"] != "valid":
        reasons = "; ".join(clean(str(reason), 300) for reason in status["reasons"])
        why = f": {reasons}" if reasons else ""
        return ExitCode.INVALID, f"the measurement is {status['status']}{why}"
    if n := document["provenance"].get("truncated_captures"):
        return ExitCode.INVALID, f"{n} recordings stopped before their calls did"
    found = _judge_expectations(document) or _judge_events(document)
    if found is not None and not is_demo:
        return found
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
        values = (value for turn in turns for value in turn["metrics"].values())
        return any(value.get("value") is not None for value in values)
    return any("value" in call["metrics"].get("greeting_latency", {}) for call in calls)


def _told(one: Expected) -> str:
    """Return an expectation and what became of it, on one clean line."""
    step = f"{one.scenario}, step {one.step} ({one.kind})"
    return clean(f"{step}: {one.text}: {one.why}", 300)


def _judge_expectations(document: Row) -> tuple[ExitCode, str] | None:
    probed = document["systems"][-1]
    found = expected_of(document["turns"], document["calls"])
    expected = [one for one in found if one.system == probed]
    by_status = {
        status: [one for one in expected if one.status == status]
        for status in ("fail", "indeterminate", "pass")
    }
    if by_status["fail"]:
        return ExitCode.MISSED, _counted(by_status["fail"], len(expected), "missed")
    if by_status["indeterminate"]:
        return ExitCode.INVALID, _counted(by_status["indeterminate"], len(expected), "undecided")
    if expected and not by_status["pass"] and not by_status["fail"]:
        return ExitCode.INVALID, _counted(expected, len(expected), "void or not measurable")
    return None


def _counted(some: Sequence[Expected], n_all: int, words: str) -> str:
    verb = "is" if len(some) == 1 else "are"
    named = list(dict.fromkeys(map(_told, some)))
    more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    first = "; ".join(named[:_NAMED])
    return f"{len(some)} of {n_all} expectations {verb} {words}: {first}{more}"


def _judge_events(document: Row) -> tuple[ExitCode, str] | None:
    """Judge a run that was to interrupt or disturb the agent and never did."""
    met, void = _events(document, document["systems"][-1])
    if met or not void:
        return None
    return ExitCode.INVALID, f"no interruption or disturbance counts: {_voids(void)}"


def _events(document: Row, system: str) -> tuple[list[Row], list[Row]]:
    """Return what met the agent's speech, and what was to and is void or was left out."""
    rows = [r for r in document["turns"] if r["system"] == system and r["kind"] in _MEETS_SPEECH]
    void = [row for row in rows if "void" in row["flags"]]
    left_out = [
        {"kind": skipped["kind"], "outcome": clean(skipped["reason"], 60)}
        for call in document["calls"]
        for skipped in call.get("facts", {}).get("skipped", ())
        if call["system"] == system and skipped["kind"] in _MEETS_SPEECH
    ]
    return [row for row in rows if row not in void], [*void, *left_out]


def _voids(rows: Sequence[Row]) -> str:
    """Return in words how void events came about."""
    counts = Counter((str(row["kind"]), str(row["outcome"])) for row in rows)
    return ", ".join(
        f"{n} {kind.replace('_', ' ')} {why(outcome)}"
        for (kind, outcome), n in sorted(counts.items())
    )


def told(document: Row, *, is_demo: bool = False) -> list[str]:
    """Return what must be said of expectations and void events whatever the exit code; may be none.

    A line for each expectation that did not pass, in the order of the report, and one of the
    events that showed nothing. In the demo, whose agent always does what it is set to, what could
    not be decided is this machine's doing, and it is told so.
    """
    systems = document["systems"]
    lines = [
        f"{f'{one.system}: ' * (len(systems) > 1)}{one.status.replace('_', ' ')}: {_told(one)}"
        for one in expected_of(document["turns"], document["calls"])
        if one.status != "pass"
    ]
    if len(lines) > _TOLD:
        lines = [*lines[:_TOLD], f"… and {len(lines) - _TOLD} more"]
    for system in systems:
        _, void = _events(document, system)
        if void:
            whose = f"{system}: " if len(systems) > 1 else ""
            lines.append(f"{whose}void, not counted: {_voids(void)}")
    found = list(expected_of(document["turns"], document["calls"]))
    undecided = sum(one.status in _UNDECIDED for one in found)
    if is_demo and undecided:
        words = f"{undecided} of {len(found)} expectations"
        lines.append(f"this machine was too busy to judge {words}")
    return lines
