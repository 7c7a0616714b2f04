"""Writing one response in the order in which a real server sends its messages."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from vakforge_probe.protocol.base import Wire

if TYPE_CHECKING:
    from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer

__all__ = ["OpenAIResponseWriter"]

_TOKENS_PER_S = 20
"""Roughly what hosted models charge for a second of speech; only to fill the usage block."""


class OpenAIResponseWriter:
    """Messages of one response: at most one spoken message item, then any number of tool calls.

    Each method returns wire messages and changes the state as if they had been sent; so write a
    message when it is due, not before.

    Parameters
    ----------
    metadata
        What the client asked to find again in the response.
    """

    def __init__(self, server: OpenAIRealtimeServer, metadata: object = None) -> None:
        self._server, self._metadata = server, metadata
        self.id = server.new_id("resp")
        self.item_id = server.new_id("item")
        self._spoken = ""
        self._n_bytes = 0
        self._outputs: list[dict[str, Any]] = []
        self._is_item_open = False
        self.is_open = False

    def begin(self) -> list[Wire]:
        """Return ``response.created``."""
        self.is_open = True
        return self._server.messages("response.created", response=self._resource("in_progress"))

    def begin_message(self) -> list[Wire]:
        """Return what announces the spoken item and its content part."""
        self._is_item_open = True
        server, item = self._server, self._message("in_progress", with_content=False)
        server.item_ms[self.item_id] = 0.0
        part = {"type": "audio", "transcript": ""}
        return [
            *self._send("response.output_item.added", item=item),
            *server.item_added(item),
            *self._send("response.content_part.added", **self._place(), part=part),
        ]

    def text(self, delta: str) -> list[Wire]:
        """Return a piece of the transcript of the agent's speech."""
        self._spoken += delta
        name = "response.output_audio_transcript.delta"
        return self._send(name, **self._place(), delta=delta)

    def audio(self, data: bytes) -> list[Wire]:
        """Return a piece of coded audio."""
        self._n_bytes += len(data)
        codec, rate = self._server.output_format
        width = 2 if codec == "pcm_s16le" else 1
        self._server.item_ms[self.item_id] = self._n_bytes * 1000 / (rate * width)
        delta = base64.b64encode(data).decode("ascii")
        return self._send("response.output_audio.delta", **self._place(), delta=delta)

    def end_message(self, status: str = "completed") -> list[Wire]:
        """Return what closes the spoken item."""
        if not self._is_item_open:
            return []
        self._is_item_open = False
        server, item = self._server, self._message(status)
        self._outputs.append(item)
        part = {"type": "audio", "transcript": self._spoken}
        done = "response.output_audio_transcript.done"
        return [
            *self._send("response.output_audio.done", **self._place()),
            *self._send(done, **self._place(), transcript=self._spoken),
            *self._send("response.content_part.done", **self._place(), part=part),
            *server.item_done(item),
            *self._send("response.output_item.done", item=item),
        ]

    def tool_call(self, call_id: str, name: str, arguments: str) -> list[Wire]:
        """Return a whole function call item."""
        server, index = self._server, len(self._outputs)
        item = {
            "id": server.new_id("item"),
            "object": "realtime.item",
            "type": "function_call",
            "status": "in_progress",
            "call_id": call_id,
            "name": name,
            "arguments": "",
        }
        done = {**item, "status": "completed", "arguments": arguments}
        self._outputs.append(done)
        call: dict[str, Any] = {"item_id": item["id"], "output_index": index, "call_id": call_id}
        arrived = "response.function_call_arguments"
        return [
            *self._send("response.output_item.added", index, item=item),
            *server.item_added(item),
            *self._send(f"{arrived}.delta", **call, delta=arguments),
            *self._send(f"{arrived}.done", **call, name=name, arguments=arguments),
            *server.item_done(done),
            *self._send("response.output_item.done", index, item=done),
        ]

    def end(self, status: str = "completed", reason: str | None = None) -> list[Wire]:
        """Return the end of the response, its open item closed first."""
        closing = self.end_message("completed" if status == "completed" else "incomplete")
        self.is_open = False
        return closing + self._server.messages(
            "response.done", response=self._resource(status, reason)
        )

    def _send(self, kind: str, /, output_index: int = 0, **fields: Any) -> list[Wire]:
        fields = {"response_id": self.id, "output_index": output_index, **fields}
        return self._server.messages(kind, **fields)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _message(self, status: str, *, with_content: bool = True) -> dict[str, Any]:
        kind = "output_audio" if self._server.dialect == "ga" else "audio"
        content = [{"type": kind, "transcript": self._spoken}] if with_content else []
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _resource(self, status: str, reason: str | None = None) -> dict[str, Any]:
        is_over = status != "in_progress"
        details = {"type": status, "reason": reason} if reason else None
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "metadata": self._metadata,
            "output": list(self._outputs),
            "usage": self._usage() if is_over else None,
        }

    def _usage(self) -> dict[str, Any]:
        codec, rate = self._server.output_format
        seconds = self._n_bytes / (rate * (2 if codec == "pcm_s16le" else 1))
        audio, text = round(seconds * _TOKENS_PER_S), len(self._spoken.split())
        heard = {"text_tokens": 0, "audio_tokens": 0, "cached_tokens": 0}
        return {
            "total_tokens": audio + text,
            "input_tokens": 0,
            "output_tokens": audio + text,
            "input_token_details": heard,
            "output_token_details": {"text_tokens": text, "audio_tokens": audio},
        }
