"""Hand-made calls for tests: times in ms after the session is ready, sound with hard edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from vakforge_eval.timeline.call import (
    AgentAudio,
    CallTimeline,
    Capabilities,
    Flush,
    SentResult,
    Utterance,
)
from vakforge_eval.timeline.events import (
    Event,
    ResponseEnded,
    ResponseStarted,
    TextDelta,
    ToolCall,
)
from vakforge_eval.timeline.instant import NS_PER_MS, Instant
from vakforge_eval.timeline.records import RECORD_DTYPE
from vakforge_eval.timeline.script import Language, Script, ScriptStep, StepKind

RATE = 24_000
FRAME_MS = 20
CAPABILITIES = {
    "server_vad_events": True,
    "transcripts": True,
    "response_ids": True,
    "response_end": True,
}


def tone(ms: float, amplitude: int = 8000, rate_hz: int = RATE) -> npt.NDArray[np.int16]:
    """Return a square wave without DC: its level is reached with the very first sample."""
    n = round(ms * rate_hz / 1000)
    return np.where(np.arange(n) // 8 % 2, amplitude, -amplitude).astype(np.int16)


def hush(ms: float, rate_hz: int = RATE) -> npt.NDArray[np.int16]:
    return np.zeros(round(ms * rate_hz / 1000), dtype=np.int16)


def noise(ms: float, dbfs: float, rate_hz: int = RATE, seed: int = 0) -> npt.NDArray[np.int16]:
    rng = np.random.default_rng(seed)
    n = round(ms * rate_hz / 1000)
    return np.rint(rng.normal(0, 32768 * 10 ** (dbfs / 20), n)).astype(np.int16)


class CallBuilder:
    """Writes a call down; `origin_ms` moves all of it on the clock."""

    tone = staticmethod(tone)
    hush = staticmethod(hush)
    noise = staticmethod(noise)

    def __init__(self, *, origin_ms: float = 1000, rate_hz: int = RATE, **capabilities: bool):
        self.origin = round(origin_ms * NS_PER_MS)
        self.rate_hz = rate_hz
        self.capabilities = Capabilities(**{**CAPABILITIES, **capabilities})
        self.steps: list[ScriptStep] = []
        self.utterances: list[Utterance] = []
        self.audio: list[AgentAudio] = []
        self.events: list[Event] = []
        self.flushes: list[Flush] = []
        self.results: list[SentResult] = []
        self.commits: list[Instant] = []
        self.header: dict[str, Any] = {"seed": 1, "repeat": 0, "stamp_source": "virtual"}
        self.lateness: dict[int, int] = {}
        self.failure: dict[str, Any] | None = None
        self.probe: dict[str, Any] = {}
        self.sent: npt.NDArray[np.int16] | None = None
        self.sent_gaps: Callable[[int, int], list[tuple[int, int]]] | None = None
        """Samples of the user's stream from `at(0)` on."""
        self.script: dict[str, Any] = {}
        self.journal: list[dict[str, Any]] = []

    def at(self, ms: float, width_ms: float = 0) -> Instant:
        ns = self.origin + round(ms * NS_PER_MS)
        return Instant(ns - round(width_ms * NS_PER_MS), ns, ns)

    def say(
        self,
        start: float,
        end: float,
        *,
        kind: StepKind = StepKind.SAY,
        pause: tuple[float, float] | None = None,
        text: str = "hello",
        reply_within_s: float = 10.0,
        late_ms: float = 0,
        is_reanchored: bool = False,
        has_back_pressure: bool = False,
        anchor: str = "500 ms after agent end",
        live: float | None = None,
        width_ms: float = 0,
        **of_step: Any,
    ) -> None:
        """Let the user speak from `start` to `end`, with a scripted pause inside.

        `live` is when the anchor was heard live.
        """
        step = ScriptStep(
            index=len(self.steps),
            kind=kind,
            path=f"steps.{len(self.steps)}",
            anchor=anchor,
            text=text,
            reply_within_s=reply_within_s,
            **of_step,
        )
        self.steps.append(step)
        heard = None if live is None else self.at(live).at
        self.journal.append({"type": "step", "step": step.index, "anchor": anchor, "live": heard})
        edges = [start, *(pause or ()), end]
        voiced = tuple(
            (self.at(a), self.at(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)
        )
        self.utterances.append(
            Utterance(
                step=step,
                start=self.at(start, width_ms),
                end=self.at(end),
                voiced=voiced,
                pauses=((self.at(pause[0]), self.at(pause[1])),) if pause else (),
                late_ns=round(late_ms * NS_PER_MS),
                is_reanchored=is_reanchored,
                has_back_pressure=has_back_pressure,
            )
        )

    def pause_step(self, anchor: str = "after previous") -> None:
        """Put a scripted pause between two utterances."""
        index = len(self.steps)
        self.steps.append(
            ScriptStep(index=index, kind=StepKind.PAUSE, path=f"steps.{index}", anchor=anchor)
        )

    def audio_at(
        self,
        ms: float,
        pcm: npt.NDArray[np.int16],
        response_id: str | None = "r1",
        width_ms: float = 0,
    ) -> None:
        """Let one message of audio arrive."""
        arrival = self.at(ms, width_ms)
        message = AgentAudio(arrival, pcm, self.rate_hz, response_id, None, len(self.audio))
        self.audio.append(message)

    def reply(
        self,
        ms: float,
        *parts: npt.NDArray[np.int16],
        response_id: str | None = "r1",
        chunk_ms: float = 20,
        pace: float = 1.0,
        text: str = "",
        status: str | None = "completed",
        skew_ppm: float = 0,
        width_ms: float = 0,
    ) -> None:
        """Let a response arrive in chunks, `pace` ms of wall time per ms of audio (0: burst)."""
        pcm = np.concatenate(parts)
        n = round(chunk_ms * self.rate_hz / 1000)
        if response_id is not None:
            self.events.append(ResponseStarted(at=self.at(ms), response_id=response_id))
        if text:
            self.events.append(TextDelta(at=self.at(ms), response_id=response_id, text=text))
        when = ms
        for first in range(0, len(pcm), n):
            when = ms + pace * first * 1000 / self.rate_hz / (1 + skew_ppm / 1e6)
            self.audio_at(when, pcm[first : first + n], response_id, width_ms)
        if response_id is not None and status is not None:
            self.events.append(
                ResponseEnded(at=self.at(when), response_id=response_id, status=status)
            )

    def event(self, event: Event) -> None:
        self.events.append(event)

    def flush(self, ms: float, response_id: str | None = None) -> None:
        self.flushes.append(Flush(self.at(ms), response_id))

    def tool(self, call_ms: float, result_ms: float, name: str = "look_up") -> None:
        """Let the agent call a tool and the probe answer it."""
        call_id = f"call_{len(self.results)}"
        self.events.append(ToolCall(at=self.at(call_ms), call_id=call_id, name=name))
        delay_s = (result_ms - call_ms) / 1000
        self.results.append(SentResult(call_id, name, self.at(result_ms), delay_s))

    def build(self, ended: float = 20_000, *, call_id: str = "c1", system: str = "tuned") -> Any:
        """Return the timeline."""
        script = Script(
            **{
                "id": "order",
                "content_hash": "0" * 8,
                "locale": "en-US",
                "language": Language(primary="en"),
                "rate_hz": self.rate_hz,
                "frame_samples": self.rate_hz * FRAME_MS // 1000,
                "steps": self.steps,
                **self.script,
            }
        )
        return CallTimeline(
            call_id=call_id,
            system=system,
            script=script,
            capabilities=self.capabilities,
            header=self.header,
            ready=self.at(0),
            ended=self.at(ended),
            phases={
                "resolve": (self.at(-100).at, self.at(-90).at),
                "connect": (self.at(-90).at, self.at(-70).at),
                "handshake": (self.at(-70).at, self.at(-40).at),
                "ready": (self.at(-40).at, self.at(0).at),
            },
            stream=self._stream(ended),
            frame_ns=FRAME_MS * NS_PER_MS,
            utterances=tuple(self.utterances),
            audio=tuple(sorted(self.audio, key=lambda a: a.arrival.at)),
            events=tuple(sorted(self.events, key=lambda e: e.at.at)),
            flushes=tuple(self.flushes),
            tool_results=tuple(self.results),
            commits=tuple(self.commits),
            failure=self.failure,
            probe=self.probe,
            sent_pcm=None if self.sent is None else self._sent,
            sent_gaps=self.sent_gaps,
            journal=tuple(self.journal),
        )

    def _sent(self, start: int, stop: int) -> npt.NDArray[np.int16]:
        assert self.sent is not None
        out = np.zeros(stop - start, dtype=np.int16)
        lo, hi = max(start, 0), min(stop, len(self.sent))
        if lo < hi:
            out[lo - start : hi - start] = self.sent[lo:hi]
        return out

    def _stream(self, ended: float) -> npt.NDArray[np.void]:
        """Return the user's frames: frame k holds [k, k + 1) * 20 ms and leaves at its end."""
        stream = np.zeros(round(ended / FRAME_MS), dtype=RECORD_DTYPE)
        due = self.origin + (np.arange(len(stream)) + 1) * FRAME_MS * NS_PER_MS
        sent = due + np.array([self.lateness.get(k, 0) for k in range(len(stream))], dtype=np.int64)
        stream["due"], stream["seq"], stream["kind"] = due, np.arange(len(stream)), 1
        for name in ("before", "after", "lo", "hi"):
            stream[name] = sent
        return stream


@pytest.fixture
def new_call() -> type[CallBuilder]:
    """The builder of hand-made calls."""
    return CallBuilder
