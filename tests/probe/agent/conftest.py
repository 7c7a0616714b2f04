"""Tiny clips, and a caller that plays them to the agent on virtual time."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.dialogue import NEEDED
from vakforge_probe.agent.server import AgentServer, serve
from vakforge_probe.net.alarm import Alarm
from vakforge_probe.net.clock import now_ns_of
from vakforge_probe.net.virtual import run

RATE = 24000
MS = 1_000_000

CALLERS = {
    "en/hello": ("Hello there my friend", [(1440, 24000)]),
    "en/order": ("My order number is four seven one nine two", [(1200, 14400), (24000, 33601)]),
    "en/stop": ("Sorry can I stop you there please", [(960, 38400)]),
    "backchannel/mm": ("mm-hm", [(1000, 8200)]),
    "noise/door": ("", [(500, 6500)]),
}
AGENT_SAMPLES = {"greeting": 14400, "backchannel": 4800, "filler": 9600}


def _noise(n: int, seed: int) -> np.ndarray[Any, Any]:
    pcm = np.random.default_rng(seed).integers(-9000, 9000, n).astype(np.int16)
    pcm[[0, -1]] = 9000
    return pcm


def write_clip(
    root: Path, clip_id: str, text: str, pcm: np.ndarray[Any, Any], voiced: list[tuple[int, int]]
) -> None:
    audio = root / f"{clip_id}.flac"
    audio.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(audio, pcm, RATE, subtype="PCM_16")
    sidecar = {
        "id": clip_id,
        "text": text,
        "rate_hz": RATE,
        "n_samples": len(pcm),
        "voiced": voiced,
        "sha256": hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest(),
    }
    audio.with_suffix(".json").write_text(json.dumps(sidecar), "utf-8")


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clips")
    for seed, (clip_id, (text, voiced)) in enumerate(CALLERS.items()):
        pcm = np.zeros(voiced[-1][1] + 720, dtype=np.int16)
        for a, b in voiced:
            pcm[a:b] = _noise(b - a, seed)
        write_clip(root, clip_id, text, pcm, voiced)
    for seed, name in enumerate({*NEEDED, "generic_2"}, start=100):
        n = AGENT_SAMPLES.get(name, 36000)
        write_clip(root, f"agent/{name}", f"said {name} now", _noise(n, seed), [(0, n)])
    return root


@dataclass
class Got:
    at: int
    message: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.message["type"])


@dataclass
class Caller:
    """Plays clips into the agent, 20 ms a frame, and keeps what comes back with its time."""

    ws: Any
    now_ns: Callable[[], int]
    alarm: Alarm
    got: list[Got] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    closed_by: ConnectionClosed | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for(self, kind: str) -> Got:
        while not self.all(kind):
            self.news.clear()
            await self.news.wait()
        return self.first(kind)

    async def listen(self) -> None:
        try:
            async for data in self.ws:
                self.got.append(Got(self.now_ns(), json.loads(data)))
                self.news.set()
        except ConnectionClosed as error:
            self.closed_by = error
        else:
            self.closed_by = self.ws.protocol.close_exc

    async def send(self, **message: Any) -> None:
        await self.ws.send(json.dumps(message))

    async def play(self, stream: np.ndarray[Any, Any], frame: int = 480) -> None:
        """Send `stream` as an absolute schedule of frames; a frame leaves when it was spoken."""
        start = self.now_ns()
        for k in range(-(-len(stream) // frame)):
            await self.alarm.sleep_until(start + (k + 1) * frame * 1_000_000_000 // RATE)
            part = stream[k * frame : (k + 1) * frame]
            audio = base64.b64encode(part.astype("<i2").tobytes()).decode()
            self.sent.append((self.now_ns(), len(part)))
            try:
                await self.send(type="input_audio_buffer.append", audio=audio)
            except ConnectionClosed:
                return

    def all(self, kind: str) -> list[Got]:
        return [g for g in self.got if g.kind == kind]

    def first(self, kind: str) -> Got:
        return self.all(kind)[0]

    @property
    def audio(self) -> list[tuple[int, bytes, str | None]]:
        return [
            (g.at, base64.b64decode(g.message["delta"]), g.message.get("response_id"))
            for g in self.all("response.output_audio.delta")
        ]


@dataclass
class Outcome:
    caller: Caller
    truth: list[dict[str, Any]]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.truth if line["type"] == kind]

    @property
    def turns(self) -> list[dict[str, Any]]:
        return self.lines("turn")


Script = Callable[[Caller], Awaitable[None]]


@pytest.fixture
def stream_of(clips: Path) -> Callable[..., np.ndarray[Any, Any]]:
    """Return a maker of streams: seconds of silence and clip ids, in order."""

    def make(*parts: float | str) -> np.ndarray[Any, Any]:
        out = []
        for part in parts:
            if isinstance(part, str):
                out.append(soundfile.read(clips / f"{part}.flac", dtype="int16")[0])
            else:
                out.append(np.zeros(round(part * RATE), dtype=np.int16))
        return np.concatenate(out)

    return make


@pytest.fixture
def converse(clips: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """Return a runner of one call on virtual time with the given knobs."""

    def go(script: Script | np.ndarray[Any, Any], *, query: str = "", **knobs: Any) -> Outcome:
        truth = tmp_path / "truth.jsonl"
        truth.unlink(missing_ok=True)
        knobs = {"greeting": False, **knobs}

        async def main() -> Caller:
            loop = asyncio.get_running_loop()
            agent: AgentServer
            async with await serve(Behaviour(**knobs), "127.0.0.1", 0, truth, clips) as agent:
                ws = await connect(
                    agent.url + query, compression=None, ping_interval=None, proxy=None,
                    max_size=None, open_timeout=None,
                )  # fmt: skip
                caller = Caller(ws, now_ns_of(loop), Alarm.of(loop))
                listening = asyncio.create_task(caller.listen())
                if isinstance(script, np.ndarray):
                    await caller.play(script)
                else:
                    await script(caller)
                await ws.close()
                await listening
            return caller

        caller = run(main())
        lines = [json.loads(line) for line in truth.read_text("utf-8").splitlines()]
        return Outcome(caller, lines)

    return go
