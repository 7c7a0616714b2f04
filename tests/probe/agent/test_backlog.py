"""Messages leave in their order, and when they did is known as well as it was looked at."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.backlog import LOOK_NS, Backlog


class Line:
    """A peer that takes bytes when the test says so, and the agent's clock and alarm."""

    def __init__(self) -> None:
        self.now, self.n_unsent = 0, 0
        self.told: list[tuple[str, Instant]] = []
        self.rings: list[tuple[int, Any]] = []
        self.backlog = Backlog(self, lambda: self.now, lambda: self.n_unsent)  # type: ignore[arg-type]

    def call_at(self, ns: int, callback: Any) -> Any:
        entry = (ns, callback)
        self.rings.append(entry)

        class Handle:
            def cancel(_self) -> None:
                self.rings.remove(entry)

        return Handle()

    def hand_over(self, name: str, n_bytes: int, *, n_unsent: int) -> None:
        self.n_unsent = n_unsent
        at = Instant.sending(self.now, self.now)
        self.backlog.add(n_bytes, at, lambda left: self.told.append((name, left)))

    def ring(self) -> None:
        at, callback = self.rings.pop()
        self.now = max(self.now, at)
        callback()


def test_a_message_that_leaves_at_once_left_when_it_was_written() -> None:
    line = Line()
    line.now = 7
    line.hand_over("a", 100, n_unsent=0)
    assert line.told == [("a", Instant(7, 7, 7))]
    assert not line.rings


def test_a_message_that_waits_left_between_two_looks() -> None:
    line = Line()
    line.hand_over("a", 100, n_unsent=104)
    line.ring()
    assert not line.told
    line.n_unsent = 0
    line.ring()
    assert line.told == [("a", Instant.sending(LOOK_NS, 2 * LOOK_NS))]
    assert not line.rings


def test_framing_never_makes_a_message_leave_too_early() -> None:
    line = Line()
    line.hand_over("a", 100, n_unsent=104)
    line.hand_over("b", 100, n_unsent=104)
    assert not line.told
    line.n_unsent = 100
    line.ring()
    assert [name for name, _ in line.told] == ["a"]


def test_what_waits_when_the_call_is_over_never_left() -> None:
    line = Line()
    line.hand_over("a", 100, n_unsent=104)
    line.backlog.close()
    assert not line.told
    assert not line.rings


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 200)), max_size=30))
def test_all_leave_in_order_and_not_before_they_were_written(steps: list[tuple[int, int]]) -> None:
    line = Line()
    for i, (n_bytes, wanted) in enumerate(steps):
        line.now += 10
        line.hand_over(str(i), n_bytes, n_unsent=min(wanted, line.n_unsent + n_bytes))
    line.n_unsent = 0
    while line.rings:
        line.ring()
    assert [name for name, _ in line.told] == [str(i) for i in range(len(steps))]
    for name, left in line.told:
        assert left.lo >= 10 * (int(name) + 1)
    assert [left.hi for _, left in line.told] == sorted(left.hi for _, left in line.told)
