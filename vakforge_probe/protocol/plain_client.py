"""What a client codec does where its wire format has no word for something."""

from __future__ import annotations

from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import Intent, SessionConfig, Wire
from vakforge_probe.protocol.intake import Intake
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.signalling import Signalling
from vakforge_probe.protocol.twiml import VoiceWebhook

__all__ = ["PlainClient"]


class PlainClient:
    """A `ClientCodec` that says nothing; what it hears, and how audio goes, is still to be said."""

    name = ""
    profile = ""
    is_experimental = False
    is_ready_at_once = False
    subprotocols: tuple[str, ...] = ()
    flush_on: frozenset[str] = frozenset()
    signalling: Signalling | RoomJoin | None = None
    webhook: VoiceWebhook | None = None

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.headers: dict[str, str] = {}
        self._intake = Intake(self.limits)

    def dial_url(self, url: str, config: SessionConfig) -> str:
        """Return `url`: it names all that is to be dialled."""
        return url

    def send(self, intent: Intent) -> list[Wire]:
        """Return nothing: there is no message for it."""
        return []

    @property
    def next_reply_ns(self) -> int | None:
        """Nothing waits for a time."""
        return None

    def take_replies(self, now_ns: int) -> list[Wire]:
        """Return nothing: the protocol asks for no answer of the codec's own."""
        return []
