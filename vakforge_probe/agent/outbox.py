"""The agent's only way out: messages with a planned moment, then the line with its jitter.

Two stages. In the *plan* a message waits for its moment and may still be dropped, held or moved
(that is how the agent stops). Then it is on the *line*, whose jitter and stalls keep the order and
which nothing can be taken back from, as on a network.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.backlog import Backlog
from vakforge_probe.net.alarm import Alarm, Handle
from vakforge_probe.protocol.base import Wire

__all__ = ["Letter", "Outbox", "Posted"]


@dataclass(frozen=True, slots=True)
class Letter:
    """What to send at one moment.

    `write` gives the messages when the moment has come; `tag` names what can be dropped together;
    `on_posted` is told of each message's real sending, once it has left; a letter with `stall_ns`
    first holds the line for so long.
    """

    write: Callable[[], list[Wire]]
    tag: str | None = None
    on_posted: Callable[[Posted], None] | None = None
    stall_ns: int = 0


@dataclass(frozen=True, slots=True)
class Posted:
    """One message that was sent: when it left, and how late it was handed over to the line (ns).

    A client on this machine cannot have it before `at`, nor, if it reads, much later.
    """

    at: Instant
    late_ns: int


class Outbox:
    """Sends letters at their planned moments.

    Parameters
    ----------
    send
        Writes one message at once.
    n_unsent
        Returns how many bytes of what was written have not left.
    jitter_ns
        Each letter is late on the line by 0 to this.
    """

    def __init__(
        self,
        alarm: Alarm,
        now_ns: Callable[[], int],
        send: Callable[[Wire], None],
        n_unsent: Callable[[], int],
        *,
        jitter_ns: int = 0,
        seed: int = 0,
    ) -> None:
        self._alarm, self._now_ns, self._send = alarm, now_ns, send
        self._backlog = Backlog(alarm, now_ns, n_unsent)
        self._jitter_ns = jitter_ns
        self._random = random.Random(f"jitter {seed}")
        self._order = itertools.count()
        self._plan: list[tuple[int, int, Letter]] = []
        self._line: deque[tuple[int, Letter, list[Wire]]] = deque()
        self._line_free = 0
        self._free_at = 0
        self._armed: tuple[int, Handle] | None = None
        self._is_closed = False
        self._is_running = False

    def put(self, planned_ns: int, letter: Letter) -> None:
        """Plan `letter`; those of one moment go in the order of their planning."""
        heapq.heappush(self._plan, (planned_ns, next(self._order), letter))
        self._arm()

    def say(self, messages: list[Wire], on_posted: Callable[[Posted], None] | None = None) -> None:
        """Send `messages` now (behind what is already on the line)."""
        self.put(self._now_ns(), Letter(lambda: messages, None, on_posted))
        self.run()

    def call(self, planned_ns: int, callback: Callable[[], None], tag: str | None = None) -> None:
        """Call `callback` at its moment, in turn with the letters."""

        def write() -> list[Wire]:
            callback()
            return []

        self.put(planned_ns, Letter(write, tag))

    def drop(self, tag: str) -> int:
        """Drop what is planned under `tag`; return how many letters that were."""
        kept = [entry for entry in self._plan if entry[2].tag != tag]
        dropped = len(self._plan) - len(kept)
        self._plan = kept
        heapq.heapify(self._plan)
        return dropped

    def move(self, tag: str, by_ns: int) -> None:
        """Move what is planned under `tag` by `by_ns`."""
        self._plan = [
            (at + by_ns if letter.tag == tag else at, order, letter)
            for at, order, letter in self._plan
        ]
        heapq.heapify(self._plan)
        self._arm()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._plan.clear()
        self._line.clear()
        self._backlog.close()
        if self._armed is not None:
            self._armed[1].cancel()
            self._armed = None

    def run(self) -> None:
        """Send all that is due; called by the alarm, and harmless at any time."""
        if self._is_running or self._is_closed:
            return
        self._is_running = True
        try:
            while self._step():
                pass
        finally:
            self._is_running = False
        self._arm()

    def _step(self) -> bool:
        now = self._now_ns()
        if self._line and self._line[0][0] <= now:
            self._post(*self._line.popleft())
            return not self._is_closed
        if self._plan and self._plan[0][0] <= now:
            planned, _, letter = heapq.heappop(self._plan)
            messages = letter.write()
            if not messages:
                return True
            late = round(self._random.uniform(0, self._jitter_ns)) if self._jitter_ns else 0
            self._line_free = max(self._line_free, planned + late)
            if letter.stall_ns:
                self._line_free = max(self._line_free, planned + letter.stall_ns)
            self._line.append((self._line_free, letter, messages))
            return True
        return False

    def _post(self, intended: int, letter: Letter, messages: list[Wire]) -> None:
        for message in messages:
            # Messages of one moment leave one behind the other; that is no lateness.
            intended = max(intended, self._free_at)
            before = self._now_ns()
            self._send(message)
            at, told = Instant.sending(before, self._now_ns()), letter.on_posted
            self._backlog.add(len(message), at, _teller(told, before - intended))
            self._free_at = self._now_ns()

    def _arm(self) -> None:
        if self._is_closed or self._is_running:
            return
        heads = [queue[0][0] for queue in (self._line, self._plan) if queue]
        if not heads:
            return
        at = min(heads)
        if self._armed is not None:
            if self._armed[0] <= at:
                return
            self._armed[1].cancel()
        self._armed = (at, self._alarm.call_at(at, self._ring))

    def _ring(self) -> None:
        self._armed = None
        self.run()


def _teller(told: Callable[[Posted], None] | None, late_ns: int) -> Callable[[Instant], None]:
    def tell(at: Instant) -> None:
        if told is not None:
            told(Posted(at, late_ns))

    return tell
