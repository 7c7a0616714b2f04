"""LiveKit: what a room tells as events, and the token to it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.timeline.events import (
    AudioChunk,
    Event,
    Fault,
    ResponseAudioEnd,
    ResponseStarted,
    TextDelta,
    ToolCall,
    Unknown,
    UserTranscript,
)
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.script import ToolSpec
from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import (
    CommitAudio,
    EndSession,
    SessionConfig,
    StartSession,
    ToolResult,
    Wire,
)
from vakforge_probe.protocol.livekit_client import LiveKitClient
from vakforge_probe.protocol.livekit_room import Entrance, RoomJoin

URL = "wss://rooms.example/base"
KEYS = "APIkey:not-told-to-anyone"
NOW = 1_800_000_000.0
AT = Instant.exact(7)


def told(client: LiveKitClient, kind: str, **fields: Any) -> list[Event]:
    return client.receive(json.dumps({"type": kind, **fields}), AT)


def state(client: LiveKitClient, name: str) -> list[type[Event]]:
    events = told(client, "attributes", identity="a", attributes={"lk.agent.state": name})
    return [type(event) for event in events]


# -- events -----------------------------------------------------------------------------------


def test_a_frame_is_audio_as_it_is() -> None:
    (chunk,) = LiveKitClient().receive(b"\x01\x02\x03\x04", AT)
    assert chunk == AudioChunk(
        at=AT, codec="pcm_s16le", rate_hz=48_000, transfer="binary", locator="0",
        data=b"\x01\x02\x03\x04",
    )  # fmt: skip
    client = LiveKitClient()
    assert client.audio_frame(b"\x05\x06") == b"\x05\x06"
    assert client.user_payload() == ("pcm_s16le", "binary", "0")
    assert client.user_audio.frame_samples == 480


def test_thinking_begins_a_response_and_no_more_speaking_ends_its_audio() -> None:
    client = LiveKitClient()
    assert state(client, "initializing") == []
    assert state(client, "listening") == []
    assert state(client, "thinking") == [ResponseStarted]
    assert state(client, "speaking") == []
    assert state(client, "listening") == [ResponseAudioEnd]
    # An announcement needs no thought.
    assert state(client, "speaking") == [ResponseStarted]
    # A tool in the middle of a response.
    assert state(client, "thinking") == [ResponseAudioEnd]
    assert state(client, "idle") == []


def test_other_attributes_say_nothing() -> None:
    client = LiveKitClient()
    assert told(client, "attributes", identity="a", attributes={"mood": "good"}) == []


@pytest.mark.parametrize(("identity", "track"), [("probe-1", "TR_x"), ("agent", "TR_ours")])
def test_a_transcript_is_the_users_by_its_name_or_its_track(identity: str, track: str) -> None:
    client = LiveKitClient()
    for name in ("probe-1", "TR_ours"):
        assert told(client, "ours", name=name) == []
    attributes = {"lk.segment_id": "s", "lk.transcribed_track_id": track}

    def said(final: str) -> list[Event]:
        more = {**attributes, "lk.transcription_final": final}
        return told(client, "text", identity=identity, attributes=more, text="hello")

    assert said("false") == [UserTranscript(at=AT, text="hello", is_final=False, item_id="s")]
    assert said("true") == [UserTranscript(at=AT, text="hello", is_final=True, item_id="s")]


def test_any_other_transcript_is_the_agents() -> None:
    client = LiveKitClient()
    told(client, "ours", name="probe-1")
    for attributes, item_id in (({"lk.segment_id": "s"}, "s"), ({}, None)):
        (delta,) = told(client, "text", identity="agent", attributes=attributes, text="hi")
        assert delta == TextDelta(at=AT, text="hi", item_id=item_id)


@pytest.mark.parametrize(("payload", "arguments"), [
    ('{"id": 4}', {"id": 4}), ("plain words", "plain words"), ("", ""), ("[1]", "[1]"),
])  # fmt: skip
def test_a_call_of_a_method_is_one_of_a_tool(payload: str, arguments: object) -> None:
    (call,) = told(LiveKitClient(), "rpc", id="c", method="look_up", payload=payload)
    assert isinstance(call, ToolCall)
    assert (call.call_id, call.name, json.loads(call.arguments)) == ("c", "look_up", arguments)


def test_tools_are_offered_and_answered() -> None:
    client = LiveKitClient()
    tool = ToolSpec(name="look_up", parameters={}, result={}, delay_s=0.0)
    (offer,) = client.send(StartSession(SessionConfig(tools=(tool,))))
    assert json.loads(offer) == {"type": "tools", "names": ["look_up"]}
    (answer,) = client.send(ToolResult("c", '{"a": 1}'))
    assert json.loads(answer) == {"type": "rpc_result", "id": "c", "payload": '{"a": 1}'}
    for intent in (StartSession(SessionConfig()), CommitAudio(), EndSession()):
        assert client.send(intent) == []


@pytest.mark.parametrize("kind", ["track", "reconnecting", "whatever"])
def test_what_else_happens_is_kept_by_its_name(kind: str) -> None:
    assert told(LiveKitClient(), kind) == [Unknown(at=AT, name=kind)]


@pytest.mark.parametrize("data", [
    b"odd", "", "[]", "{}", '{"type": 3}', '{"type": "text"}', '{"type": "attributes"}',
    '{"type": "ours"}', '{"type": "rpc", "id": "c", "method": "m"}',
    '{"type": "text", "identity": "a", "attributes": {}, "text": 4}',
])  # fmt: skip
def test_a_breach_is_a_fault_after_which_nothing_comes(data: Wire) -> None:
    client = LiveKitClient()
    (fault,) = client.receive(data, AT)
    assert isinstance(fault, Fault)
    assert client.receive(b"\x00\x00", AT) == []


@pytest.mark.parametrize(("limits", "data", "name"), [
    ({"max_control_bytes": 10}, json.dumps({"type": "reconnecting"}), "max_control_bytes"),
    ({"max_audio_s": 0.001}, bytes(960), "max_audio_s"),
])  # fmt: skip
def test_limits_hold(limits: Mapping[str, Any], data: Wire, name: str) -> None:
    (fault,) = LiveKitClient(Limits(**limits)).receive(data, AT)
    assert isinstance(fault, Fault)
    assert fault.limit == name


@given(st.lists(st.one_of(st.binary(max_size=64), st.text(max_size=64)), max_size=8))
def test_no_message_is_a_bug(messages: list[Wire]) -> None:
    client = LiveKitClient()
    for message in messages:
        client.receive(message, AT)


_FIELDS = st.dictionaries(
    st.sampled_from(["name", "identity", "attributes", "text", "id", "method", "payload"]),
    st.one_of(st.text(max_size=9), st.integers(), st.none(),
              st.dictionaries(st.sampled_from(["lk.agent.state", "lk.segment_id"]),
                              st.one_of(st.text(max_size=9), st.integers()))),
)  # fmt: skip


@given(st.sampled_from(["ours", "attributes", "text", "rpc"]), _FIELDS)
def test_no_fields_are_a_bug(kind: str, fields: dict[str, Any]) -> None:
    with contextlib.suppress(UnicodeEncodeError):
        told(LiveKitClient(), kind, **fields)


# -- the token --------------------------------------------------------------------------------


def entrance(
    url: str = URL, headers: Mapping[str, str] | None = None, credentials: str | None = KEYS
) -> Entrance:
    return RoomJoin(48_000).entrance(url, headers or {}, credentials, NOW)


def opened(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of a token, whose signature must be right."""
    signed, _, mac = token.rpartition(".")
    secret = KEYS.partition(":")[2].encode()
    assert decoded(mac) == hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    header, claims = (json.loads(decoded(part)) for part in signed.split("."))
    return header, claims


def decoded(part: str) -> bytes:
    assert "=" not in part
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


def test_a_token_grants_one_room_for_the_time_of_a_call() -> None:
    entry = entrance(f"{URL}?room=lobby&agent=front-desk&identity=me")
    assert entry.url == URL
    header, claims = opened(entry.token)
    assert header == {"alg": "HS256", "typ": "JWT"}
    assert claims == {
        "iss": "APIkey",
        "sub": "me",
        "nbf": NOW - 60,
        "exp": NOW + 3600,
        "video": {
            "roomJoin": True, "room": "lobby", "canPublish": True, "canSubscribe": True,
            "canPublishData": True,
        },
        "roomConfig": {"agents": [{"agentName": "front-desk"}]},
    }  # fmt: skip
    assert entry.token not in repr(entry)


def test_a_call_has_a_room_of_its_own_by_default() -> None:
    first, second = (opened(entrance().token)[1] for _ in range(2))
    assert first["video"]["room"] != second["video"]["room"]
    assert first["sub"] != second["sub"]
    assert "roomConfig" not in first


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_a_token_that_is_given_is_used_as_it_is(name: str) -> None:
    entry = entrance(headers={name: "Bearer a.b.c"})
    assert (entry.url, entry.token) == (URL, "a.b.c")


@pytest.mark.parametrize(("facts", "words"), [
    ({"credentials": None}, "auth_token"),
    ({"credentials": "no-colon-here"}, "KEY:SECRET"),
    ({"credentials": ":secret"}, "KEY:SECRET"),
    ({"credentials": "key:"}, "KEY:SECRET"),
    ({"headers": {"Authorization": "Basic abc"}}, "Bearer TOKEN"),
    ({"headers": {"Authorization": "Bearer "}}, "Bearer TOKEN"),
    ({"headers": {"Authorization": "Bearer t"}, "url": f"{URL}?room=x"}, "in it"),
    ({"url": f"{URL}?rom=x"}, "did you mean 'room'"),
])  # fmt: skip
def test_what_opens_no_room_is_said_without_secrets(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        entrance(**facts)
    for secret in ("no-colon-here", "abc"):
        assert secret not in str(raised.value)
