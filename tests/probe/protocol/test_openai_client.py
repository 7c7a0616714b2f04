from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.signal.pcm import PcmDecoder
from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Fault,
    Ready,
    ResponseEnded,
    ServerError,
    ToolCall,
    Unknown,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.script import ToolSpec
from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.protocol import openai_client
from vakforge_probe.protocol.base import (
    CancelResponse,
    CommitAudio,
    SessionConfig,
    StartSession,
    ToolResult,
    Truncate,
)
from vakforge_probe.protocol.openai_names import GA_OF_BETA, IGNORED_SERVER_TYPES
from vakforge_probe.protocol.openai_realtime import OpenAIRealtimeClient
from vakforge_probe.protocol.registry import make_client

AT = Instant.exact(0)
START = StartSession(SessionConfig())


def tell(codec: OpenAIRealtimeClient, **message: Any) -> list[Event]:
    return codec.receive(json.dumps(message), AT)


def sent(messages: list[str | bytes]) -> list[dict[str, Any]]:
    return [json.loads(m) for m in messages]


def ready(session: dict[str, Any] | None = None, **knobs: Any) -> OpenAIRealtimeClient:
    codec = OpenAIRealtimeClient(**knobs)
    codec.send(START)
    tell(codec, type="session.created", session={})
    tell(codec, type="session.updated", session=session or {})
    return codec


def delta(codec: OpenAIRealtimeClient, data: bytes, response: str = "r", item: str = "i") -> None:
    tell(codec, type="response.output_audio.delta", response_id=response, item_id=item,
         delta=base64.b64encode(data).decode())  # fmt: skip


def done(
    codec: OpenAIRealtimeClient, response: str = "r", status: str = "completed"
) -> list[Event]:
    return tell(codec, type="response.done", response={"id": response, "status": status})


class TestSession:
    def test_ga_request_names_its_type_formats_and_tools(self) -> None:
        config = SessionConfig(
            model="m", instructions="be brief", tools=(ToolSpec(name="t"),),
            extra={"audio": {"input": {"turn_detection": None}}},
        )  # fmt: skip
        (update,) = sent(OpenAIRealtimeClient("ga").send(StartSession(config)))
        session = update["session"]
        assert session["type"] == "realtime"
        assert session["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24000}
        assert session["audio"]["input"] == {
            "format": {"type": "audio/pcm", "rate": 24000},
            "turn_detection": None,
        }
        assert session["tools"][0]["name"] == "t"

    def test_turn_detection_is_left_to_the_target_unless_it_is_asked_for(self) -> None:
        for dialect in ("ga", "beta"):
            (update,) = OpenAIRealtimeClient(dialect).send(START)
            assert "turn_detection" not in str(update)

    def test_beta_request_is_flat_and_has_its_header(self) -> None:
        codec = OpenAIRealtimeClient("beta", "pcmu")
        (update,) = sent(codec.send(START))
        assert update["session"]["input_audio_format"] == "g711_ulaw"
        assert "type" not in update["session"]
        assert codec.headers == {"OpenAI-Beta": "realtime=v1"}
        assert OpenAIRealtimeClient("auto").headers == {}

    def test_auto_falls_back_to_beta_once(self) -> None:
        codec = OpenAIRealtimeClient("auto")
        assert "realtime" in str(codec.send(START))
        refusal = {"code": "unknown_parameter", "message": "Unknown parameter: 'session.type'."}
        (error,) = tell(codec, type="error", error=refusal)
        assert isinstance(error, ServerError)
        assert not error.is_fatal
        (second,) = sent(codec.take_replies(0))
        assert second["session"]["input_audio_format"] == "pcm16"
        assert codec.take_replies(0) == []
        (error,) = tell(codec, type="error", error=refusal)
        assert isinstance(error, ServerError)
        assert error.is_fatal

    @pytest.mark.parametrize("dialect", ["ga", "beta"])
    def test_a_stated_dialect_never_falls_back(self, dialect: str) -> None:
        codec = OpenAIRealtimeClient(dialect)
        codec.send(START)
        (error,) = tell(codec, type="error", error={"code": "unknown_parameter", "message": ""})
        assert isinstance(error, ServerError)
        assert error.is_fatal
        assert codec.take_replies(0) == []

    def test_error_as_bare_text_is_understood(self) -> None:
        (error,) = tell(ready(), type="error", error="no such model", code=404)
        assert error == ServerError(at=AT, code="404", message="no such model")

    def test_ready_comes_once_with_the_effective_session(self) -> None:
        codec = OpenAIRealtimeClient()
        codec.send(START)
        assert tell(codec, type="session.created", session={"a": {"b": 1, "c": 2}}) == []
        (event,) = tell(codec, type="session.updated", session={"a": {"b": None}})
        assert isinstance(event, Ready)
        assert event.session == {"a": {"b": None, "c": 2}}
        assert tell(codec, type="session.updated", session={"x": 1}) == []
        assert codec.session["x"] == 1

    @pytest.mark.parametrize(
        ("detection", "is_manual", "flushes"),
        [
            ({"type": "server_vad", "interrupt_response": True}, False, True),
            ({"type": "server_vad", "interrupt_response": False}, False, False),
            ({"type": "semantic_vad"}, False, True),
            (None, True, False),
        ],
    )
    @pytest.mark.parametrize("form", ["ga", "beta"])
    def test_effective_session_decides_on_flush_and_commit(
        self, detection: Any, is_manual: bool, flushes: bool, form: str
    ) -> None:
        session = {"turn_detection": detection}
        codec = ready({"audio": {"input": session}} if form == "ga" else session)
        assert codec.capabilities.manual_commit is is_manual
        assert ("speech_started" in codec.flush_on) is flushes

    @pytest.mark.parametrize("profile", ["auto", "manual"])
    def test_who_detects_turns_is_not_push_to_talk_unless_it_was_asked_to_be(
        self, profile: str
    ) -> None:
        codec = make_client(f"openai-realtime/{profile}")
        codec.send(START)
        session = {"audio": {"input": {"turn_detection": None}}}
        for kind in ("session.updated", "input_audio_buffer.speech_started", "session.updated"):
            codec.receive(json.dumps({"type": kind, "session": session}), AT)
        assert codec.capabilities.manual_commit is (profile == "manual")
        assert ("speech_started" in codec.flush_on) is (profile == "auto")

    def test_unstated_turn_detection_is_the_protocols_default(self) -> None:
        codec = ready({"audio": {"input": {}}})
        assert "speech_started" in codec.flush_on
        assert not codec.capabilities.manual_commit

    def test_the_session_may_change_its_mind_in_the_call(self) -> None:
        codec = ready({"audio": {"input": {"turn_detection": {"type": "server_vad"}}}})
        for interrupts in (False, True, None, False):
            detection = {"interrupt_response": interrupts}
            tell(
                codec,
                type="session.updated",
                session={"audio": {"input": {"turn_detection": detection}}},
            )
            assert ("speech_started" in codec.flush_on) is (interrupts is not False)
            assert "interrupt" in codec.flush_on

    def test_a_profile_says_what_flushes_whatever_the_session_says(self) -> None:
        never = {"audio": {"input": {"turn_detection": {"interrupt_response": False}}}}
        for profile, flushes in (("ga", False), ("ga-flush", True)):
            codec = make_client(f"openai-realtime/{profile}")
            codec.send(START)
            codec.receive(json.dumps({"type": "session.updated", "session": never}), AT)
            assert ("speech_started" in codec.flush_on) is flushes

    @pytest.mark.parametrize(
        ("profile", "place"), [("manual", ("audio", "input")), ("beta-manual", ())]
    )
    def test_a_manual_profile_asks_for_no_turn_detection(
        self, profile: str, place: tuple[str, ...]
    ) -> None:
        codec = make_client(f"openai-realtime/{profile}")
        assert codec.capabilities.manual_commit
        (update,) = sent(codec.send(START))
        asked = update["session"]
        for key in place:
            asked = asked[key]
        assert asked["turn_detection"] is None

    @pytest.mark.parametrize("session", [{}, {"turn_detection": None}])
    def test_a_manual_session_may_be_granted_without_a_word(self, session: Any) -> None:
        codec = make_client("openai-realtime/manual")
        codec.send(START)
        created = {"turn_detection": {"type": "server_vad"}} if session else {}
        codec.receive(json.dumps({"type": "session.created", "session": created}), AT)
        (event,) = codec.receive(json.dumps({"type": "session.updated", "session": session}), AT)
        assert isinstance(event, Ready)
        assert codec.capabilities.manual_commit
        assert "speech_started" not in codec.flush_on

    def test_a_session_that_detects_turns_although_asked_not_to_is_refused(self) -> None:
        codec = make_client("openai-realtime/manual")
        codec.send(START)
        granted = {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}
        (event,) = codec.receive(json.dumps({"type": "session.updated", "session": granted}), AT)
        assert isinstance(event, Fault)
        assert "detects turns" in event.what

    def test_a_half_duplex_profile_cannot_be_barged_into(self) -> None:
        assert not make_client("openai-realtime/halfduplex").capabilities.barge_in
        assert make_client("openai-realtime").capabilities.barge_in

    def test_transcripts_are_a_capability_only_if_the_session_has_them(self) -> None:
        assert not ready().capabilities.transcripts
        assert ready({"input_audio_transcription": {"model": "x"}}).capabilities.transcripts
        assert ready({"audio": {"input": {"transcription": {}}}}).capabilities.transcripts is False

    @pytest.mark.parametrize(
        ("session", "codec_and_rate"),
        [
            ({"output_audio_format": "g711_alaw"}, ("pcma", 8000)),
            ({"audio": {"output": {"format": {"type": "audio/pcmu"}}}}, ("pcmu", 8000)),
            ({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16000}}}},
             ("pcm_s16le", 16000)),
            ({"audio": {"output": {"format": {"type": "audio/pcm"}}}}, ("pcm_s16le", 24000)),
            ({"audio": {"output": {}}}, ("pcm_s16le", 24000)),
        ],
    )  # fmt: skip
    def test_agent_audio_is_what_the_session_says(
        self, session: dict[str, Any], codec_and_rate: tuple[str, int]
    ) -> None:
        message = {"type": "response.audio.delta", "response_id": "r", "delta": "AAAA"}
        (chunk,) = ready(session).receive(json.dumps(message), AT)
        assert isinstance(chunk, AudioChunk)
        assert (chunk.codec, chunk.rate_hz) == codec_and_rate

    @pytest.mark.parametrize(
        "form",
        ["flac", 7, [], {}, {"type": "audio/opus"}]
        + [{"type": "audio/pcm", "rate": r} for r in (-5, 0, 4000, 1e5, 24000.5, "24000", True)]
        + [{"type": "audio/pcmu", "rate": 16000}],
    )
    @pytest.mark.parametrize("side", ["input", "output"])
    def test_a_session_with_audio_that_one_side_cannot_hear_is_refused(
        self, form: object, side: str
    ) -> None:
        codec = OpenAIRealtimeClient("ga")
        codec.send(StartSession(SessionConfig()))
        (event,) = tell(codec, type="session.updated", session={"audio": {side: {"format": form}}})
        assert isinstance(event, Fault)

    @pytest.mark.parametrize("form", ["g711_ulaw", {"type": "audio/pcm", "rate": 16000}])
    def test_a_session_that_hears_the_user_in_another_format_is_refused(self, form: Any) -> None:
        codec = OpenAIRealtimeClient("beta")
        codec.send(StartSession(SessionConfig()))
        (event,) = tell(codec, type="session.updated", session={"input_audio_format": form})
        assert isinstance(event, Fault)

    def test_what_a_session_states_before_it_is_asked_does_not_matter(self) -> None:
        codec = OpenAIRealtimeClient("ga")
        assert tell(codec, type="session.created", session={"output_audio_format": "opus"}) == []


class TestSending:
    def test_audio_frame_carries_the_samples(self) -> None:
        codec = OpenAIRealtimeClient()
        pcm = np.arange(480, dtype="<i2").tobytes()
        message = json.loads(codec.audio_frame(pcm))
        assert message["type"] == "input_audio_buffer.append"
        assert base64.b64decode(message["audio"]) == pcm
        assert codec.user_payload() == ("pcm_s16le", "json_base64", "/audio")

    @pytest.mark.parametrize("law", ["pcmu", "pcma"])
    def test_telephone_frames_are_coded(self, law: str) -> None:
        codec = OpenAIRealtimeClient("ga", law)
        pcm = (np.sin(np.arange(160) / 5) * 9000).astype("<i2")
        data = base64.b64decode(json.loads(codec.audio_frame(pcm.tobytes()))["audio"])
        assert codec.user_audio.frame_samples == len(data) == 160
        assert np.abs(PcmDecoder(law).feed(data).astype(int) - pcm).max() < 400

    def test_tool_result_is_followed_by_a_request_for_the_answer(self) -> None:
        messages = sent(ready().send(ToolResult("call_1", '{"ok":true}')))
        assert [m["type"] for m in messages] == ["conversation.item.create", "response.create"]
        assert messages[0]["item"] == {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": '{"ok":true}',
        }

    def test_answer_is_asked_for_only_when_the_running_response_is_over(self) -> None:
        codec = ready()
        tell(codec, type="response.created", response={"id": "r"})
        assert len(codec.send(ToolResult("c", "1"))) == 1
        assert codec.take_replies(0) == []
        done(codec)
        assert sent(codec.take_replies(0)) == [{"type": "response.create"}]

    def test_answer_is_asked_for_once_for_two_tool_calls(self) -> None:
        codec = ready()
        tell(codec, type="response.created", response={"id": "r"})
        for call in ("a", "b"):
            tell(codec, type="response.function_call_arguments.done", call_id=call, name="t",
                 arguments="{}")  # fmt: skip
        done(codec)
        assert len(codec.send(ToolResult("a", "1"))) == 1
        assert len(codec.send(ToolResult("b", "1"))) == 2

    @pytest.mark.parametrize(("asked", "sent_ms"), [(-5, 0), (30, 30), (10**9, 100)])
    def test_truncate_stays_within_what_was_received(self, asked: int, sent_ms: int) -> None:
        codec = ready()
        delta(codec, bytes(4800))
        (message,) = sent(codec.send(Truncate("i", asked)))
        assert message["audio_end_ms"] == sent_ms

    def test_truncate_of_an_item_without_audio_is_not_sent(self) -> None:
        assert ready().send(Truncate("unknown", 100)) == []

    def test_cancel_and_commit(self) -> None:
        codec = ready()
        assert sent(codec.send(CancelResponse("r"))) == [
            {"type": "response.cancel", "response_id": "r"}
        ]
        assert sent(codec.send(CancelResponse())) == [{"type": "response.cancel"}]
        assert [m["type"] for m in sent(codec.send(CommitAudio()))] == [
            "input_audio_buffer.commit",
            "response.create",
        ]

    def test_refused_cancel_is_no_fatal_error(self) -> None:
        detail = {"code": "response_cancel_not_active", "message": "none active"}
        (event,) = tell(ready(), type="error", error=detail)
        assert isinstance(event, ServerError)
        assert not event.is_fatal


class TestReceiving:
    def test_every_beta_name_is_known_under_its_ga_name(self) -> None:
        for ga in GA_OF_BETA.values():
            assert ga in openai_client._HANDLERS or ga in IGNORED_SERVER_TYPES

    def test_tool_call_is_told_once_however_often_it_comes(self) -> None:
        codec = ready()
        item = {"id": "f", "type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"}
        events = tell(codec, type="response.output_item.added", item={**item, "arguments": ""})
        events += tell(codec, type="response.function_call_arguments.done", item_id="f",
                       call_id="c", arguments="{}")  # fmt: skip
        events += tell(codec, type="response.output_item.done", response_id="r", item=item)
        events += tell(codec, type="response.done", response={"id": "r", "output": [item]})
        assert [e for e in events if isinstance(e, ToolCall)] == [
            ToolCall(at=AT, call_id="c", name="t", arguments="{}")
        ]

    def test_tool_call_without_a_name_waits_for_its_item(self) -> None:
        codec = ready()
        event = {"type": "response.function_call_arguments.done", "call_id": "c", "arguments": "1"}
        assert tell(codec, **event) == []
        item = {"type": "function_call", "call_id": "c", "name": "t", "arguments": "1"}
        (call,) = tell(codec, type="response.output_item.done", response_id="r", item=item)
        assert call == ToolCall(at=AT, call_id="c", name="t", arguments="1", response_id="r")

    def test_whole_text_so_far_replaces_the_partial_transcript(self) -> None:
        codec = ready()
        name = "conversation.item.input_audio_transcription"
        tell(codec, type=f"{name}.updated", item_id="u", transcript="where")
        (event,) = tell(codec, type=f"{name}.updated", item_id="u", transcript="where is")
        assert event == UserTranscript(at=AT, text="where is", item_id="u")

    def test_cancelled_response_may_end_inside_a_sample_but_a_whole_one_not(self) -> None:
        codec = ready()
        delta(codec, b"abc", "r1")
        (ended,) = done(codec, "r1", "cancelled")
        assert isinstance(ended, ResponseEnded)
        delta(codec, b"abc", "r2")
        (fault,) = done(codec, "r2")
        assert isinstance(fault, Fault)
        assert fault.is_fatal

    def test_odd_chunks_that_add_up_are_fine(self) -> None:
        codec = ready()
        delta(codec, b"abc")
        delta(codec, b"d")
        assert isinstance(done(codec)[-1], ResponseEnded)

    def test_audio_outside_responses_has_no_id(self) -> None:
        (chunk,) = tell(ready(), type="response.output_audio.delta", delta="AAAA")
        assert isinstance(chunk, AudioChunk)
        assert chunk.response_id is None

    def test_rate_stated_beside_the_audio_is_trusted_or_refused(self) -> None:
        def deltas(stated: object) -> list[Event]:
            return tell(ready(), type="response.output_audio.delta", delta="AAAA",
                        sample_rate_hz=stated)  # fmt: skip

        (chunk,) = deltas(16000)
        assert isinstance(chunk, AudioChunk)
        assert chunk.rate_hz == 16000
        for stated in (1, "16000", True, 24000.5, None, 10**9):
            (fault,) = deltas(stated)
            assert isinstance(fault, Fault)

    def test_response_told_over_twice_ends_once(self) -> None:
        codec = ready()
        assert len(done(codec)) == 1
        assert done(codec) == []

    def test_unknown_type_is_kept_by_its_cleaned_name(self) -> None:
        (event,) = tell(ready(), type="x\x1b[31m" + "y" * 500)
        assert isinstance(event, Unknown)
        assert len(event.name) <= 100
        assert "\x1b" not in event.name


WRONG = [
    "",
    "[]",
    '{"type":1}',
    "{}",
    '{"type":"response.output_audio.delta"}',
    '{"type":"response.output_audio.delta","delta":7}',
    '{"type":"response.output_audio.delta","delta":"AA"}',
    '{"type":"response.output_audio.delta","delta":"AAAA","response_id":{}}',
    '{"type":"response.output_audio_transcript.delta","delta":[]}',
    '{"type":"response.done"}',
    '{"type":"response.done","response":[]}',
    '{"type":"response.done","response":{}}',
    '{"type":"response.done","response":{"id":"r","output":[1]}}',
    '{"type":"response.created","response":{"id":5}}',
    '{"type":"session.updated","session":null}',
    '{"type":"input_audio_buffer.speech_started","audio_start_ms":"now"}',
    '{"type":"input_audio_buffer.speech_started","audio_start_ms":true}',
    '{"type":"response.output_item.done","item":{"type":"function_call","name":"t"}}',
    '{"type":"response.created","response":{"id":"' + "x" * 600 + '"}}',
]


@pytest.mark.parametrize("data", WRONG)
def test_wrong_shape_is_a_fault_and_the_codec_says_nothing_more(data: str) -> None:
    codec = ready()
    (fault,) = codec.receive(data, AT)
    assert isinstance(fault, Fault)
    assert fault.what
    assert len(fault.excerpt) <= 200
    assert tell(codec, type="response.created", response={"id": "r"}) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(
        ["id", "type", "output", "name", "call_id", "audio", "turn_detection", "format", "input",
         "status", "status_details", "reason", "usage", "code", "message"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = ["response", "session", "item", "error", "delta", "response_id", "item_id", "call_id",
          "name", "arguments", "audio_start_ms", "audio_end_ms", "transcript"]  # fmt: skip


@given(
    st.sampled_from(sorted(openai_client._HANDLERS)),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_no_message_of_a_known_type_ever_raises(kind: str, fields: dict[str, Any]) -> None:
    codec = ready()
    for event in codec.receive(json.dumps({"type": kind, **fields}), AT):
        json.dumps({k: v for k, v in vars_of(event).items() if k not in ("at", "data")})


def vars_of(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in type(event).__dataclass_fields__}


@given(st.binary(max_size=300) | st.text(max_size=300))
def test_no_data_ever_raises(data: bytes | str) -> None:
    assert ready().receive(data, AT)


class TestLimits:
    def faults(self, codec: OpenAIRealtimeClient) -> list[str | None]:
        out = []
        for n in range(60):
            for message in (
                {"type": "response.created", "response": {"id": f"r{n}"}},
                {"type": "response.output_text.delta", "response_id": f"r{n}", "delta": "ab"},
                {"type": "response.output_audio.delta", "response_id": f"r{n}", "item_id": f"i{n}",
                 "delta": base64.b64encode(bytes(480)).decode()},
            ):  # fmt: skip
                events = codec.receive(json.dumps(message), AT)
                out += [e.limit for e in events if isinstance(e, Fault)]
        return out

    @pytest.mark.parametrize(
        ("limits", "name"),
        [
            (Limits(max_events=50), "max_events"),
            (Limits(max_text_chars=50), "max_text_chars"),
            (Limits(max_responses=50), "max_responses"),
            (Limits(max_audio_s=0.3), "max_audio_s"),
            (Limits(max_responses=50, max_message_bytes=100), "max_message_bytes"),
            (Limits(max_control_bytes=66), "max_control_bytes"),
        ],
    )
    def test_each_cap_is_hit_and_named_once(self, limits: Limits, name: str) -> None:
        assert self.faults(ready(limits=limits)) == [name]

    def test_a_message_with_audio_may_be_larger_than_others(self) -> None:
        codec = ready(limits=Limits(max_control_bytes=100))
        delta(codec, bytes(300))
        assert not any(isinstance(event, Fault) for event in done(codec))

    def test_within_the_caps_nothing_happens(self) -> None:
        assert self.faults(ready()) == []


class TestRegistry:
    def test_profile_words_choose_dialect_and_format(self) -> None:
        codec = make_client("openai-realtime/beta-pcmu-continuous")
        assert codec.user_audio.codec == "pcmu"
        assert codec.capabilities.continuous_stream
        assert codec.headers
        assert (codec.name, codec.profile) == ("openai-realtime", "beta-pcmu-continuous")
        assert make_client("openai-realtime").profile == "auto"

    @pytest.mark.parametrize(
        ("name", "nearest"),
        [("openai-realtim", "openai-realtime"), ("openai-realtime/bta", "beta")],
    )
    def test_unknown_name_is_refused_with_the_nearest(self, name: str, nearest: str) -> None:
        with pytest.raises(ConfigError) as caught:
            make_client(name)
        assert caught.value.nearest == nearest


@pytest.mark.parametrize(
    ("url", "model", "dialled"),
    [
        ("wss://h/v1/realtime", None, "wss://h/v1/realtime"),
        ("wss://h/v1/realtime", "m-1", "wss://h/v1/realtime?model=m-1"),
        ("wss://h/v1?a=%20b", "m 1&x=2", "wss://h/v1?a=%20b&model=m+1%26x%3D2"),
        ("wss://h/v1?model=own", "other", "wss://h/v1?model=own"),
        ("wss://h/v1?model=", "other", "wss://h/v1?model="),
        ("wss://h", "m", "wss://h?model=m"),
    ],
)
def test_the_model_is_named_in_the_url_unless_one_is_there(
    url: str, model: str | None, dialled: str
) -> None:
    assert OpenAIRealtimeClient().dial_url(url, SessionConfig(model=model)) == dialled


@pytest.mark.parametrize(("word", "user_hz"), [("qwen", 16_000), ("azurebeta", 24_000)])
def test_a_servers_name_stands_for_what_is_known_of_it(word: str, user_hz: int) -> None:
    codec = OpenAIRealtimeClient.of_profile(word, Limits())
    assert codec.is_experimental
    assert codec.user_audio.rate_hz == user_hz
    (update,) = sent(codec.send(StartSession(SessionConfig())))
    assert update["session"]["input_audio_format"] == "pcm16"
    session = {"input_audio_format": "pcm16", "output_audio_format": "pcm16"}
    events = codec.receive(json.dumps({"type": "session.updated", "session": session}), AT)
    assert [type(event) for event in events] == [Ready]


def test_a_plain_profile_is_not_experimental() -> None:
    assert not OpenAIRealtimeClient.of_profile("ga-pcmu", Limits()).is_experimental
