"""Pipecat's own services for OpenAI talk to an agent, once, and say what they made of it.

Run by the Python that has ``pipecat-ai[openai]``: ``python pipecat_client.py KIND URL AUDIO``. KIND
is a key of `SERVICES`, AUDIO a file of 16-bit PCM at 24 kHz that is spoken as soon as the agent
speaks. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    OutputAudioRawFrame,
    TranscriptionFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.live.llm import OpenAILiveLLMService
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

RATE_HZ = 24_000
FRAME_S = 0.02
SERVICES = {
    "realtime": lambda url: OpenAIRealtimeLLMService(api_key="k", base_url=f"{url}/v1/realtime"),
    "live": lambda url: OpenAILiveLLMService(api_key="k", base_url=f"{url}/v1/live/sessions"),
}


class Ear(FrameProcessor):
    """Notes what comes out of the service, on the side of it where it stands."""

    def __init__(self, note: Callable[[Frame], None]) -> None:
        super().__init__()
        self._note = note

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Note one frame and let it go on."""
        await super().process_frame(frame, direction)
        self._note(frame)
        await self.push_frame(frame, direction)


class Heard:
    """What the service delivered: audio (bytes), texts, errors."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self.said, self.heard, self.errors = "", "", list[str]()
        self.speaks, self.has_answered = asyncio.Event(), asyncio.Event()

    def note(self, frame: Frame) -> None:
        """Take one frame."""
        match frame:
            case OutputAudioRawFrame():
                self.n_bytes += len(frame.audio)
                if any(frame.audio):
                    self.speaks.set()
            case TTSTextFrame():
                self.said += frame.text
            case TranscriptionFrame():
                self.heard += frame.text
            case LLMFullResponseEndFrame() if self.heard:
                self.has_answered.set()
            case ErrorFrame():
                self.errors.append(frame.error)


async def talk(kind: str, url: str, audio: bytes) -> dict[str, object]:
    """Return what the service delivered in one call."""
    heard = Heard()
    worker = PipelineWorker(
        Pipeline([Ear(heard.note), SERVICES[kind](url), Ear(heard.note)]),
        params=PipelineParams(audio_in_sample_rate=RATE_HZ, audio_out_sample_rate=RATE_HZ),
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    async def speak() -> None:
        context = LLMContext([{"role": "user", "content": "Say hello."}])
        await worker.queue_frame(LLMContextFrame(context))
        size = round(RATE_HZ * FRAME_S) * 2
        await heard.speaks.wait()
        for at in range(0, len(audio), size):
            frame = InputAudioRawFrame(
                audio=audio[at : at + size], sample_rate=RATE_HZ, num_channels=1
            )
            await worker.queue_frame(frame)
            await asyncio.sleep(FRAME_S)
        await heard.has_answered.wait()
        await worker.cancel()

    async with asyncio.timeout(60):
        await asyncio.gather(runner.run(), speak())
    return {name: getattr(heard, name) for name in ("n_bytes", "said", "heard", "errors")}


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="DEBUG")
    print(json.dumps(asyncio.run(talk(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_bytes()))))
