"""Bounds of the level over a message of audio, for a fraction of the price of the level itself.

Theory. A message and the window before it are cut into halves of a window. A window that ends in
half j lies within the halves j-2 to j, and holds half j-1 whole. ``W² · variance`` of a window is W
times its summed squares about its own mean: not less than those of a part about the part's mean,
not more than those of a whole about the whole's. One matrix product of the halves gives their sums
of squares (its diagonal) and, by a row of ones, their sums. All numbers are integers below 2^53,
so nothing is rounded before the last division.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LevelBounds"]

MAX_HALVES = 16
"""Beyond 80 ms the product costs more than the level, and fewer messages are all of one kind."""

Samples = npt.NDArray[np.int16] | npt.NDArray[np.int64]


class LevelBounds:
    """Bounds of ``W² · variance`` of the trailing window at every sample of one message at a time.

    Parameters
    ----------
    window
        Samples of the window (W).
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._half = window // 2
        self._make_room(2)
        self.reset()

    def reset(self) -> None:
        """Begin anew, after digital silence."""
        self._squares = [0.0, 0.0]
        self._sums = [0.0, 0.0]

    def forget(self) -> None:
        """Begin anew after audio that was not taken in: the next tail tells of it."""
        self._squares = []

    def push(self, pcm: Samples, tail: Samples) -> bool:
        """Take in a message; return whether it has bounds: only whole halves, 2 to 16, have.

        Parameters
        ----------
        pcm
            int16, shape ``(n_samples,)``.
        tail
            The window's worth of samples before it.
        """
        n, rest = divmod(len(pcm), self._half)
        if rest or not 2 <= n <= MAX_HALVES:
            self._squares = []
            return False
        if not self._squares:
            self._squares, self._sums = self._moments(tail[-2 * self._half :], 2)
        squares, sums = self._moments(pcm, n)
        self._squares = self._squares[-2:] + squares
        self._sums = self._sums[-2:] + sums
        return True

    def least(self) -> float:
        """Return what no level of the last message is below."""
        half, pairs = self._half, zip(self._squares[1:-1], self._sums[1:-1], strict=True)
        return self._window * min([half * q - s * s for q, s in pairs]) / half

    def most(self) -> float:
        """Return what no level of the last message is above."""
        q, s, n = self._squares, self._sums, 3 * self._half
        spreads = [
            n * (q[j - 2] + q[j - 1] + q[j]) - (s[j - 2] + s[j - 1] + s[j]) ** 2
            for j in range(2, len(q))
        ]
        return self._window * max(spreads) / n

    def stays_below(self, limit: float) -> bool:
        """Whether all levels of the last message are below `limit`, as far as can be told."""
        # Three halves hold no more than three times the strongest one.
        return 3 * self._window * max(self._squares) < limit or self.most() < limit

    def _moments(self, pcm: Samples, n: int) -> tuple[list[float], list[float]]:
        """Return the sums of squares, and the sums, of each half."""
        if not pcm.any():
            return [0.0] * n, [0.0] * n
        if n != self._n:
            self._make_room(n)
        self._flat[:] = pcm
        product = np.dot(self._work, self._turned).tolist()
        sums = product.pop()
        return [row[j] for j, row in enumerate(product)], sums[:n]

    def _make_room(self, n: int) -> None:
        """Make the matrix of n halves and a row of ones."""
        self._n, self._work = n, np.ones((n + 1, self._half))
        self._turned, self._flat = self._work.T, self._work[:n].reshape(-1)
