"""Arithmetic on stretches of time: lists of ``(begin, end)`` in ns, sorted and apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Stretch", "clipped", "common", "joined", "length"]

Stretch = tuple[int, int]


def joined(stretches: Iterable[Stretch], gap_ns: int = 0) -> list[Stretch]:
    """Return the union of stretches in any order, silence shorter than `gap_ns` filled.

    A stretch that ends before it begins is none. What is part of the input is part of the output,
    and more input never makes less of it.
    """
    out: list[Stretch] = []
    for begin, end in sorted(pair for pair in stretches if pair[0] < pair[1]):
        if out and begin - out[-1][1] < max(gap_ns, 1):
            begin, end = out[-1][0], max(end, out.pop()[1])
        out.append((begin, end))
    return out


def clipped(stretches: Iterable[Stretch], begin: int, end: int) -> list[Stretch]:
    """Return what of the stretches lies in ``[begin, end)``."""
    inside = ((max(a, begin), min(b, end)) for a, b in stretches)
    return [(a, b) for a, b in inside if a < b]


def length(stretches: Iterable[Stretch]) -> int:
    """Return how long stretches last together (ns)."""
    return sum(end - begin for begin, end in stretches)


def common(
    first: Sequence[Stretch], second: Sequence[Stretch]
) -> Iterator[tuple[Stretch, Stretch, int]]:
    """Yield each pair that overlaps, one of `first` and one of `second`, and for how long (ns)."""
    i = j = 0
    while i < len(first) and j < len(second):
        one, other = first[i], second[j]
        shared = min(one[1], other[1]) - max(one[0], other[0])
        if shared > 0:
            yield one, other, shared
        if one[1] <= other[1]:
            i += 1
        else:
            j += 1
