"""What the agent does wrong on purpose, as a client sees it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from vakforge_eval.timeline.events import AudioChunk, Event, Fault, ServerError, Unknown
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import serve
from vakforge_probe.net.virtual import run
from vakforge_probe.protocol.registry import make_client

S = 1_000_000_000


def raw_messages(clips: Path, stream: Any, **knobs: Any) -> list[str]:
    """Return all that came, unparsed, until the stream was played."""

    async def main() -> list[str]:
        got: list[str] = []
        behaviour = Behaviour(greeting=False, **knobs)
        async with (
            await serve(behaviour, "127.0.0.1", 0, None, clips) as agent,
            connect(agent.url, compression=None, ping_interval=None, proxy=None, max_size=None,
                    open_timeout=None, max_queue=None) as ws,
        ):  # fmt: skip

            async def listen() -> None:
                got.extend([str(message) async for message in ws])

            listening = asyncio.create_task(listen())
            for lo in range(0, len(stream), 480):
                await asyncio.sleep(0.02)
                audio = base64.b64encode(stream[lo : lo + 480].tobytes()).decode()
                await ws.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            await ws.close()
            await listening
        return got

    return run(main())


def events_of(messages: list[str]) -> list[Event]:
    codec = make_client("openai-realtime")
    return [e for m in messages for e in codec.receive(m, Instant.exact(0))]


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("malformed_json", "malformed JSON"),
        ("nan_json", "NaN is not JSON"),
        ("invalid_base64", "invalid base64"),
        ("odd_audio", "audio of a response ends inside a sample"),
        ("oversize", "message longer than"),
    ],
)
def test_each_breach_reaches_the_probes_codec_as_a_fault_that_names_it(
    clips: Path, stream_of: Callable[..., Any], fault: str, what: str
) -> None:
    messages = raw_messages(clips, stream_of(0.1, "en/hello", 3.0), fault=fault, fault_at=0.3)
    (found,) = [e for e in events_of(messages) if isinstance(e, Fault)]
    assert what in found.what
    assert len(found.excerpt) <= 200


def test_junk_is_counted_as_unknown_and_harms_nothing(
    clips: Path, stream_of: Callable[..., Any]
) -> None:
    events = events_of(raw_messages(clips, stream_of(0.1, "en/hello", 3.0), fault="junk"))
    assert len([e for e in events if isinstance(e, Unknown)]) == 20
    assert not [e for e in events if isinstance(e, Fault)]


def test_flood_is_more_audio_than_anyone_speaks(clips: Path, stream_of: Callable[..., Any]) -> None:
    events = events_of(raw_messages(clips, stream_of(1.5), fault="flood"))
    chunks = [e for e in events if isinstance(e, AudioChunk)]
    assert sum(len(c.data) for c in chunks) == 120 * 48000


def test_error_event_leaves_the_session_alive(clips: Path, stream_of: Callable[..., Any]) -> None:
    events = events_of(
        raw_messages(clips, stream_of(0.1, "en/hello", 3.0), fault="error_event", fault_at=0.3)
    )
    assert [e.code for e in events if isinstance(e, ServerError)] == ["server_error"]
    assert any(isinstance(e, AudioChunk) for e in events)


def test_mute_agent_accepts_and_says_nothing(clips: Path, stream_of: Callable[..., Any]) -> None:
    assert raw_messages(clips, stream_of(0.1, "en/hello", 2.0), mute=True) == []


@pytest.mark.parametrize(("knob", "code"), [("close_at", 1000), ("abort_at", None)])
def test_agent_leaves_in_the_middle_of_a_call(
    converse: Callable[..., Any], stream_of: Callable[..., Any], knob: str, code: int | None
) -> None:
    out = converse(stream_of(0.1, "en/hello", 3.0), **{knob: 2.0})
    error = out.caller.closed_by
    assert error is not None
    assert (error.rcvd.code if error.rcvd else None) == code
    assert isinstance(error, ConnectionClosedError) is (code is None)
    (closed,) = out.lines("closed")
    assert out.turns, "the truth of what was said before is still written"
    assert closed["at"] <= out.caller.sent[0][0] + 2 * S + S // 10


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("?refuse=503", 503, "refused"),
        ("?reply_dealy=1", 400, "did you mean 'reply_delay'"),
        ("?reply_delay=x", 400, "reply_delay"),
        ("?seed=1&seed=2", 400, "twice"),
    ],
)
def test_handshake_is_refused_with_the_reason(
    clips: Path, query: str, status: int, text: str
) -> None:
    async def main() -> InvalidStatus:
        async with await serve(Behaviour(), "127.0.0.1", 0, None, clips) as agent:
            with pytest.raises(InvalidStatus) as caught:
                await connect(agent.url + query, proxy=None, open_timeout=None)
        return caught.value

    response = run(main()).response
    assert response.status_code == status
    assert text in (response.body or b"").decode()


def test_unknown_path_is_not_found_and_the_root_is_served(clips: Path) -> None:
    async def main() -> int:
        async with await serve(Behaviour(), "127.0.0.1", 0, None, clips) as agent:
            base = f"ws://127.0.0.1:{agent.port}"
            async with connect(f"{base}/", proxy=None, open_timeout=None, ping_interval=None) as ws:
                assert json.loads(await ws.recv())["type"] == "session.created"
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"{base}/elsewhere", proxy=None, open_timeout=None)
        return caught.value.response.status_code

    assert run(main()) == 404


def test_knobs_of_a_connection_come_from_its_url(
    converse: Callable[..., Any], stream_of: Callable[..., Any]
) -> None:
    out = converse(stream_of(0.1, "en/hello", 3.0), query="?reply_delay=0.75&model=gpt-realtime")
    assert out.turns[0]["microphone"]["ttfa"]["value"] == 0.75
    assert out.caller.first("session.created").message["session"]["model"] == "gpt-realtime"
