"""A handler on fastrtc: its doors and its turns; models and voice activity detector are fake.

Run by the Python that has ``fastrtc``: ``python fastrtc_server.py PORT MODELS_URL``. The library's
own detector fetches its model when it is run; what stands here for it hears a pause by energy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from fastrtc import AlgoOptions, ReplyOnPause, Stream
from fastrtc.websocket import convert_to_mulaw

RATE_HZ = 24_000
LOUD = 300.0
PAUSE_S = 0.4
models = httpx.Client(base_url=sys.argv[2], headers={"Authorization": "Bearer k"}, timeout=30)


class Energy:
    """Says how much of a piece is speech; a pause is over only when it has lasted `PAUSE_S`."""

    def __init__(self) -> None:
        self._quiet_s = PAUSE_S

    def vad(self, audio: tuple[int, np.ndarray], options: Any) -> tuple[float, list[Any]]:
        """Return the seconds of speech in `audio` (rate in Hz, samples)."""
        rate_hz, pcm = audio
        seconds = pcm.size / rate_hz
        is_loud = float(np.sqrt(np.mean(np.square(pcm.astype(np.float64))))) > LOUD
        self._quiet_s = 0.0 if is_loud else self._quiet_s + seconds
        return (seconds if self._quiet_s < PAUSE_S else 0.0), []

    def warmup(self) -> None:
        """Need no warming."""


def answer(audio: tuple[int, np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """Transcribe, think and speak, each by the models' HTTP interface."""
    heard = models.post("/audio/transcriptions", files={"file": audio[1].tobytes()}).json()["text"]
    asked = {"model": "m", "messages": [{"role": "user", "content": heard}], "stream": True}
    with models.stream("POST", "/chat/completions", json=asked) as said:
        said.read()
    with models.stream("POST", "/audio/speech", json={"model": "m", "input": "x"}) as speech:
        for data in speech.iter_bytes(RATE_HZ // 10 * 2):
            yield RATE_HZ, np.frombuffer(data, "<i2").reshape(1, -1)


options = AlgoOptions(
    audio_chunk_duration=0.04, started_talking_threshold=0.02, speech_threshold=0.01
)
handler = ReplyOnPause(answer, algo_options=options, model=Energy())
app = FastAPI()
Stream(handler, modality="audio", mode="send-receive").mount(app)

if __name__ == "__main__":
    # Its resampler compiles itself at the first use, which would block all calls.
    convert_to_mulaw(np.zeros(480, np.int16), RATE_HZ, 8000)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
