"""Messages that go on like the one before them, which is nearly all there are in a call.

A stream of 50 messages a second mostly tells nothing new: its audio is queued whole behind what
waits, and only every so often there is enough of it to confirm an edge. So it waits undecoded
until then, and what hangs on its messages one by one is brought up to date when something else
happens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import Transition
from vakforge_eval.signal.pcm import decode, encode
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.guard import EchoGuard
from vakforge_probe.stretch import Stretch

__all__ = ["Coast"]

Pcm = npt.NDArray[np.int16]
_NOTHING: tuple[Transition, ...] = ()


class Coast:
    """Takes in messages like the latest one, as long as they come.

    Parameters
    ----------
    like
        The latest message, which lasts for a whole number of ns.
    n_samples
        Of each message.
    stretch
        What they go on.
    decode
        Returns their samples.
    guard
        The guard of the stretch.
    learn
        Takes the audio from which the noise floor is learnt.
    ahead_ns
        What may wait when a message comes, from and to: within this it follows without a gap,
        nothing of it is dropped, and it is no flood.
    most
        How many may come; None for any number.
    """

    def __init__(
        self,
        like: AudioChunk,
        n_samples: int,
        stretch: Stretch,
        decode: Callable[[bytes], Pcm],
        *,
        guard: EchoGuard | None,
        learn: Callable[[Pcm], object] | None,
        ahead_ns: tuple[int, int],
        most: int | None,
    ) -> None:
        self.like, self.stretch = like, stretch
        self.n_samples = n_samples
        self.duration_ns = n_samples * NS_PER_S // like.rate_hz
        self.n_taken = 0
        self._decode, self._guard, self._learn = decode, guard, learn
        self._least_ns, self._most_ns = ahead_ns
        self._most = sys.maxsize if most is None else most
        self._kind = (like.response_id, like.item_id, like.rate_hz, like.codec)
        self._n_bytes, self._codec = len(like.data), like.codec
        self._is_wary = False
        self._width = len(like.data) // n_samples
        self._window, self._run = stretch.tracker.lengths
        self._silence = encode(np.zeros(self._window, np.int16), like.codec)
        self._waiting: list[bytes] = []
        self._most_waiting = like.rate_hz // n_samples
        self._begin_anew()

    def fits(self, chunk: AudioChunk, ahead_ns: int) -> bool:
        """Whether `chunk` is such a message, if `ahead_ns` wait."""
        return (
            self._least_ns <= ahead_ns <= self._most_ns
            and len(chunk.data) == self._n_bytes
            and self.n_taken < self._most
            and (chunk.response_id, chunk.item_id, chunk.rate_hz, chunk.codec) == self._kind
        )

    def push(self, data: bytes, now_ns: int) -> Sequence[Transition]:
        """Take in such a message; return what it confirms, in order."""
        guard = self._guard
        if guard is not None and (now_ns <= guard.wary_until_ns) is not self._is_wary:
            self.settle(now_ns)
            self._is_wary = not self._is_wary
        self.n_taken += 1
        self._waiting.append(data)
        if len(self._waiting) < self._n_unseen or self._is_quiet():
            return _NOTHING
        return self.settle(now_ns)

    def settle(self, now_ns: int) -> list[Transition]:
        """Let the tracker have what waits; it confirms nothing unless `push` says so."""
        if not self._waiting:
            return []
        # Of what is quiet the tracker needs the last window, and the floor all.
        begin = max(0, self._n_quiet - self._window) if self._learn is None else 0
        pcm = self._decode(self._cut(begin, len(self._waiting) * self.n_samples))
        if self._learn is not None:
            self._learn(pcm)
        if self._n_quiet:
            quiet, pcm = np.split(pcm, [self._n_quiet - begin])
            self.stretch.pass_over(self._n_quiet, quiet[-self._window :])
        found = self.stretch.extend(pcm, now_ns, is_wary=self._is_wary)
        self._waiting.clear()
        self._begin_anew()
        return found

    def _begin_anew(self) -> None:
        self._n_quiet = 0
        """So many samples of what waits are shown to be quiet."""
        self._wait_for(self.stretch.tracker.n_free)

    def _wait_for(self, n_free: int) -> None:
        self._n_free = n_free
        """As long as fewer samples wait, they confirm nothing."""
        self._n_unseen = -(-n_free // self.n_samples)
        """As long as fewer messages wait, they need not be looked at."""

    def _is_quiet(self) -> bool:
        """Whether a window of every 30 ms shows that what waits confirms nothing."""
        if len(self._waiting) > self._most_waiting:
            return False
        n, end = len(self._waiting) * self.n_samples, self._n_free
        while self._window <= end <= n and self._is_quiet_before(end):
            self._n_quiet, end = end, end + self._run
        self._wait_for(end)
        return n < end

    def _is_quiet_before(self, end: int) -> bool:
        window = self._cut(end - self._window, end)
        # In digital silence the level need not be asked for, once it is known that none is open.
        if self._n_quiet and window == self._silence:
            return True
        return self.stretch.tracker.is_quiet(decode(window, self._codec))

    def _cut(self, begin: int, end: int) -> bytes:
        """Return the samples from `begin` to `end` of what waits."""
        first = begin // self.n_samples
        data = b"".join(self._waiting[first : -(-end // self.n_samples)])
        skipped = first * self.n_samples
        return data[(begin - skipped) * self._width : (end - skipped) * self._width]
