"""Any mixture of good, bent and broken messages: a call is an outcome that can be scored."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.view import CallView
from vakforge_eval.report.build import make_report
from vakforge_eval.scoring.score import score_calls
from vakforge_probe.errors import TargetError

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

N_EXAMPLES = 200
_LOUD = base64.b64encode(b"\x00\x20\x00\xe0" * 600).decode()
_IDS = ["r0", "r1", "", None, 7, "x" * 600]
_CALL = {"type": "function_call", "name": "look_up", "call_id": "c1", "arguments": "{}"}
GOOD: list[dict[str, Any]] = [
    {"type": "session.created", "session": {"id": "s", "type": "realtime"}},
    {"type": "session.updated", "session": {"turn_detection": None}},
    {
        "type": "session.updated",
        "session": {"audio": {"output": {"format": {"type": "audio/pcmu"}}}},
    },
    {"type": "response.created", "response": {"id": "r0"}},
    {"type": "response.created", "response": {"id": "r1"}},
    {"type": "response.output_audio.delta", "response_id": "r0", "item_id": "i0", "delta": _LOUD},
    {"type": "response.audio.delta", "response_id": "r1", "item_id": "i1", "delta": _LOUD},
    {"type": "response.output_audio.delta", "delta": "AAA="},
    {"type": "response.output_audio.done", "response_id": "r0", "item_id": "i0"},
    {"type": "response.output_audio_transcript.delta", "response_id": "r0", "delta": "Well, "},
    {"type": "response.done", "response": {"id": "r0", "status": "completed", "usage": {"n": 1}}},
    {"type": "response.done", "response": {"id": "r0", "status": "cancelled"}},
    {"type": "response.done", "response": {"id": "r1", "output": [_CALL]}},
    {"type": "input_audio_buffer.speech_started", "audio_start_ms": 120, "item_id": "u"},
    {"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 300, "item_id": "u"},
    {"type": "input_audio_buffer.committed", "item_id": "u"},
    {"type": "output_audio_buffer.cleared", "response_id": "r0"},
    {"type": "conversation.item.truncated", "item_id": "i0", "audio_end_ms": 20},
    {"type": "conversation.item.input_audio_transcription.delta", "item_id": "u", "delta": "hel"},
    {
        "type": "conversation.item.input_audio_transcription.completed",
        "item_id": "u",
        "transcript": "hello",
    },
    {"type": "response.output_item.added", "response_id": "r1", "item": {**_CALL, "id": "i1"}},
    {"type": "response.function_call_arguments.done", "item_id": "i1", "arguments": "{}"},
    {"type": "error", "error": {"code": "server_error", "message": "sorry"}},
    {"type": "vendor.note", "value": [1, None]},
]
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(_IDS),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@st.composite
def bent(draw: st.DrawFn) -> dict[str, Any]:
    """A good message in which up to two fields are missing, new, or something else."""
    message: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    for _ in range(draw(st.integers(0, 2))):
        place = message
        inner = [value for value in message.values() if isinstance(value, dict)]
        is_inner = draw(st.booleans())
        if inner and is_inner:
            place = inner[0]
        names = {*place, "id", "response_id", "delta", "item_id"} - {"type"}
        key = draw(st.sampled_from(sorted(names)))
        if draw(st.integers(0, 1)):
            place.pop(key, None)
        else:
            place[key] = draw(_VALUES)
    return message


@st.composite
def wire(draw: st.DrawFn) -> str | bytes:
    """One message as it is sent: mostly JSON, sometimes broken."""
    text = json.dumps(draw(st.one_of(*[st.sampled_from(GOOD)] * 5, bent())))
    how = draw(st.integers(0, 49))
    if how == 0:
        return text[: draw(st.integers(0, len(text)))]
    if how == 1:
        at = draw(st.integers(0, len(text) - 1))
        return text[:at] + draw(st.sampled_from(list('"{}[],:\\0eN '))) + text[at + 1 :]
    if how == 2:
        return draw(st.binary(max_size=40))
    return text.encode() if how == 3 else text


@st.composite
def plots(draw: st.DrawFn) -> tuple[bool, list[tuple[float, str | bytes]], str]:
    """Whether the session is granted first, what is said after which pause, and how it ends."""
    said = draw(st.lists(st.tuples(st.sampled_from([0.0, 0.0, 0.03, 0.2]), wire()), max_size=14))
    ends = ["stay", "stay", "close", "reset", "vanish"]
    return draw(st.integers(0, 9)) > 0, said, draw(st.sampled_from(ends))


def playing(is_granted: bool, said: list[tuple[float, str | bytes]], end: str) -> Any:
    async def behave(peer: Any) -> None:
        if is_granted:
            await peer.open_session()
        for pause_s, message in said:
            await asyncio.sleep(pause_s)
            await peer.raw(message)
        if end != "vanish":
            await asyncio.sleep(0.4)
            await peer.answer("proper")
        if end == "stay":
            await peer.listen()
        elif end == "close":
            await peer.connection.close(1011, "restart")
        elif end == "reset":
            peer.reset()
        else:
            peer.connection.transport.close()

    return behave


@pytest.mark.timeout(120)
def test_no_mixture_of_messages_makes_a_call_anything_but_an_outcome(short_bench: Any) -> None:
    captures: list[Any] = []

    @settings(max_examples=N_EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(plots())
    def one(plot: tuple[bool, list[tuple[float, str | bytes]], str]) -> None:
        (outcome,) = short_bench.run({f"fuzz-{len(captures)}": playing(*plot)})
        assert outcome.failure is None or isinstance(outcome.failure, TargetError)
        assert outcome.recorder_problem is None
        capture = Capture.open(outcome.capture)
        assert capture.verify() == []
        score_calls([CallView(build_timeline(capture))])
        captures.append(outcome.capture)

    one()
    document = make_report(random.Random(1).sample(captures, 40))
    json.dumps(document, allow_nan=False)
    assert len(document["calls"]) == 40
    assert any(call["failure"] for call in document["calls"])
    assert not all(call["failure"] for call in document["calls"])


def test_captures_of_one_call_id_are_never_taken_for_one_call(bench: Any) -> None:
    async def leave(peer: Any) -> None:
        await peer.connection.close(1000)

    twins = [bench.run({"twin": leave})[0].capture for _ in range(2)]
    with pytest.raises(CaptureError, match="same call id"):
        make_report(twins)
