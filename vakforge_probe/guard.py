"""Live hearing that is not taken in by the user's own voice, sent back by the agent or the line.

While the user is audible, and half a second longer, an onset waits until 30 ms of it are unlike
what was sent in the last second; where they are alike, 60 ms decide. Voices of one pitch are alike
for 30 ms now and then, so the onset that was only held is told as of when it was, and nothing but
its confirmation is late.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from vakforge_eval.signal.activity import ActivityTracker, Transition
from vakforge_eval.signal.echo import LIKE_SENT, MAX_DELAY_S, WANDER_S, likeness
from vakforge_eval.signal.gate import Gate
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, samples_to_ns

__all__ = ["EchoGuard", "GuardedTracker"]

_TAIL_NS = 500 * NS_PER_MS
_WINDOWS_MS = (30, 60)
_SURE = 2
"""So often alike at one delay is an echo, and later ones are looked for there only."""
_EXACT_NS = 2 * NS_PER_MS
_LIKE_EXACT, _LIKE_NEAR = 0.25, 0.4
"""Where an echo is known, what is best at its very delay, or near it, needs no more to be one."""

Pcm = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]


class EchoGuard:
    """Knows what was sent of late, and tells whether audio repeats it.

    Parameters
    ----------
    rate_hz, frame_samples
        Of the user's stream.
    """

    def __init__(self, rate_hz: int, frame_samples: int) -> None:
        self._rate_hz = rate_hz
        self._silence = bytes(2 * frame_samples)
        kept_s = MAX_DELAY_S + 2 * _WINDOWS_MS[-1] / 1000
        self._frames: deque[bytes] = deque(maxlen=-(-round(kept_s * rate_hz) // frame_samples))
        self._end_ns = 0
        self.wary_until_ns = -1
        """Until when audio that comes may hold the user's voice."""
        self._delay_ns = 0
        self._n_alike = 0

    def said(self, frame: bytes, now_ns: int) -> None:
        """Note a frame of the user's stream (16-bit PCM), whose end was spoken at `now_ns`."""
        self._frames.append(frame)
        self._end_ns = now_ns
        if frame != self._silence:
            self.wary_until_ns = now_ns + _TAIL_NS

    def is_alike(self, pcm: Pcm, rate_hz: int, now_ns: int, *, is_final: bool) -> bool:
        """Whether `pcm`, which came until `now_ns`, correlates with what was sent.

        Parameters
        ----------
        is_final
            Whether this settles it, so that the delay is worth remembering.
        """
        sent, until_ns = self._sent(len(pcm) / rate_hz, now_ns)
        # At the lower of two rates: above its band the other one is empty.
        common = min(rate_hz, self._rate_hz)
        agent = _at_rate(pcm, rate_hz, common)
        correlation, lag = likeness(agent, _at_rate(sent, self._rate_hz, common), common)
        delay_ns = now_ns - until_ns + round(lag * NS_PER_S / common)
        if correlation < self._least(delay_ns):
            return False
        if is_final:
            is_same = abs(delay_ns - self._delay_ns) <= WANDER_S * NS_PER_S
            self._n_alike = self._n_alike + 1 if is_same else 1
            self._delay_ns = delay_ns
        return True

    def _least(self, delay_ns: int) -> float:
        """Return what correlation makes an echo of what is best at a delay."""
        if self._n_alike < _SURE:
            return LIKE_SENT
        is_exact = abs(delay_ns - self._delay_ns) <= _EXACT_NS
        return _LIKE_EXACT if is_exact else _LIKE_NEAR

    def _sent(self, n_s: float, now_ns: int) -> tuple[Pcm, int]:
        """Return what the last `n_s` seconds may repeat, and when the end of it was spoken."""
        pcm = np.frombuffer(b"".join(self._frames), "<i2").astype(np.int16)
        if self._n_alike < _SURE:
            return pcm, self._end_ns
        late_s = (self._delay_ns - (now_ns - self._end_ns)) / NS_PER_S
        cut = round(max(0.0, late_s - WANDER_S) * self._rate_hz)
        keep = round((2 * WANDER_S + n_s) * self._rate_hz)
        return pcm[: len(pcm) - cut][-keep:], self._end_ns - samples_to_ns(cut, self._rate_hz)


def _at_rate(pcm: Pcm, rate_hz: int, wanted_hz: int) -> Floats:
    whole = pcm.astype(np.float64)
    if rate_hz == wanted_hz or not len(whole):
        return whole
    import soxr

    return np.asarray(soxr.resample(whole, rate_hz, wanted_hz))


class GuardedTracker:
    """An `ActivityTracker` whose onsets are the agent's own; without a guard they are all."""

    def __init__(self, rate_hz: int, gate: Gate, guard: EchoGuard | None) -> None:
        self._rate_hz, self._gate, self._guard = rate_hz, gate, guard
        self._tracker, self._origin = ActivityTracker(rate_hz, gate), 0
        self._n = 0
        self._kept: list[Pcm] = []
        self._kept_from = 0
        self._held: list[Transition] = []
        """An onset that waits for its verdict, and what was found behind it."""
        self._n_passed = 0
        """How many of its windows were alike so far."""

    @property
    def n_free(self) -> int:
        """Samples that surely confirm nothing: as long as fewer are pushed, they only wait."""
        return 0 if self._held else self._tracker.n_free

    @property
    def lengths(self) -> tuple[int, int]:
        """The samples of a window, and of the shortest run that is speech."""
        return self._tracker.lengths

    def is_quiet(self, window: Pcm) -> bool:
        """Whether a window confirms nothing; see `ActivityTracker.is_quiet`."""
        return self._tracker.is_quiet(window)

    def pass_over(self, n: int, window: Pcm) -> None:
        """Take in what is known to be quiet; see `ActivityTracker.pass_over`."""
        self._n += n
        # No onset lies in it.
        self._kept.clear()
        self._tracker.pass_over(n, window)

    @property
    def oldest(self) -> int:
        """No transition to come is at a sample before this one."""
        return self._held[0].sample if self._held else self._origin + self._tracker.oldest

    def leave_out(self, n: int) -> None:
        """Note a hole of `n` samples; see `ActivityTracker.leave_out`."""
        self._tracker.leave_out(n)

    def push(self, pcm: Pcm, now_ns: int, *, is_wary: bool | None = None) -> list[Transition]:
        """Return what `pcm`, which came at `now_ns`, confirms, in order.

        Parameters
        ----------
        is_wary
            What the guard said when it came, if it was asked (None: ask it now).
        """
        self._n += len(pcm)
        if is_wary is None:
            is_wary = self._guard is not None and now_ns <= self._guard.wary_until_ns
        if not is_wary and not self._held:
            self._kept.clear()
            return self._found(self._tracker.push(pcm))
        self._keep(pcm)
        return self._judged(self._found(self._tracker.push(pcm)), now_ns, is_last=False)

    def finish(self, now_ns: int) -> list[Transition]:
        """Return what the end of the audio confirms."""
        return self._judged(self._found(self._tracker.finish()), now_ns, is_last=True)

    def _found(self, transitions: list[Transition]) -> list[Transition]:
        if not self._origin:
            return transitions
        by = self._origin
        return [Transition(t.kind, t.sample + by, t.confirmed + by) for t in transitions]

    def _keep(self, pcm: Pcm) -> None:
        if not self._kept:
            self._kept_from = self._n - len(pcm)
        self._kept.append(pcm)
        # Enough to judge an onset that began before the latest message.
        since = self._held[0].sample if self._held else self._n - len(pcm)
        least = since - self._samples(_WINDOWS_MS[-1])
        while self._kept_from + len(self._kept[0]) <= least:
            self._kept_from += len(self._kept.pop(0))

    def _judged(self, found: list[Transition], now_ns: int, *, is_last: bool) -> list[Transition]:
        """Return what is the agent's of what was found and held; hold what is not clear."""
        waiting, self._held = self._held + found, []
        told: list[Transition] = []
        while waiting:
            first = waiting[0]
            is_echo: bool | None = False
            if first.kind == "onset" and self._guard is not None and self._holds(first.sample):
                is_echo = self._is_echo(self._guard, first.sample, now_ns, is_last=is_last)
            if is_echo is None:
                self._held = waiting
                break
            if is_echo:
                waiting = self._again(
                    first.sample + self._samples(_WINDOWS_MS[-1]), is_last=is_last
                )
            else:
                told.append(waiting.pop(0))
        return told

    def _is_echo(self, guard: EchoGuard, onset: int, now_ns: int, *, is_last: bool) -> bool | None:
        """Whether what begins at `onset` is the user's; None until enough of it is here."""
        for ms in _WINDOWS_MS[self._n_passed :]:
            end, is_final = onset + self._samples(ms), ms == _WINDOWS_MS[-1]
            if end > self._n and not is_last:
                return None
            pcm = self._since(onset)[: end - onset]
            # The end of the window came earlier than the end of what is here.
            at_ns = now_ns - max(0, self._n - end) * NS_PER_S // self._rate_hz
            if not guard.is_alike(pcm, self._rate_hz, at_ns, is_final=is_final):
                self._n_passed = 0
                return False
            self._n_passed += 1
        self._n_passed = 0
        return True

    def _again(self, sample: int, *, is_last: bool) -> list[Transition]:
        """Forget all before `sample`; return what is found from there on."""
        sample = min(sample, self._n)
        self._tracker, self._origin = ActivityTracker(self._rate_hz, self._gate), sample
        found = self._found(self._tracker.push(self._since(sample)))
        return found + (self._found(self._tracker.finish()) if is_last else [])

    def _holds(self, sample: int) -> bool:
        return bool(self._kept) and sample >= self._kept_from

    def _since(self, sample: int) -> Pcm:
        kept = np.concatenate(self._kept) if self._kept else np.zeros(0, np.int16)
        return kept[max(0, sample - self._kept_from) :]

    def _samples(self, ms: int) -> int:
        return ms * self._rate_hz // 1000
