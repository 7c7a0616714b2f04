"""Exit codes as a table: nothing measured is never green, and blame is placed right."""

from __future__ import annotations

from typing import Any

import pytest

from vakforge_probe.cli.verdict import judge
from vakforge_probe.errors import ExitCode

CLOSED = {"kind": "closed", "phase": "call", "message": "m"}
REFUSED = {"kind": "refused", "phase": "connect", "message": "m"}
OURS = {"kind": "probe_fault", "phase": "call", "message": "m"}

ANSWERED = {"flags": [], "metrics": {"ttfa": {"value": 0.5}, "tool_wait": {"undefined": "x"}}}
UNANSWERED = {"flags": ["no_reply"], "metrics": {"ttfa": {"censored": 6.0}}}
INAUDIBLE = {"flags": ["not_audible"], "metrics": {"ttfa": {"undefined": "no_audio"}}}
FAILED = {"flags": ["call_failed"], "metrics": {"ttfa": {"undefined": "call_failed"}}}


def document(
    failures: list[Any],
    turns: list[Any],
    status: str = "valid",
    *,
    greeting: dict[str, Any] | None = None,
    truncated: int = 0,
) -> dict[str, Any]:
    metrics = {"setup": {"value": 0.1}, "greeting_latency": greeting or {"undefined": "x"}}
    return {
        "calls": [{"failure": failure, "metrics": metrics} for failure in failures],
        "turns": turns,
        "verdict": {"status": status, "reasons": []},
        "provenance": {"truncated_captures": truncated},
    }


@pytest.mark.parametrize(
    ("measured", "code", "why"),
    [
        (document([None], [ANSWERED]), ExitCode.OK, ""),
        (document([None, None], [ANSWERED, UNANSWERED]), ExitCode.OK, ""),
        (document([None], [], greeting={"value": 0.4}), ExitCode.OK, ""),
        # The target's fault.
        (document([REFUSED], []), ExitCode.TARGET, "refused in phase connect"),
        (document([REFUSED, CLOSED], [FAILED]), ExitCode.TARGET, "all calls failed"),
        (document([CLOSED], [ANSWERED]), ExitCode.TARGET, "closed in phase call"),
        (document([CLOSED, OURS], [ANSWERED]), ExitCode.TARGET, "closed in phase call"),
        (document([None], [UNANSWERED] * 3), ExitCode.TARGET, "timeout in phase first_audio"),
        (document([None, CLOSED], [UNANSWERED]), ExitCode.TARGET, "any of 1 turns"),
        (
            document([None], [UNANSWERED], "nothing_measured"),
            ExitCode.TARGET,
            "timeout in phase first_audio",
        ),
        # Ours, or nobody's.
        (document([OURS], [ANSWERED]), ExitCode.INVALID, "by the probe's own fault"),
        (document([OURS, OURS], []), ExitCode.INVALID, "by the probe's own fault"),
        (document([], []), ExitCode.INVALID, "nothing was measured"),
        (document([None], []), ExitCode.INVALID, "nothing was measured"),
        (document([None], [INAUDIBLE]), ExitCode.INVALID, "nothing was measured"),
        (document([None], [UNANSWERED, INAUDIBLE]), ExitCode.INVALID, "nothing was measured"),
        (document([None], [ANSWERED], "nothing_measured"), ExitCode.INVALID, "nothing was"),
        (document([None], [ANSWERED], "invalid"), ExitCode.INVALID, "is invalid"),
        (document([None], [ANSWERED], "indeterminate"), ExitCode.INVALID, "is indeterminate"),
        (document([None], [ANSWERED], truncated=1), ExitCode.INVALID, "1 recordings stopped"),
        # What is not valid is not even partial.
        (document([None, CLOSED], [ANSWERED], "indeterminate"), ExitCode.INVALID, "indeterm"),
        (document([None, CLOSED], [ANSWERED], truncated=1), ExitCode.INVALID, "recordings"),
        (document([None, CLOSED], [ANSWERED]), ExitCode.PARTIAL, "1 of 2 calls failed"),
        (document([None, OURS, CLOSED], [ANSWERED]), ExitCode.PARTIAL, "2 of 3 calls failed"),
    ],
)
def test_the_exit_code_follows_from_what_was_measured(
    measured: dict[str, Any], code: ExitCode, why: str
) -> None:
    got, words = judge(measured)
    assert got is code
    assert why in words
    assert bool(words) == (code is not ExitCode.OK)
