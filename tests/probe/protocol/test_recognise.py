"""A message of one protocol is told from those of the others."""

from __future__ import annotations

import pytest

from vakforge_probe.protocol.base import Wire
from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.protocol.declared_server import DeclaredServer
from vakforge_probe.protocol.gemini_server import GeminiLiveServer
from vakforge_probe.protocol.moshi_server import MoshiServer
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer
from vakforge_probe.protocol.pipecat_server import PipecatServer
from vakforge_probe.protocol.recognise import looks_like


@pytest.mark.parametrize(("data", "name"), [
    (OpenAIRealtimeServer().created()[0], "openai-realtime"),
    (OpenAIRealtimeServer(is_beta_client=True).stream_audio(b"\0\0")[0], "openai-realtime"),
    (GeminiLiveServer().message(setupComplete={})[0], "gemini-live"),
    (GeminiLiveServer().stream_audio(b"\0\0")[0], "gemini-live"),
    (PipecatServer().rtvi("bot-ready")[0], "pipecat"),
    (PipecatServer().stream_audio(b"\0\0")[0], "pipecat"),
    (MoshiServer().stream_audio(b"OggS\0")[0], "moshi"),
    ('{"type":"Welcome","request_id":"r"}', "deepgram-agent"),
    ('{"type":"audio","audio_event":{"audio_base_64":"AA==","event_id":1}}', "elevenlabs"),
    ('{"type":"session.started"}', "gpt-live"),
    ('{"type":"reply.started","reply_id":"r"}', "assemblyai"),
    ('{"event":"media","streamSid":"s","media":{"payload":"AA=="}}', "twilio"),
])  # fmt: skip
def test_a_message_is_told_by_its_words(data: Wire, name: str) -> None:
    assert looks_like(data) == name


@pytest.mark.parametrize("data", ["", "hello", "{}", '{"type":"x"}', b"\0\1\2", b"", "[1]",
                                  '{"type":"Welcome"' + " " * 70_000 + "}",
                                  '{"type":{}}', '{"type":[]}'])  # fmt: skip
def test_what_no_protocol_says_looks_like_none(data: Wire) -> None:
    assert looks_like(data) is None


@pytest.mark.parametrize("name", sorted(shipped_profiles()))
def test_each_declared_protocol_is_told_as_one_that_says_the_same(name: str) -> None:
    """Some say the same in the same words: then it is one of those."""
    profile = shipped_profiles()[name]
    server = DeclaredServer(profile)
    for message in [*server.created(), *server.response().audio(b"\0\0")]:
        if isinstance(message, str):
            assert looks_like(message) is not None
