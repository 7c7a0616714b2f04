"""One bounded HTTP request, by the rules of a target: no redirect, no proxy, no cookie."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from vakforge_probe.errors import (
    TargetError,
    TargetLimitExceeded,
    TargetProtocolError,
    TargetRefused,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net.dial import reason_of, resolve
from vakforge_probe.protocol.signalling import HttpRequest

__all__ = ["HttpAnswer", "request"]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A successful response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def request(
    what: HttpRequest,
    *,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
    limits: Limits,
    limit: Literal["max_answer_bytes", "max_webhook_bytes"],
    phase: str,
) -> HttpAnswer:
    """Make a request; `headers` are added, and never show in an error.

    How long it may take is for whoever calls to say.

    Raises
    ------
    TargetRefused
        If nobody answers, or with a status other than 2xx.
    TargetProtocolError
        If the answer is not HTTP.
    TargetLimitExceeded
        If its body is longer than `limit` allows.
    """
    connector = aiohttp.TCPConnector(
        resolver=_Resolver(phase), use_dns_cache=False, ssl=context or True, force_close=True
    )
    own = {"User-Agent": "vakforge-probe", "Accept-Encoding": "identity"}
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            ) as session,
            session.request(
                what.method,
                # Quoted already: what is signed must be what is sent.
                URL(what.url, encoded=True),
                headers={**own, **what.headers, **headers},
                data=what.body,
                allow_redirects=False,
            ) as response,
        ):
            if not 200 <= response.status < 300:
                raise _refused(response, phase)
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > getattr(limits, limit):
                    text = "the answer is too large"
                    raise TargetLimitExceeded(text, phase=phase, limit=limit)
            return HttpAnswer(response.status, response.headers.copy(), bytes(body))
    except (aiohttp.ClientError, OSError) as error:
        raise _failure(error, phase) from None


def _refused(response: aiohttp.ClientResponse, phase: str) -> TargetRefused:
    status = response.status
    note = "; redirects are not followed" if 300 <= status < 400 else ""
    retry_after = response.headers.get("Retry-After")
    return TargetRefused(
        f"HTTP {status}{note}", phase=phase, status=status, retry_after=retry_after
    )


def _failure(error: aiohttp.ClientError | OSError, phase: str) -> TargetError:
    certificate = getattr(error, "certificate_error", None)
    if isinstance(certificate, OSError):
        return TargetRefused(reason_of(certificate), phase=phase)
    if isinstance(error, aiohttp.ClientConnectorError):
        return TargetRefused(reason_of(error.os_error), phase=phase)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return TargetRefused("closed the connection without an answer", phase=phase)
    if isinstance(error, OSError):
        return TargetRefused(reason_of(error), phase=phase)
    # Its own words may hold the URL or what the target said.
    return TargetProtocolError("the answer is not HTTP", phase=phase)


class _Resolver(AbstractResolver):
    """The probe's own look-up, which no program's end has to wait for."""

    def __init__(self, phase: str) -> None:
        self._phase = phase

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        """Return the addresses of `host`."""
        try:
            found = await resolve(host, port)
        except TargetRefused as error:
            error.phase = self._phase
            raise
        return [
            ResolveResult(hostname=host, host=address[0], port=port, family=kind, proto=0, flags=0)
            for kind, address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""
