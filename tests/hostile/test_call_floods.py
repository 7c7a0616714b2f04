"""Targets without end: each flood meets the cap that is named in the call's failure."""

from __future__ import annotations

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from vakforge_probe.errors import TargetLimitExceeded

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

MIB = 1024 * 1024


@contextmanager
def at_most(n_bytes: int) -> Iterator[None]:
    """Check that memory never grows by more than `n_bytes` inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < n_bytes
    finally:
        tracemalloc.stop()


def flooding(
    message: Callable[[int], dict[str, Any]], *, pause_s: float = 0.0
) -> Callable[[Any], Awaitable[None]]:
    """Return a target that answers one turn and then sends `message` for ever."""

    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.healthy(turns=1)
        await peer.spoken()
        for n in itertools.count():
            await peer.raw(json.dumps(message(n)))
            if n % 50 == 0 or pause_s:
                await asyncio.sleep(pause_s)

    return behave


def limited(judged: Any, limit: str) -> None:
    failure = judged.failed("limit_exceeded", "call")
    assert isinstance(failure, TargetLimitExceeded)
    assert failure.limit.split(" ")[0] == limit
    assert limit in judged.texts["terminal"]
    assert judged.turns[0]["flags"] == []


def audio(n: int, seconds: float = 1.0) -> dict[str, Any]:
    data = "A" * (round(seconds * 24_000) * 2 // 3 * 4)
    return {"type": "response.output_audio.delta", "response_id": "r", "delta": data}


def test_audio_far_ahead_of_real_time_meets_its_cap_in_little_memory(bench: Any) -> None:
    with at_most(60 * MIB):
        limited(bench.judge(flooding(audio)), "max_ahead_s")


FLOODS: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "text": (
        lambda n: {"type": "response.output_text.delta", "response_id": "r", "delta": "words "},
        "max_text_chars",
    ),
    "transcript": (
        lambda n: {
            "type": "conversation.item.input_audio_transcription.delta",
            "item_id": "u",
            "delta": "word ",
        },
        "max_text_chars",
    ),
    "empty text": (lambda n: {"type": "response.output_text.delta", "delta": ""}, "max_events"),
    "empty audio": (lambda n: audio(0, 0.0), "max_events"),
    "unknown": (lambda n: {"type": f"vendor.{n}"}, "max_events"),
    "errors": (lambda n: {"type": "error", "error": {"message": "overloaded"}}, "max_events"),
    "sessions": (lambda n: {"type": "session.updated", "session": {"n": n}}, "max_events"),
    "speech": (lambda n: {"type": "input_audio_buffer.speech_started"}, "max_events"),
    "responses": (
        lambda n: {"type": "response.created", "response": {"id": f"n{n}"}},
        "max_responses",
    ),
    "ends": (lambda n: {"type": "response.done", "response": {"id": f"n{n}"}}, "max_responses"),
    "items": (
        lambda n: {
            "type": "response.output_item.added",
            "item": {"id": f"n{n}", "type": "function_call"},
        },
        "max_responses",
    ),
    "tool calls": (
        lambda n: {
            "type": "response.function_call_arguments.done",
            "name": "look_up",
            "call_id": f"c{n}",
            "arguments": "{}",
        },
        "max_responses",
    ),
    "unknown tools": (
        lambda n: {
            "type": "response.done",
            "response": {
                "id": "r",
                "status": "completed",
                "output": [
                    {
                        "type": "function_call",
                        "name": f"tool{n}",
                        "call_id": f"c{n}",
                        "arguments": "{",
                    }
                ],
            },
        },
        "max_responses",
    ),
}


def test_every_flood_of_small_messages_meets_a_cap(bench: Any) -> None:
    bench.limits = replace(
        bench.limits, max_events=700, max_text_chars=3_000, max_responses=20, max_audio_s=20.0
    )
    judged = bench.judge_all({name: flooding(message) for name, (message, _) in FLOODS.items()})
    for name, (_, limit) in FLOODS.items():
        limited(judged[name], limit)


def test_audio_at_a_bearable_pace_still_has_an_end(bench: Any) -> None:
    bench.limits = replace(bench.limits, max_audio_s=5.0)
    limited(bench.judge(flooding(audio, pause_s=0.3)), "max_audio_s")


def test_a_response_that_never_ends_is_cut_by_the_calls_budget(bench: Any) -> None:
    async def drone(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        await peer.say("response.created", response={"id": "r"})
        while True:
            await peer.speak(0.02)
            await asyncio.sleep(0.02)

    judged = bench.judge(drone)
    assert judged.outcome.failure is None
    assert judged.outcome.reason == "budget"
    (turn,) = judged.turns
    assert turn["metrics"]["ttfa"]["value"] < 0.1
    assert turn["metrics"]["total_response"] == {"undefined": "cut_off"}


def test_everything_received_together_meets_a_cap(bench: Any) -> None:
    bench.limits = replace(bench.limits, max_received_bytes=3 * MIB)
    padding = "x" * 100_000
    judged = bench.judge(flooding(lambda n: {"type": "vendor.note", "padding": padding}))
    limited(judged, "max_received_bytes")
    assert (judged.capture.path / "agent.wire").stat().st_size < 4 * MIB


def test_a_message_of_endless_fragments_meets_its_cap_in_little_memory(bench: Any) -> None:
    async def fragments(peer: Any) -> None:
        await peer.open_session()
        await peer.healthy(turns=1)
        await peer.spoken()
        peer.below(b"\x01\x01{")
        while peer.is_open:
            if peer.connection.transport.get_write_buffer_size() < MIB:  # its memory is not ours
                peer.below((b"\x00\x7e\x80\x00" + b" " * 0x8000) * 8)
            await asyncio.sleep(0)

    with at_most(60 * MIB):
        limited(bench.judge(fragments), "max_message_bytes")


def test_pings_by_a_target_that_does_not_read_meet_the_cap_on_unsent_data(bench: Any) -> None:
    bench.limits = replace(bench.limits, max_write_buffer_bytes=50_000)

    async def ping(peer: Any) -> None:
        await peer.open_session()
        await peer.healthy(turns=1)
        await peer.spoken()
        peer.connection.transport.pause_reading()
        while peer.is_open:
            peer.below((b"\x89\x7d" + b"?" * 125) * 1000)
            await asyncio.sleep(0.01)

    limited(bench.judge(ping), "max_write_buffer_bytes")


def test_a_target_that_answers_but_does_not_read_costs_no_more_than_its_cap(bench: Any) -> None:
    async def deaf(peer: Any) -> None:
        await peer.open_session()
        peer.connection.transport.pause_reading()
        await asyncio.sleep(2.0)
        await peer.answer("unasked")
        await asyncio.sleep(10.0)

    judged = bench.judge(deaf)
    assert judged.outcome.failure is None or judged.failure.phase in ("call", "first_audio")


@pytest.mark.parametrize("n_frames", [20_000])
def test_empty_frames_and_pongs_nobody_asked_for_are_endured(bench: Any, n_frames: int) -> None:
    async def fidget(peer: Any) -> None:
        await peer.open_session()
        peer.below(b"\x8a\x00" * n_frames)
        peer.below(b"\x01\x00" + b"\x00\x00" * n_frames + b'\x80\x0c{"type":"x"}')
        await peer.healthy()
        await peer.listen()

    judged = bench.judge(fidget)
    judged.passed()
    assert len(judged.of("unknown")) == 1
