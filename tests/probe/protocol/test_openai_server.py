"""The server's codec alone, and the pair of both codecs without any I/O between them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Ready,
    ResponseEnded,
    TextDelta,
    ToolCall,
    Truncated,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.script import ToolSpec
from vakforge_probe.protocol.base import (
    CancelResponse,
    CommitAudio,
    SessionConfig,
    StartSession,
    ToolResult,
    Truncate,
    Wire,
)
from vakforge_probe.protocol.openai_realtime import OpenAIRealtimeClient, OpenAIRealtimeServer
from vakforge_probe.protocol.openai_server import ServerOptions
from vakforge_probe.protocol.server import (
    AudioAppended,
    AudioCleared,
    AudioCommitted,
    CancelRequested,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
    TruncateRequested,
)

AT = Instant.exact(0)


def replies(server: OpenAIRealtimeServer, **message: Any) -> list[dict[str, Any]]:
    server.receive(json.dumps(message))
    return [json.loads(m) for m in server.take_replies()]


def whole_response(server: OpenAIRealtimeServer, data: bytes = b"abcd") -> list[Wire]:
    writer = server.response()
    return [
        *writer.begin(),
        *writer.begin_message(),
        *writer.text("hello"),
        *writer.audio(data),
        *writer.end_message(),
        *writer.tool_call("call_1", "look", '{"a":1}'),
        *writer.end(),
    ]


def kinds(messages: list[Wire]) -> list[str]:
    return [json.loads(m)["type"] for m in messages]


def test_response_is_written_in_the_order_of_a_real_server() -> None:
    assert kinds(whole_response(OpenAIRealtimeServer())) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]


def test_beta_clients_get_beta_names_only() -> None:
    server = OpenAIRealtimeServer(is_beta_client=True)
    names = kinds(server.created() + server.committed("i") + whole_response(server))
    assert "response.audio.delta" in names
    assert "conversation.item.created" in names
    assert not [n for n in names if "output_audio" in n or n == "conversation.item.done"]


def test_every_message_is_one_that_the_official_sdk_reads() -> None:
    server = OpenAIRealtimeServer()
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    server.receive(json.dumps({"type": "conversation.item.create", "item": item}))
    server.receive(json.dumps({"type": "input_audio_buffer.clear"}))
    server.receive(json.dumps({"type": "session.update", "session": {"type": "realtime"}}))
    server.committed("h")
    server.receive(json.dumps({"type": "conversation.item.retrieve", "item_id": "h"}))
    server.receive(json.dumps({"type": "conversation.item.delete", "item_id": "h"}))
    server.receive("garbage")
    messages = [
        *server.created(),
        *server.take_replies(),
        *server.speech_started(0, "i"),
        *server.speech_stopped(900, "i"),
        *server.committed("i"),
        *server.transcript("i", "text", 1.2),
        *whole_response(server),
    ]
    cancelled = server.response()
    messages += cancelled.begin() + cancelled.begin_message()
    messages += cancelled.end("cancelled", "turn_detected")
    adapter = TypeAdapter[Any](RealtimeServerEvent)
    seen = {type(adapter.validate_json(m)).__name__ for m in messages}
    assert len(seen) > 15
    ids = [json.loads(m)["event_id"] for m in messages]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"type": "input_audio_buffer.append", "audio": "AAE="}, AudioAppended(b"\0\x01")),
        ({"type": "input_audio_buffer.commit"}, AudioCommitted()),
        ({"type": "input_audio_buffer.clear"}, AudioCleared()),
        ({"type": "response.create"}, ResponseRequested()),
        ({"type": "response.cancel", "response_id": "r"}, CancelRequested("r")),
        ({"type": "response.cancel"}, CancelRequested(None)),
        ({"type": "session.update", "session": {}}, SessionUpdated()),
        ({"type": "conversation.item.create",
          "item": {"type": "function_call_output", "call_id": "c", "output": "o"}},
         ToolOutput("c", "o")),
    ],
)  # fmt: skip
def test_what_a_client_sends_is_understood(message: dict[str, Any], event: object) -> None:
    assert OpenAIRealtimeServer().receive(json.dumps(message)) == [event]


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{}",
        '{"type":"response.invent"}',
        '{"type":"input_audio_buffer.append","audio":"@@@@"}',
        '{"type":"input_audio_buffer.append"}',
        '{"type":"session.update"}',
        '{"type":"session.update","session":{"input_audio_format":"mp3"}}',
        '{"type":"session.update","session":{"audio":{"input":{"format":{"type":"audio/pcm","rate":16000}}}}}',
        '{"type":"conversation.item.create","item":{"type":"function_call_output"}}',
        '{"type":"conversation.item.truncate","item_id":"x","audio_end_ms":5}',
        '{"type":"conversation.item.retrieve","item_id":"x"}',
        '{"type":"conversation.item.delete","item_id":"x"}',
        '{"type":"conversation.item.retrieve"}',
        '{"type":"session.update","session":{"tools":[1]}}',
    ],
)
def test_wrong_message_is_answered_by_an_error_and_nothing_happens(data: str) -> None:
    server = OpenAIRealtimeServer()
    assert server.receive(data) == []
    (error,) = [json.loads(m) for m in server.take_replies()]
    assert error["type"] == "error"
    assert error["error"]["message"]


def told_last(messages: list[Wire]) -> dict[str, dict[str, Any]]:
    parsed = [json.loads(m) for m in messages]
    return {m["item"]["id"]: m["item"] for m in parsed if m["type"].startswith("conversation.")}


def test_item_is_retrieved_as_it_was_last_told() -> None:
    server = OpenAIRealtimeServer()
    made = {"id": "mine", "type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "x"}]}  # fmt: skip
    server.receive(json.dumps({"type": "conversation.item.create", "item": made}))
    writer = server.response()
    told = told_last([
        *server.take_replies(), *server.committed("i"), *whole_response(server),
        *writer.begin(), *writer.begin_message(),
    ])  # fmt: skip
    shapes = {(item["type"], item.get("role"), item["status"]) for item in told.values()}
    assert len(shapes) == 4
    for item_id, item in told.items():
        (answer,) = replies(server, type="conversation.item.retrieve", item_id=item_id)
        assert answer["type"] == "conversation.item.retrieved"
        assert answer["item"] == item


def test_item_follows_the_same_one_whenever_it_is_told() -> None:
    server = OpenAIRealtimeServer()
    messages = [json.loads(m) for m in server.committed("i") + whole_response(server)]
    told = [(m["item"]["id"], m["previous_item_id"])
            for m in messages if m["type"].startswith("conversation.")]  # fmt: skip
    ids = list(dict(told))
    assert dict(told) == dict(zip(ids, [None, *ids], strict=False))
    assert len(set(told)) == len(ids)


def test_retrieved_item_has_the_transcript_that_came_and_not_what_was_cut() -> None:
    server = OpenAIRealtimeServer()
    server.committed("i")
    server.transcript("i", "said", 1.0)
    whole_response(server, bytes(48000))
    (spoken,) = server.item_ms
    for item_id, text in (("i", "said"), (spoken, "hello")):
        (answer,) = replies(server, type="conversation.item.retrieve", item_id=item_id)
        assert answer["item"]["content"][0]["transcript"] == text
    replies(server, type="conversation.item.truncate", item_id=spoken, audio_end_ms=500)
    (answer,) = replies(server, type="conversation.item.retrieve", item_id=spoken)
    assert answer["item"]["content"][0]["transcript"] is None


@pytest.mark.parametrize("kind", ["retrieve", "delete"])
def test_deleted_item_is_gone(kind: str) -> None:
    server = OpenAIRealtimeServer()
    server.committed("i")
    (answer,) = replies(server, type="conversation.item.delete", item_id="i")
    assert answer["type"] == "conversation.item.deleted"
    server.transcript("i", "late", 1.0)
    (answer,) = replies(server, type=f"conversation.item.{kind}", item_id="i")
    assert answer["type"] == "error"


def test_response_that_was_asked_for_carries_its_metadata_and_no_other_does() -> None:
    server = OpenAIRealtimeServer()
    metadata = {"client_event_id": "e1"}
    server.receive(json.dumps({"type": "response.create", "response": {"metadata": metadata}}))
    for expected in (metadata, None):
        responses = [json.loads(m)["response"] for m in whole_response(server)
                     if json.loads(m)["type"] in ("response.created", "response.done")]  # fmt: skip
        assert [r["metadata"] for r in responses] == [expected, expected]


def test_partial_session_updates_keep_what_was_set_before() -> None:
    server = OpenAIRealtimeServer()
    tool = {"type": "function", "name": "t"}
    replies(server, type="session.update", session={"type": "realtime", "tools": [tool],
                                                    "instructions": "hi"})  # fmt: skip
    (updated,) = replies(
        server, type="session.update", session={"type": "realtime", "tracing": "auto"}
    )
    assert updated["session"]["tools"] == [tool]
    assert updated["session"]["instructions"] == "hi"


def test_turn_detection_gets_the_servers_defaults() -> None:
    server = OpenAIRealtimeServer(ServerOptions(interrupt_response=False, silence_ms=700))
    detection = {"type": "server_vad", "threshold": 0.9}
    (updated,) = replies(
        server, type="session.update",
        session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}},
    )  # fmt: skip
    effective = updated["session"]["audio"]["input"]["turn_detection"]
    assert effective["threshold"] == 0.9
    assert effective["silence_duration_ms"] == 700
    assert not server.interrupts


def test_format_is_fixed_once_audio_flows() -> None:
    server = OpenAIRealtimeServer()
    server.is_format_fixed = True
    for form, kind in (("pcm16", "session.updated"), ("g711_ulaw", "error")):
        (answer,) = replies(server, type="session.update", session={"input_audio_format": form})
        assert answer["type"] == kind


class Pair:
    """Both codecs, joined by nothing."""

    def __init__(self, client: OpenAIRealtimeClient, server: OpenAIRealtimeServer) -> None:
        self.client, self.server = client, server
        self.heard: list[Event] = []
        self.asked: list[object] = []

    def down(self, messages: list[Wire]) -> None:
        for message in messages:
            self.heard += self.client.receive(message, AT)
            self.up([str(m) for m in self.client.take_replies(0)])

    def up(self, messages: list[Wire]) -> None:
        for message in messages:
            self.asked += self.server.receive(message)
            self.down(self.server.take_replies())

    def send(self, intent: Any) -> None:
        self.up([str(m) for m in self.client.send(intent)])


CONFIG = SessionConfig(instructions="hi", tools=(ToolSpec(name="look"),))


@pytest.mark.parametrize("law", ["pcm_s16le", "pcmu", "pcma"])
@pytest.mark.parametrize(
    ("client", "server"),
    [("ga", "auto"), ("beta", "auto"), ("auto", "auto"), ("auto", "beta"), ("auto", "ga")],
)
def test_both_sides_agree_in_every_mixture_of_dialects(client: str, server: str, law: str) -> None:
    options = ServerOptions(dialect=server)  # type: ignore[arg-type]
    pair = Pair(OpenAIRealtimeClient(client, law), OpenAIRealtimeServer(options))
    pair.down(pair.server.created())
    pair.send(StartSession(CONFIG))
    assert [e for e in pair.heard if isinstance(e, Ready)]
    assert pair.server.output_format == (law, 24000 if law == "pcm_s16le" else 8000)
    assert [t["name"] for t in pair.server.tools] == ["look"]
    pair.up([str(pair.client.audio_frame(bytes(960)))])
    pair.down(whole_response(pair.server))
    (chunk,) = [e for e in pair.heard if isinstance(e, AudioChunk)]
    assert (chunk.codec, chunk.data) == (law, b"abcd")
    assert [e.text for e in pair.heard if isinstance(e, TextDelta)] == ["hello"]
    (call,) = [e for e in pair.heard if isinstance(e, ToolCall)]
    assert (call.name, call.arguments) == ("look", '{"a":1}')
    pair.send(ToolResult(call.call_id, "{}"))
    assert pair.asked[-2:] == [ToolOutput("call_1", "{}"), ResponseRequested()]


def test_refused_ga_session_ends_in_an_agreed_beta_one() -> None:
    pair = Pair(OpenAIRealtimeClient("auto"), OpenAIRealtimeServer(ServerOptions(dialect="beta")))
    pair.down(pair.server.created())
    pair.send(StartSession(CONFIG))
    (ready,) = [e for e in pair.heard if isinstance(e, Ready)]
    assert ready.session["input_audio_format"] == "pcm16"


def test_truncate_cancel_and_commit_reach_the_server() -> None:
    pair = Pair(OpenAIRealtimeClient("ga"), OpenAIRealtimeServer())
    pair.send(StartSession(SessionConfig()))
    writer = pair.server.response()
    pair.down(writer.begin() + writer.begin_message() + writer.audio(bytes(4801)))
    pair.send(Truncate(writer.item_id, 5000))
    assert pair.asked[-1] == TruncateRequested(writer.item_id, 100)
    assert pair.heard[-1] == Truncated(at=AT, item_id=writer.item_id, audio_end_ms=100)
    pair.send(CancelResponse(writer.id))
    assert pair.asked[-1:] == [CancelRequested(writer.id)]
    pair.down(writer.end("cancelled", "client_cancelled"))
    assert pair.heard[-1:] == [
        ResponseEnded(at=AT, response_id=writer.id, status="cancelled", reason="client_cancelled")
    ]
    pair.send(CommitAudio())
    assert pair.asked[-2:] == [AudioCommitted(), ResponseRequested()]


def test_usage_counts_what_was_said() -> None:
    response = json.loads(whole_response(OpenAIRealtimeServer(), bytes(48000))[-1])["response"]
    assert response["usage"]["output_token_details"] == {"text_tokens": 1, "audio_tokens": 20}
    assert len(base64.b64encode(bytes(48000))) == 64000
