"""A telephone call behind its webhook: what goes wrong there is the target's, and typed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from vakforge_eval.capture.reader import Capture
from vakforge_probe.call import Call
from vakforge_probe.net.virtual import run
from vakforge_probe.protocol.twiml import SIGNATURE_HEADER, signature

pytestmark = pytest.mark.no_cover

TOKEN = "a-token-of-sixteen"
Answer = Callable[[web.Request, str], Awaitable[web.StreamResponse]]


def twiml(url: str, inner: str = "") -> str:
    return f'<Response><Connect><Stream url="{url}">{inner}</Stream></Connect></Response>'


class Webhook:
    """A bot: its webhook over HTTP and its stream over WebSocket, on one port."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.form: dict[str, str] = {}
        self.signatures: list[tuple[str, str | None]] = []
        self.authorization: list[str | None] = []
        self.start: dict[str, Any] = {}

    async def voice(self, request: web.Request) -> web.StreamResponse:
        self._note(request, f"http://{request.host}/voice?of=me")
        self.form = {name: str(value) for name, value in (await request.post()).items()}
        return await self.answer(request, f"ws://{request.host}/stream")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        self._note(request, f"ws://{request.host}/stream")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(2):
            self.start = json.loads((await socket.receive()).data)
        await socket.close()
        return socket

    def _note(self, request: web.Request, url: str) -> None:
        self.signatures.append((url, request.headers.get(SIGNATURE_HEADER)))
        self.authorization.append(request.headers.get("Authorization"))


def call(bench: Any, answer: Answer, **target: Any) -> tuple[Webhook, Any]:
    """Return the bot and what became of a call to it."""
    bot = Webhook(answer)

    async def main() -> Any:
        application = web.Application()
        application.add_routes([web.post("/voice", bot.voice), web.get("/stream", bot.stream)])
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        plan = bench.plan("bad", f"http://{host}:{port}/voice?of=me", protocol="twilio", **target)
        outcome = await Call(plan).run()
        await runner.cleanup()
        await asyncio.sleep(60)  # what the server has under way may end
        return outcome

    return bot, run(main())


async def good(request: web.Request, url: str) -> web.StreamResponse:
    return web.Response(text=twiml(url, '<Parameter name="who" value="me"/>'))


def test_the_webhook_is_asked_first_and_its_answer_followed(bench: Any) -> None:
    bot, outcome = call(bench, good, auth_token=TOKEN, headers={"Authorization": "Bearer secret"})
    assert (outcome.failure.kind, outcome.failure.phase) == ("closed", "call")
    names = {"CallSid", "AccountSid", "From", "To", "Direction", "CallStatus"}
    assert set(bot.form) == names
    start = bot.start["start"]
    assert start["customParameters"] == {"who": "me"}
    assert (start["callSid"], start["accountSid"]) == (bot.form["CallSid"], bot.form["AccountSid"])
    assert start["callSid"].startswith("CA")
    assert start["streamSid"].startswith("MZ")
    (asked, of_webhook), (dialled, of_stream) = bot.signatures
    assert of_webhook == signature(TOKEN, asked, bot.form)
    assert of_stream == signature(TOKEN, dialled, {})
    assert bot.authorization == ["Bearer secret"] * 2
    journal = Capture.open(outcome.capture).journal
    phases = [line["name"] for line in journal if line["type"] == "phase"]
    assert phases == ["webhook", "resolve", "connect", "handshake", "ready"]


def test_without_a_token_nothing_is_signed(bench: Any) -> None:
    bot, _ = call(bench, good)
    assert [signed for _, signed in bot.signatures] == [None, None]


def test_headers_stay_with_the_host_that_they_are_for(bench: Any) -> None:
    async def elsewhere(request: web.Request, url: str) -> web.StreamResponse:
        return web.Response(text=twiml(url.replace("127.0.0.1", "127.0.0.2")))

    bot, outcome = call(bench, elsewhere, headers={"Authorization": "Bearer secret"})
    assert outcome.failure.phase == "connect"
    assert bot.authorization == ["Bearer secret"]


async def refuse(request: web.Request, url: str) -> web.StreamResponse:
    return web.Response(status=503, headers={"Retry-After": "7"})


async def redirect(request: web.Request, url: str) -> web.StreamResponse:
    raise web.HTTPFound("http://127.0.0.1:1/")


async def hang(request: web.Request, url: str) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError


async def drip(request: web.Request, url: str) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.5)


async def flood(request: web.Request, url: str) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"<Response>" * 100)


async def drop(request: web.Request, url: str) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def garbage(request: web.Request, url: str) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"\0\1 no HTTP\r\n\r\n")
    await asyncio.sleep(1)
    return web.Response()


def says(body: bytes, **headers: str) -> Answer:
    async def answer(request: web.Request, url: str) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    return answer


@pytest.mark.parametrize(("answer", "kind", "words"), [
    (refuse, "refused", "HTTP 503"),
    (redirect, "refused", "redirects are not followed"),
    (hang, "timeout", "within 1 s"),
    (drip, "timeout", "within 1 s"),
    (flood, "limit_exceeded", "max_webhook_bytes"),
    (drop, "refused", ""),
    (garbage, "protocol_error", "not HTTP"),
    (says(b""), "protocol_error", "not XML"),
    (says(b"<!DOCTYPE a><Response/>"), "protocol_error", "declared"),
    (says(b"\x1f\x8b", **{"Content-Encoding": "gzip"}), "protocol_error", "not XML"),
    (says(b"<Response><Reject/></Response>"), "protocol_error", "<Reject>"),
    (says(twiml("wss://h/?a=b").encode()), "protocol_error", "query"),
])  # fmt: skip
def test_a_webhook_that_fails_is_the_targets_failure(
    bench: Any, answer: Answer, kind: str, words: str
) -> None:
    bench.limits = replace(bench.limits, webhook_s=1.0)
    _, outcome = call(bench, answer)
    failure = outcome.failure
    assert (failure.kind, failure.phase) == (kind, "webhook"), failure
    assert words in str(failure)
    assert (outcome.capture / "index.json").exists()


def test_nobody_at_the_webhook_is_a_refusal(bench: Any) -> None:
    async def main() -> Any:
        return await Call(bench.plan("bad", "http://127.0.0.1:1/voice", protocol="twilio")).run()

    failure = run(main()).failure
    assert (failure.kind, failure.phase) == ("refused", "webhook")
    assert "onnection refused" in failure.message
