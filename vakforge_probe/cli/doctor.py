"""``doctor``: what this machine can measure: clock, pacing, stamps, devices, optional parts."""

from __future__ import annotations

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, complain, human, print_json
from vakforge_probe.errors import ExitCode

__all__ = ["doctor"]


@command
def doctor(json: JsonFlag = False, quiet: QuietFlag = False) -> ExitCode:
    """Check this machine, on loopback only; two seconds. Exit 4 when it cannot measure a call."""
    from vakforge_probe.machine import examine

    console = human(as_json=json, quiet=quiet)
    findings = examine()
    for finding in findings:
        line = f"{finding.verdict:<4} {finding.name}: {finding.text}"
        if finding.verdict == "bad":
            complain([line])
        else:
            console.print(line, markup=False)
    if json:
        print_json({"findings": [finding.to_json() for finding in findings]})
    return ExitCode.INVALID if any(f.verdict == "bad" for f in findings) else ExitCode.OK
