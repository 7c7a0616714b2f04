"""One bounded HTTP request, by the rules of a target: no redirect, no proxy, no cookie."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from vakforge_probe.errors import TargetLimitExceeded, TargetProtocolError, TargetRefused
from vakforge_probe.net.dial import reason_of
from vakforge_probe.protocol.signalling import HttpRequest

__all__ = ["HttpAnswer", "request"]

_MAX_BODY = 1 << 20
_PART = 64 * 1024


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A successful response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def request(
    what: HttpRequest, *, headers: Mapping[str, str], context: ssl.SSLContext | None, phase: str
) -> HttpAnswer:
    """Make a request; `headers` are added, and never show in an error.

    Raises
    ------
    TargetRefused
        If nobody answers, or with a status other than 2xx.
    TargetProtocolError
        If the answer is not HTTP.
    TargetLimitExceeded
        If the answer is too large.
    """
    try:
        async with (
            aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            ) as session,
            session.request(
                what.method,
                what.url,
                headers={"User-Agent": "vakforge-probe", **what.headers, **headers},
                data=what.body,
                allow_redirects=False,
                ssl=context if context is not None else True,
            ) as response,
        ):
            body = await _body(response, phase)
            status = response.status
            if not 200 <= status < 300:
                raise TargetRefused(
                    f"HTTP {status}{_note(status)}",
                    phase=phase,
                    status=status,
                    retry_after=response.headers.get("Retry-After"),
                )
            return HttpAnswer(status, response.headers.copy(), body)
    except aiohttp.ClientConnectorError as error:
        raise TargetRefused(reason_of(error.os_error), phase=phase) from None
    except aiohttp.ClientResponseError:
        raise TargetProtocolError("the answer is not HTTP", phase=phase) from None
    except aiohttp.ClientError:
        text = "closed the connection without an answer"
        raise TargetRefused(text, phase=phase) from None


async def _body(response: aiohttp.ClientResponse, phase: str) -> bytes:
    body = bytearray()
    async for part in response.content.iter_chunked(_PART):
        body += part
        if len(body) > _MAX_BODY:
            raise TargetLimitExceeded(
                "the answer is too large", phase=phase, limit=f"{_MAX_BODY} bytes"
            )
    return bytes(body)


def _note(status: int) -> str:
    return "; redirects are not followed" if 300 <= status < 400 else ""
