"""A connection that a webhook has to be asked for first: one POST, and its answer says where to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from vakforge_probe.errors import TargetClosed, TargetProtocolError
from vakforge_probe.limits import Limits
from vakforge_probe.net import http
from vakforge_probe.net.clock import now_ns_of
from vakforge_probe.net.dial import within
from vakforge_probe.net.shell import Sent, Shell
from vakforge_probe.net.tls import client_context
from vakforge_probe.protocol.signalling import HttpRequest
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
        self._tls = client_context(ca_file) if self._is_secure else None
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
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self._token is not None:
            headers[SIGNATURE_HEADER] = signature(self._token, self._url, form)
        answer = await http.request(
            HttpRequest("POST", self._url, headers, urlencode(form).encode()),
            headers=self._headers,
            context=self._tls,
            limits=self._limits,
            limit="max_webhook_bytes",
            phase=PHASE,
        )
        return answer.body

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
