"""A bot of Pipecat's own parts: transport, voice activity, turns, serializers; its models are fake.

Run by the Python that has ``pipecat-ai[websocket,webrtc,silero,openai,runner]``:
``python pipecat_server.py PORT MODELS_URL``. A client of ``/ws`` is a telephone network (Twilio),
one of ``/ws-client`` speaks protobuf frames, one of ``/api/offer`` WebRTC.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import BackgroundTasks, FastAPI, WebSocket
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.stt import OpenAISTTService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.request_handler import (
    SmallWebRTCPatchRequest,
    SmallWebRTCRequest,
    SmallWebRTCRequestHandler,
)
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.transports.websocket.fastapi import (
    FastAPIWebsocketParams,
    FastAPIWebsocketTransport,
)
from pipecat.turns.user_stop.speech_timeout_user_turn_stop_strategy import (
    SpeechTimeoutUserTurnStopStrategy,
)
from pipecat.turns.user_turn_strategies import UserTurnStrategies

app = FastAPI()
offers = SmallWebRTCRequestHandler()
models_url = sys.argv[2] if len(sys.argv) > 2 else ""


def by_websocket(websocket: WebSocket, serializer: FrameSerializer) -> BaseTransport:
    """Return the transport for a client of a WebSocket."""
    params = FastAPIWebsocketParams(
        audio_in_enabled=True, audio_out_enabled=True, serializer=serializer
    )
    return FastAPIWebsocketTransport(websocket=websocket, params=params)


async def run_bot(transport: BaseTransport, in_hz: int, out_hz: int) -> None:
    """Answer one client until it is gone."""
    context = LLMContext([{"role": "system", "content": "Be brief."}])
    aggregators = LLMContextAggregatorPair(
        context,
        user_params=LLMUserAggregatorParams(
            vad_analyzer=SileroVADAnalyzer(params=VADParams(stop_secs=0.2)),
            user_turn_strategies=UserTurnStrategies(
                stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.4)]
            ),
        ),
    )
    models = {"api_key": "none", "base_url": models_url}
    pipeline = Pipeline(
        [
            transport.input(),
            OpenAISTTService(**models),
            aggregators.user(),
            OpenAILLMService(**models),
            OpenAITTSService(**models),
            transport.output(),
            aggregators.assistant(),
        ]
    )
    task = PipelineTask(
        pipeline,
        params=PipelineParams(audio_in_sample_rate=in_hz, audio_out_sample_rate=out_hz),
    )

    @transport.event_handler("on_client_disconnected")
    async def gone(transport: object, client: object) -> None:
        await task.cancel()

    await PipelineRunner(handle_sigint=False).run(task)


@app.websocket("/ws")
async def telephone(websocket: WebSocket) -> None:
    """Serve a telephone network."""
    await websocket.accept()
    _, call = await parse_telephony_websocket(websocket)
    params = TwilioFrameSerializer.InputParams(auto_hang_up=False)
    serializer = TwilioFrameSerializer(stream_sid=call["stream_id"], params=params)
    await run_bot(by_websocket(websocket, serializer), 8000, 8000)


@app.websocket("/ws-client")
async def plain(websocket: WebSocket) -> None:
    """Serve a client of protobuf frames."""
    await websocket.accept()
    await run_bot(by_websocket(websocket, ProtobufFrameSerializer()), 16000, 24000)


@app.post("/api/offer")
async def offer(request: SmallWebRTCRequest, tasks: BackgroundTasks) -> object:
    """Answer the offer of a WebRTC client, and serve it."""

    async def connected(connection: SmallWebRTCConnection) -> None:
        params = TransportParams(audio_in_enabled=True, audio_out_enabled=True)
        transport = SmallWebRTCTransport(connection, params)
        tasks.add_task(run_bot, transport, 16000, 24000)

    return await offers.handle_web_request(request, connected)


@app.patch("/api/offer")
async def candidate(request: SmallWebRTCPatchRequest) -> dict[str, str]:
    """Take candidates that come later."""
    await offers.handle_patch_request(request)
    return {"status": "success"}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
