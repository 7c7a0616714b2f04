"""How numbers are worded for people: milliseconds, errors, rates, signed changes.

The document keeps seconds and shares; this is the only place that turns them into text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vakforge_eval.stats.survival import KAPLAN_MEIER

__all__ = [
    "NONE",
    "error",
    "interval",
    "limits",
    "metric_value",
    "percentile",
    "quantity",
    "rate",
    "reason",
    "relative",
    "signed",
    "stat",
    "with_error",
]

MINUS = "−"
NONE = "—"

_SHARES = frozenset({"rate", "share"})
_SCALES = {"s": (1000.0, " ms"), "rate": (100.0, " %"), "share": (100.0, " %")}
_DIMENSIONLESS = frozenset({"", "1", "count", "ratio"})


def _scale(unit: str) -> tuple[float, str]:
    if unit in _SCALES:
        return _SCALES[unit]
    return 1.0, "" if unit in _DIMENSIONLESS else f" {unit}"


def _decimals(size: float, unit: str) -> int:
    """Return how many decimals a size is worded with; 99.96 is worded like the 100 it rounds to."""
    size = round(size, 1) if size >= 10 else round(size, 2)
    if unit in _SHARES:
        return 1 if size >= 0.1 or size == 0 else 2
    if size >= 100:
        return 0
    return 1 if size >= 10 else 2


def _digits(value: float, places: int) -> str:
    """Return `value` with a real minus sign and no negative zero."""
    text = f"{abs(value):,.{places}f}"
    is_zero = not text.strip("0.,")
    return f"{MINUS}{text}" if value < 0 and not is_zero else text


def _single(value: float, unit: str) -> str:
    """Return one number as long as it needs to be: whole numbers have no decimals."""
    if value == int(value):
        return _digits(value, 0)
    return _digits(value, _decimals(abs(value), unit))


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit: ``512 ms`` for 0.512 s, ``7.5 %`` for a share of 0.075."""
    factor, suffix = _scale(unit)
    return f"{_single(value * factor, unit)}{suffix}"


def signed(value: float, unit: str) -> str:
    """Return a change, always with its sign: ``−120 ms``, ``+3.2 ms``, ``0 ms``.

    A change of a share is worded in percentage points, since "%" could mean a relative change.
    """
    factor, suffix = _scale(unit)
    text = _single(value * factor, unit)
    plus = "+" if value > 0 and text.strip("0.,") else ""
    return f"{plus}{text}{' pp' if unit in _SHARES else suffix}"


def relative(share: float) -> str:
    """Return a change relative to where it started: ``−19 %``."""
    return signed(share, "rate").replace(" pp", " %")


def interval(ends: Sequence[float | None] | None, unit: str, *, of_change: bool = False) -> str:
    """Return ``[−160, −80]`` in the unit's scale, or a dash where there is none.

    A side without an end (None) is unbounded: its value was censored.
    """
    if ends is None:
        return NONE
    factor, _ = _scale(unit)
    scaled = [None if end is None else end * factor for end in ends]
    sizes = [abs(end) for end in scaled if end]
    places = _decimals(max(sizes), unit) if sizes else 0
    # An end beside 0 decides whether there is a change: it must not be worded as 0.
    while places < 2 and min(sizes, default=1.0) < 0.5 / 10**places:
        places += 1
    texts = ("…" if end is None else _digits(end, places) for end in scaled)
    suffix = "" if unit not in _SHARES else " pp" if of_change else " %"
    return f"[{', '.join(texts)}]{suffix}"


def limits(ends: Sequence[float | None], unit: str) -> str:
    """Return a change of which only a bound is known: ``< −120 ms`` or ``> +120 ms``."""
    low, high = ends
    if low is not None:
        return f"> {signed(low, unit)}"
    return NONE if high is None else f"< {signed(high, unit)}"


def _error_digits(size: float, places: int) -> str:
    """Return a size rounded up: a worst case must not be worded smaller than it is."""
    if size == 0:
        return "0"
    step: int = 10**places
    return f"{math.ceil(round(size * step, 6)) / step:,.{places}f}"


def error(minus: float, plus: float, unit: str) -> str:
    """Return a worst-case error: ``±0.2``, or ``−0.1 +3.0`` where the sides differ."""
    factor, _ = _scale(unit)
    largest = round(max(minus, plus) * factor, 6)
    places = 0 if largest >= 10 else 1 if largest >= 0.1 else 2
    low, high = _error_digits(minus * factor, places), _error_digits(plus * factor, places)
    return f"±{low}" if low == high else f"{MINUS}{low} +{high}"


def with_error(value: float, bound: Sequence[float | None] | None, unit: str) -> str:
    """Return ``512 ms ±0.2`` from a value and the ends of its error bound.

    An end of None is open: the true value may be one that never came.
    """
    text = quantity(value, unit)
    if bound is None:
        return text
    low, high = bound
    if low is None or high is None:
        return f"{text} (error bound open)"
    return f"{text} {error(max(value - low, 0.0), max(high - value, 0.0), unit)}"


def rate(obj: Mapping[str, Any]) -> str:
    """Return ``3/40 (7.5 %)``; nothing counted is no rate, not 0 %."""
    hits, total = obj["hits"], obj["total"]
    if not total:
        return "0/0 (no rate)"
    return f"{hits}/{total} ({quantity(hits / total, 'rate')})"


def reason(name: str) -> str:
    """Return a machine-readable reason or flag in words."""
    return name.replace("_", " ")


def stat(value: Any, unit: str, bound: Sequence[float | None] | None = None) -> str:
    """Return a statistic: a number, a censoring bound, or why there is none."""
    if value is None:
        return NONE
    if not isinstance(value, Mapping):
        return with_error(value, bound, unit)
    if "censored" in value:
        return f"> {quantity(value['censored'], unit)}"
    return f"{NONE} ({reason(value['undefined'])})"


def percentile(cell: Mapping[str, Any], name: str, unit: str) -> str:
    """Return a cell's "p50" or "p95" in words, with its error bound.

    A curve of Kaplan-Meier that ends before the percentile says from where on it lies.
    """
    value = cell.get(name)
    bound = cell.get("bound" if name == "p50" else f"{name}_bound")
    text = stat(value, unit, bound)
    is_curve = cell.get("percentile_method") == KAPLAN_MEIER
    is_open = isinstance(value, Mapping) and "censored" in value
    return f"not reached ({text})" if is_curve and is_open else text


def metric_value(obj: Mapping[str, Any] | None, unit: str) -> str:
    """Return one turn's value with its whole error (stamp and detection added)."""
    if obj is None:
        return NONE
    if "hits" in obj:
        return rate(obj)
    if "value" not in obj:
        return stat(obj, unit)
    (minus, plus), (early, late) = obj.get("u", (0, 0)), obj.get("u_detect", (0, 0))
    return f"{quantity(obj['value'], unit)} {error(minus + early, plus + late, unit)}"
