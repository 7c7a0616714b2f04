"""The official OpenAI SDK's realtime client drives the agent as if it were the service."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import serve

KNOBS: dict[str, Any] = {"greeting": False, "pacing": "burst", "reply_delay": 0.25}


def _client(port: int) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="sk-test", base_url=f"http://127.0.0.1:{port}/v1")


@pytest.mark.wallclock
def test_sdk_holds_a_turn_with_a_tool_call_unchanged(
    clips: Path, stream_of: Callable[..., Any]
) -> None:
    stream: np.ndarray[Any, Any] = stream_of("en/order", 0.5)
    seen: list[Any] = []

    async def main() -> None:
        async with await serve(
            Behaviour(**KNOBS, filler=True), "127.0.0.1", 0, None, clips
        ) as agent:
            client = _client(agent.port)
            async with client.realtime.connect(model="gpt-realtime") as connection:
                await connection.session.update(
                    session={
                        "type": "realtime",
                        "output_modalities": ["audio"],
                        "audio": {"input": {"turn_detection": {"type": "server_vad"}}},
                        "tools": [{"type": "function", "name": "order_status", "parameters": {}}],
                    }
                )
                # A stream faster than real time is fine here: the agent's ears count samples.
                for lo in range(0, len(stream), 2400):
                    audio = base64.b64encode(stream[lo : lo + 2400].tobytes()).decode()
                    await connection.input_audio_buffer.append(audio=audio)
                async for event in connection:
                    seen.append(event)
                    if event.type == "response.function_call_arguments.done":
                        await connection.conversation.item.create(
                            item={
                                "type": "function_call_output",
                                "call_id": event.call_id,
                                "output": '{"status":"shipped"}',
                            }
                        )
                    if event.type == "response.done":
                        if len([e for e in seen if e.type == "response.done"]) == 2:
                            break
                        await connection.response.create()
            await client.close()

    asyncio.run(main())
    adapter = TypeAdapter(RealtimeServerEvent)
    for event in seen:
        adapter.validate_python(event.model_dump(exclude_unset=True), strict=False)
    kinds = [e.type for e in seen]
    assert kinds[:2] == ["session.created", "session.updated"]
    final = seen[-1].response
    assert final.status == "completed"
    assert final.usage.output_tokens > 0
    deltas = [e for e in seen if e.type == "response.output_audio.delta"]
    audio = b"".join(base64.b64decode(e.delta) for e in deltas if e.response_id == final.id)
    assert len(audio) == 36000 * 2
    text = "".join(e.delta for e in seen if e.type == "response.output_audio_transcript.delta")
    assert text == "said filler nowsaid order_status now"
    (heard,) = [e for e in seen
                if e.type == "conversation.item.input_audio_transcription.completed"]  # fmt: skip
    assert heard.transcript == "My order number is four seven one nine two"
