"""The probe's side of Pipecat's WebSocket: protobuf frames, with RTVI messages inside of them.

The session begins with ``client-ready``, without which some bots stay silent; a bot without RTVI
never answers it, so audio flows at once. An ``interruption`` frame means: drop what is queued.
"""

from __future__ import annotations

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Interrupt,
    Unknown,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import (
    AudioFormat,
    Intent,
    SessionConfig,
    Wire,
)
from vakforge_probe.protocol.intake import Intake
from vakforge_probe.protocol.pipecat_frames import (
    Audio,
    Interruption,
    Message,
    read_frame,
    write_frame,
)
from vakforge_probe.protocol.rtvi import RtviClient
from vakforge_probe.protocol.strict import (
    LimitExceeded,
    StrictError,
    parse_object,
)

__all__ = ["PipecatClient"]

USER_HZ = 16_000
MAX_AGENT_HZ = 96_000


class PipecatClient:
    """Codec of `ClientCodec`'s shape."""

    signalling = None
    name = "pipecat"
    profile = ""
    is_experimental = False
    is_ready_at_once = True
    webhook: None = None
    subprotocols: tuple[str, ...] = ()

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.headers: dict[str, str] = {}
        self.user_audio = AudioFormat("pcm_s16le", USER_HZ)
        self.flush_on = frozenset({Interrupt.TYPE})
        self.capabilities = Capabilities(
            server_vad_events=True,
            transcripts=True,
            text_before_audio=True,
            explicit_interrupt=True,
            tools=True,
        )
        self._rtvi = RtviClient()
        self._intake = Intake(self.limits)

    # What the probe sends

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url`: the bot chooses its own models."""
        return url

    def send(self, intent: Intent) -> list[Wire]:
        """Return the messages that carry out `intent`."""
        return [write_frame(Message(text)) for text in self._rtvi.send(intent)]

    @property
    def next_reply_ns(self) -> None:
        """Nothing waits for a time."""

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return nothing: the protocol asks for no answer of the codec's own."""
        return []

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the message that carries one frame of 16-bit mono PCM."""
        return write_frame(Audio(pcm, USER_HZ))

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio in its messages."""
        n_bytes = 2 * self.user_audio.frame_samples
        begin = len(write_frame(Audio(bytes(n_bytes), USER_HZ))) - n_bytes
        return "pcm_s16le", "binary", str(begin)

    # What the target sends

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message; a breach is a `Fault`, after which nothing comes."""
        return self._intake.take(data, at, self._events)

    def _events(self, data: Wire, at: Instant) -> list[Event]:
        if isinstance(data, str):
            raise StrictError("text where pipecat's serializer has binary frames")
        if len(data) > self.limits.max_message_bytes:
            raise LimitExceeded("max_message_bytes")
        match read_frame(data):
            case Audio() as audio:
                return [self._audio(audio, at)]
            case Interruption():
                return [Interrupt(at=at)]
            case Message(text):
                if len(text) > self.limits.max_control_bytes:
                    raise LimitExceeded("max_control_bytes")
                return self._rtvi.read(parse_object(text, self.limits.max_message_bytes), at)
            case other:
                return [Unknown(at=at, name=f"frame {other.number}")]

    def _audio(self, audio: Audio, at: Instant) -> Event:
        if audio.channels != 1 or not 0 < audio.rate_hz <= MAX_AGENT_HZ:
            raise StrictError("audio that is not mono at a usable rate")
        data, begin = audio.data, audio.begin
        if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
            # Some bots send each piece as a file of its own, with the usual head.
            data, begin = data[44:], begin + 44
        return AudioChunk(
            at=at,
            rate_hz=audio.rate_hz,
            transfer="binary",
            locator=f"{begin}:{begin + len(data)}",
            data=data,
        )
