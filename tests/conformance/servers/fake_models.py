"""Models that know nothing, behind OpenAI's HTTP interface, with programmed delays.

Whatever real server uses them, how long its models take is known exactly. Run by the server's own
Python: ``python fake_models.py PORT STT_S LLM_S TTS_S``.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
import sys
from collections.abc import AsyncIterator

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

RATE_HZ = 24_000
SPEECH_S = 3.0
TONE_HZ = 300

app = FastAPI()
stt_s, llm_s, tts_s = (float(text) for text in sys.argv[2:5])


@app.post("/v1/audio/transcriptions")
async def transcribe(request: Request) -> dict[str, str]:
    """Return a text after the programmed time, whatever was said."""
    await request.body()
    await asyncio.sleep(stt_s)
    return {"text": "I would like to book a table."}


@app.post("/v1/chat/completions")
async def complete(request: Request) -> StreamingResponse:
    """Stream one sentence; its first piece comes after the programmed time."""
    await request.body()

    async def pieces() -> AsyncIterator[str]:
        await asyncio.sleep(llm_s)
        for i, text in enumerate(("Of", " course,", " for", " how", " many?")):
            yield _event({"content": text} | ({"role": "assistant"} if i == 0 else {}), None)
        yield _event({}, "stop")
        yield "data: [DONE]\n\n"

    return StreamingResponse(pieces(), media_type="text/event-stream")


def _event(delta: dict[str, str], reason: str | None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m",
             "choices": [choice]}  # fmt: skip
    return f"data: {json.dumps(chunk)}\n\n"


@app.post("/v1/audio/speech")
async def speak(request: Request) -> StreamingResponse:
    """Stream a tone with a hard edge; its first sample comes after the programmed time."""
    await request.body()
    n = round(SPEECH_S * RATE_HZ)
    pcm = [round(9000 * math.cos(2 * math.pi * TONE_HZ * i / RATE_HZ)) for i in range(n)]
    data = struct.pack(f"<{n}h", *pcm)

    async def pieces() -> AsyncIterator[bytes]:
        await asyncio.sleep(tts_s)
        for at in range(0, len(data), 4800):
            yield data[at : at + 4800]

    return StreamingResponse(pieces(), media_type="audio/pcm")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
