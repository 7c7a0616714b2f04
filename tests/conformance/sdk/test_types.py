"""Whatever either side of a protocol writes, the official SDK's own types read, strictly.

An SDK at work reads leniently and lets missing fields pass; other libraries are stricter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import TypeAdapter

from vakforge_eval.timeline.script import ToolSpec
from vakforge_probe.protocol.base import (
    CancelResponse,
    ClientCodec,
    CommitAudio,
    EndSession,
    SessionConfig,
    StartSession,
    ToolResult,
    Truncate,
    Wire,
)
from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.protocol.declared_server import DeclaredServer
from vakforge_probe.protocol.gemini_server import GeminiLiveServer
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.protocol.server import ServerCodec

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CONFIG = SessionConfig(
    model="model-1",
    instructions="Be brief.",
    tools=(ToolSpec(name="look", description="Looks.", parameters={"type": "object"}),),
)
INTENTS = (
    StartSession(CONFIG),
    ToolResult("call_1", "{}"),
    Truncate("item_1", 500),
    CancelResponse("resp_1"),
    CommitAudio(),
    EndSession(),
)


def server_of(protocol: str) -> ServerCodec:
    if protocol == "openai-realtime":
        return OpenAIRealtimeServer()
    if protocol == "gemini-live":
        return GeminiLiveServer()
    return DeclaredServer(shipped_profiles()[protocol])


def client_messages(client: ClientCodec) -> list[Wire]:
    frame = bytes(client.user_audio.rate_hz // 50 * 2)
    opening, *later = (wire for intent in INTENTS for wire in client.send(intent))
    return [opening, client.audio_frame(frame), *later]


def server_messages(server: ServerCodec, received: Iterable[Wire]) -> list[Wire]:
    """Every kind of message that the agent can have the codec write."""
    out = server.created()
    for data in received:
        server.receive(data)
        out += server.take_replies()
    out += server.speech_started(40, "item_u") + server.speech_stopped(900, "item_u")
    out += server.committed("item_u") + server.transcript("item_u", "Hello.", 0.9)
    for status, reason in (("completed", None), ("cancelled", "turn_detected")):
        writer = server.response()
        out += writer.begin() + writer.begin_message() + writer.text("Yes?")
        out += writer.audio(bytes(960)) + writer.end_message()
        out += writer.tool_call("call_1", "look", "{}") + writer.end(status, reason)
    out += server.speech_started(1900, "item_v", is_interruption=True)
    # What an OpenAI agent streams between its responses is the reference agent's own.
    silence = server.stream_audio(bytes(960)) if server.is_continuous else []
    return out + silence + server.error("code", "words")


def types_of(protocol: str) -> tuple[Any, Any]:
    """Return the SDK's types of what a client says after its audio began, and of a server's."""
    match protocol:
        case "openai-realtime":
            realtime = pytest.importorskip("openai.types.realtime")
            return realtime.RealtimeClientEvent, realtime.RealtimeServerEvent
        case "gpt-live":
            live = pytest.importorskip("openai.types.live")
            return live.ClientEvent, live.ServerEvent
        case "gemini-live":
            types = pytest.importorskip("google.genai.types")
            return types.LiveClientMessage, types.LiveServerMessage
    agent = pytest.importorskip("deepgram.agent.v1.types")
    sockets = pytest.importorskip("deepgram.agent.v1.socket_client")
    said = agent.AgentV1Settings | agent.AgentV1SendFunctionCallResponse
    return said, sockets.V1SocketClientResponse


@pytest.mark.parametrize(
    "protocol", ["openai-realtime", "gpt-live", "gemini-live", "deepgram-agent"]
)
def test_official_types_read_what_both_sides_write(protocol: str) -> None:
    types = types_of(protocol)
    said = client_messages(make_client(protocol))
    answered = server_messages(server_of(protocol), said)
    for kind, messages in zip(types, (said, answered), strict=True):
        texts = [data for data in messages if isinstance(data, str) or protocol == "gemini-live"]
        assert len(texts) > 1
        for data in texts:
            TypeAdapter(kind).validate_json(data)
