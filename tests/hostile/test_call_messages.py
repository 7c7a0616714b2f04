"""Messages that no good target sends: what breaks the protocol ends the call with a typed error."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

AUDIO = "response.output_audio.delta"


def delta(value: str) -> str:
    return f'{{"type":"{AUDIO}","response_id":"r","item_id":"i","delta":{value}}}'


BREACHES = {
    "cut short": ('{"type":"response.created","resp', "malformed JSON"),
    "empty": ("", "malformed JSON"),
    "not an object": ("[1,2]", "not a JSON object"),
    "no type": ('{"kind":"x"}', "no type"),
    "type is no text": ('{"type":{"a":1}}', "no type"),
    "NaN": ('{"type":"rate_limits.updated","x":NaN}', "NaN"),
    "infinity": ('{"type":"rate_limits.updated","x":-Infinity}', "Infinity"),
    "1e999": ('{"type":"rate_limits.updated","x":[1e999]}', "out of range"),
    "5000 digits": ('{"type":"rate_limits.updated","x":' + "7" * 5000 + "}", "out of range"),
    "key twice": ('{"type":"rate_limits.updated","type":"session.updated"}', "same key twice"),
    "inner key twice": ('{"type":"x","a":{"b":1,"b":1}}', "same key twice"),
    "deep list": ('{"type":"x","a":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    "deep object": ('{"type":"x","a":' + '{"a":' * 70 + "1" + "}" * 71, "nested too deeply"),
    "lone surrogate": (r'{"type":"response.output_text.delta","delta":"\ud800"}', "surrogate"),
    "lone surrogate as key": (r'{"type":"x","\udfff":1}', "surrogate"),
    "lone surrogate as type": (r'{"type":"\uDC00"}', "surrogate"),
    "base64 with a space": (delta('"AAAA AAAA"'), "invalid base64"),
    "base64 without padding": (delta('"AAA"'), "invalid base64"),
    "base64 with surplus padding": (delta('"AAAA===="'), "invalid base64"),
    "base64 url alphabet": (delta('"-_-_"'), "invalid base64"),
    "base64 is a number": (delta("7"), "not a string"),
    "base64 is null": (delta("null"), "not a string"),
}

WRONG_TYPES = [
    {"type": "response.created"},
    {"type": "response.created", "response": None},
    {"type": "response.created", "response": {"id": 7}},
    {"type": "response.created", "response": {"id": ""}},
    {"type": "response.created", "response": {"id": "x" * 513}},
    {"type": "response.done", "response": []},
    {"type": "response.done", "response": {"id": "r", "output": "none"}},
    {"type": "response.done", "response": {"id": "r", "output": [1]}},
    {"type": "response.output_text.delta", "delta": ["a"]},
    {"type": "response.output_text.delta", "delta": "a", "response_id": 1},
    {"type": "input_audio_buffer.speech_started", "audio_start_ms": "12"},
    {"type": "input_audio_buffer.speech_started", "audio_start_ms": True},
    {"type": "input_audio_buffer.speech_stopped", "audio_end_ms": {}},
    {"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 1, "item_id": ["u"]},
    {"type": "conversation.item.truncated", "audio_end_ms": "x"},
    {"type": "conversation.item.input_audio_transcription.completed", "transcript": 7},
    {"type": "response.output_item.added", "item": "x"},
    {"type": "response.output_item.done", "item": {"type": "function_call", "name": "look_up"}},
    {"type": "response.function_call_arguments.done", "name": "f", "call_id": "c", "arguments": 1},
    {"type": "session.updated", "session": "mine"},
]


def second_turn_is(*messages: str | bytes) -> Callable[[Any], Awaitable[None]]:
    """Return a target that answers the first turn well and the second one with `messages`."""

    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.healthy(turns=1)
        await peer.spoken()
        await peer.say("response.created", response={"id": "r"})
        for message in messages:
            await peer.raw(message)
        await peer.listen()

    return behave


def is_breach(judged: Any) -> str:
    failure = judged.failed("protocol_error", "call")
    assert judged.turns[0]["flags"] == []
    assert len(judged.measured("ttfa_heard")) == 1
    assert len(str(failure)) < 700
    return str(failure)


def test_a_message_against_the_format_ends_the_call_and_is_named(bench: Any) -> None:
    judged = bench.judge_all({n: second_turn_is(message) for n, (message, _) in BREACHES.items()})
    for name, (_, what) in BREACHES.items():
        assert what in is_breach(judged[name]), name


def test_a_known_message_of_the_wrong_shape_ends_the_call(bench: Any) -> None:
    judged = bench.judge_all(
        {f"{n}": second_turn_is(json.dumps(message)) for n, message in enumerate(WRONG_TYPES)}
    )
    for one in judged.values():
        is_breach(one)


def test_a_text_message_that_is_not_utf8_ends_the_call(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.healthy(turns=1)
        await peer.spoken()
        peer.below(b"\x81\x02\xff\xfe")
        await peer.listen()

    judged = bench.judge(behave)
    assert "UTF-8" in judged.failed("protocol_error", "call").message


def test_a_binary_message_that_is_no_json_ends_the_call(bench: Any) -> None:
    data = [b"\x00\x01\x02", b"\xff\xfe", b'{"type":"x"']
    for judged in bench.judge_all({d.hex(): second_turn_is(d) for d in data}).values():
        is_breach(judged)


def test_a_response_that_ends_inside_a_sample_ends_the_call(bench: Any) -> None:
    done = {"type": "response.done", "response": {"id": "r", "status": "completed"}}
    judged = bench.judge(second_turn_is(delta('"AAAA"'), json.dumps(done)))
    assert "inside a sample" in is_breach(judged)


def test_odd_messages_that_make_up_whole_samples_are_audio_like_any(bench: Any) -> None:
    async def odd(peer: Any) -> None:
        await peer.open_session()
        for turn in range(2):
            ago_s = await peer.spoken()
            name = f"r{turn}"
            await peer.say("response.created", response={"id": name})
            await peer.in_pieces(0.5, 961, name)
            await peer.done(name)
            due.append(ago_s)
        await peer.listen()

    due: list[float] = []
    judged = bench.judge(odd)
    judged.passed()
    assert judged.measured("ttfa_audible") == pytest.approx(due, abs=1e-4)


def test_unknown_messages_are_kept_counted_and_harm_nothing(bench: Any) -> None:
    async def chatter(peer: Any) -> None:
        await peer.open_session()
        for turn in range(2):
            for n in range(50):
                await peer.say(f"vendor.{n}\x1b[31m", anything=[{"deep": [None, 1e300, "…"]}])
            await peer.raw(b'{"type": "vendor.binary"}')
            await peer.healthy(turns=1, name=f"t{turn}")
        await peer.listen()

    judged = bench.judge(chatter)
    judged.passed()
    assert len(judged.of("unknown")) == 102
    assert not any("\x1b" in text for text in judged.texts.values())


def padded(message: dict[str, Any], n_bytes: int) -> str:
    return json.dumps(message).ljust(n_bytes)


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ({"type": AUDIO, "delta": "AAAA"}, "max_message_bytes"),
        ({"type": "vendor.padding"}, "max_control_bytes"),
        ({"type": "session.updated", "session": {}}, "max_control_bytes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_message_as_large_as_allowed_passes_and_one_byte_more_does_not(
    bench: Any, message: dict[str, Any], limit: str
) -> None:
    n_bytes = getattr(bench.limits, limit)
    large, larger = padded(message, n_bytes), padded(message, n_bytes + 1)
    judged = bench.judge_all(
        {"large": second_turn_is(large, "?"), "larger": second_turn_is(larger)}
    )
    assert "malformed" in is_breach(judged["large"])
    assert judged["larger"].failed("limit_exceeded", "call").limit == limit
