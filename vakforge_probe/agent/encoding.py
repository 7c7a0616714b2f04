"""The agent's voice in any codec, and what of it each message holds where a coder looks ahead."""

from __future__ import annotations

from vakforge_probe.agent.clipbook import OPUS
from vakforge_probe.agent.player import AudioSent
from vakforge_probe.agent.voice import Encoder

__all__ = ["Behind", "make_encoder"]


def make_encoder(codec: str, rate_hz: int) -> Encoder:
    """Return the encoder of an output format; that of Opus counts in what a decoder gives."""
    if codec in OPUS:
        # Loads FFmpeg, which only those who need it should wait for.
        from vakforge_probe.agent.opus import OpusVoice

        return OpusVoice(codec)
    return Encoder(codec, rate_hz)


class Behind:
    """Tells what a message holds when what was said is heard `n` samples after its place.

    The first `n_skipped` samples of the stream are left out by who decodes it. When a response
    breaks off, the last `n` of what was said of it come with the messages after it. On a continuous
    stream they are heard as its end; otherwise the next response opens with them, and they count
    for nothing.
    """

    def __init__(self, n: int, n_skipped: int, *, is_stream: bool) -> None:
        self._n, self._skip = n, n_skipped
        self._is_stream = is_stream
        self._last: AudioSent | None = None
        self._rest: AudioSent | None = None

    def parts(self, sent: AudioSent) -> list[AudioSent]:
        """Return what `sent` holds, in order."""
        if not self._n:
            return [sent]
        last, self._last = self._last, sent
        is_voice = self._is_stream and last is not None and last.tag is not None
        if last is not None and is_voice and not _goes_on(last, sent):
            self._rest = last._replace(first=last.first + last.n, n=self._n)
        n_skipped = min(self._skip, sent.n)
        self._skip -= n_skipped
        parts = []
        sent = _from(sent, n_skipped)
        if self._rest is not None and sent.n:
            n_rest = min(self._rest.n, sent.n)
            parts.append(sent._replace(tag=self._rest.tag, first=self._rest.first, n=n_rest))
            sent, self._rest = _from(sent, n_rest), _from(self._rest, n_rest)
            if not self._rest.n:
                self._rest = None
        return [*parts, sent] if sent.n else parts


def _goes_on(last: AudioSent, sent: AudioSent) -> bool:
    return (sent.tag, sent.first) == (last.tag, last.first + last.n)


def _from(sent: AudioSent, n: int) -> AudioSent:
    return sent._replace(first=sent.first + n, n=sent.n - n)
