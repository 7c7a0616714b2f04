"""Every cap of the probe in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on what a target, a file or a call may cost; each default has its reason beside it."""

    resolve_s: float = 5.0
    """A resolver that needs longer would be measured instead of the target."""
    webhook_s: float = 15.0
    """What Twilio grants a voice webhook."""
    connect_s: float = 10.0
    tls_s: float = 10.0
    handshake_s: float = 10.0
    """WebSocket upgrade, or the exchange of a WebRTC offer and its answer."""
    gather_s: float = 5.0
    """To find our own addresses, of which a STUN server may have to be asked."""
    ice_s: float = 15.0
    """To find a way between the two; browsers give up after about so long."""
    dtls_s: float = 10.0
    ready_s: float = 15.0
    """Cold starts of self-hosted models take seconds; a minute is a failure."""
    close_s: float = 2.0
    max_message_bytes: int = 16 * 1024 * 1024
    """OpenAI allows 15 MiB in one append; nothing sane is larger."""
    max_control_bytes: int = 4 * 1024 * 1024
    """Of a message that holds no audio: sessions, texts and tool arguments are far smaller."""
    max_webhook_bytes: int = 64 * 1024
    """TwiML is no longer."""
    max_answer_bytes: int = 1024 * 1024
    """The answer to a WebRTC offer: SDP with all its candidates is a hundredth of it."""
    max_received_bytes: int = 512 * 1024 * 1024
    """All messages of a call; half an hour of base64 audio is 115 MiB."""
    max_write_buffer_bytes: int = 1024 * 1024
    """A peer that pings and never reads grows this without end."""
    max_ahead_s: float = 60.0
    """Audio queued beyond this is a flood, not speech."""
    max_audio_s: float = 1800.0
    max_events: int = 300_000
    """Half an hour of audio in 10 ms messages is 180,000."""
    max_text_chars: int = 1_000_000
    max_responses: int = 1_000
    max_call_s: float = 1800.0
    max_yaml_bytes: int = 1024 * 1024
    max_yaml_depth: int = 32
    max_yaml_nodes: int = 100_000
    max_clip_s: float = 120.0
    max_clip_bytes: int = 32 * 1024 * 1024
    min_free_bytes: int = 200 * 1024 * 1024
    """A run does not start on a disk fuller than this."""
