"""What the scripted user was heard to say, and when, in the microphone model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.call import Utterance
from vakforge_eval.timeline.instant import Instant, samples_to_ns
from vakforge_eval.timeline.records import Flags
from vakforge_eval.timeline.script import ScriptStep, StepKind

__all__ = ["UserStream"]

_Span = tuple[int, int]


class UserStream:
    """The user's stream as sent: which sample was spoken when.

    Parameters
    ----------
    frames
        Records of the user's audio frames; the k-th carries samples ``[k·L, (k+1)·L)``.
    rate_hz, frame_samples
        The stream's rate, and L.
    """

    def __init__(self, frames: npt.NDArray[np.void], rate_hz: int, frame_samples: int) -> None:
        self._frames, self._rate_hz, self._length = frames, rate_hz, frame_samples
        self.n_samples = len(frames) * frame_samples

    def spoken_start(self, sample: int) -> Instant:
        """Return when `sample` began to be spoken."""
        return self._spoken(sample // self._length, sample)

    def spoken_end(self, position: int) -> Instant:
        """Return when the sample before `position` had been spoken."""
        return self._spoken((position - 1) // self._length, position)

    def utterance(self, step: ScriptStep, start_sample: int, due_ns: int) -> Utterance | None:
        """Return `step` as spoken from stream sample `start_sample` on.

        A call that ended in the middle of it leaves what was spoken until then; None if that is
        nothing. A sham, which plays nothing, begins and ends at its planned moment.
        """
        if step.kind is StepKind.SHAM:
            planned = Instant.exact(due_ns)
            return Utterance(step, planned, planned, (), (), 0, False, False)
        spans = step.voiced or ([(0, step.n_samples)] if step.n_samples else [])
        voiced = self._sent(spans, start_sample)
        if not voiced:
            return None
        first, last = voiced[0][0], voiced[-1][1]
        frames = self._frames[first // self._length : (last - 1) // self._length + 1]
        return Utterance(
            step=step,
            start=self.spoken_start(first),
            end=self.spoken_end(last),
            voiced=self._times(voiced),
            pauses=self._times(self._sent(step.pauses, start_sample)),
            late_ns=_worst_lateness(frames),
            is_reanchored=_has_flag(frames, Flags.REANCHORED),
            has_back_pressure=_has_flag(frames, Flags.BACK_PRESSURE),
        )

    def _spoken(self, frame: int, position: int) -> Instant:
        record = self._frames[frame]
        until_sent = samples_to_ns((frame + 1) * self._length - position, self._rate_hz)
        return Instant.sending(int(record["before"]), int(record["after"])).shifted(-until_sent)

    def _sent(self, spans: Iterable[_Span], start_sample: int) -> list[_Span]:
        """Return the spans in samples of the stream, as far as they were sent."""
        moved = ((max(0, start_sample + a), start_sample + b) for a, b in spans)
        return [(a, min(b, self.n_samples)) for a, b in moved if a < min(b, self.n_samples)]

    def _times(self, spans: Sequence[_Span]) -> tuple[tuple[Instant, Instant], ...]:
        return tuple((self.spoken_start(a), self.spoken_end(b)) for a, b in spans)


def _worst_lateness(frames: npt.NDArray[np.void]) -> int:
    planned = frames[(frames["flags"] & Flags.NO_DUE) == 0]
    return int(np.max(planned["before"] - planned["due"], initial=0))


def _has_flag(frames: npt.NDArray[np.void], flag: Flags) -> bool:
    return bool(np.any(frames["flags"] & flag))
