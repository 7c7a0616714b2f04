"""A room of LiveKit's: what the probe does in one that is faked, and that the SDK is as the fake.

Nothing here meets a server.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
import sys
import time
import types
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, get_args

import numpy as np
import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.latency import ttfa, ttfa_heard
from vakforge_eval.metrics.view import CallView
from vakforge_eval.report.build import make_report
from vakforge_eval.timeline.events import ResponseStarted, UserTranscript
from vakforge_eval.timeline.values import Measured
from vakforge_probe.call import Call, CallOutcome
from vakforge_probe.errors import (
    ConfigError,
    MissingDependency,
    TargetClosed,
    TargetError,
    TargetLimitExceeded,
    TargetProtocolError,
    TargetRefused,
    TargetTimeout,
)
from vakforge_probe.header import header
from vakforge_probe.limits import Limits
from vakforge_probe.net.arrival import ArrivalStamp
from vakforge_probe.net.livekit import LiveKitShell
from vakforge_probe.net.virtual import run
from vakforge_probe.protocol.livekit_client import LiveKitClient
from vakforge_probe.protocol.strict import dump, parse_object
from vakforge_probe.target import resolve_target

T = TypeVar("T")

URL = "wss://rooms.example"
KEYS = "APIkeykeykey:secretsecretsecret"
FRAME = 480
AUDIO, VIDEO = 1, 2
REAL = importlib.util.find_spec("livekit") is not None


# -- the fake ---------------------------------------------------------------------------------


class ConnectError(Exception):
    pass


class StreamError(ConnectionError):
    pass


class Participant:
    def __init__(self, identity: str, **attributes: str) -> None:
        self.identity, self.attributes = identity, attributes
        self.track_publications: dict[str, Publication] = {}


class Track:
    def __init__(self, kind: int = AUDIO) -> None:
        self.kind = kind
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def get_stats(self) -> list[Any]:
        inbound = SimpleNamespace(jitter_buffer_delay=4.8, jitter_buffer_emitted_count=96)
        return [
            SimpleNamespace(WhichOneof=lambda group: "codec"),
            SimpleNamespace(
                WhichOneof=lambda group: "inbound_rtp",
                inbound_rtp=SimpleNamespace(inbound=inbound),
            ),
        ]


class Publication:
    def __init__(self, sid: str, kind: int = AUDIO) -> None:
        self.sid, self.kind, self.is_wanted = sid, kind, False

    def set_subscribed(self, subscribed: bool) -> None:
        self.is_wanted = subscribed


class AudioFrame:
    def __init__(
        self, data: bytes, sample_rate: int, num_channels: int, samples_per_channel: int
    ) -> None:
        assert len(data) == 2 * num_channels * samples_per_channel
        self.data = memoryview(data).cast("h")


class AudioStream:
    def __init__(self, track: Track, *, sample_rate: int, num_channels: int) -> None:
        assert (sample_rate, num_channels) == (48_000, 1)
        self.track, self.is_closed = track, False

    def __aiter__(self) -> AudioStream:
        return self

    async def __anext__(self) -> Any:
        data = await self.track.frames.get()
        if data is None:
            raise StopAsyncIteration
        return SimpleNamespace(frame=AudioFrame(data, 48_000, 1, len(data) // 2))

    async def aclose(self) -> None:
        self.is_closed = True


class AudioSource:
    def __init__(self, sample_rate: int, num_channels: int, queue_size_ms: int) -> None:
        assert queue_size_ms == 0

    async def capture_frame(self, frame: AudioFrame) -> None:
        world = World.here
        if len(frame.data) != FRAME:
            raise RuntimeError("direct capture requires 10ms frames")
        world.heard.append(bytes(frame.data))
        await world.taking(world.heard[-1])

    async def aclose(self) -> None:
        World.here.log.append("source closed")


class LocalAudioTrack:
    @staticmethod
    def create_audio_track(name: str, source: AudioSource) -> LocalAudioTrack:
        return LocalAudioTrack()


class LocalParticipant(Participant):
    def __init__(self, identity: str) -> None:
        super().__init__(identity)
        self.methods: dict[str, Callable[[Any], Coroutine[Any, Any, str]]] = {}

    async def publish_track(self, track: LocalAudioTrack, options: Any) -> Publication:
        assert options.source == 2, "agents listen to microphones"
        await World.here.publishing()
        return Publication("TR_ours")

    def register_rpc_method(
        self, method_name: str, handler: Callable[[Any], Coroutine[Any, Any, str]]
    ) -> None:
        self.methods[method_name] = handler


class Reader:
    """A stream of text that the agent wrote."""

    def __init__(self, chunks: Sequence[str], error: Exception | None = None, **attributes: str):
        self.info = SimpleNamespace(
            attributes={f"lk.{name}": value for name, value in attributes.items()}
        )
        self._chunks, self._error, self.is_closed = iter(chunks), error, False

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> str:
        for chunk in self._chunks:
            return chunk
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def close(self) -> None:
        self.is_closed = True


class Room:
    def __init__(self) -> None:
        self.handlers: dict[str, Callable[..., None]] = {}
        self.text: dict[str, Callable[[Reader, str], None]] = {}
        self.local_participant = LocalParticipant("probe-1")
        self.remote_participants: dict[str, Participant] = {}
        World.here.room = self

    def on(self, event: str, callback: Callable[..., None]) -> None:
        self.handlers[event] = callback

    def emit(self, event: str, *args: Any) -> None:
        self.handlers[event](*args)

    def register_text_stream_handler(
        self, topic: str, handler: Callable[[Reader, str], None]
    ) -> None:
        self.text[topic] = handler

    async def connect(self, url: str, token: str, options: Any) -> None:
        World.here.entered = (url, token, options)
        await World.here.joining()

    async def disconnect(self) -> None:
        World.here.log.append("disconnected")
        self.emit("disconnected", 1)


class World:
    """A room with an agent in it as the SDK shows it; by default all goes well."""

    here: World

    def __init__(self) -> None:
        World.here = self
        self.room: Any = None
        self.entered: tuple[str, str, Any] = ("", "", None)
        self.log: list[str] = []
        self.heard: list[bytes] = []
        self.agent = Participant("agent-7", **{"lk.agent.state": "listening"})
        self.voice = Track()
        self.sdk = SimpleNamespace(
            Room=Room, AudioFrame=AudioFrame, AudioSource=AudioSource, AudioStream=AudioStream,
            LocalAudioTrack=LocalAudioTrack, LocalParticipant=LocalParticipant,
            RemoteTrackPublication=Publication, RemoteAudioTrack=Track, TextStreamReader=Reader,
            ConnectError=ConnectError, StreamError=StreamError,
            RoomOptions=SimpleNamespace, DataStreamOptions=SimpleNamespace,
            TrackPublishOptions=SimpleNamespace,
            TrackKind=SimpleNamespace(KIND_AUDIO=AUDIO),
            TrackSource=SimpleNamespace(SOURCE_MICROPHONE=2),
            DisconnectReason=SimpleNamespace(Name={5: "ROOM_DELETED"}.__getitem__,
                                             values=lambda: [5]),
        )  # fmt: skip

    async def joining(self) -> None:
        self.room.remote_participants[self.agent.identity] = self.agent
        self.agent.track_publications["TR_pictures"] = Publication("TR_pictures", VIDEO)

    async def publishing(self) -> None:
        self.speak_up()

    async def taking(self, pcm: bytes) -> None:
        pass

    def speak_up(self, participant: Participant | None = None, track: Track | None = None) -> None:
        """Let a participant publish its audio."""
        who, line = participant or self.agent, track or self.voice
        publication = Publication(f"TR_{who.identity}")
        self.room.emit("track_published", publication, who)
        assert publication.is_wanted
        self.room.emit("track_subscribed", line, publication, who)

    def state(self, state: str) -> None:
        self.room.emit("participant_attributes_changed", {"lk.agent.state": state}, self.agent)

    def write(self, reader: Reader, identity: str = "agent-7") -> Reader:
        self.room.text["lk.transcription"](reader, identity)
        return reader


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    module = types.ModuleType("livekit")
    module.rtc = made.sdk  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "livekit", module)
    yield made
    del World.here


class Visit:
    """A shell in the room, and what it was told."""

    def __init__(self, **facts: Any) -> None:
        self.got: list[tuple[str | bytes, ArrivalStamp]] = []
        self.closed: list[tuple[int, str]] = []
        self.faults: list[TargetError] = []
        self.shell = LiveKitShell(
            facts.pop("url", URL),
            LiveKitClient.signalling,
            **{"credentials": KEYS, **facts},
            on_message=lambda data, stamp: self.got.append((data, stamp)),
            on_closed=lambda code, reason: self.closed.append((code, reason)),
            on_fault=self.faults.append,
        )

    def told(self, kind: str) -> list[dict[str, Any]]:
        texts = [parse_object(data, 1 << 20) for data, _ in self.got if isinstance(data, str)]
        return [message for message in texts if message["type"] == kind]

    @property
    def audio(self) -> list[bytes]:
        return [data for data, _ in self.got if isinstance(data, bytes)]


def visiting(script: Callable[[Visit], Coroutine[Any, Any, T]], **facts: Any) -> T:
    """Run `script` on virtual time in a room that is left at the end."""

    async def main() -> T:
        visit = Visit(**facts)
        try:
            return await script(visit)
        finally:
            await visit.shell.close()

    return run(main())


async def settle() -> None:
    """Let all go on that needs no time."""
    await asyncio.sleep(0.001)


# -- into the room ----------------------------------------------------------------------------


def test_a_room_is_joined_in_phases(world: World) -> None:
    async def script(visit: Visit) -> None:
        async def join() -> None:
            await asyncio.sleep(0.3)
            await World.joining(world)

        async def publish() -> None:
            await asyncio.sleep(0.2)
            asyncio.get_running_loop().call_later(0.1, world.speak_up)

        world.joining, world.publishing = join, publish  # type: ignore[method-assign]
        phases = await visit.shell.open()
        spans = {name: round((end - begun) / 1e6) for name, (begun, end) in phases.items()}
        assert spans == {"room": 300, "connect": 200, "subscribed": 100}
        assert visit.told("ours") == [
            {"type": "ours", "name": "probe-1"},
            {"type": "ours", "name": "TR_ours"},
        ]
        (state,) = visit.told("attributes")
        assert (state["identity"], state["attributes"]) == (
            "agent-7", {"lk.agent.state": "listening"}
        )  # fmt: skip
        assert [line["is_heard"] for line in visit.told("track")] == [True]

    visiting(script)
    url, token, options = world.entered
    assert (url, token.count(".")) == (URL, 2)
    assert not options.auto_subscribe
    assert not world.agent.track_publications["TR_pictures"].is_wanted
    assert world.log == ["disconnected", "source closed"]


@pytest.mark.parametrize(("stuck", "phase", "limit"), [
    ("joining", "room", "handshake_s"), ("publishing", "connect", "ice_s"),
    ("nobody", "subscribed", "ready_s"),
])  # fmt: skip
def test_each_phase_has_its_time_out(world: World, stuck: str, phase: str, limit: str) -> None:
    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    async def nothing() -> None:
        pass

    async def script(visit: Visit) -> None:
        if stuck == "nobody":
            world.publishing = nothing  # type: ignore[method-assign]
        else:
            setattr(world, stuck, forever)
        with pytest.raises(TargetTimeout) as raised:
            await visit.shell.open()
        assert raised.value.phase == phase
        assert phase not in visit.shell.phases

    short: dict[str, Any] = {limit: 0.7}
    visiting(script, limits=Limits(**short))


@pytest.mark.parametrize(("step", "phase"), [("joining", "room"), ("publishing", "connect")])
def test_a_refusal_names_its_phase_and_shows_no_token(world: World, step: str, phase: str) -> None:
    async def refuse() -> None:
        raise ConnectError(f"401 Unauthorized, token {world.entered[1]}")

    async def script(visit: Visit) -> None:
        setattr(world, step, refuse)
        with pytest.raises(TargetRefused, match="401 Unauthorized") as raised:
            await visit.shell.open()
        assert raised.value.phase == phase
        assert world.entered[1] not in str(raised.value)

    visiting(script)


def test_a_missing_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "livekit", None)

    async def script() -> None:
        with pytest.raises(MissingDependency, match=r"vakforge-probe\[livekit\]"):
            Visit()

    run(script())


def test_what_the_sdk_logs_does_not_reach_a_terminal_unasked(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    async def script() -> None:
        Visit()
        # The SDK logs through the root logger as well, which makes that print.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler()])
            logging.getLogger("livekit").error("refused: \x1b[31m")

    run(script())
    assert capfd.readouterr() == ("", "")


def test_certificates_that_the_sdk_would_not_be_told_of_are_refused(world: World) -> None:
    async def script() -> None:
        with pytest.raises(ConfigError, match="system's certificates"):
            Visit(ca_file=Path("ca.pem"))

    run(script())


# -- in it ------------------------------------------------------------------------------------


def test_audio_goes_out_and_comes_in_as_it_is(world: World) -> None:
    async def script(visit: Visit) -> None:
        await visit.shell.open()
        begun = asyncio.get_running_loop().time()
        sent = visit.shell.send(b"\x01\x02" * FRAME)
        await settle()
        assert world.heard == [b"\x01\x02" * FRAME]
        assert sent.before == sent.after == round(begun * 1e9)
        assert not sent.back_pressure
        world.voice.frames.put_nowait(b"\x03\x04" * FRAME)
        await settle()
        assert visit.audio == [b"\x03\x04" * FRAME]

    visiting(script)


def test_a_frame_behind_one_that_is_not_taken_is_marked(world: World) -> None:
    async def slow(pcm: bytes) -> None:
        await asyncio.sleep(0.015)

    async def script(visit: Visit) -> None:
        world.taking = slow  # type: ignore[method-assign]
        await visit.shell.open()
        marks = []
        for _ in range(2):
            marks.append(visit.shell.send(bytes(2 * FRAME)).back_pressure)
            await asyncio.sleep(0.010)
        await asyncio.sleep(0.020)
        marks.append(visit.shell.send(bytes(2 * FRAME)).back_pressure)
        assert marks == [False, True, False]
        assert visit.shell.self_facts()["capture_max_ns"] == pytest.approx(15e6, abs=1e3)

    visiting(script)


def test_what_the_jitter_buffer_adds_is_told(world: World) -> None:
    async def script(visit: Visit) -> None:
        await visit.shell.open()
        assert "jitter_buffer_mean_ns" not in visit.shell.self_facts()
        await asyncio.sleep(1.5)
        assert visit.shell.self_facts()["jitter_buffer_mean_ns"] == 50_000_000

    visiting(script)


def test_only_the_first_audio_track_is_the_agents(world: World) -> None:
    async def script(visit: Visit) -> None:
        await visit.shell.open()
        music = Track()
        world.speak_up(Participant("music"), music)
        music.frames.put_nowait(bytes(2 * FRAME))
        await settle()
        assert [line["is_heard"] for line in visit.told("track")] == [True, False]
        assert visit.audio == []
        # It may publish anew.
        world.room.emit("track_unsubscribed", world.voice, None, world.agent)
        world.voice.frames.put_nowait(None)
        again = Track()
        world.speak_up(world.agent, again)
        again.frames.put_nowait(bytes(2 * FRAME))
        await settle()
        assert len(visit.audio) == 1

    visiting(script)


def test_states_and_transcripts_are_told(world: World) -> None:
    async def script(visit: Visit) -> None:
        await visit.shell.open()
        world.state("thinking")
        reader = world.write(Reader(["Hel", "lo"], segment_id="s1"))
        broken = world.write(Reader(["Good"], StreamError("gone"), segment_id="s2"), "probe-1")
        world.room.emit("reconnecting")
        await settle()
        assert visit.told("attributes")[-1]["attributes"] == {"lk.agent.state": "thinking"}
        assert [(t["identity"], t["text"]) for t in visit.told("text")] == [
            ("agent-7", "Hel"), ("agent-7", "lo"), ("probe-1", "Good")
        ]  # fmt: skip
        assert visit.told("text")[0]["attributes"] == {"lk.segment_id": "s1"}
        assert len(visit.told("reconnecting")) == 1
        assert reader.is_closed
        assert broken.is_closed
        assert visit.faults == []

    visiting(script)


def test_a_flood_of_streams_breaks_a_limit(world: World) -> None:
    class Silent(Reader):
        async def __anext__(self) -> str:
            await asyncio.get_running_loop().create_future()
            raise StopAsyncIteration

    async def script(visit: Visit) -> None:
        await visit.shell.open()
        readers = [world.write(Silent([])) for _ in range(300)]
        await settle()
        assert isinstance(visit.faults[0], TargetLimitExceeded)
        await visit.shell.close()
        assert all(reader.is_closed for reader in readers)

    visiting(script)


def test_methods_are_offered_called_and_answered(world: World) -> None:
    async def script(visit: Visit) -> None:
        await visit.shell.open()
        visit.shell.send(dump({"type": "tools", "names": ["look_up"]}))
        method = world.room.local_participant.methods["look_up"]
        call = SimpleNamespace(request_id="c1", method="look_up", payload='{"a":1}')
        calling = asyncio.ensure_future(method(call))
        await settle()
        assert visit.told("rpc") == [
            {"type": "rpc", "id": "c1", "method": "look_up", "payload": '{"a":1}'}
        ]
        visit.shell.send(dump({"type": "rpc_result", "id": "c1", "payload": "42"}))
        assert await calling == "42"
        # Whoever asked has gone.
        visit.shell.send(dump({"type": "rpc_result", "id": "c1", "payload": "42"}))

    visiting(script)


# -- how it ends ------------------------------------------------------------------------------


def test_the_agent_ends_a_call_by_leaving(world: World) -> None:
    async def script(visit: Visit) -> None:
        await visit.shell.open()
        world.room.emit("participant_disconnected", Participant("music"))
        assert visit.closed == []
        world.room.emit("participant_disconnected", world.agent)
        world.room.emit("disconnected", 5)
        assert visit.closed == [(1000, "the agent left the room")]
        with pytest.raises(TargetClosed):
            visit.shell.send(bytes(2 * FRAME))

    visiting(script)


@pytest.mark.parametrize(("reason", "word"), [(5, "ROOM_DELETED"), (99, "99")])
def test_a_lost_room_names_the_reason(world: World, reason: int, word: str) -> None:
    async def script(visit: Visit) -> None:
        await visit.shell.open()
        world.room.emit("disconnected", reason)
        assert visit.closed == [(1006, f"disconnected from the room: {word}")]

    visiting(script)


def test_a_failure_inside_of_the_sdk_is_told(world: World) -> None:
    async def fail(pcm: bytes) -> None:
        raise RuntimeError(f"an RtcError occurred {world.entered[1]}")

    async def script(visit: Visit) -> None:
        world.taking = fail  # type: ignore[method-assign]
        await visit.shell.open()
        visit.shell.send(bytes(2 * FRAME))
        await settle()
        (fault,) = visit.faults
        assert isinstance(fault, TargetProtocolError)
        assert "an RtcError occurred ***" in str(fault)

    visiting(script)


def test_leaving_takes_no_longer_than_it_may(world: World) -> None:
    async def script(visit: Visit) -> float:
        await visit.shell.open()

        async def never() -> None:
            await asyncio.get_running_loop().create_future()

        world.room.disconnect = never
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await visit.shell.close()
        return loop.time() - begun

    assert visiting(script, limits=Limits(close_s=0.5)) == pytest.approx(0.5, abs=0.01)


def test_an_arrival_lies_between_the_moment_when_all_was_taken_and_its_taking(
    world: World,
) -> None:
    async def turns(n: int) -> None:
        for _ in range(n):
            await asyncio.sleep(0)

    async def main() -> list[ArrivalStamp]:
        visit = Visit()
        await visit.shell.open()
        await turns(9)
        n_told = len(visit.got)
        for n in (6, 1):
            for _ in range(n):
                world.voice.frames.put_nowait(bytes(2 * FRAME))
            await turns(9)
        await visit.shell.close()
        return [stamp for _, stamp in visit.got[n_told:]]

    *burst, late = asyncio.run(main())
    assert len(burst) == 6
    for stamp in (*burst, late):
        assert stamp.lo <= stamp.hi
        assert (stamp.kernel, stamp.coalesced) == (None, True)
    # What came in one go shares the bound that was proven before it, the next has its own.
    assert {stamp.lo for stamp in burst} == {burst[0].lo}
    assert late.lo == burst[-1].hi


# -- a whole call -----------------------------------------------------------------------------

REPLY_S, THINKING_S = 0.6, 0.2
TONE = (8000 * np.sin(2 * np.pi * 440 * np.arange(FRAME) / 48_000)).astype("<i2").tobytes()


class Agent:
    """Answers `REPLY_S` after a second in which nobody spoke, counting the frames it hears."""

    def __init__(self, world: World) -> None:
        self.world, self.frames, self.quiet, self.spoken_at = world, 0, -1, 0
        world.taking = self.hear  # type: ignore[method-assign]

    async def hear(self, pcm: bytes) -> None:
        self.frames += 1
        is_loud = bool(np.abs(np.frombuffer(pcm, "<i2")).max() > 1000)
        self.quiet = 0 if is_loud else self.quiet + (self.quiet >= 0)
        if is_loud:
            self.spoken_at = self.frames
        begins = 30
        if self.quiet == begins - 10:
            self.world.state("thinking")
            self.world.write(
                Reader(["where is it"], segment_id="u", transcription_final="true"), "probe-1"
            )
        if self.quiet == begins:
            self.world.state("speaking")
        if self.quiet == begins + 50:
            self.world.state("listening")
        is_talking = begins <= self.quiet < begins + 50
        self.world.voice.frames.put_nowait(TONE if is_talking else bytes(2 * FRAME))


def test_a_call_in_a_room_is_measured(
    world: World, plan: Callable[..., Any], one_question: dict[str, Any]
) -> None:
    async def main() -> CallOutcome:
        Agent(world)
        target = {"protocol": "livekit", "auth_token": KEYS, "secrets": (KEYS,)}
        return await Call(plan(URL, one_question, **target)).run()

    outcome = run(main())
    assert (outcome.reason, outcome.failure) == ("hang_up", None)
    capture = Capture.open(outcome.capture)
    assert capture.verify() == []
    assert capture.header["experimental"]
    assert [p["name"] for p in capture.journal if p["type"] == "phase"] == [
        "room", "connect", "subscribed", "ready"
    ]  # fmt: skip
    timeline = build_timeline(capture)
    assert sum(isinstance(e, ResponseStarted) for e in timeline.events) == 1
    (said,) = (e for e in timeline.events if isinstance(e, UserTranscript))
    assert (said.text, said.is_final) == ("where is it", True)
    (turn,) = CallView(timeline).turn_views
    for metric in (ttfa(turn), ttfa_heard(turn)):
        assert isinstance(metric, Measured)
        assert metric.value == pytest.approx(0.3, abs=0.03)
    report = make_report([outcome.capture])
    assert report["provenance"]["experimental_protocols"] == ["livekit"]
    files = b"".join(path.read_bytes() for path in outcome.capture.iterdir())
    for secret in (world.entered[1], *KEYS.split(":")):
        assert secret.encode() not in files


def test_no_kernel_stamps_what_an_sdk_hands_over() -> None:
    facts = header(
        call_id="c", system="s", target="t", codec=LiveKitClient(), seed=0, repeat=0, order=0,
        monotonic_ns=0, is_virtual=False, limits=Limits(), hardware=None, clips=[],
    )  # fmt: skip
    assert facts["stamp_source"] == "loop"


def test_a_target_without_a_token_is_refused_before_anything_is_dialled() -> None:
    with pytest.raises(ConfigError, match="auth_token"):
        resolve_target(URL, protocol="livekit")
    with pytest.raises(ConfigError, match="ws://"):
        resolve_target("https://rooms.example", protocol="livekit")


# -- the SDK ----------------------------------------------------------------------------------

SELF, OTHER = object(), object()
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Room", (), {}),
    ("Room.on", (SELF, "connected", print), {}),
    ("Room.register_text_stream_handler", (SELF, "lk.transcription", print), {}),
    ("Room.connect", (SELF, URL, "token", OTHER), {}),
    ("Room.disconnect", (SELF,), {}),
    ("LocalParticipant.publish_track", (SELF, OTHER, OTHER), {}),
    ("LocalParticipant.register_rpc_method", (SELF, "name", print), {}),
    ("RemoteTrackPublication.set_subscribed", (SELF, True), {}),
    ("RemoteAudioTrack.get_stats", (SELF,), {}),
    ("LocalAudioTrack.create_audio_track", ("probe", OTHER), {}),
    ("AudioFrame", (b"", 48_000, 1, 0), {}),
    ("AudioSource", (48_000, 1), {"queue_size_ms": 0}),
    ("AudioSource.capture_frame", (SELF, OTHER), {}),
    ("AudioSource.aclose", (SELF,), {}),
    ("AudioStream", (OTHER,), {"sample_rate": 48_000, "num_channels": 1}),
    ("AudioStream.aclose", (SELF,), {}),
    ("TextStreamReader.close", (SELF,), {}),
    ("RoomOptions", (), {"auto_subscribe": False, "connect_timeout": 1.0, "data_stream": OTHER}),
    ("DataStreamOptions", (), {"max_payload_byte_length": 1}),
]
WITHOUT_SIGNATURE = ("RoomOptions", "DataStreamOptions")
needs_sdk = pytest.mark.skipif(not REAL, reason="LiveKit's SDK is not installed")


def part_of(sdk: Any, path: str) -> Any:
    for name in path.split("."):
        sdk = getattr(sdk, name)
    return sdk


def test_the_fake_is_called_as_the_sdk_would_be(world: World) -> None:
    for path, args, kwargs in CALLS:
        if path not in WITHOUT_SIGNATURE:
            inspect.signature(part_of(world.sdk, path)).bind(*args, **kwargs)


@needs_sdk
def test_the_sdk_can_be_called_as_the_fake_is() -> None:
    from livekit import rtc

    for path, args, kwargs in CALLS:
        inspect.signature(part_of(rtc, path)).bind(*args, **kwargs)


@needs_sdk
def test_the_sdk_has_all_else_that_is_used() -> None:
    from livekit import rtc
    from livekit.rtc._proto import stats_pb2
    from livekit.rtc.room import EventTypes

    assert isinstance(rtc.TrackKind.KIND_AUDIO, int)
    # Its stubs tell the wrapped enumerations' values by types of their own.
    reasons: Any = rtc.DisconnectReason
    assert reasons.Name(5) == "ROOM_DELETED"
    assert 5 in rtc.DisconnectReason.values()
    assert issubclass(rtc.ConnectError, Exception)
    assert issubclass(rtc.StreamError, Exception)
    rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE, dtx=False)
    for path in (
        "Room.local_participant", "Room.remote_participants", "RemoteParticipant.identity",
        "RemoteParticipant.attributes", "RemoteParticipant.track_publications",
        "RemoteTrackPublication.kind", "LocalTrackPublication.sid", "RemoteAudioTrack.kind",
        "TextStreamReader.info", "AudioFrame.data",
    ):  # fmt: skip
        assert part_of(rtc, path) is not None
    called = inspect.signature(rtc.RpcInvocationData).parameters
    assert {"request_id", "method", "payload"} <= set(called)
    assert {
        "participant_attributes_changed", "participant_connected", "participant_disconnected",
        "track_published", "track_subscribed", "track_unsubscribed", "reconnecting",
        "disconnected",
    } <= set(get_args(EventTypes))  # fmt: skip
    make: Any = stats_pb2.RtcStats
    stats = make(inbound_rtp={"inbound": {"jitter_buffer_emitted_count": 7}})
    assert stats.WhichOneof("stats") == "inbound_rtp"
    assert stats.inbound_rtp.inbound.jitter_buffer_delay == 0.0


@needs_sdk
def test_the_sdk_takes_a_frame_at_once_and_gives_it_back() -> None:
    from livekit import rtc

    async def main() -> list[int]:
        source = rtc.AudioSource(48_000, 1, queue_size_ms=0)
        track = rtc.LocalAudioTrack.create_audio_track("probe", source)
        stream = rtc.AudioStream(track, sample_rate=48_000, num_channels=1)
        lengths = []
        for _ in range(3):
            await source.capture_frame(rtc.AudioFrame(TONE, 48_000, 1, FRAME))
            event = await anext(stream)
            lengths.append(len(bytes(event.frame.data)))
            assert np.abs(np.frombuffer(bytes(event.frame.data), "<i2")).max() > 7000
        await stream.aclose()
        await source.aclose()
        return lengths

    assert asyncio.run(main()) == [2 * FRAME] * 3


@needs_sdk
def test_the_sdk_is_refused_where_nobody_listens() -> None:
    async def main() -> None:
        visit = Visit(url="ws://127.0.0.1:1")
        with pytest.raises(TargetRefused) as raised:
            await visit.shell.open()
        assert raised.value.phase == "room"
        await visit.shell.close()

    asyncio.run(main())


@needs_sdk
def test_a_frame_arrives_within_its_bound_as_the_sdks_own_thread_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from livekit import rtc
    from livekit.rtc import _ffi_client

    given: list[tuple[int, int]] = []
    put = _ffi_client.FfiQueue.put

    def noted(self: Any, item: Any) -> None:
        before = time.monotonic_ns()
        put(self, item)
        if item.WhichOneof("message") == "audio_stream_event":
            given.append((before, time.monotonic_ns()))

    monkeypatch.setattr(_ffi_client.FfiQueue, "put", noted)

    async def main() -> list[ArrivalStamp]:
        visit = Visit()
        source = rtc.AudioSource(48_000, 1, queue_size_ms=0)
        track = rtc.LocalAudioTrack.create_audio_track("probe", source)
        listening = asyncio.ensure_future(visit.shell._listen(track))
        for n in range(40):
            await asyncio.sleep(0)
            await source.capture_frame(rtc.AudioFrame(TONE, 48_000, 1, FRAME))
            if n % 4 == 3:
                # The loop is held up, and frames wait.
                time.sleep(0.002)  # noqa: ASYNC251
        while len(visit.audio) < 40:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.001)
        listening.cancel()
        await asyncio.wait({listening})
        await source.aclose()
        await visit.shell.close()
        return [stamp for _, stamp in visit.got]

    stamps = asyncio.run(main())
    for (before, after), stamp in zip(given, stamps, strict=False):
        assert stamp.lo <= after
        assert before <= stamp.hi
