"""What became of speech that was spoken into, told from when it was heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_probe.agent.heard import joined
from vakforge_probe.agent.overlaps import Outcome, Voice, outcome_at, shared_time

MS = 1_000_000
ONSET = 10_000 * MS


def voice(
    *spans: tuple[float, float], name: str = "r", whole: bool = False, is_open: bool = False
) -> Voice:
    """Spans in ms from the onset."""
    placed = tuple((ONSET + round(a * MS), ONSET + round(b * MS)) for a, b in spans)
    return Voice(name, placed, whole, is_open)


NEW = voice((1500, 4000), name="new", whole=True)


@pytest.mark.parametrize(
    ("known", "outcome"),
    [
        ([], Outcome.SILENT),
        ([voice((-900, -1))], Outcome.SILENT),
        ([voice((-900, 0))], Outcome.SILENT),
        ([voice((-900, 1001))], Outcome.HELD),
        ([voice((-900, 1000))], Outcome.STOPPED),
        ([voice((0, 200))], Outcome.STOPPED),
        ([voice((0, 200)), NEW], Outcome.RESTARTED),
        ([voice((0, 200), whole=True), NEW], Outcome.ENDED),
        ([voice((0, 200), is_open=True)], None),
        ([voice((0, 1200), is_open=True)], Outcome.HELD),
        ([voice((0, 200), (700, 5000))], Outcome.STUTTERED),
        ([voice((0, 200), (3200, 5000))], Outcome.STUTTERED),
        ([voice((0, 200), (3201, 5000))], Outcome.STOPPED),
        ([voice((0, 200), (600, 900), whole=True)], Outcome.ENDED),
        ([voice((0, 200), (600, 900), (1300, 2000))], Outcome.STUTTERED),
        ([voice((0, 200), (600, 900))], Outcome.STOPPED),
    ],
)
def test_outcome_follows_from_what_was_heard(known: list[Voice], outcome: Outcome | None) -> None:
    assert outcome_at(known, ONSET)[0] is outcome


def test_gap_is_the_first_one() -> None:
    _, gap = outcome_at([voice((0, 200), (600, 900), (1300, 2000))], ONSET)
    assert gap == (ONSET + 200 * MS, ONSET + 600 * MS)


def test_a_response_after_the_callers_next_turn_is_no_restart() -> None:
    known = [voice((0, 200)), NEW]
    assert outcome_at(known, ONSET, ONSET + 1500 * MS)[0] is Outcome.STOPPED
    assert outcome_at(known, ONSET, ONSET + 1501 * MS)[0] is Outcome.RESTARTED


def test_gaps_below_200_ms_are_talk_on_either_side() -> None:
    agent = [(0, 300 * MS), (499 * MS, 700 * MS), (900 * MS, 1000 * MS)]
    shared = shared_time(agent, [(100 * MS, 1000 * MS)])
    assert (shared.both, shared.by_agent) == (700 * MS, 100 * MS)
    assert shared.any == 1000 * MS


spans = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(1, 900)).map(
        lambda s: (s[0] * MS, (s[0] + s[1]) * MS)
    ),
    max_size=8,
)


@given(spans, spans)
def test_shared_time_is_that_of_a_count_by_the_millisecond(
    agent: list[tuple[int, int]], user: list[tuple[int, int]]
) -> None:
    shared = shared_time(agent, user)
    mine, theirs = joined(agent, 200 * MS), joined(user, 200 * MS)

    def talks(known: list[tuple[int, int]], ms: int) -> bool:
        return any(a <= ms * MS < b for a, b in known)

    both = [ms for ms in range(4000) if talks(mine, ms) and talks(theirs, ms)]
    either = [ms for ms in range(4000) if talks(mine, ms) or talks(theirs, ms)]
    assert (shared.both, shared.any) == (len(both) * MS, len(either) * MS)
    assert 0 <= shared.by_agent <= shared.both
