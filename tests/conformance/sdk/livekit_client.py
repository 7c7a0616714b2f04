"""An agent session of LiveKit's, without a room, talks to an agent by OpenAI's protocols, once.

Run by the Python that has ``livekit-plugins-openai``: ``python livekit_client.py KIND URL AUDIO``.
KIND is a key of `MODELS`, AUDIO a file of 16-bit PCM at 24 kHz that is spoken as soon as the agent
speaks. Prints one line of JSON: what the session made of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path

from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.voice.io import AudioInput, AudioOutput, AudioOutputCapabilities
from livekit.plugins import openai

RATE_HZ = 24_000
FRAME_S = 0.02
MODELS = {
    "realtime": lambda url: openai.realtime.RealtimeModel(base_url=f"{url}/v1", api_key="k"),
    "live": lambda url: openai.realtime.GPTLiveModel(base_url=f"{url}/v1", api_key="k"),
}


class Microphone(AudioInput):
    """Gives the session what is said to it."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self.frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()

    async def __anext__(self) -> rtc.AudioFrame:
        return await self.frames.get()


class Loudspeaker(AudioOutput):
    """Plays in real time what the session gives it, and counts it."""

    def __init__(self) -> None:
        capabilities = AudioOutputCapabilities(pause=False)
        super().__init__(label="loudspeaker", capabilities=capabilities, sample_rate=RATE_HZ)
        self.n_bytes = 0
        self.speaks = asyncio.Event()
        self._began: float | None = None
        self._held_s = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Take a piece."""
        await super().capture_frame(frame)
        data = bytes(frame.data.cast("b"))
        self.n_bytes += len(data)
        if self._began is None:
            self._began, self._held_s = time.monotonic(), 0.0
            self.on_playback_started(created_at=time.time())
        self._held_s += frame.duration
        if any(data):
            self.speaks.set()

    def flush(self) -> None:
        """Know that no more of this speech comes."""
        super().flush()
        if self._began is not None:
            left = self._began + self._held_s - time.monotonic()
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(max(0.0, left), self._finish, self._held_s, False)

    def clear_buffer(self) -> None:
        """Drop what has not been played."""
        if self._end is not None:
            self._end.cancel()
        if self._began is not None:
            self._finish(min(self._held_s, time.monotonic() - self._began), True)

    def _finish(self, position: float, is_interrupted: bool) -> None:
        self._began = self._end = None
        self.on_playback_finished(playback_position=position, interrupted=is_interrupted)


async def talk(kind: str, url: str, audio: bytes) -> dict[str, object]:
    """Return what the session delivered in one call."""
    microphone, loudspeaker = Microphone(), Loudspeaker()
    said, heard, errors = list[str](), list[str](), list[str]()
    has_answered = asyncio.Event()
    session: AgentSession[None] = AgentSession(llm=MODELS[kind](url), aec_warmup_duration=None)
    session.input.audio, session.output.audio = microphone, loudspeaker

    @session.on("user_input_transcribed")
    def transcribed(event: object) -> None:
        heard.append(event.transcript)

    @session.on("conversation_item_added")
    def added(event: object) -> None:
        if event.item.type == "message" and event.item.role == "assistant":
            said.append(event.item.text_content or "")
            if heard:
                has_answered.set()

    @session.on("error")
    def failed(event: object) -> None:
        errors.append(str(event.error))

    async with asyncio.timeout(60):
        await session.start(Agent(instructions="Be brief."))
        size = round(RATE_HZ * FRAME_S)
        if kind == "realtime":
            session.generate_reply()
        else:
            microphone.frames.put_nowait(rtc.AudioFrame(bytes(size * 2), RATE_HZ, 1, size))
        await loudspeaker.speaks.wait()
        for at in range(0, len(audio) - size * 2 + 1, size * 2):
            frame = rtc.AudioFrame(audio[at : at + size * 2], RATE_HZ, 1, size)
            microphone.frames.put_nowait(frame)
            await asyncio.sleep(FRAME_S)
        await has_answered.wait()
        await session.aclose()
    return {"n_bytes": loudspeaker.n_bytes, "said": " ".join(said), "heard": " ".join(heard),
            "errors": errors}  # fmt: skip


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    print(json.dumps(asyncio.run(talk(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_bytes()))))
