"""The user's voice as one Ogg-Opus stream, a page a frame."""

from __future__ import annotations

from vakforge_probe.errors import MissingDependency
from vakforge_probe.protocol.base import AudioFormat
from vakforge_probe.protocol.openai_fields import samples

__all__ = ["OGG_OPUS", "OggVoice"]

OGG_OPUS = "ogg_opus"


class OggVoice:
    """Codes frames of 16-bit PCM in the form `user_audio`.

    Raises
    ------
    MissingDependency
        If libopus cannot be had.
    """

    def __init__(self, user_audio: AudioFormat) -> None:
        try:
            from vakforge_eval.signal.opus import OggOpusEncoder
        except ImportError:
            raise MissingDependency("PyAV, by which Opus is coded,", "webrtc") from None
        self._encoder = OggOpusEncoder(user_audio.rate_hz, user_audio.frame_ms)

    def next_bytes(self, pcm: bytes) -> bytes:
        """Return the next bytes of the stream: the page of a frame; the headers come first."""
        return self._encoder.encode(samples(pcm))
