"""From scores to the report document, and what makes a whole measurement usable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from vakforge_eval import __version__
from vakforge_eval.metrics.hearing import DETECTOR
from vakforge_eval.report import phrases
from vakforge_eval.report.document import N_SAMPLES, build_document
from vakforge_eval.scoring.claims import claimed_part
from vakforge_eval.scoring.compare import breakdowns, pairs, summarise
from vakforge_eval.scoring.human import overlap_part
from vakforge_eval.scoring.rows import call_rows, turn_rows
from vakforge_eval.scoring.scores import ScoreSet, TurnScore, playout_text
from vakforge_eval.timeline.values import Measured

__all__ = ["measurement_verdict", "report_document", "sample_rows"]

Row = Mapping[str, Any]
Excerpt = Callable[[str, str, int], Mapping[str, Any]]

_MAX_INVALID = 0.05
_MAX_CPU_SHARE = 0.7


def measurement_verdict(sets: Sequence[ScoreSet]) -> dict[str, Any]:
    """Return ``{"status", "reasons"}``: whether the probe measured well enough.

    "indeterminate" if more than 5 % of a system's turns or of its background utterances were
    spoilt by the probe, or it used more than 70 % of its core in a call; "invalid" if none is left.
    """
    reasons, is_invalid = [], False
    for scores in sets:
        for what, found in (("turns", scores.turns), ("background utterances", scores.events)):
            spoilt = sum(not score.valid for score in found)
            if spoilt > _MAX_INVALID * len(found):
                share = phrases.rate({"hits": spoilt, "total": len(found)})
                reasons.append(f"{scores.system}: the probe spoilt {share} of the {what}")
                is_invalid |= spoilt == len(found) and what == "turns"
        shares = [call.values.get("cpu_share") for call in scores.calls]
        most = max((v.value for v in shares if isinstance(v, Measured)), default=0.0)
        if most > _MAX_CPU_SHARE:
            used = phrases.quantity(most, "share")
            reasons.append(f"{scores.system}: the probe used {used} of its core")
    status = "invalid" if is_invalid else "indeterminate" if reasons else "valid"
    return {"status": status, "reasons": reasons}


def _reference(expected: Row) -> str | None:
    """Return in words what the script asks of the answer."""
    tools = [f"calls {tool['name'] or 'no tool'}" for tool in expected.get("tools", [])]
    words = expected.get("relevant_words", [])
    return "; ".join([*tools, *([f"mentions {', '.join(words)}"] if words else [])]) or None


def _answer(turn: TurnScore, excerpt: Excerpt | None) -> dict[str, Any]:
    shown = excerpt(turn.system, turn.call, turn.turn) if excerpt is not None else {}
    return {
        **shown,
        "call": turn.call,
        "text": turn.agent_text or None,
        "flags": [flag.value for flag in turn.flags],
        "metrics": {n: v.to_json() for n, v in {**turn.metrics, **turn.rates}.items()},
    }


def sample_rows(
    base: ScoreSet | None, tuned: ScoreSet, excerpt: Excerpt | None = None
) -> list[dict[str, Any]]:
    """Return up to ten turns with each system's answer, the scenarios in turn.

    Without a base each sample holds one answer. `excerpt` adds what is shown and played of it.
    """
    found = pairs(base, tuned) if base is not None else [(turn,) for turn in tuned.turns]
    by_scenario: dict[str, list[tuple[TurnScore, ...]]] = {}
    for answers in sorted(found, key=lambda turns: turns[-1].pair_key):
        by_scenario.setdefault(answers[-1].scenario, []).append(answers)
    mixed = [a for layer in zip_longest(*by_scenario.values()) for a in layer if a is not None]
    return [
        {
            "scenario": answers[-1].scenario,
            "turn": answers[-1].turn,
            "kind": answers[-1].kind,
            "user_text": answers[-1].user_text or None,
            "reference": _reference(answers[-1].expected),
            "answers": {turn.system: _answer(turn, excerpt) for turn in answers},
        }
        for answers in mixed[:N_SAMPLES]
    ]


def report_document(
    base: ScoreSet | None,
    tuned: ScoreSet,
    *,
    provenance: Row,
    hardware: Mapping[str, Row | None] | None = None,
    verdict: Row | None = None,
    excerpt: Excerpt | None = None,
) -> dict[str, Any]:
    """Return the report document of one or two systems' scores.

    Parameters
    ----------
    base, tuned
        The scores; without a base the report says that it is no comparison.
    provenance
        What the run knows: config_hash, seed, versions, manifest_hash, judge. The scripts'
        hashes, detector and playout model are added.
    hardware
        The serving path as its owner stated it, by system.
    verdict
        By default `measurement_verdict` of the sets.
    excerpt
        ``(system, call, turn) -> {"timeline", "audio"}`` for the samples.

    Raises
    ------
    DefinitionMismatch
        If the sets were scored by different versions of a metric.
    """
    sets = [tuned] if base is None else [base, tuned]
    versions = {**provenance.get("versions", {}), "vakforge_eval": __version__}
    scripts = {call.scenario: call.script_hash for scores in sets for call in scores.calls}
    return build_document(
        [scores.system for scores in sets],
        summarise(base, tuned),
        [row for scores in sets for row in turn_rows(scores)],
        [row for scores in sets for row in call_rows(scores)],
        {
            "detector": DETECTOR,
            "playout": playout_text(*sets),
            **provenance,
            "scripts": dict(sorted(scripts.items())),
            "versions": versions,
        },
        sample_rows(base, tuned, excerpt),
        breakdowns=breakdowns(base, tuned),
        overlap=overlap_part(sets),
        claimed=claimed_part(sets),
        hardware=hardware,
        verdict=verdict or measurement_verdict(sets),
    )
