"""Codecs of protocols over WebRTC: what the server says the client reads, and no input is a bug."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.signal.opus import OpusDecoder
from vakforge_eval.timeline.events import (
    AudioChunk,
    Claim,
    Event,
    Fault,
    Interrupt,
    Ready,
    ResponseAudioEnd,
    ResponseStarted,
    ServerError,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    ToolCall,
    TurnCommitted,
    Unknown,
    UserTranscript,
)
from vakforge_eval.timeline.instant import NS_PER_S, Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.doors import RTC_DOORS, RTC_PATHS, Knock
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import (
    ClientCodec,
    SessionConfig,
    StartSession,
    ToolResult,
    Truncate,
    Wire,
)
from vakforge_probe.protocol.pipecat_client import PipecatClient
from vakforge_probe.protocol.pipecat_frames import Message, write_frame
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.protocol.server import (
    AudioAppended,
    ClientEvent,
    ResponseRequested,
    ServerCodec,
    SessionUpdated,
    ToolOutput,
)

AT = Instant.exact(0)
EVERY = sorted(RTC_PATHS)
START = StartSession(SessionConfig(instructions="be kind", voice="v"))


def rtp(payload: bytes, number: int = 0) -> bytes:
    return b"\x80\x6f" + number.to_bytes(2) + bytes(8) + payload


def serving(protocol: str, **knobs: Any) -> ServerCodec:
    return RTC_DOORS[RTC_PATHS[protocol]](Behaviour(**knobs), Knock({}, {}, "1"))


def heard(client: ClientCodec, messages: list[Wire]) -> list[Event]:
    """Return what a client makes of messages; audio goes in packets."""
    events: list[Event] = []
    for n, message in enumerate(messages):
        data = rtp(message, n) if isinstance(message, bytes) else message
        events += client.receive(data, AT)
    return events


def taken(server: ServerCodec, messages: list[Wire]) -> list[ClientEvent]:
    return [event for message in messages for event in server.receive(message)]


def begun(protocol: str, **knobs: Any) -> tuple[ClientCodec, ServerCodec]:
    """Return both sides of a session that stands."""
    client, server = make_client(protocol), serving(protocol, **knobs)
    hello = heard(client, server.created())
    asked = taken(server, client.send(START))
    told = [*hello, *heard(client, server.take_replies())]
    if protocol == "whip":
        assert asked == []
    elif protocol != "fastrtc":
        assert [type(event) for event in asked] == [SessionUpdated]
    assert client.is_ready_at_once != any(isinstance(event, Ready) for event in told)
    assert not any(isinstance(event, Fault | Unknown) for event in told)
    return client, server


# -- every one of them ------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", EVERY)
def test_the_users_audio_is_a_packet_of_opus(protocol: str) -> None:
    client, server = begun(protocol)
    form = client.user_audio
    assert (form.codec, form.rate_hz) == server.input_format == ("opus", 48_000)
    pcm = np.random.default_rng(1).integers(-9000, 9000, form.frame_samples).astype(np.int16)
    frame = client.audio_frame(pcm.tobytes())
    assert isinstance(frame, bytes)
    assert server.receive(frame) == [AudioAppended(frame)]
    assert len(OpusDecoder().feed(frame)) == form.frame_samples
    assert client.user_payload() == ("opus", "binary", "0")


@pytest.mark.parametrize("protocol", EVERY)
def test_the_agents_audio_lies_where_it_is_said_to_and_belongs_to_nothing(protocol: str) -> None:
    _, server = begun(protocol)
    response = server.response()
    for told in (server.stream_audio(b"\1\2\3"), response.audio(b"\1\2\3")):
        (payload,) = told
        assert isinstance(payload, bytes)
        data = rtp(payload)
        (chunk,) = make_client(protocol).receive(data, AT)
        assert isinstance(chunk, AudioChunk)
        begin, end = map(int, chunk.locator.split(":"))
        assert data[begin:end] == chunk.data == b"\1\2\3"
        assert (chunk.codec, chunk.rate_hz) == server.output_format
        assert (chunk.response_id, chunk.item_id) == (None, None)


@pytest.mark.parametrize("protocol", EVERY)
def test_a_whole_turn_is_read_without_a_stranger_in_it(protocol: str) -> None:
    client, server = begun(protocol)
    response = server.response()
    events = heard(client, [
        *server.speech_started(0, "i"), *server.speech_stopped(100, "i"), *server.committed("i"),
        *server.transcript("i", "hello", 1.0),
        *response.begin(), *response.begin_message(), *response.text("hi"), *response.audio(b"\1"),
        *response.end_message(), *response.end(),
    ])  # fmt: skip
    assert not [event for event in events if isinstance(event, Fault | Unknown)]
    assert sum(isinstance(event, AudioChunk) for event in events) == 1
    assert server.is_continuous
    assert client.capabilities.continuous_stream
    assert not client.capabilities.response_ids
    assert client.flush_on == frozenset() or protocol == "openai-webrtc"


@pytest.mark.parametrize("protocol", EVERY)
def test_a_model_is_dialled_only_where_a_url_names_it(protocol: str) -> None:
    url = make_client(protocol).dial_url("https://a.example/x", SessionConfig(model="m"))
    assert url == "https://a.example/x" + ("?model=m" if protocol == "openai-webrtc" else "")


TEXTS = [
    "", "{", "[]", "null", '"x"', "{}", '{"type":1}', '{"type":null}', '{"type":"x","type":"y"}',
    '{"type":NaN}', '{"type":"' + "x" * 5000 + '"}', "[" * 100_000, '{"a":' * 100_000,
    '{"type":"log","data":{}}', '{"type":"log"}', '{"type":"error"}', '{"type":"error","data":[1]}',
    '{"label":"rtvi-ai","type":"user-transcription","data":{"text":1}}',
    '{"label":"rtvi-ai","type":"llm-function-call","data":{"tool_call_id":1}}',
    '{"label":"rtvi-ai","type":"metrics","data":{"ttfb":{"a":1}}}',
    '{"label":"rtvi-ai","type":"error","data":"x"}', '{"type":"signalling","message":1}',
    '{"type":"response.done"}', '{"type":"output_audio_buffer.cleared","response_id":1}',
    '{"type":"session.created","session":[]}',
]  # fmt: skip


@pytest.mark.parametrize("protocol", EVERY)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_message_that_is_none_is_strange_or_a_breach_and_never_a_bug(
    protocol: str, text: str
) -> None:
    client = make_client(protocol)
    events = client.receive(text, AT)
    assert all(isinstance(event, Event) for event in events)
    if any(isinstance(event, Fault) for event in events):
        assert client.receive(rtp(b"\1"), AT) == []
    assert isinstance(serving(protocol).receive(text), list)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)  # fmt: skip
KINDS = [
    "client-ready", "llm-function-call", "llm-function-call-result", "user-transcription",
    "bot-llm-text", "metrics", "error", "log", "signalling", "session.update", "session.created",
    "response.create", "response.created", "response.done", "response.output_audio.delta",
    "output_audio_buffer.started", "output_audio_buffer.cleared", "conversation.item.create",
]  # fmt: skip


@given(st.sampled_from(EVERY), st.sampled_from(KINDS), st.dictionaries(
    st.sampled_from(["data", "response", "session", "item", "delta", "response_id"]), json_values,
), st.booleans())  # fmt: skip
def test_any_json_is_read_or_refused_by_both_sides(
    protocol: str, kind: str, fields: dict[str, Any], is_rtvi: bool
) -> None:
    text = json.dumps({**({"label": "rtvi-ai"} if is_rtvi else {}), **fields, "type": kind})
    assert all(isinstance(event, Event) for event in make_client(protocol).receive(text, AT))
    assert isinstance(serving(protocol).receive(text), list)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_and_text_are_read_or_refused_by_both_sides(data: Wire) -> None:
    for protocol in EVERY:
        assert all(isinstance(event, Event) for event in make_client(protocol).receive(data, AT))
        assert isinstance(serving(protocol).receive(data), list)


@pytest.mark.parametrize("protocol", EVERY)
def test_limits_end_a_flood(protocol: str) -> None:
    client = make_client(protocol, Limits(max_events=3, max_control_bytes=50))
    ends = [client.receive(rtp(b"\1", n), AT)[-1] for n in range(4)]
    assert [type(event) for event in ends] == [AudioChunk] * 3 + [Fault]
    assert isinstance(ends[-1], Fault)
    assert ends[-1].limit == "max_events"
    (fault,) = make_client(protocol, Limits(max_control_bytes=50)).receive("x" * 51, AT)
    assert isinstance(fault, Fault)
    assert fault.limit == "max_control_bytes"


# -- RTVI -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "data", "event"), [
    ("user-started-speaking", {}, SpeechStarted(at=AT)),
    ("user-stopped-speaking", {}, SpeechStopped(at=AT)),
    ("user-transcription", {"text": "a", "final": True},
     UserTranscript(at=AT, text="a", is_final=True)),
    ("user-transcription", {"text": "a"}, UserTranscript(at=AT, text="a", is_final=False)),
    ("user-llm-text", {"text": "a"}, TurnCommitted(at=AT)),
    ("bot-llm-started", {}, ResponseStarted(at=AT)),
    ("bot-llm-text", {"text": "a"}, TextDelta(at=AT, text="a")),
    ("bot-tts-stopped", {}, ResponseAudioEnd(at=AT)),
    ("metrics", {"ttfb": [{"processor": "tts", "value": 0.2}]},
     Claim(at=AT, name="ttfb tts", value_s=0.2)),
    ("error", {"message": "no"}, ServerError(at=AT, message="no")),
    ("llm-function-call", {"tool_call_id": "c", "function_name": "f", "args": {"a": 1}},
     ToolCall(at=AT, call_id="c", name="f", arguments='{"a": 1}')),
    ("bot-ready", {"version": "1"}, None), ("bot-output", {}, None),
    ("never-heard-of", {}, Unknown(at=AT, name="never-heard-of")),
])  # fmt: skip
def test_rtvi_means_the_same_over_both_of_pipecats_transports(
    kind: str, data: dict[str, Any], event: Event | None
) -> None:
    text = json.dumps({"label": "rtvi-ai", "type": kind, "id": "1", "data": data})
    small = make_client("smallwebrtc").receive(text, AT)
    socket = PipecatClient().receive(write_frame(Message(text)), AT)
    assert small == socket == ([] if event is None else [event])


def test_a_tool_is_called_and_answered_over_smallwebrtc() -> None:
    client, server = begun("smallwebrtc")
    (call,) = heard(client, server.response().tool_call("c", "look", '{"a":1}'))
    assert isinstance(call, ToolCall)
    answer = client.send(ToolResult("c", '{"b":2}'))
    assert taken(server, answer) == [ToolOutput("c", '{"b": 2}'), ResponseRequested()]


def test_smallwebrtc_pings_once_a_second_and_never_twice_at_once() -> None:
    client, server = begun("smallwebrtc")
    now, sent = 5 * NS_PER_S, list[tuple[int, Wire]]()
    for _ in range(40):
        sent += [(now, ping) for ping in client.take_replies(now)]
        due = client.next_reply_ns
        assert due is not None
        now = min(due, now + NS_PER_S // 7)  # messages come, and each asks for replies
    assert [at for at, _ in sent] == [n * NS_PER_S for n in range(5, 5 + len(sent))]
    assert [ping for _, ping in sent[:2]] == ["ping: 5000", "ping: 6000"]
    assert taken(server, [ping for _, ping in sent]) == []


@pytest.mark.parametrize("protocol", ["fastrtc", "whip", "openai-webrtc"])
def test_the_others_wait_for_no_time(protocol: str) -> None:
    client, _ = begun(protocol)
    client.take_replies(0)
    assert client.next_reply_ns is None


def test_what_smallwebrtc_says_of_its_own_transport_is_no_event() -> None:
    client, _ = begun("smallwebrtc")
    assert client.receive('{"type":"signalling","message":{"type":"renegotiate"}}', AT) == []


# -- fastrtc ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "kind"), [
    ("started_talking", SpeechStarted), ("pause_detected", TurnCommitted),
    ("response_starting", ResponseStarted), ("interrupted", Interrupt),
])  # fmt: skip
def test_fastrtcs_log_is_read(data: str, kind: type[Event]) -> None:
    (event,) = make_client("fastrtc").receive(json.dumps({"type": "log", "data": data}), AT)
    assert type(event) is kind


def test_fastrtcs_other_messages_are_passed_over_and_strangers_kept() -> None:
    client = make_client("fastrtc")
    for kind in ("send_input", "fetch_output", "stopword", "end_stream"):
        assert client.receive(json.dumps({"type": kind}), AT) == []
    assert client.receive('{"type":"log","data":"else"}', AT) == []
    assert client.receive('{"type":"new"}', AT) == [Unknown(at=AT, name="new")]
    (error,) = client.receive('{"type":"error","data":"no\\u001b[31m"}', AT)
    assert isinstance(error, ServerError)
    assert "\x1b" not in error.message


def test_each_fastrtc_call_names_itself() -> None:
    ids = {make_client("fastrtc").signalling.fields["webrtc_id"] for _ in range(3)}  # type: ignore[union-attr]
    assert len(ids) == 3


# -- OpenAI -----------------------------------------------------------------------------------


def test_openais_session_says_nothing_of_audio_formats() -> None:
    client, server = begun("openai-webrtc")
    (text,) = make_client("openai-webrtc").send(START)
    session = json.loads(text)["session"]
    assert session["audio"] == {"input": {}, "output": {"voice": "v"}}
    assert client.headers == {}
    assert client.send(Truncate("i", 100)) == []
    assert server.is_continuous


def test_a_formats_statement_by_the_server_is_no_breach_where_audio_is_beside() -> None:
    client = make_client("openai-webrtc")
    client.send(START)
    form = {"format": {"type": "audio/pcmu"}}
    session = {"type": "realtime", "audio": {"input": form, "output": form}}
    told = client.receive(json.dumps({"type": "session.created", "session": session}), AT)
    assert not any(isinstance(event, Fault) for event in told)


@pytest.mark.parametrize(("status", "last"), [
    ("completed", "stopped"), ("cancelled", "cleared"), ("failed", "cleared"),
])  # fmt: skip
def test_openai_tells_when_the_line_begins_and_ends_to_sound(status: str, last: str) -> None:
    client, server = begun("openai-webrtc")
    response = server.response()
    told: list[Wire] = [*response.begin(), *response.begin_message(), *response.audio(b"\1"),
                        *response.end_message(status), *response.end(status)]  # fmt: skip
    buffer = [
        json.loads(text) for text in told if isinstance(text, str) and "output_audio_buffer" in text
    ]
    kinds = [message["type"].partition(".")[2] for message in buffer]
    assert kinds == ["started", last]
    assert {message["response_id"] for message in buffer} == {response.id}
    interrupts = [event for event in heard(client, told) if isinstance(event, Interrupt)]
    assert len(interrupts) == (last == "cleared")


def test_openais_response_without_sound_tells_nothing_of_the_line() -> None:
    _, server = begun("openai-webrtc")
    response = server.response()
    told = [*response.begin(), *response.tool_call("c", "f", "{}"), *response.end()]
    assert not any("output_audio_buffer" in str(message) for message in told)


def test_words_of_a_call_name_no_response_since_its_sound_does_not() -> None:
    """Else nothing would tell which sound a text belongs to, and there were no first token."""
    codec = make_client("openai-webrtc")
    server = RTC_DOORS[RTC_PATHS["openai-webrtc"]](Behaviour(), Knock({}, {}, "0"))
    writer = server.response()
    messages = [*server.created(), *writer.begin(), *writer.begin_message(), *writer.text("Hi"),
                *writer.end()]  # fmt: skip
    events = [event for m in messages for event in codec.receive(m, Instant.exact(1))]
    named = [event for event in events if hasattr(event, "response_id")]
    assert {type(event) for event in named} >= {ResponseStarted, TextDelta}
    assert {getattr(event, "response_id", None) for event in named} == {None}
