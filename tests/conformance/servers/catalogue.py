"""Servers that others wrote: what to install, how to start them, and where they speak what."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SERVERS", "Door", "Server"]


@dataclass(frozen=True)
class Door:
    """A protocol, and where it is spoken."""

    protocol: str
    path: str
    scheme: str = "ws"


@dataclass(frozen=True)
class Server:
    """One server.

    Attributes
    ----------
    package, version
        By which it is known.
    installs
        Arguments of each ``pip install``.
    script
        Run by its own Python with a port and, where it `has_models`, their URL.
    has_models
        Its models are services elsewhere, whose delays are programmed; else it is one model, which
        says nothing that can be held against anything but the protocol.
    """

    package: str
    version: str
    installs: tuple[tuple[str, ...], ...]
    script: str
    doors: tuple[Door, ...]
    has_models: bool = True

    @property
    def name(self) -> str:
        """Package and version."""
        return f"{self.package} {self.version}"


SERVERS = (
    Server(
        "pipecat-ai",
        "1.14.0",
        (("pipecat-ai[websocket,webrtc,silero,openai,runner]==1.14.0",),),
        "pipecat_server.py",
        (
            Door("twilio", "/ws"),
            Door("pipecat", "/ws-client"),
            Door("smallwebrtc", "/api/offer", "http"),
        ),
    ),
    Server(
        "fastrtc",
        "0.0.34",
        (("fastrtc==0.0.34",),),
        "fastrtc_server.py",
        (
            Door("twilio", "/telephone/handler"),
            Door("fastrtc-ws", "/websocket/offer"),
            Door("fastrtc", "/webrtc/offer", "http"),
        ),
    ),
    Server(
        "speech-to-speech",
        "1.1.0",
        (
            ("torch==2.13.0",),
            # All that it asks for by itself are models of several GB.
            ("--no-deps", "speech-to-speech==1.1.0"),
            (
                "aiortc",
                "anyio<5",
                "fastapi",
                "httpx",
                "huggingface-hub",
                "jsonschema",
                "librosa==0.11.0",
                "lingua-language-detector",
                "nltk==3.10.3",
                "numpy",
                "onnxruntime",
                "openai==2.28.0",
                "pillow",
                "pydantic",
                "python-multipart",
                "PyYAML",
                "rich",
                "scipy",
                "silero-vad",
                "sounddevice",
                "soxr",
                "transformers>=5.18,<6",
                "uvicorn[standard]",
                "websockets",
            ),
        ),
        "s2s_server.py",
        (
            Door("openai-realtime", "/v1/realtime"),
            Door("openai-webrtc", "/v1/realtime/calls", "http"),
        ),
    ),
    Server(
        "moshi",
        "0.2.13",
        (
            ("torch==2.13.0",),
            # Its own bounds on torch and numpy are older than what it runs with.
            ("--no-deps", "moshi==0.2.13", "sphn", "sentencepiece", "safetensors", "einops"),
            ("aiohttp", "huggingface-hub", "numpy"),
        ),
        "moshi_server.py",
        (Door("moshi", "/api/chat"),),
        has_models=False,
    ),
)
