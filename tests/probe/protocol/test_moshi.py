"""Moshi's messages, both ways, and what does not belong there."""

from __future__ import annotations

import builtins
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("av", reason="Opus needs PyAV")

from vakforge_eval.ogg import OggReader, OpusHead, is_header
from vakforge_eval.signal.codecs import make_decoder
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Fault,
    Ready,
    ServerError,
    TextDelta,
    Unknown,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.errors import ConfigError, MissingDependency
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import EndSession, SessionConfig, StartSession
from vakforge_probe.protocol.moshi_client import MoshiClient
from vakforge_probe.protocol.moshi_server import MoshiServer
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.protocol.server import AudioAppended

AT = Instant.exact(7)
SILENCE = bytes(960)


def told(*messages: bytes | str) -> list[Event]:
    codec = MoshiClient()
    return [event for data in messages for event in codec.receive(data, AT)]


def test_handshake_makes_it_ready_once() -> None:
    (created,) = MoshiServer().created()
    assert isinstance(created, bytes)
    assert told(created, created, b"\0with more") == [Ready(at=AT)]


def test_sound_and_text_of_the_server() -> None:
    server = MoshiServer()
    writer = server.response()
    (text,), (audio,) = writer.text(" Namasté"), writer.audio(b"OggS")
    assert isinstance(text, bytes)
    assert isinstance(audio, bytes)
    said, chunk = told(text, audio)
    assert said == TextDelta(at=AT, text=" Namasté")
    assert isinstance(chunk, AudioChunk)
    assert (chunk.codec, chunk.rate_hz, chunk.transfer) == ("ogg_opus", 48_000, "binary")
    assert audio[int(chunk.locator) :] == chunk.data == b"OggS"
    assert chunk.response_id is None


def test_what_a_server_has_no_word_for_is_no_message() -> None:
    server = MoshiServer()
    writer = server.response()
    silent = [
        writer.begin(), writer.begin_message(), writer.end_message(), writer.end(),
        writer.tool_call("c", "n", "{}"), server.speech_started(0, "i"), server.committed("i"),
        server.speech_stopped(0, "i"), server.transcript("i", "t", 1.0), server.take_replies(),
    ]  # fmt: skip
    assert not any(silent)


def test_each_frame_of_the_user_is_a_page_and_the_first_also_holds_the_headers() -> None:
    client, server, reader = MoshiClient(), MoshiServer(), OggReader()
    sizes, packets = [], []
    for k in range(5):
        tone = (8000 * np.sin(np.arange(480) * 0.1 + 48 * k)).astype("<i2")
        message = client.audio_frame(tone.tobytes())
        assert isinstance(message, bytes)
        codec, transfer, locator = client.user_payload()
        assert (codec, transfer) == ("ogg_opus", "binary")
        (appended,) = server.receive(message)
        assert appended == AudioAppended(message[int(locator) :])
        assert isinstance(appended, AudioAppended)
        found = reader.feed(appended.data)
        sizes.append(len(found))
        packets += found
    assert sizes == [3, 1, 1, 1, 1]
    assert OpusHead.of(packets[0].data) == OpusHead(312, 24_000)
    assert [is_header(p.data) for p in packets[:3]] == [True, True, False]
    assert packets[-1].granule == 5 * 960


def test_stream_decodes_however_its_bytes_are_split() -> None:
    client = MoshiClient()
    messages = [client.audio_frame(SILENCE) for _ in range(4)]
    stream = b"".join(m[1:] for m in messages if isinstance(m, bytes))
    whole = make_decoder("ogg_opus").feed(stream)
    assert len(whole) == 4 * 960 - 312
    decoder = make_decoder("ogg_opus")
    parts = [decoder.feed(stream[i : i + 1]) for i in range(len(stream))]
    assert np.array_equal(np.concatenate(parts), whole)
    assert (decoder.pending, decoder.n_corrupt) == (0, 0)
    torn = make_decoder("ogg_opus")
    torn.feed(stream[:-1])
    assert torn.pending > 0


@pytest.mark.parametrize(("data", "event"), [
    (b"\x03\x00", Unknown(at=AT, name="control")),
    (b'\x04{"a":1}', Unknown(at=AT, name="metadata")),
    (b"\x05no\x1b[0m room", ServerError(at=AT, message="no room", is_fatal=True)),
])  # fmt: skip
def test_other_kinds(data: bytes, event: Event) -> None:
    (found,) = told(data)
    assert type(found) is type(event)
    if isinstance(found, ServerError):
        assert found.is_fatal
        assert "\x1b" not in found.message
    else:
        assert found == event


def test_ping_is_no_event_and_an_error_after_the_handshake_ends_nothing() -> None:
    assert told(b"\x06") == []
    last = told(b"\0", b"\5busy")[-1]
    assert isinstance(last, ServerError)
    assert not last.is_fatal


@pytest.mark.parametrize("data", ["text", b"", b"\x07", b"\xff\xff", b"\x02\xff"])
def test_what_moshi_does_not_say_is_a_fault_and_nothing_comes_after_it(data: bytes | str) -> None:
    (fault,) = told(data, b"\0")
    assert isinstance(fault, Fault)


def test_long_messages_are_refused() -> None:
    limits = Limits(max_message_bytes=100, max_control_bytes=50)
    for data, limit in ((b"\1" + bytes(100), "max_message_bytes"), (b"\2" + b"a" * 50,
                        "max_control_bytes")):  # fmt: skip
        (fault,) = MoshiClient(limits).receive(data, AT)
        assert isinstance(fault, Fault)
        assert fault.limit == limit
    assert isinstance(MoshiClient(limits).receive(b"\1" + bytes(99), AT)[0], AudioChunk)


@given(st.binary(max_size=50))
def test_anything_may_come(data: bytes) -> None:
    for event in told(data):
        assert event.at == AT
    MoshiServer().receive(data)
    make_decoder("ogg_opus").feed(data)


def test_nothing_is_said_but_sound() -> None:
    client = MoshiClient()
    assert client.send(StartSession(SessionConfig(instructions="be brief"))) == []
    assert client.send(EndSession()) == []
    assert client.take_replies(0) == []
    assert client.dial_url("ws://h/api/chat?seed=1", SessionConfig()) == "ws://h/api/chat?seed=1"
    assert not client.is_experimental
    assert client.capabilities.continuous_stream
    assert not client.capabilities.response_ids
    assert not client.capabilities.response_end
    assert client.flush_on == frozenset()


def test_personaplex_is_told_in_the_query_what_to_be() -> None:
    client = make_client("moshi/personaplex")
    assert client.is_experimental
    config = SessionConfig(instructions="Be a clerk & brief.", voice="NATM1.pt")
    query = parse_qs(urlsplit(client.dial_url("ws://h/api/chat?seed=1", config)).query)
    assert query == {
        "seed": ["1"],
        "text_prompt": ["Be a clerk & brief."],
        "voice_prompt": ["NATM1.pt"],
    }
    own = "ws://h/api/chat?text_prompt=&voice_prompt=x"
    assert client.dial_url(own, config) == own
    bare = parse_qs(urlsplit(client.dial_url("ws://h/api/chat", SessionConfig())).query)
    assert set(bare) == {"text_prompt", "voice_prompt"}


def test_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="personaplex"):
        make_client("moshi/personaplx")


def test_without_opus_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "vakforge_eval.signal.opus":
            raise ImportError("No module named 'av'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependency, match=r"pip install 'vakforge-probe\[webrtc\]'"):
        make_client("moshi")
