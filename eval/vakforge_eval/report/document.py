"""The report document: one plain dict behind report.json, report.md, report.html and `--json`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_eval.report.changes import breakdown_sections, find_changes
from vakforge_eval.report.judgement import is_measured, judge
from vakforge_eval.report.outcomes import count_expectations, count_outcomes, is_event
from vakforge_eval.report.safe import clean_text, clean_tree
from vakforge_eval.timeline.values import Flag

__all__ = ["N_SAMPLES", "SCHEMA_VERSION", "build_document"]

SCHEMA_VERSION = 2
"""2: `turns` holds background utterances too, and what the agent's speech came to."""

Row = Mapping[str, Any]

N_SAMPLES = 10
"""How many samples a report shows."""
_RELATIVE_LINK = re.compile(r"(?!/)(?!.*\.\.)[A-Za-z0-9._/-]{1,300}")
_UNANSWERED = frozenset({Flag.NO_REPLY.value, Flag.CALL_FAILED.value})
_INVALIDATING = frozenset(flag.value for flag in Flag if flag.invalidates)


def _status(
    verdict: Row | None, summary: Sequence[Row], turns: Sequence[Row], calls: Sequence[Row]
) -> dict[str, Any]:
    """Return the verdict; nothing measured outranks whatever else was said."""
    given = dict(verdict or {"status": "valid"})
    reasons = list(given.get("reasons", []))
    measured = any(is_measured(cell) for row in summary for cell in row["systems"].values())
    # That a call failed or was never answered is a number too, but none to be green about.
    if said := [turn for turn in turns if not is_event(turn)]:
        measured &= any(map(_is_answered, said))
    elif calls:
        measured &= not all(call.get("failure") for call in calls)
    return {"status": given["status"] if measured else "nothing_measured", "reasons": reasons}


def _is_answered(turn: Row) -> bool:
    return _UNANSWERED.isdisjoint(turn["flags"]) and any(
        "value" in value and "hits" not in value for value in turn["metrics"].values()
    )


def _banners(
    status: Row, systems: Sequence[str], calls: Sequence[Row], outcomes: Sequence[Row]
) -> list[dict[str, Any]]:
    banners = []
    texts = {
        "nothing_measured": "Nothing was measured: no turn of any call gave a number.",
        "invalid": "The measurement is not valid: its numbers must not be used (exit code 4).",
        "indeterminate": "The measurement is indeterminate: no verdict is given (exit code 4).",
    }
    if status["status"] in texts:
        text = texts[status["status"]]
        banners.append({"kind": status["status"], "text": text, "reasons": status["reasons"]})
    failures = [call for call in calls if call.get("failure")]
    if failures:
        text = f"{len(failures)} of {len(calls)} calls failed; what they left is in the numbers."
        reasons = sorted(Counter(_failure_words(call) for call in failures).items())
        words = [f"{words} ({n} ×)" if n > 1 else words for words, n in reasons]
        banners.append({"kind": "failed_calls", "text": text, "reasons": words})
    if void := [item for item in outcomes if item["n_void"]]:
        n = sum(item["n_void"] for item in void)
        text = (
            f"{n} of {_n_events(outcomes)} barge-ins and background utterances are void: they did "
            "not meet speech that goes on, so they show nothing."
        )
        words = [
            f"{item['system']}, {item['kind'].replace('_', ' ')}: {item['n_void']} of {item['n']}"
            for item in void
        ]
        banners.append({"kind": "void", "text": text, "reasons": words})
    if len(systems) < 2:
        banners.append(
            {"kind": "no_baseline", "text": "no baseline: not a comparison", "reasons": []}
        )
    return banners


def _n_events(outcomes: Sequence[Row]) -> int:
    return sum(item["n"] for item in outcomes)


def _failure_words(call: Row) -> str:
    failure = call["failure"]
    parts = (failure.get("kind"), failure.get("phase"), failure.get("message"))
    kind, phase, message = (str(part) if part else "" for part in parts)
    where = f" in phase {phase}" if phase else ""
    return f"{call['system']}: {kind or 'failure'}{where}{': ' + message if message else ''}"


def _excluded(turns: Sequence[Row], systems: Sequence[str]) -> list[dict[str, Any]]:
    """Return how many turns the probe spoilt, by system and reason, with the number of turns."""
    totals = Counter(turn["system"] for turn in turns)
    spoilt = Counter(
        (turn["system"], flag)
        for turn in turns
        if not turn["valid"]
        for flag in sorted(set(turn["flags"]) & _INVALIDATING) or ["other"]
    )
    return [
        {"system": name, "flag": flag, "n": n, "total": totals[name]}
        for name in systems
        for (system, flag), n in sorted(spoilt.items())
        if system == name
    ]


def _link(value: Any) -> str | None:
    """Return a link only if it is a plain relative path: no scheme, no host, no way upwards."""
    return value if isinstance(value, str) and _RELATIVE_LINK.fullmatch(value) else None


def _sample(sample: Row, systems: Sequence[str]) -> dict[str, Any]:
    answers = sample["answers"]
    return {
        "scenario": sample["scenario"],
        "turn": sample["turn"],
        "kind": sample.get("kind"),
        "user_text": sample.get("user_text"),
        "user_audio": _link(sample.get("user_audio")),
        "reference": sample.get("reference"),
        "answers": {
            name: {
                "call": answer.get("call"),
                "text": answer.get("text"),
                "audio": _link(answer.get("audio")),
                "flags": list(answer.get("flags", [])),
                "metrics": dict(answer.get("metrics", {})),
                "timeline": answer.get("timeline"),
            }
            for name in systems
            if (answer := answers.get(name))
        },
    }


def build_document(
    systems: Sequence[str],
    summary: Sequence[Row],
    turns: Sequence[Row],
    calls: Sequence[Row],
    provenance: Row,
    samples: Sequence[Row] = (),
    *,
    breakdowns: Sequence[Row] = (),
    overlap: Row | None = None,
    claimed: Sequence[Row] = (),
    hardware: Mapping[str, Row | None] | None = None,
    verdict: Row | None = None,
) -> dict[str, Any]:
    """Return the report document (schema: report_schema.json), all text in it cleaned.

    It computes no statistic: it orders, judges and words what scoring computed. Times are seconds.

    Parameters
    ----------
    systems
        ``(tuned,)`` or ``(base, tuned)``, by name.
    summary
        One row a metric, as `scoring.compare.summarise` gives it: metric, unit, better,
        definition, start, stop, group, ``systems`` name -> cell, delta, delta_ci, arrow, …
    turns
        One row a turn, or background utterance, and system: system, call, scenario, turn, step,
        kind, valid, flags, metrics, outcome, relevance, expectations.
    calls
        One row a call: system, call, and optionally scenario, valid, failure, metrics, facts.
    provenance
        Hashes, versions, seed, judge, detector, playout, definitions; names beyond are kept.
    samples
        Paired turns: scenario, turn, user_text, reference, ``answers`` name -> {text, audio, …}.
        The first ten are kept; links that are not plain relative paths are dropped.
    breakdowns
        One row a slice (`scoring.compare.breakdowns`): by, value and its own ``summary`` rows.
    overlap
        Where the systems stand among people (`scoring.human.overlap_part`).
    claimed
        One row a system and claim (`scoring.claims.claimed_part`).
    hardware
        The serving path as its owner stated it, by system.
    verdict
        ``{"status": "valid" | "invalid" | "indeterminate", "reasons": [...]}``.

    Raises
    ------
    ValueError
        If there are no or more than two systems, or their cleaned names are equal.
    """
    if not 1 <= len(systems) <= 2:
        raise ValueError(f"a report holds one or two systems, not {len(systems)}")
    if len({clean_text(name) for name in systems}) < len(systems):
        raise ValueError("the names of the two systems look the same")
    status = _status(verdict, summary, turns, calls)
    is_valid = status["status"] == "valid"
    judged = [judge(row, systems, is_valid=is_valid) for row in summary]
    sliced = [
        {**part, "summary": [judge(row, systems, is_valid=is_valid) for row in part["summary"]]}
        for part in breakdowns
    ]
    sections = breakdown_sections(sliced)
    outcomes = count_outcomes(turns, systems)
    document: dict[str, Any] = clean_tree(
        {
            "schema_version": SCHEMA_VERSION,
            "systems": list(systems),
            "verdict": status,
            "banners": _banners(status, systems, calls, outcomes),
            "summary": judged,
            "changes": find_changes(sections, systems),
            "breakdowns": sections,
            "hardware": {name: (hardware or {}).get(name) for name in systems},
            "excluded": _excluded(turns, systems),
            "outcomes": outcomes,
            "expectations": count_expectations(turns, calls, systems),
            "overlap": None if overlap is None else dict(overlap),
            "claimed": list(claimed),
            "turns": list(turns),
            "calls": list(calls),
            "samples": [_sample(sample, systems) for sample in samples[:N_SAMPLES]],
            "provenance": dict(provenance),
        }
    )
    return document
