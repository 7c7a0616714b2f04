"""The official clients of hosted agents drive the reference agent, unchanged.

Each says the agent's greeting is there, speaks a sentence and gets an answer; what it makes of our
messages by its own types is what is tested.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import AgentServer, serve
from vakforge_probe.scenario.clips import ClipLibrary, data_root

pytestmark = [
    pytest.mark.wallclock,
    # What other people's libraries use of their own libraries is theirs to mend.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
]

CLIPS = data_root() / "clips"
KNOBS: dict[str, Any] = {"pacing": "burst", "reply_delay": 0.3, "greeting_delay": 0.05,
                         "endpoint_silence": 0.2}  # fmt: skip


@asynccontextmanager
async def agent(
    tls: ssl.SSLContext | None = None, truth: Path | None = None, **knobs: Any
) -> AsyncIterator[AgentServer]:
    behaviour = Behaviour(**{**KNOBS, **knobs})
    async with await serve(behaviour, "127.0.0.1", 0, truth, CLIPS, ssl=tls) as server:
        yield server


def sentence(rate_hz: int) -> list[bytes]:
    """A sentence and the silence behind it, in 20 ms of 16-bit PCM each."""
    pcm = ClipLibrary(CLIPS).get("en/booking_confirm").at_rate(rate_hz).pcm
    data = np.pad(pcm, (rate_hz // 10, rate_hz)).astype("<i2").tobytes()
    size = rate_hz // 50 * 2
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_deepgram() -> None:
    pytest.importorskip("deepgram")
    from deepgram import AsyncDeepgramClient
    from deepgram.agent.v1.types import AgentV1Settings
    from deepgram.environment import DeepgramClientEnvironment

    settings = {
        "type": "Settings",
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16000},
            "output": {"encoding": "linear16", "sample_rate": 24000, "container": "none"},
        },
        "agent": {"language": "en", "greeting": "Hello"},
    }

    async def main() -> tuple[list[str], int, list[tuple[str, str]]]:
        kinds: list[str] = []
        said: list[tuple[str, str]] = []
        n_bytes = 0
        async with agent() as server:
            url = f"ws://{server.host}:{server.port}"
            environment = DeepgramClientEnvironment(
                base=url, production=url, agent=url, agent_rest=url
            )
            client = AsyncDeepgramClient(api_key="k", environment=environment)
            async with client.agent.v1.connect() as connection:
                await connection.send_settings(AgentV1Settings.model_validate(settings))
                n_done = 0
                async with asyncio.timeout(20):
                    async for message in connection:
                        if isinstance(message, bytes):
                            n_bytes += len(message)
                            continue
                        kinds.append(message.type)
                        if message.type == "ConversationText":
                            said.append((message.role, message.content))
                        if message.type == "AgentAudioDone":
                            n_done += 1
                            if n_done == 2:
                                break
                            for frame in sentence(16000):
                                await connection.send_media(frame)
        return kinds, n_bytes, said

    kinds, n_bytes, said = asyncio.run(main())
    assert kinds[:2] == ["Welcome", "SettingsApplied"]
    assert "UserStartedSpeaking" in kinds
    assert {role for role, _ in said} == {"user", "assistant"}
    assert n_bytes > 48_000


def test_elevenlabs() -> None:
    pytest.importorskip("elevenlabs")
    from elevenlabs.client import ElevenLabs
    from elevenlabs.conversational_ai.conversation import AudioInterface, Conversation

    class Phone(AudioInterface):
        """Says a sentence when the greeting has begun, and counts what it hears."""

        def __init__(self) -> None:
            self.n_bytes = self.n_interrupts = 0
            self.say: Callable[[bytes], None] = lambda data: None
            self.has_spoken = False
            self.answered = threading.Event()

        def start(self, input_callback: Callable[[bytes], None]) -> None:
            self.say = input_callback

        def stop(self) -> None:
            pass

        def output(self, audio: bytes) -> None:
            self.n_bytes += len(audio)
            if not self.has_spoken:
                self.has_spoken = True
                threading.Thread(target=self._speak, daemon=True).start()

        def _speak(self) -> None:
            for frame in sentence(16000):
                self.say(frame)

        def interrupt(self) -> None:
            self.n_interrupts += 1

    phone, replies, heard = Phone(), list[str](), list[str]()

    def replied(text: str) -> None:
        replies.append(text)
        if heard:
            phone.answered.set()

    def talk(server: AgentServer) -> None:
        conversation: Any = Conversation(
            ElevenLabs(base_url=f"http://{server.host}:{server.port}"),
            "agent_1",
            requires_auth=False,
            audio_interface=phone,
            callback_agent_response=replied,
            callback_user_transcript=heard.append,
        )
        conversation.start_session()
        try:
            assert phone.answered.wait(20)
        finally:
            conversation.end_session()
            conversation.wait_for_session_end()

    async def main() -> None:
        # In few messages: what this client has not read when it closes it waits 10 s for.
        async with agent(chunk="500ms") as server:
            await asyncio.to_thread(talk, server)

    asyncio.run(main())
    assert phone.n_bytes > 16_000
    assert phone.n_interrupts >= 1
    assert len(replies) >= 2
    assert heard


def test_openai_live() -> None:
    openai = pytest.importorskip("openai", minversion="3")

    async def main() -> tuple[list[str], int]:
        kinds: list[str] = []
        n_loud = 0
        async with agent(pacing="paced") as server:
            base_url = f"http://{server.host}:{server.port}/v1"
            client = openai.AsyncOpenAI(api_key="sk-test", base_url=base_url)
            async with client.live.connect() as connection, asyncio.timeout(20):
                await connection.send({
                    "type": "session.start",
                    "session": {"model": "gpt-live-1", "instructions": "Be brief.",
                                "audio": {"format": {"type": "audio/pcm", "rate": 24000}}},
                })  # fmt: skip
                async for event in connection:
                    kinds.append(event.type)
                    if event.type == "session.started":
                        for frame in sentence(24000):
                            audio = base64.b64encode(frame).decode()
                            await connection.send(
                                {"type": "session.input_audio.append", "audio": audio}
                            )
                    if event.type == "session.output_audio.delta":
                        n_loud += any(base64.b64decode(event.delta))
                    if n_loud > 20:
                        break
            await client.close()
        return kinds, n_loud

    kinds, _ = asyncio.run(main())
    assert kinds[0] == "session.started"
    assert {"session.output_audio.delta", "session.output_transcript.delta"} <= set(kinds)


def test_openai_agents(tmp_path: Path) -> None:
    """Its history is made of the items that we tell, and of those that it asks for again."""
    pytest.importorskip("agents")
    from agents.realtime import RealtimeAgent, RealtimeRunner

    truth = tmp_path / "truth.jsonl"

    async def main() -> tuple[list[dict[str, Any]], dict[str, int], list[Any]]:
        raw: list[dict[str, Any]] = []
        n_bytes: dict[str, int] = {}
        history: list[Any] = []
        async with agent(truth=truth) as server:
            runner = RealtimeRunner(RealtimeAgent(name="front desk", instructions="Be brief."))
            url = f"ws://{server.host}:{server.port}/v1/realtime?model=gpt-realtime"
            session = await runner.run(model_config={"url": url, "api_key": "sk-test"})
            n_turns = 0
            async with session, asyncio.timeout(20):
                async for event in session:
                    assert event.type != "error", event
                    if event.type == "raw_model_event":
                        assert event.data.type not in ("error", "exception"), event.data
                        if event.data.type == "raw_server_event":
                            raw.append(event.data.data)
                    elif event.type == "audio":
                        so_far = n_bytes.get(event.item_id, 0)
                        n_bytes[event.item_id] = so_far + len(event.audio.data)
                    elif event.type == "history_updated":
                        history = event.history
                    elif event.type == "agent_end":
                        n_turns += 1
                        if n_turns == 2:
                            break
                        for frame in sentence(24000):
                            await session.send_audio(frame)
        return raw, n_bytes, history

    raw, n_bytes, history = asyncio.run(main())
    log = [json.loads(line) for line in truth.read_text().splitlines()]
    sent: dict[str, int] = {}
    for note in log:
        if note["type"] == "sent" and note["kind"] == "audio":
            sent[note["response"]] = sent.get(note["response"], 0) + note["n"] * 2
    assert list(n_bytes.values()) == list(sent.values())
    assert [item.role for item in history] == ["assistant", "user", "assistant"]
    assert all(item.content[0].transcript for item in history)
    # The second update states tracing alone, and must not undo the first.
    configured, traced = (m["session"] for m in raw if m["type"] == "session.updated")
    assert "tracing" not in configured
    assert traced == {**configured, "tracing": "auto"}
    assert traced["instructions"] == "Be brief."
    (cut,) = (note for note in log if note["type"] == "truncated")
    assert cut["item"] == next(iter(n_bytes))


def test_google_genai(make_certificate: Callable[..., Any]) -> None:
    genai = pytest.importorskip("google.genai")
    certificate = make_certificate("localhost")
    server_tls = certificate.server_context()
    client_tls = ssl.create_default_context(cafile=certificate.cert_file)

    async def main() -> tuple[bytes, str, str, int]:
        audio, spoken, heard, n_turns = b"", "", "", 0
        async with agent(server_tls) as server:
            options = {
                "base_url": f"https://localhost:{server.port}",
                "async_client_args": {"ssl": client_tls},
            }
            client = genai.Client(api_key="k", http_options=options)
            config = {
                "response_modalities": ["AUDIO"],
                "input_audio_transcription": {},
                "output_audio_transcription": {},
            }
            async with (
                asyncio.timeout(20),
                client.aio.live.connect(model="live-1", config=config) as session,
            ):
                while n_turns < 2:
                    async for message in session.receive():
                        audio += message.data or b""
                        content = message.server_content
                        if content is None:
                            continue
                        if content.output_transcription and content.output_transcription.text:
                            spoken += content.output_transcription.text
                        if content.input_transcription and content.input_transcription.text:
                            heard += content.input_transcription.text
                    n_turns += 1
                    if n_turns == 1:
                        for frame in sentence(16000):
                            blob = {"data": frame, "mime_type": "audio/pcm;rate=16000"}
                            await session.send_realtime_input(audio=blob)
        return audio, spoken, heard, n_turns

    audio, spoken, heard, n_turns = asyncio.run(main())
    assert n_turns == 2
    assert len(audio) > 48_000
    assert spoken
    assert heard
