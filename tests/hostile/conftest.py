"""Whole calls against bad targets on virtual time, each beside a healthy one that must not care."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.report.build import make_report
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.script import Language, Script, ScriptStep, StepKind, ToolSpec
from vakforge_probe.call import Call, CallOutcome, CallPlan
from vakforge_probe.cli import verdict
from vakforge_probe.cli.session import conclude
from vakforge_probe.errors import ExitCode, TargetError
from vakforge_probe.limits import Limits
from vakforge_probe.net.virtual import run
from vakforge_probe.scenario.anchors import parse_anchor
from vakforge_probe.scenario.compile import Compiled
from vakforge_probe.scenario.flow import Act, Flow
from vakforge_probe.target import Target

RATE = 24_000
FRAME = 480
N_CLIP = 16_801
"""An odd length: the user stops inside a frame."""
NS = 1_000_000_000
REPLY_S = 2.0
CALL_S = 9.0
LIMITS = Limits(handshake_s=2.0, ready_s=3.0, close_s=0.5)
HEALTHY_DELAY_S = 0.4
_GRACE_S = 0.5
_GOOD = "healthy beside"


def noise(n: int, seed: int = 1, level: int = 8_000) -> bytes:
    """16-bit PCM with hard edges and no sample at zero; the user's voice is seed 0."""
    rng = np.random.default_rng(seed)
    pcm = rng.integers(level // 2, level, n) * rng.choice((-1, 1), n)
    return bytes(pcm.astype("<i2").tobytes())


def compiled(*, n_turns: int = 2, n_clip: int = N_CLIP, reply_s: float = REPLY_S) -> Compiled:
    """Questions of `n_clip` samples, each next one when the answer has been heard."""
    anchors = [parse_anchor("50 ms after greeting"), parse_anchor("200 ms after agent end")]
    anchors = anchors[:n_turns]
    clip = np.frombuffer(noise(n_clip, seed=0), dtype="<i2").astype(np.int16)
    steps = [
        ScriptStep(
            index=i,
            kind=StepKind.SAY,
            path=f"steps[{i}]",
            anchor=anchor.text,
            text=f"Question {i}?",
            n_samples=n_clip,
            voiced=[(0, n_clip)],
            reply_within_s=reply_s,
        )
        for i, anchor in enumerate(anchors)
    ]
    script = Script(
        id="two-questions",
        content_hash="0" * 64,
        locale="en-GB",
        language=Language(primary="en"),
        tools=[ToolSpec(name="look_up", result={"found": 1})],
        rate_hz=RATE,
        frame_samples=FRAME,
        steps=steps,
        max_call_s=CALL_S,
    )
    acts = tuple(
        Act(
            step=i,
            kind=StepKind.SAY,
            anchor=anchor,
            reply_within_ns=round(reply_s * NS),
            speech_ns=n_clip * NS // RATE,
        )
        for i, anchor in enumerate(anchors)
    )
    flow = Flow(
        nodes=acts,
        call_ns=round(CALL_S * NS),
        greeting_ns=NS // 10,
        tool_delays_ns={"look_up": 0},
        tells_response_end=True,
    )
    return Compiled(script=script, pcm=(clip,) * n_turns, flow=flow, clips=())


class Peer:
    """The target's side of one connection, to be told what to do."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.due_ttfa: list[float] = []
        """What `ttfa` of each turn must be, where a reply was timed by `healthy`."""
        self._n_loud = 0

    async def say(self, kind: str, **fields: Any) -> None:
        """Send one well-formed message."""
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def raw(self, text: str | bytes) -> None:
        """Send one message as it is."""
        await self.connection.send(text)

    @property
    def is_open(self) -> bool:
        """Whether something can still be written."""
        is_closing = self.connection.transport.is_closing()
        return self.connection.state is State.OPEN and not is_closing

    def below(self, data: bytes) -> None:
        """Write below the WebSocket protocol."""
        self.connection.transport.write(data)

    async def take(self, kind: str) -> dict[str, Any]:
        """Return the client's next message of this type."""
        while True:
            message: dict[str, Any] = json.loads(await self.connection.recv())
            if message["type"] == kind:
                return message

    async def open_session(self, **session: Any) -> None:
        """Shake hands as the protocol wants it; `session` goes into what is granted."""
        await self.say("session.created", session={"type": "realtime"})
        await self.take("session.update")
        await self.say("session.updated", session={"type": "realtime", **session})

    async def begun(self) -> None:
        """Return when the user is in mid-word: a server that says so then cuts no reply short."""
        await self._heard(N_CLIP // 2)

    async def spoken(self, times: int = 1) -> float:
        """Return when the user has spoken `times` more, and how long ago that was."""
        return await self._heard(times * N_CLIP - self._n_loud % N_CLIP)

    async def _heard(self, n_loud: int) -> float:
        """Return when so many more loud samples have come, and how long ago (s) the last was."""
        wanted = self._n_loud + n_loud
        while True:
            data = base64.b64decode((await self.take("input_audio_buffer.append"))["audio"])
            loud = np.flatnonzero(np.frombuffer(data, dtype="<i2"))
            self._n_loud += len(loud)
            if self._n_loud >= wanted:
                return (len(data) // 2 - int(loud[-1]) - 1) / RATE

    async def audio(self, pcm: bytes, response: str = "r", item: str = "i") -> None:
        """Send audio of a response."""
        delta = base64.b64encode(pcm).decode()
        await self.say(
            "response.output_audio.delta", response_id=response, item_id=item, delta=delta
        )

    async def speak(self, seconds: float, response: str = "r", item: str = "i") -> None:
        """Send so much audible audio of a response in one message."""
        await self.audio(noise(round(seconds * RATE)), response, item)

    async def audio_without_ids(self, seconds: float) -> None:
        """Send audible audio that belongs to no response."""
        delta = base64.b64encode(noise(round(seconds * RATE))).decode()
        await self.say("response.output_audio.delta", delta=delta)

    async def in_pieces(self, seconds: float, n_bytes: int, response: str) -> None:
        """Send audible audio in messages of `n_bytes`, whatever that does to its samples."""
        pcm = noise(round(seconds * RATE))
        for at in range(0, len(pcm), n_bytes):
            await self.audio(pcm[at : at + n_bytes], response)

    async def done(self, response: str = "r", **fields: Any) -> None:
        """End a response."""
        body = {"id": response, "status": "completed", **fields}
        await self.say("response.done", response=body)

    async def answer(self, response: str, pcm: bytes | None = None) -> None:
        """Give a whole answer at once."""
        await self.say("response.created", response={"id": response})
        await self.audio(noise(RATE // 2) if pcm is None else pcm, response, f"item-{response}")
        await self.done(response)

    async def healthy(self, turns: int = 2, name: str = "ok") -> None:
        """Answer the user's next turns, each exactly `HEALTHY_DELAY_S` after its last frame."""
        for turn in range(turns):
            ago_s = await self.spoken()
            await asyncio.sleep(HEALTHY_DELAY_S)
            await self.answer(f"{name}-{turn}")
            self.due_ttfa.append(HEALTHY_DELAY_S + ago_s)

    async def listen(self) -> None:
        """Stay until the caller goes."""
        await self.connection.wait_closed()

    def reset(self) -> None:
        """Let the connection end with a reset."""
        raw = self.connection.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]
RawBehaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


Dial = Callable[["Stage"], Awaitable[str]]
"""Starts a target; returns its URL."""


async def healthy(peer: Peer) -> None:
    """Be as good a target as any."""
    await peer.open_session()
    await peer.healthy()
    await peer.listen()


class Stage:
    """Servers of one loop; what their scripts raise is kept for the test."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.healthy: Peer
        self._servers: list[Server | asyncio.Server] = []

    async def target(self, behaviour: Behaviour) -> str:
        """Start a WebSocket target; return its URL."""

        async def handle(connection: ServerConnection) -> None:
            peer = Peer(connection)
            if behaviour is healthy:
                self.healthy = peer
            try:
                await behaviour(peer)
            except ConnectionClosed:
                pass
            except Exception as error:
                self.errors.append(error)

        server = await serve(
            handle, "127.0.0.1", 0, compression=None, ping_interval=None, open_timeout=None,
            close_timeout=0.2, max_size=None, max_queue=None,
        )  # fmt: skip
        self._servers.append(server)
        return f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"

    async def raw_target(self, behaviour: RawBehaviour) -> str:
        """Start a target that speaks bytes; return its URL."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await behaviour(reader, writer)
            except OSError:
                pass
            except Exception as error:
                self.errors.append(error)
            finally:
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        self._servers.append(server)
        return f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def close(self) -> None:
        """Stop all servers."""
        for server in self._servers:
            server.close()
            await server.wait_closed()


@dataclass
class Judged:
    """What became of a bad call, with all that holds for every one of them checked."""

    outcome: CallOutcome
    took_s: float
    capture: Capture
    timeline: CallTimeline
    document: dict[str, Any]
    """The report of all bad calls of the run, and of no other."""
    exit_code: ExitCode
    texts: dict[str, str]

    @property
    def failure(self) -> TargetError:
        """The call's failure."""
        assert isinstance(self.outcome.failure, TargetError), (self.name, self.outcome.reason)
        return self.outcome.failure

    @property
    def name(self) -> str:
        """The call's name."""
        return self.outcome.plan.call_id

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The turns of this call in the report."""
        return [turn for turn in self.document["turns"] if turn["call"] == self.name]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the journal's lines of one type."""
        return [line for line in self.capture.journal if line["type"] == kind]

    def failed(self, kind: str, phase: str) -> TargetError:
        """Check how the call failed, that the report says so, and that it is the target's fault."""
        assert (self.failure.kind, self.failure.phase) == (kind, phase), (self.name, self.failure)
        assert self.exit_code is ExitCode.TARGET
        (call,) = [c for c in self.document["calls"] if c["call"] == self.name]
        assert (call["failure"]["kind"], call["failure"]["phase"]) == (kind, phase)
        (banner,) = [b for b in self.document["banners"] if b["kind"] == "failed_calls"]
        assert any(f"{kind} in phase {phase}" in reason for reason in banner["reasons"])
        for name in ("report.md", "report.html", "terminal"):
            assert phase in self.texts[name], name
        return self.failure

    def passed(self, *, n_replies: int = 2) -> None:
        """Check that the call was measured as if nothing had been wrong."""
        assert self.outcome.failure is None, (self.name, self.outcome.failure)
        assert self.exit_code is ExitCode.OK
        assert len(self.measured()) == n_replies, self.name

    def measured(self, name: str = "ttfa") -> list[float]:
        """Return the values of a turn metric that are numbers."""
        found = [turn["metrics"][name] for turn in self.turns]
        return [value["value"] for value in found if "value" in value]


@dataclass
class Bench:
    """Runs bad calls and judges them."""

    folder: Path
    limits: Limits = LIMITS
    compiled: Compiled = field(default_factory=compiled)
    n_runs: int = 0

    def plan(self, name: str, url: str, **target: Any) -> CallPlan:
        """Return the plan of a call."""
        return CallPlan(
            call_id=name,
            system="tuned",
            target=Target(url=url, label=name, **target),
            compiled=self.compiled,
            folder=self.folder / str(self.n_runs) / "calls" / name,
            limits=self.limits,
        )

    def judge(
        self,
        behaviour: Behaviour | None = None,
        *,
        raw: RawBehaviour | None = None,
        url: str | None = None,
        within_s: float = CALL_S,
        **target: Any,
    ) -> Judged:
        """Call a bad target (by what it does, byte by byte, or at `url`) and judge the call."""

        async def dial(stage: Stage) -> str:
            if behaviour is not None:
                return await stage.target(behaviour)
            return url or "" if raw is None else await stage.raw_target(raw)

        return self._judge({"bad": dial}, within_s, **target)["bad"]

    def judge_all(
        self,
        behaviours: Mapping[str, Behaviour] | None = None,
        *,
        raw: Mapping[str, RawBehaviour] | None = None,
        within_s: float = CALL_S,
    ) -> dict[str, Judged]:
        """Call many bad targets at once and judge each call."""
        targets: dict[str, Dial] = {}
        for name, behaviour in (behaviours or {}).items():
            targets[name] = partial(Stage.target, behaviour=behaviour)
        for name, script in (raw or {}).items():
            targets[name] = partial(Stage.raw_target, behaviour=script)
        return self._judge(targets, within_s)

    def run(self, behaviours: Mapping[str, Behaviour]) -> list[CallOutcome]:
        """Call targets at once; nothing is judged but that no error gets lost."""
        targets = {n: partial(Stage.target, behaviour=b) for n, b in behaviours.items()}
        return [outcome for outcome, _ in self._call(targets, Stage())]

    def _call(
        self, targets: Mapping[str, Dial], stage: Stage, **target: Any
    ) -> list[tuple[CallOutcome, float]]:
        """Return what became of each call, and how long it took (s)."""
        self.n_runs += 1
        unhandled: list[dict[str, Any]] = []

        async def one(plan: CallPlan) -> tuple[CallOutcome, float]:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            return await Call(plan).run(), loop.time() - begun

        async def main() -> list[tuple[CallOutcome, float]]:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: unhandled.append(context))
            plans = [self.plan(n, await dial(stage), **target) for n, dial in targets.items()]
            outcomes = await asyncio.gather(*map(one, plans))
            await stage.close()
            return outcomes

        outcomes = run(main())
        assert unhandled == []
        assert stage.errors == []
        return outcomes

    def _judge(
        self, targets: Mapping[str, Dial], within_s: float, **target: Any
    ) -> dict[str, Judged]:
        """Call bad targets beside a healthy one, and check what holds for every fault."""
        stage = Stage()
        beside: dict[str, Dial] = {_GOOD: partial(Stage.target, behaviour=healthy)}
        *timed, (good, _) = self._call({**targets, **beside}, stage, **target)
        bad = [outcome for outcome, _ in timed]
        took = {outcome.plan.call_id: took_s for outcome, took_s in timed}
        assert max(took.values()) <= within_s + self.limits.close_s + _GRACE_S
        document, code, texts = self.conclude(bad, "bad")
        n_failed = sum(outcome.failure is not None for outcome in bad)
        if n_failed:
            assert code is (ExitCode.TARGET if n_failed == len(bad) else ExitCode.PARTIAL)
        with_good = make_report([outcome.capture for outcome in (*bad, good)])
        code_with_good, _ = verdict.judge(with_good)
        # A good call beside one that showed nothing makes a measurement; beside a failed one, part.
        assert code_with_good in ({ExitCode.PARTIAL} if n_failed else {code, ExitCode.OK})
        assert good.failure is None
        found = [t["metrics"]["ttfa"] for t in with_good["turns"] if t["call"] == _GOOD]
        assert [v["value"] for v in found] == pytest.approx(stage.healthy.due_ttfa, abs=2e-9)
        assert len(found) == 2
        return {
            outcome.plan.call_id: Judged(
                outcome, took[outcome.plan.call_id], *_opened(outcome), document, code, texts
            )
            for outcome in bad
        }

    def conclude(
        self, outcomes: list[CallOutcome], name: str = "report"
    ) -> tuple[dict[str, Any], ExitCode, dict[str, str]]:
        """Return a run's report, its exit code, and its texts by name."""
        folder = self.folder / str(self.n_runs) / name
        console = Console(file=io.StringIO(), width=200, highlight=False, emoji=False)
        with redirect_stderr(console.file):
            code = conclude(outcomes, folder=folder, stopped=None, console=console, as_json=False)
        texts = {
            f"report.{kind}": (folder / f"report.{kind}").read_text("utf-8")
            for kind in ("json", "md", "html")
        }
        texts["terminal"] = console.file.getvalue()  # type: ignore[attr-defined]
        return json.loads(texts["report.json"]), code, texts


def _opened(outcome: CallOutcome) -> tuple[Capture, CallTimeline]:
    """Return capture and timeline of a call, which are whole and say how it ended."""
    capture = Capture.open(outcome.capture)
    assert capture.verify() == []
    assert capture.is_truncated == (outcome.recorder_problem is not None)
    timeline = build_timeline(capture)
    told = (timeline.failure or {}).get("phase")
    if outcome.failure is None:
        assert told is None
    else:
        assert isinstance(outcome.failure, TargetError)
        assert told == outcome.failure.phase
    return capture, timeline


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def short_bench(tmp_path: Path) -> Bench:
    """A bench whose calls are one short question."""
    return Bench(tmp_path, compiled=compiled(n_turns=1, n_clip=4_801, reply_s=0.4))
