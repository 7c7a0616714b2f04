"""Audio of one response that is heard without a longer break.

A hole of less than 350 ms is an underrun, as it is to the metrics: it delays what comes after it,
and is left out where speech is searched. What is found is then mapped back to when it is heard.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import END_SILENCE_MS, RUN_MS, Transition
from vakforge_eval.signal.gate import Gate
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, samples_to_ns
from vakforge_probe.guard import EchoGuard, GuardedTracker

__all__ = ["END_SILENCE_NS", "Message", "Stretch"]

Pcm = npt.NDArray[np.int16]

END_SILENCE_NS = END_SILENCE_MS * NS_PER_MS


class Message(NamedTuple):
    """The audio of one message, and where in its item it begins (ns)."""

    pcm: Pcm
    rate_hz: int
    item_id: str | None
    response_id: str | None
    begin_ns: int


class Stretch:
    """Audio of one response that is heard without a longer break, and its tracker."""

    def __init__(
        self,
        start_ns: int,
        rate_hz: int,
        response_id: str | None,
        gate: Gate,
        guard: EchoGuard | None,
    ) -> None:
        self.rate_hz = rate_hz
        self.response_id = response_id
        self.gate = gate
        self._pieces = deque([(0, start_ns)])
        """The first sample after each hole, and when it is heard."""
        self._n_samples = 0
        self._named_at = 0
        """The first sample that has the latest name."""
        self.tracker = GuardedTracker(rate_hz, gate, guard)
        self.end_ns = start_ns
        """When what was pushed so far has been heard."""

    def heard_ns(self, edge: Transition) -> int:
        """Return when an edge is heard: an end with the sample before it, not behind a hole."""
        sample = edge.sample - (edge.kind == "end")
        for piece in reversed(self._pieces):
            if piece[0] <= sample:
                break
        return self._at(piece, edge.sample)

    def goes_on(self, message: Message, start_ns: int) -> bool:
        """Whether a message that is heard from `start_ns` belongs to it."""
        return (
            self._is_named_like(message)
            and self.rate_hz == message.rate_hz
            and start_ns - self.end_ns < END_SILENCE_NS
        )

    def push(self, start_ns: int, pcm: Pcm, now_ns: int) -> list[Transition]:
        """Add audio that is heard from `start_ns`, which may be after a hole."""
        if not self.follows(start_ns):
            self._leave_out(start_ns)
        return self.extend(pcm, now_ns)

    def _is_named_like(self, message: Message) -> bool:
        """Whether a message is of the same response.

        What is too short to be heard is no response: its name is that of a message.
        """
        if self.response_id == message.response_id:
            return True
        is_named = None not in (self.response_id, message.response_id)
        return is_named and (self._n_samples - self._named_at) * 1000 < RUN_MS * self.rate_hz

    def rename(self, response_id: str | None) -> None:
        """Note the name of what is pushed next."""
        if response_id != self.response_id:
            self.response_id, self._named_at = response_id, self._n_samples

    def pass_over(self, n: int, window: Pcm) -> None:
        """Add `n` samples that are known to be quiet; see `ActivityTracker.pass_over`."""
        self._n_samples += n
        self.end_ns = self._at(self._pieces[-1], self._n_samples)
        self.tracker.pass_over(n, window)

    def extend(self, pcm: Pcm, now_ns: int, *, is_wary: bool | None = None) -> list[Transition]:
        """Add audio that follows without a gap; see `GuardedTracker.push`."""
        self._n_samples += len(pcm)
        self.end_ns = self._at(self._pieces[-1], self._n_samples)
        return self.tracker.push(pcm, now_ns, is_wary=is_wary)

    def follows(self, start_ns: int) -> bool:
        """Whether audio that is heard from `start_ns` comes without a hole before it."""
        return (start_ns - self.end_ns) * self.rate_hz < NS_PER_S

    def finish(self, now_ns: int) -> list[Transition]:
        """End here."""
        return self.tracker.finish(now_ns)

    def _leave_out(self, start_ns: int) -> None:
        """Note a hole that ends at `start_ns`; forget those that no edge to come lies before."""
        self.tracker.leave_out((start_ns - self.end_ns) * self.rate_hz // NS_PER_S)
        self._pieces.append((self._n_samples, start_ns))
        oldest = self.tracker.oldest
        while self._pieces[1][0] < oldest:
            self._pieces.popleft()

    def _at(self, piece: tuple[int, int], sample: int) -> int:
        first, start_ns = piece
        return start_ns + samples_to_ns(sample - first, self.rate_hz)
