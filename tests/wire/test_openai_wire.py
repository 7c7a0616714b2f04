"""Recorded-shape message streams of both dialects give one and the same account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Ready,
    ResponseAudioEnd,
    ResponseEnded,
    ResponseStarted,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    ToolCall,
    Truncated,
    TurnCommitted,
    Unknown,
    Usage,
    UserTranscript,
    event_from_json,
    event_to_json,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.protocol.base import SessionConfig, StartSession
from vakforge_probe.protocol.openai_realtime import OpenAIRealtimeClient
from vakforge_probe.protocol.strict import parse_object

HERE = Path(__file__).parent
AT = Instant.exact(0)
DIALECTS = ("ga", "beta")


def fixture(dialect: str) -> list[str]:
    return (HERE / f"openai_{dialect}.jsonl").read_text("utf-8").splitlines()


def account(messages: list[str]) -> list[Event]:
    codec = OpenAIRealtimeClient()
    codec.send(StartSession(SessionConfig()))
    return [event for message in messages for event in codec.receive(message, AT)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fixture_gives_exactly_these_events(dialect: str) -> None:
    events = account(fixture(dialect))
    assert isinstance(events[0], Ready)
    ids: dict[str, Any] = {"at": AT, "response_id": "resp_1", "item_id": "item_a1"}
    assert events[1:] == [
        SpeechStarted(at=AT, offset_ms=420, item_id="item_u1"),
        SpeechStopped(at=AT, offset_ms=1984, item_id="item_u1"),
        TurnCommitted(at=AT, item_id="item_u1"),
        ResponseStarted(at=AT, response_id="resp_1"),
        UserTranscript(at=AT, text="Where is", item_id="item_u1"),
        UserTranscript(at=AT, text="Where is my order?", item_id="item_u1"),
        UserTranscript(at=AT, text="Where is my order?", is_final=True, item_id="item_u1"),
        TextDelta(text="One", **ids),
        AudioChunk(data=b"\x01\x00\x02\x00\x03", locator="/delta", **ids),
        TextDelta(text=" moment.", **ids),
        AudioChunk(data=b"\x00\x04\x00\x05\x00", locator="/delta", **ids),
        ResponseAudioEnd(**ids),
        ToolCall(
            at=AT,
            call_id="call_1",
            name="order_status",
            arguments='{"id":4}',
            response_id="resp_1",
        ),
        Usage(
            at=AT,
            response_id="resp_1",
            usage={"total_tokens": 30, "input_tokens": 10, "output_tokens": 20},
        ),
        ResponseEnded(at=AT, response_id="resp_1", status="completed"),
        SpeechStarted(at=AT, offset_ms=5020, item_id="item_u2"),
        Truncated(at=AT, item_id="item_a1", audio_end_ms=0),
        Unknown(at=AT, name="vendor.something"),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_events_survive_the_journal(dialect: str) -> None:
    for event in account(fixture(dialect)):
        back = event_from_json(event_to_json(event, 3))
        if not isinstance(event, AudioChunk):
            assert back == event


def test_ga_fixture_is_what_the_official_sdk_reads() -> None:
    adapter = TypeAdapter[Any](RealtimeServerEvent)
    for line in fixture("ga"):
        message = parse_object(line, 10**6)
        if message["type"] == "response.function_call_arguments.done":
            message["name"] = "order_status"  # the SDK requires what older servers leave out
        if message["type"] != "vendor.something":
            adapter.validate_python(message)


def _on_the_wire(messages: list[str], fragment: int) -> bytes:
    out = b""
    for message in messages:
        data = message.encode("utf-8")
        pieces = [data[i : i + fragment] for i in range(0, len(data), fragment)]
        for i, piece in enumerate(pieces):
            opcode = Opcode.CONT if i else Opcode.TEXT
            frame = Frame(opcode, piece, fin=i == len(pieces) - 1)
            out += frame.serialize(mask=False)
    return out


@given(
    st.sampled_from(DIALECTS),
    st.integers(40, 5000),
    st.lists(st.integers(1, 900), min_size=1, max_size=12),
)
@settings(deadline=None, max_examples=40)
def test_how_the_bytes_were_cut_on_the_wire_changes_nothing(
    dialect: str, fragment: int, sizes: list[int]
) -> None:
    protocol = ClientProtocol(parse_uri("ws://127.0.0.1/"), state=State.OPEN)
    wire, at, i = _on_the_wire(fixture(dialect), fragment), 0, 0
    messages: list[str] = []
    parts = b""
    while at < len(wire):
        size = sizes[i % len(sizes)]
        protocol.receive_data(wire[at : at + size])
        at, i = at + size, i + 1
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            parts += bytes(frame.data)
            if frame.fin:
                messages.append(parts.decode("utf-8"))
                parts = b""
    assert account(messages) == account(fixture(dialect))


@given(st.sampled_from(DIALECTS), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_text_and_audio_may_interleave_in_any_way(dialect: str, random: Any) -> None:
    messages = fixture(dialect)
    is_text = ["audio_transcript.delta" in m for m in messages]
    is_audio = ["audio.delta" in m for m in messages]
    slots = [i for i, (t, a) in enumerate(zip(is_text, is_audio, strict=True)) if t or a]
    texts = [m for m, t in zip(messages, is_text, strict=True) if t]
    audio = [m for m, a in zip(messages, is_audio, strict=True) if a]
    for slot in slots:
        pile = random.choice([p for p in (texts, audio) if p])
        messages[slot] = pile.pop(0)
    events, expected = account(messages), account(fixture(dialect))
    for kind in (TextDelta, AudioChunk):
        assert [e for e in events if isinstance(e, kind)] == [
            e for e in expected if isinstance(e, kind)
        ]
    assert len(events) == len(expected)
