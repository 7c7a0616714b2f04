"""Audio of one response that is heard without a longer break."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import END_SILENCE_MS, Gate, Transition
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
        self._start_ns = start_ns
        self._n_samples = 0
        self.tracker = GuardedTracker(rate_hz, gate, guard)
        self.end_ns = start_ns
        """When what was pushed so far has been heard."""

    def heard_ns(self, sample: int) -> int:
        """Return when a sample is heard."""
        return self._start_ns + samples_to_ns(sample, self.rate_hz)

    def goes_on(self, message: Message, start_ns: int) -> bool:
        """Whether a message that is heard from `start_ns` belongs to it."""
        return (
            self.response_id == message.response_id
            and self.rate_hz == message.rate_hz
            and start_ns - self.end_ns < END_SILENCE_NS
        )

    def push(self, start_ns: int, pcm: Pcm, now_ns: int) -> list[Transition]:
        """Add audio that is heard from `start_ns`; a gap before it is silence."""
        before: list[Transition] = []
        if start_ns > self.end_ns:
            n_gap = (start_ns - self.end_ns) * self.rate_hz // NS_PER_S
            before = self.tracker.push(np.zeros(n_gap, dtype=np.int16), now_ns)
            self._n_samples += n_gap
        return before + self.extend(pcm, now_ns)

    def pass_over(self, n: int, window: Pcm) -> None:
        """Add `n` samples that are known to be quiet; see `ActivityTracker.pass_over`."""
        self._n_samples += n
        self.end_ns = self.heard_ns(self._n_samples)
        self.tracker.pass_over(n, window)

    def extend(self, pcm: Pcm, now_ns: int, *, is_wary: bool | None = None) -> list[Transition]:
        """Add audio that follows without a gap; see `GuardedTracker.push`."""
        self._n_samples += len(pcm)
        self.end_ns = self.heard_ns(self._n_samples)
        return self.tracker.push(pcm, now_ns, is_wary=is_wary)

    def follows(self, start_ns: int) -> bool:
        """Whether audio that is heard from `start_ns` needs no silence before it."""
        return (start_ns - self.end_ns) * self.rate_hz < NS_PER_S

    def finish(self, now_ns: int) -> list[Transition]:
        """End here."""
        return self.tracker.finish(now_ns)
