"""When there is speech in audio: sample-accurate, causal, the same for any chunking.

The level at sample i is the RMS over the trailing 10 ms ``[i - W + 1, i]`` with that window's mean
removed. It is kept as the exact integer ``W² · variance``, so no rounding depends on how the audio
was cut. Before the first sample, and after the last, there is silence.

A *run* is a stretch at or above the off gate (gate - 6 dB), counted from its first sample at the
gate. A run of 30 ms is speech; runs less than `end_silence_ms` apart are one span. Both ends of a
span lie at the **gate**, and mirror each other in time:

- start: the first sample whose trailing window reaches the gate;
- end: one past the last sample whose *leading* window reaches the gate. The trailing window at i is
  the leading window at i - W + 1, so with i the last loud sample the end is i - W + 2. The 30 ms
  that made the run speech count as loud.

Hard-edged speech on ``[s, e)`` fills the window with its first sample and leaves it with its last,
so both ends are exact within a few samples. The off gate only decides whether silence has set in;
an end taken there could not be moved 6 dB down without falling into the noise floor, to which the
gate keeps a distance of just 10 dB.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.bounds import LevelBounds
from vakforge_eval.signal.gate import WINDOW_MS, Gate, whole_samples
from vakforge_eval.signal.pcm import FULL_SCALE

__all__ = [
    "END_SILENCE_MS",
    "RANGE_DB",
    "RUN_MS",
    "SLACK_MS",
    "ActivityTracker",
    "Span",
    "Transition",
    "find_spans",
]

RUN_MS = 30
END_SILENCE_MS = 350
SLACK_MS = 0.5
"""Added to the outer side of each edge: speech may set in this long before it can be seen at all,
since a sound wave starts at zero."""

RANGE_DB = 6.0
_BLOCK_SAMPLES = 1 << 18
"""Off-line audio is worked in pieces of this size, which bounds memory."""

Pcm = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Transition:
    """Speech began or ended; positions are samples counted from the first ever pushed.

    `sample` is the first sample of speech, or one past its last. `confirmed` is how many samples
    must have been heard to know it.
    """

    kind: Literal["onset", "end"]
    sample: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class Span:
    """Speech on ``[start, end)`` and where its edges may lie.

    Each range is where the edge goes when the gate moves by 6 dB to either side. On the outer side
    it is widened by how far a rising sound begins before the window can cross the lower gate:
    three times the way between the two crossings (enough for amplitudes that grow with the square
    of time), plus `SLACK_MS`, at most one window.
    """

    start: int
    end: int
    start_range: tuple[int, int]
    end_range: tuple[int, int]


def find_spans(
    pcm: Pcm, rate_hz: int, gate: Gate, end_silence_ms: float = END_SILENCE_MS
) -> list[Span]:
    """Return the spans of speech in int16 `pcm` of shape ``(n_samples,)``, in order.

    The edges are those of an `ActivityTracker` that was fed the same audio.

    Raises
    ------
    ValueError
        If the rate is below 4 kHz.
    """
    machine = _Machine(rate_hz, gate, end_silence_ms)
    for at in range(0, len(pcm), _BLOCK_SAMPLES):
        machine.push(pcm[at : at + _BLOCK_SAMPLES])
    machine.finish()
    return machine.spans


class ActivityTracker:
    """Finds speech while audio comes in; chunks may be cut anywhere.

    Raises
    ------
    ValueError
        If the rate is below 4 kHz.
    """

    def __init__(self, rate_hz: int, gate: Gate, end_silence_ms: float = END_SILENCE_MS) -> None:
        self._machine = _Machine(rate_hz, gate, end_silence_ms)
        self._waiting: list[Pcm] = []
        self._n_pushed = 0
        self._due = self._machine.earliest()
        """Nothing can be confirmed before so many samples: until then they only wait."""

    @property
    def n_free(self) -> int:
        """Samples that surely confirm nothing: as long as fewer are pushed, they only wait."""
        return self._due - self._n_pushed

    @property
    def lengths(self) -> tuple[int, int]:
        """The samples of a window, and of the shortest run that is speech."""
        return self._machine.lengths

    def is_quiet(self, window: Pcm) -> bool:
        """Whether no speech is open, and the level over a whole window is below the off gate.

        If the window is the one that ends where `n_free` does, nothing is confirmed for one more
        run either: what could be would hold the window's last sample.
        """
        return self._machine.is_quiet(window)

    def pass_over(self, n: int, window: Pcm) -> None:
        """Take in `n` samples that end with `window`.

        `is_quiet` told that it confirms nothing, and so did those before it, one after the other.
        """
        self._n_pushed += n
        self._machine.pass_over(self._n_pushed, window)
        self._waiting, self._due = [], self._machine.earliest()

    @property
    def oldest(self) -> int:
        """No transition to come is at a sample before this one."""
        return self._machine.oldest

    def leave_out(self, n: int) -> None:
        """Note that what is pushed next comes after a hole of `n` samples, which are not counted.

        It neither breaks sound nor is any, and is part of a silence around it.
        """
        self._machine.leave_out(self._n_pushed, n)
        self._due = self._machine.earliest()

    def push(self, pcm: Pcm) -> list[Transition]:
        """Return what `pcm` (int16, shape ``(n_samples,)``) confirms, in order.

        The array is kept, and must not be changed afterwards.
        """
        self._waiting.append(pcm)
        self._n_pushed += len(pcm)
        if self._n_pushed < self._due or self._is_skipped():
            return []
        return self._take(self._catch_up())

    def finish(self) -> list[Transition]:
        """Return what the end of the audio confirms: an open span ends here. Then reset."""
        found = self._catch_up() + self._machine.finish()
        self._due = 0
        return self._take(found)

    def reset(self) -> None:
        """Forget the audio so far, an open span included; samples are counted on."""
        self._catch_up()
        self._machine.reset()
        self._due = 0

    def _is_skipped(self) -> bool:
        """Whether a few samples of what waits show that it confirms nothing yet."""
        pcm, at = self._joined(), 0
        while self._n_pushed >= self._due and (n := self._machine.skip(pcm[at:])):
            at, self._due = at + n, self._machine.earliest()
        self._waiting = [pcm[at:]]
        return self._n_pushed < self._due

    def _catch_up(self) -> list[Transition]:
        if not self._waiting:
            return []
        found = self._machine.push(self._joined())
        self._waiting, self._due = [], self._machine.earliest()
        return found

    def _joined(self) -> Pcm:
        return self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)

    def _take(self, transitions: list[Transition]) -> list[Transition]:
        # A live tracker must not grow with the call.
        self._machine.spans.clear()
        return transitions


_NEVER = 1 << 62

_FEW = 16
"""So few flips are looked at one by one."""
_GLANCE_HALVES = 24
"""Speech that goes on is looked for in so many halves of a window at a time (120 ms)."""

_Bounds = tuple[int, int]
"""First and last sample of some kind; ``(_NEVER, -1)`` when there is none."""


@dataclass(slots=True)
class _Run:
    """A stretch ``[begin, end)`` at or above the off gate; `end` grows while it is open.

    `loud` and `hard`: first and last sample at or above the gate, and 6 dB above it.
    """

    begin: int
    end: int
    loud: _Bounds
    hard: _Bounds

    def extend(self, later: _Run) -> None:
        self.end = later.end
        self.loud = _join(self.loud, later.loud)
        self.hard = _join(self.hard, later.hard)


@dataclass(slots=True)
class _OpenSpan:
    """Speech that has not ended: its first and its latest run."""

    first: _Run
    last: _Run
    hard: _Bounds


class _Machine:
    """The detector; `spans` collects what has ended."""

    def __init__(self, rate_hz: int, gate: Gate, end_silence_ms: float) -> None:
        self._window = whole_samples(WINDOW_MS, rate_hz)
        self._min_run = whole_samples(RUN_MS, rate_hz)
        self._silence = whole_samples(end_silence_ms, rate_hz)
        self._slack = whole_samples(SLACK_MS, rate_hz)
        self._off = _threshold(gate.off_dbfs, self._window)
        self._on = _threshold(gate.on_dbfs, self._window)
        self._hard = _threshold(gate.on_dbfs + RANGE_DB, self._window)
        self._bounds = LevelBounds(self._window)
        self._ones = np.ones(self._window)
        self._n = 0
        self.spans: list[Span] = []
        self.reset()

    def reset(self) -> None:
        self._bounds.reset()
        self._tail: Pcm | Ints = np.zeros(self._window, np.int64)
        self._open: _Run | None = None
        self._span: _OpenSpan | None = None
        self._holes: deque[tuple[int, int]] = deque()
        """Before which sample each is, and of how many; those that may be in a silence."""

    def push(self, pcm: Pcm) -> list[Transition]:
        found: list[Transition] = []
        if len(pcm):
            if not self._skim(pcm):
                for run in self._runs(self._levels(pcm)):
                    self._judge(run, found)
            self._end_by_silence(found)
        return found

    def earliest(self) -> int:
        """Return before how many samples nothing more can be confirmed."""
        if self._span is None:
            return self.oldest + self._min_run
        # Until then a run can only put the end off.
        return self._silent_at(self._span.last)

    def finish(self) -> list[Transition]:
        n_real = self._n
        found = self.push(np.zeros(self._window, np.int16))
        if self._span is not None:
            found.append(self._close(self._span, self._n))
        self.reset()
        self._n = n_real
        return [Transition(t.kind, t.sample, min(t.confirmed, n_real)) for t in found]

    @property
    def lengths(self) -> tuple[int, int]:
        return self._window, self._min_run

    def is_quiet(self, window: Pcm) -> bool:
        if self._span is not None:
            return False
        # Exact, since the integers stay below 2^53. With a mean taken off it is still less.
        x = window.astype(np.float64)
        most: float = self._window * x.dot(x)
        return most < self._off or bool(most - x.dot(self._ones) ** 2 < self._off)

    def pass_over(self, at: int, window: Pcm) -> None:
        """Leave out all before sample `at`, where it is quiet; `window` is the last of it."""
        self._n, self._open, self._tail = at, None, window
        self._bounds.forget()

    @property
    def oldest(self) -> int:
        if self._span is None:
            return self._n if self._open is None else min(self._open.loud[0], self._n)
        return self._end_after(self._span.last)

    def leave_out(self, at: int, n: int) -> None:
        """Note a hole of `n` samples before sample `at`."""
        self._holes.append((at, n))
        oldest = self.oldest
        while self._holes[0][0] < oldest:
            self._holes.popleft()

    def skip(self, pcm: Pcm) -> int:
        """Take in the first samples of `pcm`, if a few show that no more confirm anything.

        Returns how many. What they leave behind is enough for all transitions to come, but not for
        the ranges of a span.
        """
        return self._skip_quiet(pcm) if self._span is None else self._skip_speech(pcm, self._span)

    def _skip_quiet(self, pcm: Pcm) -> int:
        """Skip what holds no run of 30 ms: a level below the off gate every 30 ms shows it."""
        w, done = self._window, 0
        end = self.earliest() - self._n
        while w <= end <= len(pcm) and self.is_quiet(pcm[end - w : end]):
            done, end = end, end + self._min_run
        if done:
            self.pass_over(self._n + done, pcm[done - w : done])
        return done

    def _skip_speech(self, pcm: Pcm, span: _OpenSpan) -> int:
        """Skip to the latest speech that begins before the span can end, and so makes it go on.

        It is what windows must hold that hold a half which is loud by itself (see `bounds`).
        """
        w, half = self._window, self._window // 2
        # The windows in the first half are not known to be loud.
        n_loud = -(-self._min_run // half) + 1
        end, size = min(self._silent_at(span.last) - self._n, len(pcm)), _GLANCE_HALVES * half
        ones, least = self._ones[:half], -(-half * self._on // w)
        while end >= size:
            halves = pcm[end - size : end].astype(np.float64).reshape(-1, half)
            squares, sums = (halves * halves).dot(ones), halves.dot(ones)
            is_loud = half * squares - sums * sums >= least
            first: int = is_loud.tobytes().rfind(b"\1" * n_loud)
            if first >= 0:
                begin = end - size + (first + 1) * half
                done = begin + (n_loud - 1) * half
                loud = (self._n + begin, self._n + done - 1)
                span.last = _Run(self._n + begin, self._n + done, loud, (_NEVER, -1))
                self.pass_over(self._n + done, pcm[done - w : done])
                self._open = span.last
                return done
            end -= size - n_loud * half
        return 0

    def _skim(self, pcm: Pcm) -> bool:
        """Take in `pcm` without its levels, if it is silent throughout, or speech that goes on."""
        if not self._bounds.push(pcm, self._tail):
            return False
        run = self._open
        if run is None:
            if not self._bounds.stays_below(self._off):
                return False
        elif self._span is None or run is not self._span.last or self._bounds.least() < self._hard:
            return False
        begin, self._n = self._n, self._n + len(pcm)
        if run is not None and self._span is not None:
            run.end, throughout = self._n, (begin, self._n - 1)
            run.loud, run.hard = _join(run.loud, throughout), _join(run.hard, throughout)
            self._span.hard = _join(self._span.hard, throughout)
        self._tail = pcm[-self._window :]
        return True

    def _levels(self, pcm: Pcm) -> Ints:
        w = self._window
        x = np.concatenate((self._tail, pcm), dtype=np.int64)
        self._tail = x[-w:].copy()
        sums, squares = np.cumsum(x), np.cumsum(x * x)
        total = sums[w:] - sums[:-w]
        levels: Ints = w * (squares[w:] - squares[:-w]) - total * total
        return levels

    def _runs(self, levels: Ints) -> Iterator[_Run]:
        """Yield the runs that these levels end, in order, then the one that stays open."""
        base, self._n = self._n, self._n + len(levels)
        keep = levels >= self._off
        carried, self._open = self._open, None
        if carried is None and not keep.any():
            return
        flips = (np.flatnonzero(keep[1:] != keep[:-1]) + (base + 1)).tolist()
        if (carried is not None) != keep[0]:
            flips.insert(0, base)
        if carried is not None:
            flips.insert(0, base)
        if keep[-1]:
            flips.append(self._n)
        loud = _bounds(levels >= self._on, flips, base)
        hard = _bounds(levels >= self._hard, flips, base)
        for i, (begin, end) in enumerate(zip(flips[::2], flips[1::2], strict=True)):
            run = _Run(begin, end, loud[i], hard[i])
            if i == 0 and carried is not None:
                carried.extend(run)
                run = carried
            if keep[-1] and end == self._n:
                self._open = run
            yield run

    def _judge(self, run: _Run, found: list[Transition]) -> None:
        start = run.loud[0]
        is_speech = run.end - start >= self._min_run
        if self._span is not None and run is not self._span.last:
            limit = self._silent_at(self._span.last)
            if is_speech and start >= limit:
                found.append(self._close(self._span, limit))
            elif not is_speech and run is not self._open and start < limit <= run.end:
                # While it lasted it could have become speech that belongs to the span.
                found.append(self._close(self._span, run.end + 1))
        if not is_speech:
            return
        if self._span is None:
            self._span = _OpenSpan(run, run, run.hard)
            found.append(Transition("onset", start, start + self._min_run))
        self._span.last = run
        self._span.hard = _join(self._span.hard, run.hard)

    def _end_by_silence(self, found: list[Transition]) -> None:
        if self._span is None or self._open is self._span.last:
            return
        limit = self._silent_at(self._span.last)
        candidate = _NEVER if self._open is None else self._open.loud[0]
        if self._n >= limit and candidate >= limit:
            found.append(self._close(self._span, limit))

    def _silent_at(self, run: _Run) -> int:
        """Return where the silence after `run` is long enough to end a span."""
        begin = run.end - self._window + 1
        limit = begin + self._silence
        for at, n in self._holes:
            if begin <= at < limit:
                limit = max(at, limit - n)
        return limit

    def _end_after(self, run: _Run) -> int:
        return max(run.loud[1], run.loud[0] + self._min_run - 1) - self._window + 2

    def _close(self, span: _OpenSpan, confirmed: int) -> Transition:
        ended = self._edges(span)
        self.spans.append(ended)
        self._span = None
        return Transition("end", ended.end, confirmed)

    def _edges(self, span: _OpenSpan) -> Span:
        w, first, last = self._window, span.first, span.last
        start = first.loud[0]
        end = self._end_after(last)
        silent = last.end - w + 1
        return Span(
            start,
            end,
            (first.begin - self._rise(start - first.begin), min(span.hard[0], end)),
            (min(max(start, span.hard[1] - w + 2), end), silent + self._rise(silent - end)),
        )

    def _rise(self, way: int) -> int:
        """Return how far beyond the lower crossing, `way` from the edge, sound may have begun."""
        return min(3 * way + self._slack, self._window)


def _threshold(dbfs: float, window: int) -> int:
    return math.ceil((window * FULL_SCALE) ** 2 * 10 ** (dbfs / 10))


def _bounds(mask: npt.NDArray[np.bool_], flips: list[int], base: int) -> list[_Bounds]:
    """Return the first and last true sample in each ``[flips[2i], flips[2i + 1])``."""
    pairs = zip(flips[::2], flips[1::2], strict=True)
    if len(flips) <= _FEW:
        return [_bounds_in(mask[i - base : j - base], i) for i, j in pairs]
    true = np.flatnonzero(mask) + base
    at = np.searchsorted(true, flips).tolist()
    return [
        (int(true[i]), int(true[j - 1])) if j > i else (_NEVER, -1)
        for i, j in zip(at[::2], at[1::2], strict=True)
    ]


def _bounds_in(mask: npt.NDArray[np.bool_], base: int) -> _Bounds:
    first = int(mask.argmax()) if len(mask) else 0
    if not len(mask) or not mask[first]:
        return _NEVER, -1
    return base + first, base + len(mask) - 1 - int(mask[::-1].argmax())


def _join(a: _Bounds, b: _Bounds) -> _Bounds:
    return min(a[0], b[0]), max(a[1], b[1])
