"""What barge-ins and background utterances led to, counted from the rows of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from vakforge_eval.metrics.expectations import Status
from vakforge_eval.timeline.script import BACKGROUND_KINDS, StepKind
from vakforge_eval.timeline.values import Flag

__all__ = ["Expected", "count_expectations", "count_outcomes", "expected_of", "is_event"]

Row = Mapping[str, Any]

_KINDS = (
    StepKind.BARGE_IN,
    StepKind.BACKCHANNEL,
    StepKind.NOISE,
    StepKind.SIDE_TALK,
    StepKind.SHAM,
)
_BACKGROUND = frozenset(kind.value for kind in BACKGROUND_KINDS)


def is_event(row: Row) -> bool:
    """Whether a row of the report's turns is a background utterance, which opens no turn."""
    return row["kind"] in _BACKGROUND


def count_outcomes(rows: Sequence[Row], systems: Sequence[str]) -> list[dict[str, Any]]:
    """Return what became of the agent's speech, by kind of step and system.

    Each holds system, kind, n, how many of them were spoilt by the probe, how many of the others
    were void, and outcome -> how many of the others. Kinds that no system had are left out.
    """
    found = []
    for kind in _KINDS:
        for system in systems:
            own = [row for row in rows if row["kind"] == kind and row["system"] == system]
            valid = [row for row in own if row["valid"]]
            outcomes = Counter(str(row.get("outcome")) for row in valid)
            if own:
                found.append(
                    {
                        "system": system,
                        "kind": kind.value,
                        "n": len(own),
                        "n_invalid": len(own) - len(valid),
                        "n_void": sum(Flag.VOID.value in row["flags"] for row in valid),
                        "outcomes": dict(sorted(outcomes.items())),
                    }
                )
    return found


@dataclass(frozen=True, slots=True)
class Expected:
    """What became of one expectation of one step of one call."""

    system: str
    scenario: str
    step: int
    kind: str
    text: str
    status: str
    why: str


def expected_of(turns: Sequence[Row], calls: Sequence[Row]) -> Iterator[Expected]:
    """Yield every expectation of a report: of what was played, then of what was left out."""
    for row in turns:
        yield from _expected(row["system"], row["scenario"], row)
    for call in calls:
        for step in call.get("facts", {}).get("skipped", ()):
            yield from _expected(call["system"], call.get("scenario", ""), step)


def _expected(system: str, scenario: str, step: Row) -> Iterator[Expected]:
    for found in step.get("expectations", ()):
        yield Expected(
            system,
            scenario,
            step["step"],
            step["kind"],
            found["expect"],
            found["status"],
            found["why"],
        )


def count_expectations(
    turns: Sequence[Row], calls: Sequence[Row], systems: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return how many expectations came to each status, by system."""
    counts = {system: dict.fromkeys(get_args(Status), 0) for system in systems}
    for one in expected_of(turns, calls):
        counts[one.system][one.status] += 1
    return counts
