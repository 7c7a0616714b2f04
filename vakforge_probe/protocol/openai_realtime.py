"""The OpenAI Realtime wire format, both sides (WebSocket; GA and beta dialects)."""

from __future__ import annotations

from vakforge_probe.protocol.openai_client import OpenAIRealtimeClient
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer

__all__ = ["OpenAIRealtimeClient", "OpenAIRealtimeServer"]
