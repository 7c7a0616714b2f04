"""Messages that go on like the one before them, which is nearly all there are in a call.

A stream of 50 messages a second mostly tells nothing new: its audio is queued whole behind what
waits, and only every so often there is enough of it to confirm an edge. So it waits undecoded
until then, and what hangs on its messages one by one is brought up to date when something else
happens.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import Transition
from vakforge_eval.signal.pcm import encode
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.guard import EchoGuard
from vakforge_probe.stretch import Stretch

__all__ = ["Coast"]

Pcm = npt.NDArray[np.int16]


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
        self._ahead_ns = ahead_ns
        self._most = most
        self._is_wary = False
        self._width = len(like.data) // n_samples
        self._window, self._run = stretch.tracker.lengths
        self._silence = encode(np.zeros(self._window, np.int16), like.codec)
        self._raw = bytearray()
        self._most_raw = self._width * like.rate_hz
        self._n_free = stretch.tracker.n_free
        """As long as fewer samples are in `_raw`, they confirm nothing."""
        self._n_quiet = 0
        """Up to here that was shown by windows of `_raw`."""

    def fits(self, chunk: AudioChunk, ahead_ns: int) -> bool:
        """Whether `chunk` is such a message, if `ahead_ns` wait."""
        like, (least, most) = self.like, self._ahead_ns
        return (
            least <= ahead_ns <= most
            and chunk.response_id == like.response_id
            and chunk.item_id == like.item_id
            and len(chunk.data) == len(like.data)
            and chunk.rate_hz == like.rate_hz
            and chunk.codec == like.codec
            and (self._most is None or self.n_taken < self._most)
        )

    def push(self, data: bytes, now_ns: int) -> list[Transition]:
        """Take in such a message; return what it confirms, in order."""
        guard = self._guard
        if guard is not None and guard.is_wary(now_ns) is not self._is_wary:
            self.settle(now_ns)
            self._is_wary = not self._is_wary
        self.n_taken += 1
        self._raw += data
        if len(self._raw) < self._n_free * self._width or self._is_quiet():
            return []
        return self.settle(now_ns)

    def settle(self, now_ns: int) -> list[Transition]:
        """Let the tracker have what waits; it confirms nothing unless `push` says so."""
        if not self._raw:
            return []
        pcm = self._decode(bytes(self._raw))
        if self._learn is not None:
            self._learn(pcm)
        found = self.stretch.extend(pcm, now_ns, is_wary=self._is_wary, n_quiet=self._n_quiet)
        self._raw.clear()
        self._n_free, self._n_quiet = self.stretch.tracker.n_free, 0
        return found

    def _is_quiet(self) -> bool:
        """Whether a window of every 30 ms shows that what waits confirms nothing."""
        n_raw = len(self._raw) // self._width
        if len(self._raw) > self._most_raw:
            return False
        while self._window <= self._n_free <= n_raw and self._is_quiet_before(self._n_free):
            self._n_quiet = self._n_free
            self._n_free += self._run
        return n_raw < self._n_free

    def _is_quiet_before(self, end: int) -> bool:
        window = bytes(self._raw[(end - self._window) * self._width : end * self._width])
        # In digital silence the level need not be asked for, once it is known that none is open.
        if window == self._silence and self._n_quiet:
            return True
        return self.stretch.tracker.is_quiet(self._decode(window))
