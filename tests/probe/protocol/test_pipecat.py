"""Pipecat's frames: what is written is read back, and no bytes are a bug."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.timeline.events import (
    AudioChunk,
    Claim,
    Event,
    Fault,
    Interrupt,
    SpeechStarted,
    TextDelta,
    ToolCall,
    Unknown,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.protocol.base import SessionConfig, StartSession, ToolResult, Wire
from vakforge_probe.protocol.pipecat_client import PipecatClient
from vakforge_probe.protocol.pipecat_frames import (
    Audio,
    Interruption,
    Message,
    Other,
    read_frame,
    write_frame,
)
from vakforge_probe.protocol.pipecat_server import PipecatServer
from vakforge_probe.protocol.server import (
    AudioAppended,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
)
from vakforge_probe.protocol.strict import StrictError

AT = Instant.exact(0)

# Written by hand after the published message definitions: audio {id: 7, name: "n", audio, 24000,
# 1 channel, pts: 5}, then message {data: "{}"} and interruption {}.
AUDIO = bytes.fromhex(
    "12 13 08 07 12 01 6e 1a 04 01 02 03 04 20 c0 bb 01 28 01 30 05".replace(" ", "")
)
MESSAGE = bytes.fromhex("22 04 0a 02 7b 7d".replace(" ", ""))


def heard(client: PipecatClient, messages: list[Wire]) -> list[Event]:
    return [event for message in messages for event in client.receive(message, AT)]


def test_known_bytes_are_read() -> None:
    assert read_frame(AUDIO) == Audio(b"\1\2\3\4", 24000, 1, begin=9)
    assert read_frame(MESSAGE) == Message("{}")
    assert read_frame(b"\x2a\x00") == Interruption()
    assert read_frame(b"\x1a\x00") == Other(3)


def test_known_bytes_are_written() -> None:
    assert write_frame(Message("{}")) == MESSAGE
    assert write_frame(Interruption()) == b"\x2a\x00"
    assert write_frame(Audio(b"\1\2", 16000)) == b"\x12\x09\x20\x80\x7d\x28\x01\x1a\x02\1\2"


@given(st.binary(max_size=2000), st.integers(1, 200_000), st.integers(1, 8))
def test_audio_is_read_back_from_where_it_says(data: bytes, rate_hz: int, channels: int) -> None:
    message = write_frame(Audio(data, rate_hz, channels))
    found = read_frame(message)
    assert isinstance(found, Audio)
    assert (found.data, found.rate_hz, found.channels) == (data, rate_hz, channels)
    assert message[found.begin : found.begin + len(data)] == data


@given(st.text(max_size=500))
def test_messages_are_read_back(text: str) -> None:
    assert read_frame(write_frame(Message(text))) == Message(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    with contextlib.suppress(StrictError):
        read_frame(data)
    assert all(isinstance(e, Event) for e in PipecatClient().receive(data, AT))
    PipecatServer().receive(data)


@pytest.mark.parametrize("n", range(len(AUDIO)))
def test_a_frame_that_is_cut_is_refused(n: int) -> None:
    with pytest.raises(StrictError):
        read_frame(AUDIO[:n])


class TestBothSides:
    def begun(self) -> tuple[PipecatClient, PipecatServer]:
        client, server = PipecatClient(), PipecatServer()
        (ready,) = client.send(StartSession(SessionConfig()))
        assert server.receive(ready) == [SessionUpdated()]
        assert heard(client, server.take_replies()) == []
        return client, server

    def test_audio_goes_both_ways_and_lies_where_it_is_said_to(self) -> None:
        client, server = self.begun()
        pcm = bytes(range(128)) * 5
        frame = client.audio_frame(pcm)
        assert server.receive(frame) == [AudioAppended(pcm)]
        codec, transfer, locator = client.user_payload()
        assert (codec, transfer) == ("pcm_s16le", "binary")
        assert frame[int(locator) :] == pcm
        (message,) = server.stream_audio(b"\1\2")
        (chunk,) = client.receive(message, AT)
        assert isinstance(chunk, AudioChunk)
        begin, end = map(int, chunk.locator.split(":"))
        assert (chunk.data, message[begin:end], chunk.rate_hz) == (b"\1\2", b"\1\2", 24000)

    def test_the_head_of_a_file_is_no_audio(self) -> None:
        client, _ = self.begun()
        head = b"RIFF\0\0\0\0WAVE".ljust(44, b"\0")
        message = write_frame(Audio(head + b"\1\2", 24000))
        (chunk,) = client.receive(message, AT)
        assert isinstance(chunk, AudioChunk)
        begin, end = map(int, chunk.locator.split(":"))
        assert chunk.data == message[begin:end] == b"\1\2"

    def test_a_turn_is_understood(self) -> None:
        client, server = self.begun()
        events = heard(client, server.speech_started(0, "i"))
        assert [type(event) for event in events] == [Interrupt, SpeechStarted]
        (said,) = heard(client, server.transcript("i", "hello", 1.0))
        assert isinstance(said, UserTranscript)
        assert said.is_final
        (text,) = heard(client, server.response().text("hi"))
        assert isinstance(text, TextDelta)

    def test_a_tool_is_called_and_answered(self) -> None:
        client, server = self.begun()
        (call,) = heard(client, server.response().tool_call("c", "look", '{"a":1}'))
        assert isinstance(call, ToolCall)
        (answer,) = client.send(ToolResult("c", '{"b":2}'))
        assert server.receive(answer) == [ToolOutput("c", '{"b": 2}'), ResponseRequested()]

    def test_what_a_bot_says_of_its_own_times_is_a_claim(self) -> None:
        client, server = self.begun()
        ttfb: list[Any] = [{"processor": "tts", "value": 0.2}, {"value": "x"}, 3]
        (claim,) = heard(client, server.rtvi("metrics", ttfb=ttfb))
        assert isinstance(claim, Claim)
        assert (claim.name, claim.value_s) == ("ttfb tts", 0.2)

    @pytest.mark.parametrize(
        "message", [{"type": "user-started-speaking"}, {"type": "x", "label": "y"}]
    )
    def test_messages_of_others_are_kept_and_ignored(self, message: dict[str, str]) -> None:
        client, _ = self.begun()
        (event,) = client.receive(write_frame(Message(json.dumps(message))), AT)
        assert isinstance(event, Unknown)

    @pytest.mark.parametrize("data", [
        "text", b"", write_frame(Message("[]")), write_frame(Audio(b"", 0)),
        write_frame(Audio(b"", 8000, 2)),
    ])  # fmt: skip
    def test_a_breach_ends_the_session(self, data: Wire) -> None:
        client, _ = self.begun()
        assert isinstance(client.receive(data, AT)[0], Fault)
        assert client.receive(AUDIO, AT) == []
