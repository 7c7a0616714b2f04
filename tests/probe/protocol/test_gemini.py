"""Gemini Live: both casings, several things in one message, and what an interruption means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Fault,
    GoAway,
    Interrupt,
    Ready,
    ResponseAudioEnd,
    ResponseEnded,
    SpeechStarted,
    TextDelta,
    ToolCall,
    Unknown,
    Usage,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.script import ToolSpec
from vakforge_probe.protocol.base import SessionConfig, StartSession, ToolResult, Wire
from vakforge_probe.protocol.gemini_client import GeminiLiveClient
from vakforge_probe.protocol.gemini_server import GeminiLiveServer
from vakforge_probe.protocol.server import (
    AudioAppended,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
)

AT = Instant.exact(0)


def told(client: GeminiLiveClient, **message: Any) -> list[Event]:
    return client.receive(json.dumps(message).encode(), AT)


def heard(client: GeminiLiveClient, messages: list[Wire]) -> list[Event]:
    return [event for message in messages for event in client.receive(message, AT)]


def audio(**more: Any) -> dict[str, Any]:
    return {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm;rate=24000",
                                                    "data": "AAE="}}]}, **more}  # fmt: skip


def test_the_session_is_set_up_with_what_the_scenario_says() -> None:
    client, server = GeminiLiveClient(), GeminiLiveServer()
    tool = ToolSpec(name="look", parameters={"type": "object"})
    (message,) = client.send(StartSession(SessionConfig("live-1", "Be brief.", (tool,))))
    setup = json.loads(message)["setup"]
    assert setup["model"] == "models/live-1"
    assert setup["systemInstruction"]["parts"][0]["text"] == "Be brief."
    assert setup["generationConfig"]["responseModalities"] == ["AUDIO"]
    assert server.receive(message) == [SessionUpdated()]
    assert [tool["name"] for tool in server.tools] == ["look"]
    replies = server.take_replies()
    assert all(isinstance(reply, bytes) for reply in replies)
    assert [type(event) for event in heard(client, replies)] == [Ready]
    assert heard(client, replies) == []


@pytest.mark.parametrize("message", [
    {"realtimeInput": {"audio": {"mimeType": "audio/pcm;rate=16000", "data": "AAE="}}},
    {"realtime_input": {"audio": {"mime_type": "audio/pcm;rate=16000", "data": "AAE="}}},
    {"realtime_input": {"media_chunks": [{"mime_type": "audio/pcm", "data": "AAE="}]}},
])  # fmt: skip
def test_the_users_audio_is_taken_in_both_casings(message: dict[str, Any]) -> None:
    assert GeminiLiveServer().receive(json.dumps(message)) == [AudioAppended(b"\0\1")]


def test_the_users_audio_is_taken_in_both_alphabets() -> None:
    message = {"realtimeInput": {"audio": {"data": "-_8="}}}
    assert GeminiLiveServer().receive(json.dumps(message)) == [AudioAppended(b"\xfb\xff")]


def test_the_probes_audio_lies_where_it_is_said_to() -> None:
    client = GeminiLiveClient()
    message = client.audio_frame(b"\0\1")
    assert GeminiLiveServer().receive(message) == [AudioAppended(b"\0\1")]
    value = json.loads(message)
    for key in client.user_payload()[2].split("/")[1:]:
        value = value[key]
    assert value == "AAE="


@pytest.mark.parametrize("is_snake", [False, True])
def test_all_that_one_message_holds_is_told_in_order(is_snake: bool) -> None:
    message: dict[str, Any] = {
        "serverContent": {**audio(), "inputTranscription": {"text": "hello"},
                          "outputTranscription": {"text": "hi"}, "generationComplete": True},
        "usageMetadata": {"totalTokenCount": 3},
        "goAway": {"timeLeft": "60s"},
    }  # fmt: skip
    text = json.dumps(message)
    if is_snake:
        for camel, snake in (("serverContent", "server_content"), ("modelTurn", "model_turn"),
                             ("inlineData", "inline_data"), ("mimeType", "mime_type"),
                             ("inputTranscription", "input_transcription"),
                             ("outputTranscription", "output_transcription"),
                             ("generationComplete", "generation_complete"),
                             ("usageMetadata", "usage_metadata"),
                             ("goAway", "go_away")):  # fmt: skip
            text = text.replace(camel, snake)
    events = GeminiLiveClient().receive(text, AT)
    assert [type(event) for event in events] == [
        UserTranscript, TextDelta, AudioChunk, ResponseAudioEnd, Usage, GoAway,
    ]  # fmt: skip
    chunk = events[2]
    assert isinstance(chunk, AudioChunk)
    value = json.loads(text)
    for key in chunk.locator.split("/")[1:]:
        value = value[int(key)] if isinstance(value, list) else value[key]
    assert (value, chunk.data, chunk.rate_hz) == ("AAE=", b"\0\1", 24000)


def test_a_thought_is_not_spoken() -> None:
    parts = [{"text": "hm", "thought": True}, {"text": "well"}]
    (event,) = told(GeminiLiveClient(), serverContent={"modelTurn": {"parts": parts}})
    assert isinstance(event, TextDelta)
    assert event.text == "well"


def test_what_was_interrupted_is_not_completed_as_well() -> None:
    client = GeminiLiveClient()
    events = told(client, serverContent={"interrupted": True})
    assert [type(event) for event in events] == [Interrupt, ResponseEnded]
    assert told(client, serverContent={"turnComplete": True}) == []
    (ended,) = told(client, serverContent={"turnComplete": True})
    assert isinstance(ended, ResponseEnded)
    assert ended.status == "completed"


def test_a_tool_is_called_and_answered_unless_it_was_withdrawn() -> None:
    client, server = GeminiLiveClient(), GeminiLiveServer()
    calls = heard(client, [*server.response().tool_call("1", "look", '{"a":1}'),
                           *server.response().tool_call("2", "see", "{}")])  # fmt: skip
    assert all(isinstance(call, ToolCall) for call in calls)
    (kept,) = told(client, toolCallCancellation={"ids": ["2"]})
    assert isinstance(kept, Unknown)
    assert client.send(ToolResult("2", "{}")) == []
    (answer,) = client.send(ToolResult("1", "[1]"))
    assert server.receive(answer) == [ToolOutput("1", '{"output": [1]}'), ResponseRequested()]


def test_activity_is_told_where_the_server_was_asked_to() -> None:
    (event,) = told(GeminiLiveClient(), voiceActivity={"voiceActivityType": "ACTIVITY_START"})
    assert isinstance(event, SpeechStarted)


@pytest.mark.parametrize("data", ["", "[]", b"\xff", '{"serverContent":[]}',
    '{"serverContent":{"modelTurn":{"parts":[1]}}}',
    '{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm","data":"@"}}]}}}',
    '{"serverContent":{"inputTranscription":{"text":1}}}', '{"toolCall":{"functionCalls":{}}}',
])  # fmt: skip
def test_a_breach_ends_the_session(data: Wire) -> None:
    client = GeminiLiveClient()
    assert isinstance(client.receive(data, AT)[0], Fault)
    assert client.receive("{}", AT) == []
    assert GeminiLiveServer().receive(data) == []


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["setup", "serverContent", "modelTurn", "parts", "toolCall",
                         "realtimeInput", "audio", "functionCalls", "tools", "goAway",
                         "voiceActivity"]), inner),
    max_leaves=8,
))  # fmt: skip
def test_any_json_is_taken_without_a_bug(message: Any) -> None:
    data = json.dumps(message)
    assert all(isinstance(event, Event) for event in GeminiLiveClient().receive(data, AT))
    GeminiLiveServer().receive(data)
