"""The caller's own voice in the agent's audio: found, measured and taken out.

An agent, or the line to it, may send back what it hears. Such an echo is not the agent's speech. It
is told by its likeness to what was sent, at one delay, and never by its level:

- **Found** by cross-correlation. Both signals are whitened, since the raw correlation of any two
  voices is high, and the agent's is brought to one level every 10 ms, so that its pauses, where an
  echo lies bare, weigh as much as its words. A peak counts if it stands out of the background of
  all other delays; a weak one only if another stretch of the call has it at the same delay.
- **Taken out** by a short FIR path, least squares with weights that follow the residual: blocks in
  which the agent itself talks tell little of the path. Nothing is subtracted from a block of 10 ms
  that would get louder by it, so a path that is wrong for a while adds no sound.

Positions: `sent` begins `lead` samples before `agent`, both at one rate. At a *lag* of k samples
``agent[n]`` repeats ``sent[lead + n - k]``.

References
----------
G-CC with whitening: Knapp & Carter, "The generalized correlation method for estimation of time
delay", IEEE Trans. ASSP 24(4), 1976.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.instant import NS_PER_S

__all__ = [
    "LIKE_SENT",
    "MAX_DELAY_S",
    "SLACK_S",
    "WANDER_S",
    "Alignment",
    "Echo",
    "Path",
    "Stretch",
    "align",
    "find_echo",
    "fit",
    "likeness",
    "remove",
]

MAX_DELAY_S = 1.0
"""An echo that comes later is not looked for."""
SLACK_S = 0.06
"""How far an arrival may be off the moment at which its audio was made."""
LIKE_SENT = 0.5
"""Audio that correlates so well with what was sent is its echo."""

_SEARCH_HZ = 8000
_BLOCK_S = 0.010
_CLEAR = (10.0, 1.6)
"""A peak that counts by itself: height over the background's deviation, and over its next peak."""
_FAINT = (6.5, 1.2)
"""A peak that counts if a second stretch has it too."""
_AGREE_S = 0.015
_KNOWN = 5.0
"""Height of a peak that counts where an echo is known to be."""
WANDER_S = 0.130
"""How far the lag of a known echo moves within a call: jitter, drift, and the jumps that end it."""
_LEVEL_DB = 8.0
"""How far the level of a known echo moves within a call."""
_PEAK_S = 0.030
"""How far around a peak the same echo may have others: a room answers more than once."""
_SLOW = 16
_MIN_OPEN = 0.01
"""A lag at which chance would make less than this of what it makes elsewhere tells nothing."""
_TAPS_BEFORE_S, _TAPS_S = 0.0005, 0.0015
_ROUNDS = 4
_PASSES = 3
_MEASURED = 5
"""So many stretches are compared for where the echo is clearest."""
_TAP = 0.1
"""How large a tap is thought to be before anything is known of it."""
_BURIED = 0.25
"""An echo of less than this share of a block's power is buried in it."""
_MIN_LEVEL_DB = -50.0
"""A weaker echo is neither heard nor told from chance."""
_LPC_ORDER = 8
_FINE_S = 0.4
"""So much of what was sent is compared at its full rate."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Echo:
    """An echo of the caller in the agent's audio.

    Attributes
    ----------
    delay_ns
        From a sample's being spoken to its place in the agent's audio.
    level_db
        Power of the echo over that of what was sent.
    correlation
        Of the echo with the agent's audio, in [0, 1], where it is clearest.
    """

    delay_ns: int
    level_db: float
    correlation: float


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Agent audio without a hole, and what had been sent by then.

    `agent` has shape ``(n,)``, `sent` ``(lead + n + m,)`` at the same rate; ``sent[lead]`` was
    spoken when ``agent[0]`` came, but for `offset_ns`.
    """

    agent: Floats
    sent: Floats
    lead: int
    rate_hz: int
    offset_ns: int = 0

    def delay_ns(self, lag: float) -> int:
        """Return the delay that a lag stands for."""
        return round(lag * NS_PER_S / self.rate_hz) + self.offset_ns

    def lag_of(self, delay_ns: int) -> int:
        """Return the lag of a delay, in whole samples."""
        return round((delay_ns - self.offset_ns) * self.rate_hz / NS_PER_S)


@dataclass(frozen=True, slots=True)
class Alignment:
    """The best lag of a stretch; `height` and `margin` tell how far its peak stands out."""

    lag: int
    height: float
    margin: float

    def passes(self, least: tuple[float, float]) -> bool:
        """Whether both reach `least`."""
        return self.height >= least[0] and self.margin >= least[1]


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """What makes the echo of what was sent: `taps` from lag `first` on."""

    first: int
    taps: Floats

    def of(self, stretch: Stretch) -> Floats:
        """Return the echo in `stretch`, shape ``(n,)``."""
        n, size = len(stretch.agent), len(self.taps)
        begin = stretch.lead - self.first - size + 1
        window = _padded(stretch.sent, begin, begin + n + size - 1)
        return np.convolve(window, self.taps, "valid")

    def lag(self, stretch: Stretch) -> float:
        """Return the lag at which the echo is most like what was sent, between samples."""
        n, size = len(stretch.agent), len(self.taps)
        begin = stretch.lead - self.first - size + 1
        sent = _tilted(_padded(stretch.sent, begin, begin + n + size - 1))
        alike = np.abs(np.correlate(sent, _tilted(self.of(stretch)), "valid"))[::-1]
        return self.first + _peak(alike)

    def level_db(self, stretch: Stretch) -> float | None:
        """Return the power of the echo over that of what it repeats; None if either is silent."""
        begin = stretch.lead - round(self.lag(stretch))
        sent = _padded(stretch.sent, begin, begin + len(stretch.agent))
        power, echo = float(np.sum(np.square(sent))), float(np.sum(np.square(self.of(stretch))))
        return 10 * math.log10(echo / power) if power > 0 and echo > 0 else None

    def correlation(self, stretch: Stretch) -> float:
        """Return the correlation of the echo with the agent's audio, in [0, 1]."""
        echo = self.of(stretch)
        scale = float(np.sum(np.square(echo)) * np.sum(np.square(stretch.agent)))
        return min(1.0, abs(float(echo @ stretch.agent)) / math.sqrt(scale)) if scale > 0 else 0.0


def align(stretch: Stretch, near: int | None = None) -> Alignment | None:
    """Return the lag at which `stretch` repeats best what was sent.

    Parameters
    ----------
    near
        Look only around this lag; the background is that of all lags.

    Returns
    -------
    Alignment or None
        None where there is nothing to correlate.
    """
    step = max(1, round(stretch.rate_hz / _SEARCH_HZ))
    agent, sent = _coarse(stretch.agent, step), _coarse(stretch.sent, step)
    rate = stretch.rate_hz / step
    if len(agent) <= _LPC_ORDER or not agent.any() or not sent.any():
        return None
    agent = _levelled(_tilted(agent), round(rate * _BLOCK_S))
    whitener = _predictor(agent)
    agent = np.clip(_filtered(agent, whitener), -3, 3)
    sent = _filtered(_tilted(sent), whitener)
    lead = stretch.lead // step
    most = min(lead, round((MAX_DELAY_S + SLACK_S) * rate))
    lags = np.arange(-round(SLACK_S * rate), most + 1)
    # What chance would make of each lag: little where pauses meet.
    chance = _chance(agent, sent)[lead - lags]
    is_open = chance > _MIN_OPEN * np.max(chance)
    heights = np.zeros(len(lags))
    heights[is_open] = np.abs(_met(agent, sent)[lead - lags[is_open]]) / np.sqrt(chance[is_open])
    allowed = heights
    if near is not None:
        allowed = np.where(np.abs(lags - near / step) <= WANDER_S * rate, heights, 0)
    best = int(np.argmax(allowed))
    others = heights[is_open & (np.abs(lags - lags[best]) > _PEAK_S * rate)]
    if not others.any():
        return None
    height, deviation = float(allowed[best]), math.sqrt(np.mean(np.square(others)))
    return Alignment(int(lags[best]) * step, height / deviation, height / float(np.max(others)))


def _chance(agent: Floats, sent: Floats) -> Floats:
    """Return the variance of `_met` for signals that have nothing to do with each other.

    It changes with their loudness, so a few samples are taken together.
    """
    few = _coarse(_padded(np.square(agent), 0, len(agent) + _SLOW - 1), _SLOW) * _SLOW
    many = _coarse(np.square(sent), _SLOW)
    at = np.arange(len(sent)) / _SLOW
    return np.maximum(np.interp(at, np.arange(len(many)), _met(few, many)[: len(many)]), 0)


def _met(agent: Floats, sent: Floats) -> Floats:
    """Return the sum of products with ``agent[0]`` at ``sent[j]``, for all j that leave room."""
    size = _fast_length(max(len(sent), len(agent)))
    out: Floats = np.fft.irfft(np.fft.rfft(sent, size) * np.conj(np.fft.rfft(agent, size)), size)
    return out


def find_echo(stretches: Sequence[Stretch]) -> Echo | None:
    """Return the echo that runs through `stretches`, or None.

    It needs one clear peak, or faint ones of two stretches at one delay; and what is at the peak
    must be a path that makes the audio quieter.
    """
    found = []
    for stretch in stretches:
        alignment = align(stretch)
        if alignment is not None and alignment.passes(_FAINT):
            found.append((alignment, stretch))
    found.sort(key=lambda pair: pair[0].height, reverse=True)
    for best, stretch in found:
        delay = stretch.delay_ns(best.lag)
        alike = [f for f in found if abs(f[1].delay_ns(f[0].lag) - delay) <= _AGREE_S * NS_PER_S]
        if best.passes(_CLEAR) or len(alike) > 1:
            echoes = [_measured(stretch, a.lag) for a, stretch in alike[:_MEASURED]]
            told = [echo for echo in echoes if echo.level_db > _MIN_LEVEL_DB]
            if told:
                return max(told, key=lambda echo: echo.correlation)
    return None


def _measured(stretch: Stretch, lag: int) -> Echo:
    path = fit(stretch, lag)
    level = path.level_db(stretch)
    return Echo(
        delay_ns=stretch.delay_ns(path.lag(stretch)),
        level_db=-math.inf if level is None else level,
        correlation=path.correlation(stretch),
    )


def fit(stretch: Stretch, lag: int, done: Floats | None = None) -> Path:
    """Return the path around `lag` by least squares.

    A block of 10 ms weighs as much as it is quiet once the echo is out of it; taps of which the
    audio tells nothing stay zero.

    Parameters
    ----------
    done
        What was taken out before: blocks that are settled by it have no say.
    """
    rate, n = stretch.rate_hz, len(stretch.agent)
    path = Path(lag - math.ceil(_TAPS_BEFORE_S * rate), np.zeros(math.ceil(_TAPS_S * rate)))
    edges = _edges(n, round(_BLOCK_S * rate))
    squares, products = _moments(stretch, path, edges)
    ridge = np.eye(len(path.taps)) / _TAP**2
    # Where nothing was sent back, nothing tells how it would have been.
    is_there = _powers(stretch.agent, edges) > 0
    if done is not None:
        is_there &= _powers(done, edges) == 0
    for _ in range(_ROUNDS):
        echo = path.of(stretch)
        left = _powers(stretch.agent - echo, edges)
        # A residual far below the echo, or below a rounding step, says no more than a small one.
        weight = is_there / (left + 1e-4 * float(np.mean(np.square(echo))) + 1)
        total = np.einsum("b,bij->ij", weight, squares) + ridge
        taps: Floats = np.linalg.solve(total, weight @ products)
        path = Path(path.first, taps)
    return path


def _moments(stretch: Stretch, path: Path, edges: Ints) -> tuple[Floats, Floats]:
    """Return, for each block, the products of all pairs of taps' inputs and of these with `agent`.

    Inputs of taps i and i + d in a block are those of taps 0 and d, i samples earlier; so running
    sums, one for each d, hold all of them.
    """
    n_taps, n = len(path.taps), len(stretch.agent)
    begin = stretch.lead - path.first - n_taps + 1
    sent = _padded(stretch.sent, begin, begin + n + n_taps - 1)
    squares = np.empty((len(edges) - 1, n_taps, n_taps))
    products = np.empty((len(edges) - 1, n_taps))
    # sent[last + k - i] meets tap i at sample k.
    last = n_taps - 1
    for d in range(n_taps):
        pairs = np.concatenate(([0.0], np.cumsum(sent[d:] * sent[: len(sent) - d])))
        i = np.arange(n_taps - d)
        sums = np.diff(pairs[edges[:, None] + (last - d - i)], axis=0)
        squares[:, i, i + d] = squares[:, i + d, i] = sums
        met = np.concatenate(([0.0], np.cumsum(sent[last - d : last - d + n] * stretch.agent)))
        products[:, d] = np.diff(met[edges])
    return squares, products


def remove(stretch: Stretch, echo: Echo) -> tuple[Floats, Floats]:
    """Return the agent's audio without `echo`, and what was taken out; both of shape ``(n,)``.

    Nothing is where no peak lies near the echo's delay, or where the path there has another level.
    Several passes follow an echo that jumps.
    """
    agent, left = stretch.agent, stretch.agent
    echoes: list[Floats] = []
    while len(echoes) < _PASSES:
        rest = replace(stretch, agent=left)
        found = align(rest, near=stretch.lag_of(echo.delay_ns))
        if found is None or found.height < _KNOWN:
            break
        path = fit(rest, found.lag, agent - left)
        level = path.level_db(rest)
        if level is None or abs(level - echo.level_db) > _LEVEL_DB:
            break
        echoes.append(path.of(rest))
        left = _least(agent, echoes, round(_BLOCK_S * stretch.rate_hz))
    return left, agent - left


def likeness(agent: Floats, sent: Floats, rate_hz: int) -> tuple[float, int]:
    """Return how well a few 10 ms of `agent` correlate with some part of `sent`.

    Parameters
    ----------
    agent, sent
        At one rate; `sent` ends when `agent` does, and is longer.

    Returns
    -------
    tuple
        The correlation in [0, 1], and the lag in samples. The lag is that of the best match of the
        whitened signals: voices of one pitch match at many lags, an echo at one. The correlation
        is taken there, of these or of the speech band, whichever is higher.
    """
    band = max(1, round(rate_hz / _SEARCH_HZ))
    # A hiss has all its sound above the coarse samples; to search them all is dear.
    step = band if len(sent) > _FINE_S * rate_hz else 1
    # Cut at the front, so that both still end together.
    agent, sent = agent[len(agent) % step :], sent[len(sent) % step :]
    few, many = _coarse(agent, step), _coarse(sent, step)
    if len(many) < len(few) or len(few) <= 2 * _LPC_ORDER or not few.any() or not many.any():
        return 0.0, 0
    few -= np.mean(few)
    whitener = _predictor(few)
    sharp = _correlations(
        _filtered(few, whitener)[_LPC_ORDER:], _filtered(many, whitener)[_LPC_ORDER:]
    )
    # The coarse samples of one lie between those of the other: look at each full one around there.
    whole = int(np.argmax(sharp))
    first = max(0, (whole - 1) * step)
    last = min(len(sent), (whole + 1) * step + len(agent))
    speech = np.convolve(np.ones(band) / band, np.concatenate(([1.0], np.zeros(band - 1), [-0.8])))
    skip = len(speech)
    broad = _correlations(
        _filtered(agent, speech)[skip:], _filtered(sent[first:last], speech)[skip:]
    )
    best = int(np.argmax(broad))
    alike = max(float(broad[best]), float(sharp[whole]))
    return alike, len(sent) - len(agent) - first - best


def _correlations(agent: Floats, sent: Floats) -> Floats:
    """Return the normalised correlation of `agent` with each part of `sent`, signs left out."""
    n, products = len(agent), _met(agent, sent)
    energy = np.concatenate(([0.0], np.cumsum(np.square(sent))))
    parts = energy[n:] - energy[:-n]
    # A part far below the loudest is next to silence: its shape is rounding.
    scale = np.sum(np.square(agent)) * np.maximum(parts, 1e-5 * np.max(parts))
    out: Floats = np.abs(products[: len(parts)]) / np.sqrt(np.maximum(scale, 1e-12))
    return out


def _predictor(x: Floats) -> Floats:
    """Return the filter that whitens `x` (linear prediction, a little noise for stability)."""
    # Not `@`: it gives so long a product to a pool of threads, which on busy cores wait for each
    # other many times longer than the product takes.
    spread = np.array([np.einsum("i,i", x[k:], x[: len(x) - k]) for k in range(_LPC_ORDER + 1)])
    order = np.arange(_LPC_ORDER)
    matrix = spread[np.abs(order[:, None] - order[None, :])]
    matrix[order, order] += 1e-3 * spread[0] + 1e-6
    return np.concatenate(([1.0], -np.linalg.solve(matrix, spread[1:])))


def _filtered(x: Floats, taps: Floats) -> Floats:
    return np.convolve(x, taps)[: len(x)]


def _tilted(x: Floats) -> Floats:
    """Return `x` without the tilt that speech has."""
    return _filtered(x, np.array([1.0, -0.95]))


def _peak(x: Floats) -> float:
    """Return where `x` is largest, between samples by a parabola."""
    k = int(np.argmax(x))
    if not 0 < k < len(x) - 1:
        return float(k)
    bend = float(x[k - 1] - 2 * x[k] + x[k + 1])
    return k + float(x[k - 1] - x[k + 1]) / (2 * bend) if bend else float(k)


def _levelled(x: Floats, block: int) -> Floats:
    """Return `x` with each block at unit power; what is far below the mean stays below."""
    n = -(-len(x) // block)
    power = np.mean(np.square(_padded(x, 0, n * block).reshape(n, block)), axis=1)
    smooth = np.convolve(np.pad(power, 1, mode="edge"), [0.25, 0.5, 0.25], "valid")
    scale = 1 / np.sqrt(smooth + 1e-3 * float(np.mean(power)) + 1e-9)
    return x * np.repeat(scale, block)[: len(x)]


def _least(agent: Floats, echoes: Sequence[Floats], block: int) -> Floats:
    """Return `agent` less the echo that leaves least of each block, or none if none makes it less.

    In a block that is much louder than the echo chance decides that, and nothing hangs on it.
    """
    edges = _edges(len(agent), block)
    least = _powers(agent, edges)
    left, is_taken = agent, np.zeros(len(least), np.bool_)
    for echo in echoes:
        rest = agent - echo
        power = _powers(rest, edges)
        is_buried = _powers(echo, edges) < _BURIED * least
        is_less = (power < least) | (is_buried & ~is_taken)
        left = np.where(np.repeat(is_less, np.diff(edges)), rest, left)
        least, is_taken = np.where(is_less, power, least), is_taken | is_less
    return left


def _edges(n: int, block: int) -> Ints:
    """Return where blocks begin and, at last, end; a rest joins the block before it."""
    return np.append(np.arange(max(1, n // block)) * block, n)


def _powers(x: Floats, edges: Ints) -> Floats:
    power: Floats = np.add.reduceat(np.square(x), edges[:-1]) / np.diff(edges)
    return power


def _coarse(x: Floats, step: int) -> Floats:
    end = len(x) // step * step
    # Many times faster than a mean over an axis so short.
    out = np.zeros(end // step)
    for k in range(step):
        out += x[k:end:step]
    return out / step


def _padded(x: Floats, begin: int, end: int) -> Floats:
    """Return ``x[begin:end]``, zeros where there is no such sample."""
    out = np.zeros(max(0, end - begin))
    lo, hi = max(begin, 0), min(end, len(x))
    if lo < hi:
        out[lo - begin : hi - begin] = x[lo:hi]
    return out


def _fast_length(n: int) -> int:
    """Return the least length from `n` on that has no prime factor above 5, as an FFT likes it."""
    best = 1 << max(0, n - 1).bit_length()
    for odd in (3, 5, 9, 15, 25, 27, 45, 75):
        # The least power of two that makes up for the rest.
        best = min(best, odd << max(0, -(-n // odd) - 1).bit_length())
    return best
