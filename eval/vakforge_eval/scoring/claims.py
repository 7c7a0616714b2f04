"""The "claimed vs heard" table: what each server says of itself, beside what was heard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from vakforge_eval.metrics.claimed import CLAIMS, LATENCY, Claimed
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.stats.percentiles import percentile
from vakforge_eval.stats.values import Values
from vakforge_eval.timeline.values import Measured, MetricValue, Reason, Undefined

__all__ = ["MAX_LATENCIES", "claimed_part"]

MAX_LATENCIES = 20
"""So many latencies of a server are told, those it states most often: their names are its own."""
_NUMBERS = ("median_claimed", "median_heard", "median_difference", "max_difference")


def claimed_part(sets: Sequence[ScoreSet]) -> list[dict[str, Any]]:
    """Return one row a system and claim, in the order of `CLAIMS`, stated latencies last.

    Returns
    -------
    list of dict
        ``system``, ``claim``, ``against`` (what it is held against), ``n`` pairs of claimed and
        heard, ``n_unheard`` (claims with nothing heard to compare), the medians of both and of
        their difference (claimed - heard, signed, s) with its worst-case ``difference_bound``, and
        ``max_difference``, the one furthest from 0. Without a pair these are
        ``{"undefined": reason}``; not_observable where the server claims nothing of the kind.
    """
    return [row for scores in sets for row in _rows(scores)]


def _rows(scores: ScoreSet) -> list[dict[str, Any]]:
    by_claim: dict[str, list[Claimed]] = {name: [] for name in CLAIMS}
    for call in scores.calls:
        for claim in call.claims:
            by_claim.setdefault(claim.claim, []).append(claim)
    stated = sorted(by_claim.keys() - CLAIMS.keys(), key=lambda name: (-len(by_claim[name]), name))
    names = [*CLAIMS, *(stated[:MAX_LATENCIES] or [LATENCY.strip(" :")])]
    return [
        {
            "system": scores.system,
            "claim": name,
            "against": CLAIMS.get(name, "ttfa_heard"),
            **_numbers(by_claim.get(name, [])),
        }
        for name in names
    ]


def _numbers(claims: Sequence[Claimed]) -> dict[str, Any]:
    pairs = [c for c in claims if isinstance(c.difference, Measured)]
    counts = {"n": len(pairs), "n_unheard": len(claims) - len(pairs)}
    if not pairs:
        return {**counts, **dict.fromkeys(_NUMBERS, _why(claims)), "difference_bound": None}
    differences = [c.difference for c in pairs if isinstance(c.difference, Measured)]
    middle = _median(differences)
    return {
        **counts,
        "median_claimed": _round(_median(c.claimed for c in pairs).value),
        "median_heard": _round(_median(c.heard for c in pairs).value),
        "median_difference": _round(middle.value),
        "difference_bound": [_round(middle.lo), _round(middle.hi)],
        "max_difference": _round(max((d.value for d in differences), key=abs)),
    }


def _why(claims: Sequence[Claimed]) -> dict[str, str]:
    reasons = Counter(c.heard.reason for c in claims if isinstance(c.heard, Undefined))
    reason = reasons.most_common(1)[0][0] if reasons else Reason.NOT_OBSERVABLE
    return {"undefined": reason.value}


def _median(values: Iterable[MetricValue]) -> Measured:
    value = percentile(Values.of([("", value) for value in values]), 50).value
    assert isinstance(value, Measured)  # noqa: S101 - only measured values are asked about
    return value


def _round(value: float) -> float:
    return round(value, 9)
