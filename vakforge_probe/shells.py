"""Which connection a target is reached by: WebSocket, WebRTC, a room, or by asking a webhook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vakforge_probe.errors import TargetError
from vakforge_probe.limits import Limits
from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.shell import Shell
from vakforge_probe.net.websocket import WebSocketShell
from vakforge_probe.protocol.base import ClientCodec, Wire
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.twiml import SIGNATURE_HEADER, signature
from vakforge_probe.target import Target

__all__ = ["Listeners", "make_shell"]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of what happens on a connection; see `Shell`."""

    on_message: Callable[[Wire, ArrivalStamp], None]
    on_closed: Callable[[int, str], None]
    on_fault: Callable[[TargetError], None]


def make_shell(
    target: Target, codec: ClientCodec, url: str, limits: Limits, listeners: Listeners
) -> Shell:
    """Return the connection to `url`, not opened yet.

    Raises
    ------
    ConfigError
        If the URL or the certificates cannot be used.
    MissingDependency
        If the library that it takes is not installed.
    """
    told: dict[str, Any] = {
        "ca_file": target.ca,
        "limits": limits,
        "on_message": listeners.on_message,
        "on_closed": listeners.on_closed,
        "on_fault": listeners.on_fault,
    }

    def websocket(url: str, headers: Mapping[str, str]) -> WebSocketShell:
        token = target.auth_token
        signed = {} if token is None else {SIGNATURE_HEADER: signature(token, url, {})}
        return WebSocketShell(
            url,
            headers={**codec.headers, **headers, **signed},
            subprotocols=codec.subprotocols,
            **told,
        )

    # These load libraries for which only those who need them should wait.
    if isinstance(codec.signalling, RoomJoin):
        from vakforge_probe.net.livekit import LiveKitShell

        return LiveKitShell(
            url, codec.signalling, headers=target.headers, credentials=target.auth_token, **told
        )
    if codec.signalling is not None:
        from vakforge_probe.net.webrtc import WebRtcShell

        headers = {**codec.headers, **target.headers}
        return WebRtcShell(url, codec.signalling, headers=headers, stun_urls=target.stun, **told)
    if codec.webhook is not None and url.startswith("http"):
        from vakforge_probe.net.webhook import WebhookShell

        return WebhookShell(
            url,
            codec.webhook,
            headers=target.headers,
            token=target.auth_token,
            ca_file=target.ca,
            limits=limits,
            make=websocket,
        )
    return websocket(url, target.headers)
