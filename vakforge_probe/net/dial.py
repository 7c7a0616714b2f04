"""From a host name to a connected socket: resolve and connect, each with its own deadline."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Awaitable
from typing import Any, TypeVar

from vakforge_probe.errors import TargetRefused, TargetTimeout
from vakforge_probe.net.clock import is_virtual
from vakforge_probe.net.stamps import StampedSocket

__all__ = ["Address", "connect", "reason_of", "resolve", "within"]

T = TypeVar("T")

_ROOM_BYTES = 4 * 1024 * 1024
"""What may wait to be read: a minute of audio at once. Where it is full the target must wait, and
what it sends then is stamped late by the probe's own doing. Systems grant less where they are set
to; 400 kB are usual."""

Address = tuple[int, Any]
"""Address family and socket address."""


def reason_of(error: OSError) -> str:
    """Return the system's own words for `error`, without addresses."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__


async def within(seconds: float, phase: str, work: Awaitable[T]) -> T:
    """Return what `work` returns.

    Raises
    ------
    TargetTimeout
        If it takes longer than `seconds`; names `phase`.
    """
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise TargetTimeout(f"no answer within {seconds:g} s", phase=phase) from None


async def resolve(host: str, port: int) -> list[Address]:
    """Return the addresses of `host`, in the resolver's order.

    Raises
    ------
    TargetRefused
        If the name does not exist or the resolver fails.
    """
    loop = asyncio.get_running_loop()
    if is_virtual(loop) or _is_literal(host):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    else:
        found = await _look_up(loop, host, port)
    return [(family, address) for family, _, _, _, address in found]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Any]:
    """Ask the system's resolver in a thread of its own.

    It can hang for minutes and cannot be interrupted; the loop's executor would wait for it when
    the program ends.
    """
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def settle(found: list[Any] | None, error: OSError | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def ask() -> None:
        found: list[Any] | None = None
        failure: OSError | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failure = error if isinstance(error, OSError) else OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, found, failure)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    try:
        return await answer
    except OSError as error:
        message = f"name look-up failed: {reason_of(error)}"
        raise TargetRefused(message, phase="resolve") from None


async def connect(addresses: list[Address]) -> StampedSocket:
    """Return a socket connected to the first of `addresses` that answers.

    Raises
    ------
    TargetRefused
        If none does.
    """
    reasons: list[str] = []
    for family, address in addresses:
        try:
            return await _connect_one(family, address)
        except OSError as error:
            reasons.append(reason_of(error))
    text = "; ".join(dict.fromkeys(reasons)) or "the name has no address"
    raise TargetRefused(text, phase="connect")


async def _connect_one(family: int, address: Any) -> StampedSocket:
    sock = StampedSocket(family)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Before connecting, or the peer is never told of so much room.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
