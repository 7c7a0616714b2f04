"""Targets that never let a call begin: each is a typed error of its phase, and a report of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import socket
from typing import Any

import pytest

from vakforge_probe.errors import TargetRefused

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def answer_to(request: bytes) -> bytes:
    found = re.search(rb"(?i)sec-websocket-key: *(\S+)", request)
    assert found is not None
    digest = hashlib.sha1(found[1] + _GUID, usedforsecurity=False).digest()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
    )


async def stay(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


def test_a_closed_port_is_refused_in_connect(bench: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"
    judged = bench.judge(url=url, within_s=0.0)
    judged.failed("refused", "connect")
    assert [line["name"] for line in judged.of("phase")] == ["resolve"]
    assert judged.of("ready") == []
    assert judged.document["verdict"]["status"] == "nothing_measured"


def refusal(status: int) -> Any:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} No\r\nRetry-After: 7\r\nContent-Length: 3\r\n\r\n"
        writer.write(head.encode() + b"no\n")

    return refuse


def test_an_http_refusal_names_its_status_and_phase(bench: Any) -> None:
    statuses = (401, 403, 404, 429, 503)
    judged = bench.judge_all(raw={f"{s}": refusal(s) for s in statuses}, within_s=0.0)
    for status in statuses:
        error = judged[f"{status}"].failed("refused", "handshake")
        assert isinstance(error, TargetRefused)
        assert (error.status, error.retry_after) == (status, "7")
        assert str(status) in error.message


def test_a_target_that_never_answers_the_handshake_times_out_in_it(bench: Any) -> None:
    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stay(reader)

    judged = bench.judge(raw=ignore, within_s=bench.limits.handshake_s)
    judged.failed("timeout", "handshake")
    # What was measured before it went wrong stays: the network was quick, the target was not.
    assert [line["name"] for line in judged.of("phase")] == ["resolve", "connect"]
    (call,) = judged.document["calls"]
    assert call["metrics"]["setup_connect"]["value"] >= 0
    assert call["metrics"]["setup_handshake"] == {"undefined": "call_failed"}


def test_a_target_that_drips_its_answer_times_out_in_the_handshake(bench: Any) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nX-Slow: ")
        while not reader.at_eof() and not writer.transport.is_closing():
            writer.write(b"a")
            await asyncio.sleep(0.1)

    bench.judge(raw=drip, within_s=bench.limits.handshake_s).failed("timeout", "handshake")


def test_a_target_that_hangs_up_without_an_answer_is_refused(bench: Any) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    bench.judge(raw=hang_up, within_s=0.0).failed("refused", "handshake")


AFTER_101 = {
    "gone": (b"", "closed"),
    "close 1000": (b"\x88\x02\x03\xe8", "closed"),
    "close 1011": (b"\x88\x02\x03\xf3", "closed"),
    "no JSON": (b"\x81\x03abc", "protocol_error"),
    "reserved opcode": (b"\x83\x00", "protocol_error"),
    "huge frame": (b"\x82\x7f" + (2**62).to_bytes(8), "limit_exceeded"),
}


def misbehaviour(after: bytes, delay_s: float | None) -> Any:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = answer_to(await reader.readuntil(b"\r\n\r\n"))
        if delay_s is None:
            writer.write(answer + after)
        else:
            writer.write(answer)
            await asyncio.sleep(delay_s)
            writer.write(after)
        if after:
            await stay(reader)

    return misbehave


def test_what_goes_wrong_right_after_101_is_a_failure_of_becoming_ready(bench: Any) -> None:
    delays = {"with it": None, "at once": 0.0, "later": 0.1}
    judged = bench.judge_all(
        raw={
            f"{name} {when}": misbehaviour(after, delay_s)
            for name, (after, _) in AFTER_101.items()
            for when, delay_s in delays.items()
        },
        within_s=0.1,
    )
    for name, (_, kind) in AFTER_101.items():
        for when in delays:
            one = judged[f"{name} {when}"]
            one.failed(kind, "ready")
            phases = {line["name"] for line in one.of("phase")}
            assert phases == {"resolve", "connect", "handshake"}


async def _mute(peer: Any) -> None:
    await peer.listen()


async def _created_only(peer: Any) -> None:
    await peer.say("session.created", session={"type": "realtime"})
    await peer.listen()


async def _chatty(peer: Any) -> None:
    while True:
        await peer.say("rate_limits.updated", rate_limits=[])
        await asyncio.sleep(0.5)


async def _greets_before_ready(peer: Any) -> None:
    await peer.say("session.created", session={"type": "realtime"})
    await peer.answer("too soon")
    await peer.listen()


def test_a_session_that_is_never_granted_times_out_in_ready(bench: Any) -> None:
    behaviours = (_mute, _created_only, _chatty, _greets_before_ready)
    judged = bench.judge_all({b.__name__: b for b in behaviours}, within_s=bench.limits.ready_s)
    for one in judged.values():
        one.failed("timeout", "ready")
        assert one.timeline.ready is None
        assert len(one.timeline.stream) == 0


ERRORS: dict[str, Any] = {
    "model": {"type": "invalid_request_error", "code": "model_not_found", "message": "none such"},
    "key": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "bad key"},
    "wrong types": {"code": 7, "message": {"a": 1}, "param": ["x"]},
    "text": "just words",
    "null": None,
    "empty": {},
}


def erring(error: Any, *, is_before_update: bool) -> Any:
    async def refuse(peer: Any) -> None:
        if not is_before_update:
            await peer.say("session.created", session={"type": "realtime"})
            await peer.take("session.update")
        await peer.say("error", error=error)
        await peer.listen()

    return refuse


@pytest.mark.parametrize("is_before_update", [True, False], ids=["at once", "after the update"])
def test_an_error_instead_of_a_session_is_a_refusal_in_ready(
    bench: Any, is_before_update: bool
) -> None:
    judged = bench.judge_all(
        {n: erring(e, is_before_update=is_before_update) for n, e in ERRORS.items()}, within_s=0.1
    )
    for name, one in judged.items():
        failure = one.failed("refused", "ready")
        assert "None" not in failure.message
        if name in ("model", "key"):
            assert ERRORS[name]["code"] in failure.message
            assert ERRORS[name]["message"] in failure.message


def test_an_error_and_a_goodbye_at_once_still_say_why(bench: Any) -> None:
    async def refuse(peer: Any) -> None:
        await peer.say("error", error={"code": "invalid_api_key", "message": "bad key"})
        await peer.connection.close(3000, "invalid_request_error.invalid_api_key")

    failure = bench.judge(refuse, within_s=0.2).failed("refused", "ready")
    assert "bad key" in failure.message


def test_the_reason_of_an_early_goodbye_is_kept_in_one_clean_line(bench: Any) -> None:
    async def refuse(peer: Any) -> None:
        await peer.connection.close(4001, "no\x1b[31m key\n\u202e<script>")

    judged = bench.judge(refuse, within_s=0.2)
    failure = judged.failed("closed", "ready")
    assert "4001" in failure.message
    assert "key" in failure.message
    for text in (str(failure), judged.texts["terminal"]):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_fallback_that_is_refused_too_is_a_refusal(bench: Any) -> None:
    updates: list[dict[str, Any]] = []

    async def refuse(peer: Any) -> None:
        await peer.say("session.created", session={})
        for _ in range(2):
            updates.append(await peer.take("session.update"))
            await peer.say(
                "error", error={"code": "unknown_parameter", "message": "Unknown parameter: x"}
            )
        await peer.listen()

    bench.judge(refuse, within_s=bench.limits.ready_s).failed("refused", "ready")
    assert [json.dumps(u).count("input_audio_format") for u in updates] == [0, 1]
