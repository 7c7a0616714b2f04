"""One bad server a fault: each ends in a typed error that names its phase, and nothing leaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from vakforge_probe.errors import (
    TargetClosed,
    TargetError,
    TargetLimitExceeded,
    TargetProtocolError,
    TargetRefused,
    TargetTimeout,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.net.websocket import WebSocketShell

SECRET = "tok-0123456789abcdef"
HEADERS = {"Authorization": f"Bearer {SECRET}"}
LIMITS = Limits(
    resolve_s=20.0,
    connect_s=20.0,
    tls_s=20.0,
    handshake_s=20.0,
    close_s=0.2,
    max_message_bytes=100_000,
    max_write_buffer_bytes=50_000,
)
"""Generous deadlines: a test whose subject is not a deadline must not meet one."""


@dataclass
class Outcome:
    """What a call against a bad server came to."""

    opened: bool = False
    error: TargetError | None = None
    messages: list[str | bytes] = field(default_factory=list)
    closed: list[tuple[int, str]] = field(default_factory=list)
    faults: list[TargetError] = field(default_factory=list)


def call(
    url: str,
    *,
    limits: Limits = LIMITS,
    cancel_after: Callable[[], bool] | None = None,
    **options: Any,
) -> Outcome:
    """Open a connection and keep it until it ends by itself."""
    outcome = Outcome()

    async def main() -> None:
        ended = asyncio.Event()

        def note_end(into: list[Any], *facts: Any) -> None:
            into.append(facts if len(facts) > 1 else facts[0])
            ended.set()

        shell = WebSocketShell(
            url,
            headers=HEADERS,
            limits=limits,
            on_message=lambda data, stamp: outcome.messages.append(data),
            on_closed=lambda code, reason: note_end(outcome.closed, code, reason),
            on_fault=lambda error: note_end(outcome.faults, error),
            **options,
        )
        try:
            await shell.open()
        except TargetError as error:
            outcome.error = error
        else:
            outcome.opened = True
            await ended.wait()
            with pytest.raises(TargetClosed):
                shell.send("too late")
        await shell.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
    assert len(outcome.closed) + len(outcome.faults) == (1 if outcome.opened else 0)
    for error in [outcome.error, *outcome.faults]:
        assert SECRET not in str(error)
    return outcome


def refusal(outcome: Outcome, kind: type[TargetError], phase: str) -> Any:
    assert not outcome.opened
    assert type(outcome.error) is kind
    assert outcome.error.phase == phase
    return outcome.error


def fault(outcome: Outcome, kind: type[TargetError]) -> Any:
    assert outcome.opened
    assert [type(error) for error in outcome.faults] == [kind]
    assert outcome.faults[0].phase == "call"
    return outcome.faults[0]


# --- resolve and connect -----------------------------------------------------------------------


def test_a_name_that_does_not_exist_is_refused_in_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = refusal(call("ws://no.such.host.invalid/"), TargetRefused, "resolve")
    assert "Name or service not known" in str(error)


def test_a_name_that_cannot_be_encoded_is_refused_in_resolve() -> None:
    refusal(call(f"ws://{'x' * 80}.invalid/"), TargetRefused, "resolve")


def test_a_resolver_that_hangs_costs_its_own_deadline_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    def hang(*args: Any, **kwargs: Any) -> Any:
        release.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        outcome = call("ws://slow.invalid/", limits=Limits(resolve_s=0.05))
    finally:
        release.set()
    refusal(outcome, TargetTimeout, "resolve")


def test_a_closed_port_is_refused_in_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = refusal(call(f"ws://127.0.0.1:{port}/"), TargetRefused, "connect")
    assert "Connection refused" in str(error)


def test_a_host_that_answers_no_connection_attempt_times_out_in_connect() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):  # fill the queue of connections that nobody accepts
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        outcome = call(f"ws://127.0.0.1:{port}/", limits=Limits(connect_s=0.1))
    refusal(outcome, TargetTimeout, "connect")


# --- handshake ---------------------------------------------------------------------------------


def hang_up(server: Any) -> None:
    """Close at once."""


def reset(server: Any) -> None:
    server.connection.recv(1)  # else the reset may come before the connect is over
    linger = struct.pack("ii", 1, 0)
    server.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def read_and_hang_up(server: Any) -> None:
    server.read_request()


@pytest.mark.parametrize("script", [hang_up, reset, read_and_hang_up])
def test_a_server_that_closes_without_an_answer_is_refused_in_handshake(
    raw_server: Any, script: Callable[[Any], None]
) -> None:
    refusal(call(raw_server(script).url), TargetRefused, "handshake")


def test_a_server_that_never_answers_times_out_in_handshake(raw_server: Any) -> None:
    server = raw_server(lambda server: server.read_until_closed())
    refusal(call(server.url, limits=Limits(handshake_s=0.1)), TargetTimeout, "handshake")


def test_a_server_that_drips_its_answer_for_ever_times_out_in_handshake(raw_server: Any) -> None:
    def drip(server: Any) -> None:
        server.read_request()
        server.send(b"HTTP/1.1 101 Switching Protocols\r\nX-Slow: ")
        while not server.stopped.wait(0.005):
            server.send(b"a")

    server = raw_server(drip)
    refusal(call(server.url, limits=Limits(handshake_s=0.2)), TargetTimeout, "handshake")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
def test_an_http_refusal_keeps_status_and_retry_after_and_no_secret(
    raw_server: Any, status: int
) -> None:
    body = f"wrong key: {SECRET}\r\n\r\nsecond paragraph".encode()

    def refuse(server: Any) -> None:
        server.read_request()
        assert SECRET.encode() in server.request
        server.send(f"HTTP/1.1 {status} Echo {SECRET}\r\n".encode())
        server.send(f"Retry-After: 17\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        server.send(body)
        server.read_until_closed()

    error = refusal(call(raw_server(refuse).url), TargetRefused, "handshake")
    assert (error.status, error.retry_after) == (status, "17")
    assert str(status) in str(error)


def test_a_redirect_is_not_followed(raw_server: Any) -> None:
    canary = raw_server(lambda server: None)

    def redirect(server: Any) -> None:
        server.read_request()
        server.send(f"HTTP/1.1 302 Found\r\nLocation: {canary.url}\r\n".encode())
        server.send(b"Content-Length: 0\r\n\r\n")
        server.read_until_closed()

    error = refusal(call(raw_server(redirect).url), TargetRefused, "handshake")
    assert error.status == 302
    assert "not followed" in str(error)
    assert canary.n_connections == 0


def test_proxies_in_the_environment_are_not_used(
    raw_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = raw_server(lambda server: None)
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "socks_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{canary.port}")

    def greet(server: Any) -> None:
        server.shake_hands()
        server.send(server.frame(1, b"hello"))
        server.say_goodbye()

    assert call(raw_server(greet).url).messages == ["hello"]
    assert canary.n_connections == 0


@pytest.mark.parametrize(
    "answer",
    [
        lambda server: server.answer(b"Sec-WebSocket-Extensions: permessage-deflate"),
        lambda server: server.answer(b"Sec-WebSocket-Protocol: never-offered"),
        lambda server: server.answer().replace(
            b"Sec-WebSocket-Accept: ", b"Sec-WebSocket-Accept: x"
        ),
        lambda server: server.answer(b"Sec-WebSocket-Accept: " + SECRET.encode()),
        lambda server: server.answer().replace(b"Upgrade: websocket", b"Upgrade: h2c"),
        lambda server: b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        lambda server: b"\x00\xff" * 5_000 + b"\r\n",
        lambda server: b"HTTP/1.1 101 " + b"x" * 100_000,
        lambda server: b"HTTP/1.1 101 Switching Protocols\r\n" + b"X-Many: header\r\n" * 10_000,
        lambda server: b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    ],
    ids=[
        "insists on compression",
        "subprotocol never offered",
        "wrong accept key",
        "echoes our secret as accept key",
        "upgrade to something else",
        "not HTTP",
        "binary noise",
        "endless status line",
        "endless headers",
        "negative length",
    ],
)
def test_an_answer_that_is_no_valid_handshake_is_a_protocol_error(
    raw_server: Any, answer: Callable[[Any], bytes]
) -> None:
    def script(server: Any) -> None:
        server.read_request()
        server.send(answer(server))
        server.read_until_closed()

    refusal(call(raw_server(script).url), TargetProtocolError, "handshake")


def test_secrets_stay_out_of_the_log_at_any_level(
    raw_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def script(server: Any) -> None:
        server.shake_hands()
        server.say_goodbye()

    with caplog.at_level(logging.DEBUG):
        call(raw_server(script).url)
    assert SECRET not in caplog.text


# --- the call ----------------------------------------------------------------------------------


def in_call(raw_server: Any, *frames: bytes, **options: Any) -> Outcome:
    """Call a server that answers the handshake, sends `frames` and waits for the end."""

    def script(server: Any) -> None:
        server.shake_hands()
        server.send(b"".join(frames))
        server.read_until_closed()

    return call(raw_server(script).url, **options)


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    return bytes([(0x80 if fin else 0) | opcode, len(payload)]) + payload


@pytest.mark.parametrize(
    "frames",
    [
        b"\x83\x00",
        b"\xc1\x00",
        b"\x81\x80\x00\x00\x00\x00",
        b"\x09\x00",
        b"\x89\x7e\x00\x7e" + bytes(126),
        frame(0, b"from nowhere"),
        frame(1, b"begun", fin=False) + frame(1, b"again"),
        frame(8, b"\x03"),
        frame(8, b"\x03\xe7"),
        frame(8, b"\x03\xe8\xff\xfe"),
        frame(1, b"begun", fin=False) + frame(8, b"\x03\xe8"),
        frame(1, b"\xff\xfe"),
        frame(1, b"\xed\xa0\x80"),
        frame(1, b"\xe2\x82", fin=False) + frame(0, b""),
        b"\xff" * 500,
    ],
    ids=[
        "reserved opcode",
        "reserved bit",
        "masked",
        "fragmented ping",
        "long ping",
        "continuation of nothing",
        "message within a message",
        "close code cut short",
        "close code that must not be sent",
        "close reason not UTF-8",
        "close within a message",
        "text not UTF-8",
        "lone surrogate",
        "character cut short",
        "noise",
    ],
)
def test_frames_against_the_rules_are_a_protocol_error(raw_server: Any, frames: bytes) -> None:
    outcome = in_call(raw_server, frame(1, b"fine"), frames, frame(1, b"not looked at"))
    fault(outcome, TargetProtocolError)
    assert outcome.messages == ["fine"]


def test_a_frame_that_claims_to_be_huge_is_refused_by_its_header(raw_server: Any) -> None:
    outcome = in_call(raw_server, b"\x82\x7f" + (2**62).to_bytes(8))
    assert fault(outcome, TargetLimitExceeded).limit == "max_message_bytes"


def test_small_fragments_without_end_meet_the_limit_of_the_whole_message(raw_server: Any) -> None:
    def flood(server: Any) -> None:
        server.shake_hands()
        server.send(frame(2, b"x", fin=False))
        while True:
            server.send(frame(0, bytes(100), fin=False) * 100)

    outcome = call(raw_server(flood).url)
    assert fault(outcome, TargetLimitExceeded).limit == "max_message_bytes"


def test_empty_fragments_are_endured(raw_server: Any) -> None:
    def flood(server: Any) -> None:
        server.shake_hands()
        server.send(frame(1, b"a", fin=False) + frame(0, fin=False) * 30_000 + frame(0, b"z"))
        server.say_goodbye()

    assert call(raw_server(flood).url).messages == ["az"]


def test_pings_from_a_server_that_does_not_read_meet_the_limit_on_unsent_data(
    raw_server: Any,
) -> None:
    def flood(server: Any) -> None:
        server.shake_hands()
        while True:
            server.send(frame(9, bytes(125)) * 100)

    outcome = call(raw_server(flood, receive_buffer=4096).url)
    assert fault(outcome, TargetLimitExceeded).limit == "max_write_buffer_bytes"


def test_pings_are_answered(raw_server: Any) -> None:
    answers: list[bytes] = []

    def script(server: Any) -> None:
        server.shake_hands()
        server.send(frame(9, b"are you there"))
        answers.append(server.connection.recv(100))
        server.say_goodbye()

    call(raw_server(script).url)
    assert answers[0][:2] == b"\x8a\x8d"


@pytest.mark.parametrize("tail", [b"", frame(1, b"half", fin=False), b"\x82\x7e\x10"])
def test_a_connection_that_ends_without_goodbye_is_closed_with_1006(
    raw_server: Any, tail: bytes
) -> None:
    def script(server: Any) -> None:
        server.shake_hands()
        server.send(frame(1, b"last words") + tail)

    outcome = call(raw_server(script).url)
    assert outcome.messages == ["last words"]
    assert outcome.closed == [(1006, "")]


def test_a_reset_in_the_call_is_closed_with_1006_and_says_why(raw_server: Any) -> None:
    def script(server: Any) -> None:
        server.shake_hands()
        server.send(frame(9))
        reset(server)  # after the answer to our ping, hence after the handshake

    ((code, reason),) = call(raw_server(script).url).closed
    assert code == 1006
    assert "reset" in reason


def test_the_close_reason_is_passed_on_without_our_secret(raw_server: Any) -> None:
    reason = f"invalid token {SECRET}".encode()
    outcome = in_call(raw_server, frame(8, (4001).to_bytes(2) + reason))
    assert outcome.closed == [(4001, "invalid token ***")]


def test_nothing_is_delivered_after_the_servers_goodbye(raw_server: Any) -> None:
    outcome = in_call(raw_server, frame(8, b"\x03\xe8"), frame(1, b"one more thing"))
    assert outcome.messages == []
    assert outcome.closed == [(1000, "")]


def test_our_goodbye_ends_although_the_server_ignores_it(raw_server: Any) -> None:
    def script(server: Any) -> None:
        server.shake_hands()
        server.stopped.wait(30)

    async def main() -> list[int]:
        codes: list[int] = []
        shell = WebSocketShell(
            raw_server(script).url,
            limits=LIMITS,
            on_message=lambda data, stamp: None,
            on_closed=lambda code, reason: codes.append(code),
            on_fault=lambda error: pytest.fail(str(error)),
        )
        await shell.open()
        await shell.close()
        return codes

    assert asyncio.run(main()) == [1006]


# --- TLS ---------------------------------------------------------------------------------------


def tls_call(raw_server: Any, certificate: Any, trusted: Any, host: str = "127.0.0.1") -> Outcome:
    def script(server: Any) -> None:
        server.shake_hands()
        server.say_goodbye()

    server = raw_server(script, tls=certificate.server_context())
    return call(f"wss://{host}:{server.port}/", ca_file=trusted.cert_file)


def test_a_trusted_certificate_is_accepted(raw_server: Any, make_certificate: Any) -> None:
    certificate = make_certificate()
    assert tls_call(raw_server, certificate, certificate).closed == [(1000, "")]


def test_an_unknown_authority_is_refused_in_tls(raw_server: Any, make_certificate: Any) -> None:
    outcome = tls_call(raw_server, make_certificate(), make_certificate())
    refusal(outcome, TargetRefused, "tls")


def test_a_certificate_for_another_host_is_refused_in_tls(
    raw_server: Any, make_certificate: Any
) -> None:
    certificate = make_certificate("another.invalid")
    error = refusal(tls_call(raw_server, certificate, certificate), TargetRefused, "tls")
    assert "127.0.0.1" in str(error)


def test_an_expired_certificate_is_refused_in_tls(raw_server: Any, make_certificate: Any) -> None:
    certificate = make_certificate(expired=True)
    error = refusal(tls_call(raw_server, certificate, certificate), TargetRefused, "tls")
    assert "expired" in str(error)


def speak_plain(server: Any) -> None:
    server.connection.recv(100)
    server.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    server.read_until_closed()


@pytest.mark.parametrize("script", [speak_plain, hang_up, reset])
def test_a_server_that_does_not_speak_tls_is_refused_in_tls(
    raw_server: Any, script: Callable[[Any], None]
) -> None:
    server = raw_server(script)
    refusal(call(f"wss://127.0.0.1:{server.port}/"), TargetRefused, "tls")


def test_a_server_that_is_mute_in_the_tls_handshake_times_out_in_tls(raw_server: Any) -> None:
    server = raw_server(lambda server: server.read_until_closed())
    outcome = call(f"wss://127.0.0.1:{server.port}/", limits=Limits(tls_s=0.1))
    refusal(outcome, TargetTimeout, "tls")


# --- cancellation ------------------------------------------------------------------------------


def no_script(server: Any) -> None:
    server.read_until_closed()


@pytest.fixture
def hanging_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: release.wait(30) or [])
    yield
    release.set()


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_cancelling_a_handshake_leaves_nothing_open(raw_server: Any, scheme: str) -> None:
    server = raw_server(no_script)
    cancel_open(f"{scheme}://127.0.0.1:{server.port}/")


@pytest.mark.usefixtures("hanging_resolver")
def test_cancelling_a_look_up_leaves_nothing_open() -> None:
    cancel_open("ws://slow.invalid/")


def cancel_open(url: str) -> None:
    async def main() -> None:
        shell = WebSocketShell(
            url,
            on_message=lambda data, stamp: None,
            on_closed=lambda code, reason: pytest.fail("it was never open"),
            on_fault=lambda error: pytest.fail(str(error)),
        )
        opening = asyncio.ensure_future(shell.open())
        for _ in range(20):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await shell.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
