"""The probe's side of Moshi and PersonaPlex (``/api/chat``), as a state machine without I/O.

Binary messages, of which the first byte is the kind. Audio is one Ogg-Opus stream each way that
never pauses; text comes in pieces beside it, and nothing is told of turns. Sound may be sent once
the server's handshake has come: it takes one client at a time.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Ready,
    ServerError,
    TextDelta,
    Unknown,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.protocol import moshi_kinds as kinds
from vakforge_probe.protocol.base import AudioFormat, SessionConfig, Wire
from vakforge_probe.protocol.ogg_voice import OGG_OPUS, OggVoice
from vakforge_probe.protocol.plain_client import PlainClient
from vakforge_probe.protocol.strict import LimitExceeded, StrictError
from vakforge_probe.text import clean, nearest

__all__ = ["MoshiClient"]

USER_HZ = 24_000
AGENT_HZ = 48_000
"""What a decoder gives, whatever was coded."""
PERSONAPLEX = "personaplex"
TEXT_PROMPT = "You enjoy having a good conversation."
VOICE_PROMPT = "NATF2.pt"
_TOLD = {kinds.CONTROL: "control", kinds.METADATA: "metadata"}


class MoshiClient(PlainClient):
    """Codec of `ClientCodec`'s shape.

    Parameters
    ----------
    profile
        ``personaplex``: the query says what to be and how to sound; the handshake comes when the
        model has taken that in.
    """

    name = "moshi"

    def __init__(self, limits: Limits | None = None, *, profile: str = "") -> None:
        super().__init__(limits)
        self.profile = profile
        # Moshi's own server (moshi 0.2.13) has confirmed the rest.
        self.is_experimental = profile == PERSONAPLEX
        self.user_audio = AudioFormat(OGG_OPUS, USER_HZ)
        self.capabilities = Capabilities(text_before_audio=True, continuous_stream=True)
        self._voice = OggVoice(self.user_audio)
        self._is_ready = False

    @classmethod
    def of_profile(cls, profile: str, limits: Limits) -> MoshiClient:
        """Return the codec of a profile.

        Raises
        ------
        ConfigError
            If the profile is not known.
        MissingDependency
            If Opus cannot be coded here.
        """
        if profile not in ("", PERSONAPLEX):
            near = nearest(profile, [PERSONAPLEX], least=0)
            raise ConfigError("unknown profile", key="protocol", value=profile, nearest=near)
        return cls(limits, profile=profile)

    # What the probe sends

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url`, with the prompts that PersonaPlex wants unless they are there."""
        if self.profile != PERSONAPLEX:
            return url
        parts = urlsplit(url)
        stated = dict(parse_qsl(parts.query, keep_blank_values=True))
        prompts = {
            "text_prompt": config.instructions or TEXT_PROMPT,
            "voice_prompt": config.voice or VOICE_PROMPT,
        }
        missing = {key: value for key, value in prompts.items() if key not in stated}
        query = "&".join(filter(None, (parts.query, urlencode(missing))))
        return urlunsplit(parts._replace(query=query))

    def audio_frame(self, pcm: bytes) -> Wire:
        """Return the message that carries one frame of 16-bit mono PCM."""
        return kinds.AUDIO + self._voice.next_bytes(pcm)

    def user_payload(self) -> tuple[str, str, str]:
        """Return (codec, transfer, locator) of the user's audio in its messages."""
        return OGG_OPUS, "binary", str(len(kinds.AUDIO))

    # What the target sends

    def receive(self, data: Wire, at: Instant) -> list[Event]:
        """Return the events in one message; a breach is a `Fault`, after which nothing comes."""
        return self._intake.take(data, at, self._events)

    def _events(self, data: Wire, at: Instant) -> list[Event]:
        if isinstance(data, str):
            raise StrictError("text where Moshi has binary messages")
        if len(data) > self.limits.max_message_bytes:
            raise LimitExceeded("max_message_bytes")
        kind, body = data[:1], data[1:]
        if kind == kinds.AUDIO:
            return [self._audio(body, at)]
        if len(data) > self.limits.max_control_bytes:
            raise LimitExceeded("max_control_bytes")
        if kind == kinds.HANDSHAKE:
            is_first, self._is_ready = not self._is_ready, True
            return [Ready(at=at)] if is_first else []
        if kind == kinds.TEXT:
            return [TextDelta(at=at, text=_text(body))]
        if kind == kinds.ERROR:
            message = clean(body.decode("utf-8", "replace"), 500)
            return [ServerError(at=at, message=message, is_fatal=not self._is_ready)]
        if kind == kinds.PING:
            return []
        if kind not in _TOLD:
            raise StrictError("a message of a kind that Moshi does not have")
        return [Unknown(at=at, name=_TOLD[kind])]

    def _audio(self, body: bytes, at: Instant) -> Event:
        return AudioChunk(
            at=at,
            codec=OGG_OPUS,
            rate_hz=AGENT_HZ,
            transfer="binary",
            locator=str(len(kinds.AUDIO)),
            data=body,
        )


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise StrictError("text that is not UTF-8") from None
