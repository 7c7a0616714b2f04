"""How a room of LiveKit's is joined: by a token, given or made of a key and its secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from uuid import uuid4

from vakforge_probe.errors import ConfigError
from vakforge_probe.protocol.strict import dump
from vakforge_probe.text import nearest

__all__ = ["Entrance", "RoomJoin", "room_token"]

_QUERY = ("room", "agent", "identity")
_TOKEN_S = 3600
"""Longer than any call; a token is made for each."""
_EARLY_S = 60
"""The server's clock may be so late."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where a room is joined, and by what right."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RoomJoin:
    """The way into a room, in which audio and messages go through LiveKit's SDK.

    Attributes
    ----------
    rate_hz
        Of the audio in both directions, 16-bit mono PCM.
    """

    rate_hz: int

    def entrance(
        self, url: str, headers: Mapping[str, str], credentials: str | None, now_s: float
    ) -> Entrance:
        """Return the way into the room of one call.

        Parameters
        ----------
        url
            Of the server. Its query may hold ``room`` (by default a new one), ``agent`` (to be
            dispatched to it by name; by default whichever the server sends) and ``identity``.
        headers
            ``Authorization: Bearer TOKEN`` is the token, if it is there.
        credentials
            Else ``KEY:SECRET``, of which one is made.
        now_s
            The time of day (s since 1970).

        Raises
        ------
        ConfigError
            If there is neither, or they do not fit what the query asks for.
        """
        parts = urlsplit(url)
        asked = _asked(parts.query)
        bare = urlunsplit(parts._replace(query=""))
        given = next((v for k, v in headers.items() if k.lower() == "authorization"), None)
        if given is not None:
            if asked:
                text = "a token that is given has its room, agent and identity in it"
                raise ConfigError(text, key="url")
            return Entrance(bare, _bearer(given))
        key, colon, secret = (part.strip() for part in (credentials or "").partition(":"))
        if credentials is not None and not (key and colon and secret):
            raise ConfigError("a token is made of KEY:SECRET", key="auth_token")
        if credentials is None:
            text = "a room needs auth_token (KEY:SECRET), or a header Authorization (Bearer TOKEN)"
            raise ConfigError(text, key="auth_token")
        token = room_token(
            key,
            secret,
            room=asked.get("room") or f"probe-{uuid4().hex}",
            identity=asked.get("identity") or f"probe-{uuid4().hex[:8]}",
            agent=asked.get("agent"),
            now_s=now_s,
        )
        return Entrance(bare, token)


def _asked(query: str) -> dict[str, str]:
    asked = dict(parse_qsl(query, keep_blank_values=True))
    for name in asked:
        if name not in _QUERY:
            near = nearest(name, _QUERY)
            # What is there may be a secret, so it is not shown.
            raise ConfigError(f"the query may hold {', '.join(_QUERY)}", key="url", nearest=near)
    return asked


def _bearer(value: str) -> str:
    scheme, _, token = value.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ConfigError("the token is given as 'Bearer TOKEN'", key="Authorization")
    return token.strip()


def room_token(
    key: str, secret: str, *, room: str, identity: str, agent: str | None, now_s: float
) -> str:
    """Return a token (JWT, RFC 7519, by HMAC-SHA256) to speak and listen in a room for an hour."""
    claims: dict[str, Any] = {
        "iss": key,
        "sub": identity,
        "nbf": int(now_s) - _EARLY_S,
        "exp": int(now_s) + _TOKEN_S,
        "video": {
            "roomJoin": True,
            "room": room,
            "canPublish": True,
            "canSubscribe": True,
            "canPublishData": True,
        },
    }
    if agent:
        claims["roomConfig"] = {"agents": [{"agentName": agent}]}
    signed = ".".join(_segment(dump(p).encode()) for p in ({"alg": "HS256", "typ": "JWT"}, claims))
    mac = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_segment(mac)}"


def _segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
