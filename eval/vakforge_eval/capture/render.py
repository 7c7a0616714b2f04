"""Stereo audio of a call as its caller lived it: user left as spoken, agent right as heard."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.fields import Fields
from vakforge_eval.capture.format import HEADER
from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.user_audio import SentAudio, sent_payload
from vakforge_eval.signal.codecs import DECODABLE
from vakforge_eval.signal.playout import Placed
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.instant import NS_PER_S

__all__ = ["render_stereo"]

Pcm = npt.NDArray[np.int16]


class _Lane:
    """Mono silence from `begin_ns` to `end_ns`, into which audio is put at its time."""

    def __init__(self, rate_hz: int, begin_ns: int, end_ns: int) -> None:
        self.rate_hz = rate_hz
        self._begin_ns = begin_ns
        self.pcm = np.zeros(max(0, round((end_ns - begin_ns) * rate_hz / NS_PER_S)), np.int16)

    def put(self, at_ns: int, pcm: Pcm) -> None:
        """Put `pcm` with its first sample at `at_ns`; what lies outside is cut."""
        first = round((at_ns - self._begin_ns) * self.rate_hz / NS_PER_S)
        lo, hi = max(first, 0), min(first + len(pcm), len(self.pcm))
        if lo < hi:
            self.pcm[lo:hi] = pcm[lo - first : hi - first]

    def at_rate(self, rate_hz: int, n_samples: int) -> Pcm:
        """Return the lane at another rate; resampled whole, since parts would click."""
        pcm = self.pcm
        if rate_hz != self.rate_hz:
            import soxr

            pcm = np.asarray(soxr.resample(pcm, self.rate_hz, rate_hz), dtype=np.int16)
        return np.pad(pcm[:n_samples], (0, max(0, n_samples - len(pcm))))


def render_stereo(
    capture: Capture,
    timeline: CallTimeline,
    placed: Iterable[Placed],
    begin_ns: int,
    end_ns: int,
) -> tuple[Pcm, int]:
    """Return ``(pcm, rate_hz)`` of ``[begin_ns, end_ns)``: int16, shape (n_samples, 2).

    The rate is that of the user's stream; gaps are silence. `placed` is the agent's audio as
    heard.

    Raises
    ------
    CaptureError
        If a message is damaged, or its audio is not where the header says.
    """
    user = _Lane(timeline.script.rate_hz, begin_ns, end_ns)
    _put_user(user, capture, timeline, begin_ns, end_ns)
    agent: dict[int, _Lane] = {}
    for piece in placed:
        if piece.n_played and piece.start.at < end_ns and piece.end.at > begin_ns:
            rate_hz = piece.audio.rate_hz
            lane = agent.setdefault(rate_hz, _Lane(rate_hz, begin_ns, end_ns))
            lane.put(piece.start.at, piece.pcm)
    heard = np.zeros(len(user.pcm), np.int32)
    for lane in agent.values():
        heard += lane.at_rate(user.rate_hz, len(user.pcm))
    stereo = np.stack([user.pcm, np.clip(heard, -32768, 32767)], axis=1)
    return stereo.astype(np.int16), user.rate_hz


def _put_user(
    lane: _Lane, capture: Capture, timeline: CallTimeline, begin_ns: int, end_ns: int
) -> None:
    form = Fields(capture.header.get("user_audio"), f"{HEADER}: user_audio")
    codec = form.text("codec")
    if codec not in DECODABLE:
        raise CaptureError(f"{HEADER}: user_audio: unknown codec")
    sent = SentAudio(capture, timeline.stream, timeline.script.frame_samples)
    due_ns: int | None = None
    for k, record in enumerate(timeline.stream):
        spoken_ns = int(record["before"]) - timeline.frame_ns
        # Frames of one schedule join; the jitter of their sends is no gap in what was said.
        if due_ns is None or abs(spoken_ns - due_ns) > timeline.frame_ns // 2:
            due_ns = spoken_ns
        if begin_ns - timeline.frame_ns < due_ns < end_ns:
            sent_payload(capture, form, record)  # what is damaged is refused, not left out
            start = k * timeline.script.frame_samples
            lane.put(due_ns, sent.samples(start, start + timeline.script.frame_samples))
        due_ns += timeline.frame_ns
