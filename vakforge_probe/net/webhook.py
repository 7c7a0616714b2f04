"""A connection that a webhook has to be asked for first: one POST, and its answer says where to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from vakforge_probe.errors import (
    TargetClosed,
    TargetError,
    TargetLimitExceeded,
    TargetProtocolError,
    TargetRefused,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net.clock import now_ns_of
from vakforge_probe.net.dial import reason_of, resolve, within
from vakforge_probe.net.shell import Sent, Shell
from vakforge_probe.protocol.strict import StrictError
from vakforge_probe.protocol.twiml import SIGNATURE_HEADER, VoiceWebhook, signature

__all__ = ["MakeShell", "WebhookShell"]

PHASE = "webhook"


class MakeShell(Protocol):
    """Makes the connection to `url` with these headers of the handshake."""

    def __call__(self, url: str, headers: Mapping[str, str]) -> Shell:
        """Return it, not opened yet."""
        ...


class WebhookShell:
    """One connection to a target behind a webhook; use once, on a running loop.

    Parameters
    ----------
    url
        ``http://`` or ``https://``, of the webhook. Redirects are not followed.
    webhook
        Says what to ask and reads the answer.
    headers
        For the webhook, and for the connection where that goes to the same host.
    token
        Signs both requests; None: they are not signed.
    tls
        Whom to trust.
    make
        Makes the connection that the webhook names.
    """

    def __init__(
        self,
        url: str,
        webhook: VoiceWebhook,
        *,
        headers: Mapping[str, str],
        token: str | None,
        ca_file: Path | None,
        limits: Limits,
        make: MakeShell,
    ) -> None:
        self._url, self._webhook, self._make = url, webhook, make
        self._headers, self._token = headers, token
        self._is_secure = urlsplit(url).scheme == "https"
        self._tls = ssl.create_default_context(cafile=ca_file) if self._is_secure else None
        self._limits = limits
        self._now_ns = now_ns_of(asyncio.get_running_loop())
        self._shell: Shell | None = None
        self.phases: dict[str, tuple[int, int]] = {}

    async def open(self) -> dict[str, tuple[int, int]]:
        """Ask the webhook, then connect; return start and end (ns) of each phase.

        Raises
        ------
        TargetError
            As of `WebSocketShell.open`, and in phase ``webhook``: refused by its HTTP status or
            the network, too late, too long, or no answer that can be used.
        """
        begun = self._now_ns()
        body = await within(self._limits.webhook_s, PHASE, self._ask())
        try:
            url = self._webhook.answered(body, must_be_secure=self._is_secure)
        except StrictError as error:
            raise TargetProtocolError(error.what, phase=PHASE) from None
        self.phases[PHASE] = (begun, self._now_ns())
        is_same_host = urlsplit(url).hostname == urlsplit(self._url).hostname
        headers = dict(self._headers) if is_same_host else {}
        self._shell = self._make(url, headers)
        try:
            await self._shell.open()
        finally:
            self.phases |= self._shell.phases
        return self.phases

    async def _ask(self) -> bytes:
        form = self._webhook.form
        headers = {**self._headers, "User-Agent": "vakforge-probe", "Accept-Encoding": "identity"}
        if self._token is not None:
            headers[SIGNATURE_HEADER] = signature(self._token, self._url, form)
        connector = aiohttp.TCPConnector(
            resolver=_Resolver(), use_dns_cache=False, ssl=self._tls or True, force_close=True
        )
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=aiohttp.ClientTimeout(total=None),
                    auto_decompress=False,
                ) as session,
                # Quoted already: what is signed must be what is sent.
                session.post(
                    URL(self._url, encoded=True), data=form, headers=headers, allow_redirects=False
                ) as response,
            ):
                return await self._body_of(response)
        except (aiohttp.ClientError, OSError) as error:
            raise _refusal(error) from None

    async def _body_of(self, response: aiohttp.ClientResponse) -> bytes:
        if response.status != 200:
            note = "; redirects are not followed" if 300 <= response.status < 400 else ""
            raise TargetRefused(
                f"HTTP {response.status}{note}",
                phase=PHASE,
                status=response.status,
                retry_after=response.headers.get("Retry-After"),
            )
        body = b""
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._limits.max_webhook_bytes:
                raise TargetLimitExceeded(
                    "the webhook answers too much", phase=PHASE, limit="max_webhook_bytes"
                )
        return body

    def send(self, data: str | bytes) -> Sent:
        """Write one message now; see `WebSocketShell.send`."""
        if self._shell is None:
            raise TargetClosed("the connection is not open", phase="call")
        return self._shell.send(data)

    async def close(self) -> None:
        """End the connection, if there is one."""
        if self._shell is not None:
            await self._shell.close()

    def self_facts(self) -> dict[str, Any]:
        """Return what the connection knows of its own error, and which verbs were passed over."""
        facts = {} if self._shell is None else self._shell.self_facts()
        skipped = self._webhook.skipped
        return facts | ({"webhook_skipped": skipped} if skipped else {})


def _refusal(error: aiohttp.ClientError | OSError) -> TargetError:
    certificate = getattr(error, "certificate_error", None)
    if isinstance(certificate, OSError):
        return TargetRefused(reason_of(certificate), phase=PHASE)
    if isinstance(error, aiohttp.ClientConnectorError):
        return TargetRefused(reason_of(error.os_error), phase=PHASE)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return TargetRefused("closed the connection without an answer", phase=PHASE)
    if isinstance(error, OSError):
        return TargetRefused(reason_of(error), phase=PHASE)
    # Its own words may hold the URL or what the target said.
    return TargetProtocolError("the webhook's answer is not HTTP", phase=PHASE)


class _Resolver(AbstractResolver):
    """The probe's own look-up, which no program's end has to wait for."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        """Return the addresses of `host`."""
        try:
            found = await resolve(host, port)
        except TargetRefused as error:
            error.phase = PHASE
            raise
        return [
            ResolveResult(hostname=host, host=address[0], port=port, family=kind, proto=0, flags=0)
            for kind, address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""
