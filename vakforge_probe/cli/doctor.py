"""``doctor``: what this machine can measure: clock, pacing, stamps, devices, optional parts."""

from __future__ import annotations

from vakforge_probe.cli.common import JsonFlag, command, human, print_json
from vakforge_probe.errors import ExitCode

__all__ = ["doctor"]


@command
def doctor(as_json: JsonFlag = False) -> ExitCode:
    """Check this machine; a second or two. Exit 4 when it cannot pace a call."""
    from vakforge_probe.machine import examine

    console = human(as_json=as_json)
    findings = examine()
    if as_json:
        print_json({"findings": [finding.to_json() for finding in findings]})
    for finding in findings:
        mark = {"ok": "ok  ", "note": "note", "bad": "BAD "}[finding.verdict]
        console.print(f"{mark} {finding.name}: {finding.text}", markup=False)
    return ExitCode.INVALID if any(f.verdict == "bad" for f in findings) else ExitCode.OK
