"""Declared protocols: what can work is taken, both sides understand each other, and bad input."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.signal.codecs import make_decoder
from vakforge_eval.signal.pcm import sample_bytes
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Fault,
    Interrupt,
    Ready,
    ResponseEnded,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    ToolCall,
    Unknown,
)
from vakforge_eval.timeline.instant import NS_PER_MS, Instant
from vakforge_eval.timeline.script import ToolSpec
from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import (
    CancelResponse,
    CommitAudio,
    EndSession,
    SessionConfig,
    StartSession,
    ToolResult,
    Truncate,
    Wire,
)
from vakforge_probe.protocol.declared import Profile, load_profile, shipped_profiles
from vakforge_probe.protocol.declared_client import DeclaredClient
from vakforge_probe.protocol.declared_server import DeclaredServer
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.protocol.server import (
    AudioAppended,
    HungUp,
    ResponseRequested,
    SessionUpdated,
    ToolOutput,
)

MINIMAL: dict[str, Any] = {
    "schema": 1,
    "name": "mine",
    "about": "An agent of one's own",
    "path": "/mine",
    "user_audio": {},
    "agent_audio": {},
}
START = StartSession(SessionConfig())
EVERY = sorted(shipped_profiles())


def written(folder: Path, **facts: Any) -> Path:
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump({**MINIMAL, **facts}), "utf-8")
    return file


def at(ms: float) -> Instant:
    return Instant.exact(round(ms * NS_PER_MS))


def json_of(messages: list[Wire]) -> list[Any]:
    return [json.loads(message) for message in messages]


def heard(client: DeclaredClient, messages: list[Wire], ms: float = 0) -> list[Event]:
    return [event for message in messages for event in client.receive(message, at(ms))]


def begun(profile: Profile) -> tuple[DeclaredClient, DeclaredServer]:
    """Return both sides after the session has begun."""
    client, server = DeclaredClient(profile), DeclaredServer(profile)
    assert not heard(client, server.created())
    tool = ToolSpec(name="look", description="d", parameters={"type": "object"}, result={})
    events = [
        event
        for message in client.send(StartSession(SessionConfig("m", "Be brief.", (tool,))))
        for event in server.receive(message)
    ]
    assert events == ([SessionUpdated()] if "start" in profile.client else [])
    ready = heard(client, server.take_replies())
    assert [type(event) for event in ready] == ([] if client.is_ready_at_once else [Ready])
    return client, server


@pytest.mark.parametrize("name", EVERY)
class TestShipped:
    def test_audio_goes_both_ways(self, name: str) -> None:
        client, server = begun(shipped_profiles()[name])
        pcm = np.arange(client.user_audio.frame_samples).astype("<i2").tobytes()
        (appended,) = server.receive(client.audio_frame(pcm))
        assert isinstance(appended, AudioAppended)
        if client.user_audio.codec == "ogg_opus":
            assert appended.data.startswith(b"OggS")
        else:
            width = sample_bytes(client.user_audio.codec)
            assert len(appended.data) == client.user_audio.frame_samples * width
        writer = server.response()
        writer.begin(), writer.begin_message()
        (chunk,) = heard(client, writer.audio(b"\1\2" * 80))
        assert isinstance(chunk, AudioChunk)
        assert chunk.data == b"\1\2" * 80
        assert (chunk.codec, chunk.rate_hz) == server.output_format
        assert (chunk.response_id is not None) is client.capabilities.response_ids

    def test_a_whole_response_is_understood(self, name: str) -> None:
        client, server = begun(shipped_profiles()[name])
        writer = server.response()
        messages = [
            *server.speech_started(10, "i"),
            *server.speech_stopped(900, "i"),
            *server.committed("i"),
            *server.transcript("i", "hello", 1.0),
            *writer.begin(),
            *writer.begin_message(),
            *writer.text("hi"),
            *writer.audio(b"\1\2" * 80),
            *writer.end(),
        ]
        events = heard(client, messages)
        assert not any(isinstance(event, Fault) for event in events)
        is_told = any(isinstance(event, ResponseEnded) for event in events)
        assert is_told is client.capabilities.response_end

    def test_a_tool_is_called_and_answered(self, name: str) -> None:
        profile = shipped_profiles()[name]
        client, server = begun(profile)
        messages = server.response().tool_call("call_1", "look", '{"a": 1}')
        if not client.capabilities.tools:
            assert not messages or "tool_result" not in profile.client
            return
        (call,) = heard(client, messages)
        assert isinstance(call, ToolCall)
        assert (call.call_id, call.name, json.loads(call.arguments)) == ("call_1", "look", {"a": 1})
        answers = [server.receive(m) for m in client.send(ToolResult("call_1", '{"b": 2}'))]
        assert answers == [[ToolOutput("call_1", '{"b": 2}'), ResponseRequested()]]

    def test_what_the_protocol_has_no_word_for_is_not_sent(self, name: str) -> None:
        profile = shipped_profiles()[name]
        client, server = begun(profile)
        for intent, word in (
            (Truncate("i", 100), "truncate"),
            (CancelResponse("r"), "cancel"),
            (CommitAudio(), "commit"),
        ):
            assert bool(client.send(intent)) is (word in profile.client)
        farewell = client.send(EndSession())
        assert [server.receive(m) for m in farewell] == [[HungUp()]] * len(farewell)

    @pytest.mark.parametrize("data", ["", "[]", "{", '{"event":"media"}', "{}", b"\xff\xfe", b"",
                                      '{"event":NaN}', '{"event":"media","media":{"payload":"@"}}',
                                      '{"type":"audio","audio_event":{}}'])  # fmt: skip
    def test_no_message_is_a_bug(self, name: str, data: Wire) -> None:
        client, server = begun(shipped_profiles()[name])
        events = client.receive(data, at(0))
        assert all(isinstance(event, Fault | Unknown | AudioChunk) for event in events)
        server.receive(data)


@given(
    st.sampled_from(EVERY),
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["type", "event", "media", "payload", "data", "x"]), inner
            )
        ),
        max_leaves=6,
    ),
)
def test_any_json_is_taken_without_a_bug(name: str, message: Any) -> None:
    profile = shipped_profiles()[name]
    data = json.dumps(message)
    assert all(isinstance(e, Event) for e in DeclaredClient(profile).receive(data, at(0)))
    DeclaredServer(profile).receive(data)


class TestTelephone:
    """The client plays the network: it holds audio, gives marks back, and drops all on order."""

    def begun(self) -> tuple[DeclaredClient, DeclaredServer]:
        return begun(shipped_profiles()["twilio"])

    def test_the_network_counts_and_stamps_what_it_sends(self) -> None:
        client = DeclaredClient(shipped_profiles()["twilio"])
        first, second = json_of(client.send(StartSession(SessionConfig())))
        frames = json_of([client.audio_frame(bytes(320)) for _ in range(2)])
        assert (first["event"], second["event"]) == ("connected", "start")
        assert second["sequenceNumber"] == "1"
        assert second["start"]["mediaFormat"]["encoding"] == "audio/x-mulaw"
        assert [f["sequenceNumber"] for f in frames] == ["2", "3"]
        assert [f["media"]["chunk"] for f in frames] == ["1", "2"]
        assert [f["media"]["timestamp"] for f in frames] == ["20", "40"]
        assert {f["streamSid"] for f in frames} == {second["streamSid"]}
        assert json_of(client.send(EndSession()))[0]["event"] == "stop"

    def test_a_mark_comes_back_when_the_audio_before_it_has_been_played(self) -> None:
        client, server = self.begun()
        writer = server.response()
        writer.begin_message()
        heard(client, writer.audio(bytes(1600)), ms=100)
        heard(client, writer.audio(bytes(800)), ms=150)
        heard(client, writer.end_message(), ms=160)
        assert client.next_reply_ns == 400 * NS_PER_MS
        assert client.take_replies(399 * NS_PER_MS) == []
        (mark,) = json_of(client.take_replies(400 * NS_PER_MS))
        assert (mark["event"], mark["mark"]["name"]) == ("mark", writer.id)
        assert client.next_reply_ns is None

    def test_a_mark_on_nothing_comes_back_at_once(self) -> None:
        client, server = self.begun()
        writer = server.response()
        writer.begin_message()
        heard(client, writer.end_message(), ms=7)
        assert len(client.take_replies(7 * NS_PER_MS)) == 1

    def test_an_order_to_drop_all_gives_back_the_marks_that_wait(self) -> None:
        client, server = self.begun()
        writer = server.response()
        writer.begin_message()
        heard(client, writer.audio(bytes(8000)), ms=0)
        heard(client, writer.end_message(), ms=1)
        (event,) = heard(client, server.speech_started(0, "i"), ms=300)
        assert isinstance(event, Interrupt)
        assert [m["event"] for m in json_of(client.take_replies(300 * NS_PER_MS))] == ["mark"]
        assert client.next_reply_ns is None

    @pytest.mark.parametrize("ms", [0, 1000.0, 1001])
    def test_an_order_to_drop_nothing_interrupts_nothing(self, ms: float) -> None:
        client, server = self.begun()
        if ms:
            writer = server.response()
            heard(client, writer.audio(bytes(8000)), ms=0)
        (event,) = heard(client, server.speech_started(0, "i"), ms=ms)
        assert isinstance(event, Unknown)


def test_frames_that_come_out_of_order_are_sorted_and_a_lost_one_is_given_up() -> None:
    server = DeclaredServer(shipped_profiles()["telnyx"])
    heard: list[int] = []

    def hear(*chunks: int | str) -> list[int]:
        for chunk in chunks:
            audio = base64.b64encode(bytes([int(chunk) if str(chunk).isdigit() else 255])).decode()
            media = {"track": "inbound", "chunk": str(chunk), "timestamp": "20", "payload": audio}
            message = {"event": "media", "sequence_number": "1", "stream_id": "s", "media": media}
            for event in server.receive(json.dumps(message)):
                assert isinstance(event, AudioAppended)
                heard.append(event.data[0])
        return heard

    assert hear(1, 3, 4) == [1]
    assert hear(2, 2, 1, "x", "-1", "") == [1, 2, 3, 4]
    assert hear(*range(6, 16)) == [1, 2, 3, 4]
    assert hear(16) == [1, 2, 3, 4, *range(6, 17)]


def test_a_network_of_packets_plays_a_gap_behind_a_message_that_is_no_multiple() -> None:
    client = DeclaredClient(shipped_profiles()["exotel"])
    client.send(StartSession(SessionConfig()))
    audio = base64.b64encode(bytes(321)).decode()
    client.receive(json.dumps({"event": "media", "media": {"payload": audio}}), Instant.exact(0))
    client.receive(json.dumps({"event": "mark", "mark": {"name": "m"}}), Instant.exact(0))
    assert client.next_reply_ns == 40 * NS_PER_MS


def test_audio_of_what_was_interrupted_is_dropped_by_the_servers_own_order() -> None:
    client, server = begun(shipped_profiles()["elevenlabs"])
    writer = server.response()
    late = writer.audio(bytes(320))
    heard(client, server.speech_started(0, "i", is_interruption=True))
    (dropped,) = heard(client, late)
    assert isinstance(dropped, Unknown)
    (new,) = heard(client, writer.audio(bytes(320)))
    assert isinstance(new, AudioChunk)


def test_fastrtc_names_no_response_with_each_piece_of_audio() -> None:
    """As its server was seen to do: what it calls response_starting is said again and again."""
    client = make_client("fastrtc-ws")
    assert client.user_audio.rate_hz == 48_000
    piece: list[Any] = [
        {"type": "log", "data": "response_starting"},
        {"event": "media", "media": {"payload": "f39/"}},
    ]
    told = [{"type": "log", "data": "started_talking"}, {"type": "log", "data": "pause_detected"}]
    messages: list[Wire] = [json.dumps(message) for message in told + piece * 3]
    events = [event for message in messages for event in client.receive(message, at(0))]
    assert [type(event) for event in events if not isinstance(event, Unknown)] == [
        SpeechStarted,
        SpeechStopped,
        AudioChunk,
        AudioChunk,
        AudioChunk,
    ]


def test_a_ping_is_answered_with_its_number() -> None:
    client = DeclaredClient(shipped_profiles()["elevenlabs"])
    assert client.receive('{"type":"ping","ping_event":{"event_id":7,"ping_ms":3}}', at(0)) == []
    assert json_of(client.take_replies(0)) == [{"type": "pong", "event_id": 7}]


class TestProfile:
    def test_a_file_of_ones_own_is_a_protocol(self, tmp_path: Path) -> None:
        client = make_client(str(written(tmp_path)))
        assert (client.name, client.is_ready_at_once) == ("mine", True)
        assert client.audio_frame(b"\1\2") == b"\1\2"

    @pytest.mark.parametrize(("facts", "what"), [
        ({"server": {"text": {"type": "t"}}}, r"server.text: has no \$text"),
        ({"server": {"text": {"type": "$kind", "t": "$text"}}}, r"\$kind is not known"),
        ({"user_audio": {"message": {"type": "a"}}}, r"user_audio.message: has no \$audio"),
        ({"agent_audio": {"messages": [{"type": "a"}]}}, r"agent_audio.messages: has no \$audio"),
        ({"client": {"truncate": {"t": "${item} ${ms}"}}}, "two holes"),
        ({"server": {"mark": {"m": "$mark"}}}, "client.played"),
        ({"flush_on": ["speech_started"]}, "server.speech_started is not declared"),
        ({"replies": [{"to": {"p": "$n"}, "send": {"q": "$m"}}]}, r"\$m is not known"),
        ({"user_audio": {"codec": "mp3"}}, "pcm_s16le"),
        ({"user_audio": {"rate_hz": 1000}}, "8000"),
        ({"name": "Not A Name"}, "pattern"),
        ({"surprise": 1}, "not permitted"),
    ])  # fmt: skip
    def test_what_cannot_work_is_refused_with_its_key(
        self, tmp_path: Path, facts: dict[str, Any], what: str
    ) -> None:
        with pytest.raises(ConfigError, match=what) as caught:
            load_profile(written(tmp_path, **facts))
        assert "mine.yaml" in str(caught.value)
        assert "Value error" not in str(caught.value)

    @pytest.mark.parametrize("text", ["a: &x 1\nb: *x\n", "a: [", "\xff", "[" * 10_000, "- 1"])
    def test_what_is_no_profile_is_refused(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "mine.yaml"
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(ConfigError):
            load_profile(file)

    def test_a_file_that_is_not_there_or_too_long_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            load_profile(tmp_path / "none.yaml")
        (tmp_path / "long.yaml").write_bytes(b"#" * 300_000)
        with pytest.raises(ConfigError, match="longer"):
            load_profile(tmp_path / "long.yaml")

    def test_an_unknown_protocol_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(ConfigError) as caught:
            make_client("twillio")
        assert caught.value.nearest == "twilio"
        with pytest.raises(ConfigError, match="no profiles"):
            make_client("twilio/ga")


def test_limits_hold(tmp_path: Path) -> None:
    profile = load_profile(written(tmp_path, server={"text": {"t": "$text"}}))
    client = DeclaredClient(profile, Limits(max_text_chars=3, max_events=2))
    assert not isinstance(client.receive('{"t":"abc"}', at(0))[0], Fault)
    (fault,) = client.receive('{"t":"d"}', at(0))
    assert isinstance(fault, Fault)
    assert fault.limit == "max_text_chars"
    assert client.receive('{"t":"d"}', at(0)) == []


def test_what_waits_for_the_server_says_nothing_before_it_has_spoken() -> None:
    said = {"hello": {"type": "free"}, "ready": {"type": "go"}}
    facts = {**MINIMAL, "start_after": "hello", "client": {"start": {"type": "init"}}}
    profile = Profile.model_validate({**facts, "server": said})
    early, late = DeclaredClient(profile), DeclaredClient(profile)
    assert early.send(START) == []
    assert heard(early, ['{"type":"free"}', '{"type":"free"}']) == []
    assert json_of(early.take_replies(0)) == [{"type": "init"}]
    assert heard(late, ['{"type":"free"}']) == []
    assert late.take_replies(0) == []
    assert json_of(late.send(START)) == [{"type": "init"}]
    with pytest.raises(ValueError, match=r"server\.hello is not declared"):
        Profile.model_validate(facts)


@pytest.mark.parametrize(("facts", "words"), [
    ({"user_audio": {"codec": "ogg_opus", "rate_hz": 44_100}}, "rate_hz"),
    ({"user_audio": {"codec": "ogg_opus", "frame_ms": 30}}, "frame_ms"),
    ({"agent_audio": {"codec": "ogg_opus", "rate_hz": 24_000}}, "48000"),
    ({"agent_audio": {"codec": "ogg_opus", "rate_hz": 48_000},
      "server": {"mark": {"m": "$mark"}}, "client": {"played": {"m": "$mark"}}}, "mark"),
])  # fmt: skip
def test_what_opus_cannot_do_is_refused_with_its_key(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Profile.model_validate({**MINIMAL, **facts})


class TestUnmute:
    def test_both_sides_are_one_stream_of_opus_each(self) -> None:
        pytest.importorskip("av")
        client, server = begun(shipped_profiles()["unmute"])
        assert client.subprotocols == ("realtime",)
        assert not client.is_ready_at_once
        assert client.is_experimental
        decoder = make_decoder("ogg_opus")
        for k in range(4):
            (appended,) = server.receive(client.audio_frame(bytes(960)))
            assert isinstance(appended, AudioAppended)
            assert len(decoder.feed(appended.data)) == (960 if k else 960 - 312)
        assert client.user_payload() == ("ogg_opus", "json_base64", "/audio")

    def test_it_is_told_to_be_what_the_script_says(self) -> None:
        client = DeclaredClient(shipped_profiles()["unmute"])
        (update,) = json_of(client.send(StartSession(SessionConfig(instructions="Be brief."))))
        instructions = {"type": "constant", "text": "Be brief."}
        assert update["session"] == {"instructions": instructions, "voice": None,
                                     "allow_recording": False}  # fmt: skip

    def test_its_own_words_are_understood(self) -> None:
        client = DeclaredClient(shipped_profiles()["unmute"])
        events = heard(client, [json.dumps(m) for m in (
            {"type": "session.updated", "event_id": "e", "session": {"allow_recording": False}},
            {"type": "response.created", "response": {"status": "in_progress", "voice": "v"}},
            {"type": "unmute.response.text.delta.ready", "delta": "Hi"},
            {"type": "response.text.delta", "delta": "Hi"},
            {"type": "unmute.interrupted_by_vad"},
            {"type": "conversation.item.input_audio_transcription.delta", "delta": "so",
             "start_time": 1.5},
        )])  # fmt: skip
        assert [event.TYPE for event in events] == [
            "ready", "response_started", "unknown", "text_delta", "interrupt", "user_transcript",
        ]  # fmt: skip


class TestMiniCpmO:
    def test_a_second_of_floats_at_16_khz_is_a_message(self) -> None:
        client, server = begun(shipped_profiles()["minicpm-o"])
        pcm = np.arange(16_000).astype("<i2")
        message = client.audio_frame(pcm.tobytes())
        (appended,) = server.receive(message)
        assert isinstance(appended, AudioAppended)
        assert np.array_equal(np.frombuffer(appended.data, "<f4") * 32768, pcm)
        assert client.user_payload() == ("float32le", "json_base64", "/input/audio")

    @pytest.mark.parametrize("is_old", [True, False])
    def test_sound_and_text_of_either_generation(self, is_old: bool) -> None:
        client, _ = begun(shipped_profiles()["minicpm-o"])
        sound, delta = "AAAAPwAAAL8=", "response.output.delta"
        messages = (
            [{"type": "response.output_audio.delta", "text": "Hi", "audio": sound,
              "end_of_turn": False}, {"type": "response.listen"}]
            if is_old else
            [{"type": delta, "kind": "text", "text": "Hi"},
             {"type": delta, "kind": "audio", "audio": sound}, {"type": delta, "kind": "listen"}]
        )  # fmt: skip
        text, chunk, last = heard(client, [json.dumps(m) for m in messages], 5)
        assert isinstance(text, TextDelta)
        assert text.text == "Hi"
        assert isinstance(chunk, AudioChunk)
        assert make_decoder(chunk.codec).feed(chunk.data).tolist() == [16384, -16384]
        # It listens while the sound is still played: what is left of that is dropped.
        assert isinstance(last, Interrupt)

    def test_to_listen_while_nothing_is_held_is_no_interruption(self) -> None:
        client, _ = begun(shipped_profiles()["minicpm-o"])
        (event,) = heard(client, ['{"type":"response.listen"}'], 5)
        assert isinstance(event, Unknown)
