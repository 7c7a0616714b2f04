"""The agent's noise floor as it is learnt during a call, and the gate over it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.gate import Gate, gate_for, noise_floor, stream_floor
from vakforge_eval.timeline.values import Undefined

__all__ = ["Floor", "usable_gate"]

Pcm = npt.NDArray[np.int16]

_LEARN_S = (1, 2, 4, 8)
"""The floor is taken again when so much audio outside responses was heard; then it stands."""


class Floor:
    """The agent's noise floor in dBFS, learnt from audio outside responses; None until known.

    `is_stream`: there speech is among that audio.
    """

    def __init__(self, *, is_stream: bool) -> None:
        self.is_listening = is_stream
        self._of = stream_floor if is_stream else noise_floor
        self.dbfs: float | None = None
        self._heard: list[Pcm] = []
        self._n_heard = 0
        self._rate_hz = 0
        self._lessons = list(_LEARN_S)

    @property
    def is_learning(self) -> bool:
        """Whether audio outside responses still tells it something."""
        return self.is_listening and bool(self._lessons)

    def n_free(self, rate_hz: int) -> int:
        """Return how many samples at `rate_hz` may come, all but the last, before it is taken."""
        n_heard = self._n_heard if rate_hz == self._rate_hz else 0
        return self._lessons[0] * rate_hz - n_heard

    def hear(self, pcm: Pcm, rate_hz: int) -> bool:
        """Take in audio; return whether the floor was taken anew."""
        if not self.is_learning:
            return False
        if rate_hz != self._rate_hz:
            self._rate_hz, self._heard, self._n_heard = rate_hz, [], 0
        self._heard.append(pcm)
        self._n_heard += len(pcm)
        if self._n_heard < self._lessons[0] * rate_hz:
            return False
        self._lessons.pop(0)
        # One stretch: messages shorter than a 10 ms block would give no block at all.
        self._heard = [np.concatenate(self._heard)]
        self.dbfs = self._of(self._heard, rate_hz)
        if not self._lessons:
            self._heard = []
        return True


def usable_gate(floor_dbfs: float | None) -> Gate:
    """Return the gate over a noise floor, or that in quiet where the noise is too high for any."""
    gate = gate_for(floor_dbfs)
    if isinstance(gate, Undefined):
        # Off line such a call is not measurable; live it must still be walked through.
        gate = gate_for(None)
    assert isinstance(gate, Gate)  # noqa: S101 - without a floor there is always a gate
    return gate
