"""Which protocol the agent speaks at which path of its port: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.protocol.declared import Profile, shipped_profiles
from vakforge_probe.protocol.declared_server import DeclaredServer
from vakforge_probe.protocol.gemini_server import GeminiLiveServer
from vakforge_probe.protocol.moshi_server import MoshiServer
from vakforge_probe.protocol.openai_names import BETA_HEADER
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer, ServerOptions
from vakforge_probe.protocol.pipecat_server import PipecatServer
from vakforge_probe.protocol.server import ServerCodec
from vakforge_probe.protocol.webrtc_server import (
    FastRtcServer,
    OpenAICallServer,
    SmallWebRtcServer,
    WhipServer,
)

__all__ = ["DOORS", "RTC_DOORS", "RTC_PATHS", "Knock", "path_of"]


@dataclass(frozen=True, slots=True)
class Knock:
    """What a client said when it connected; `tag` is the connection's id."""

    query: Mapping[str, str]
    headers: Mapping[str, str]
    tag: str


Door = Callable[[Behaviour, Knock], ServerCodec]

_FOREIGN = frozenset({"model", "intent", "call_id", "deployment", "api-version", "api_key",
                      "key", "access_token", "alt", "text_prompt", "voice_prompt"})  # fmt: skip


def _openai_realtime(behaviour: Behaviour, knock: Knock) -> ServerCodec:
    return _openai(OpenAIRealtimeServer, behaviour, knock)


def _openai_call(behaviour: Behaviour, knock: Knock) -> ServerCodec:
    return _openai(OpenAICallServer, behaviour, knock)


def _openai(kind: type[OpenAIRealtimeServer], behaviour: Behaviour, knock: Knock) -> ServerCodec:
    return kind(
        ServerOptions(
            dialect=behaviour.dialect,
            accepts_manual=behaviour.manual,
            interrupt_response=behaviour.interrupt_response,
            has_transcription=behaviour.transcript,
            silence_ms=round(behaviour.silence * 1000),
        ),
        is_beta_client=knock.headers.get(BETA_HEADER[0]) == BETA_HEADER[1],
        model=knock.query.get("model", "reference"),
        tag=knock.tag,
    )


def _declared(profile: Profile) -> Door:
    return lambda behaviour, knock: DeclaredServer(profile, tag=knock.tag)


def _gemini_live(behaviour: Behaviour, knock: Knock) -> ServerCodec:
    return GeminiLiveServer(tag=knock.tag)


def _pipecat(behaviour: Behaviour, knock: Knock) -> ServerCodec:
    return PipecatServer(tag=knock.tag)


def _moshi(behaviour: Behaviour, knock: Knock) -> ServerCodec:
    return MoshiServer(tag=knock.tag)


_GEMINI = "/ws/google.ai.generativelanguage.{}.GenerativeService.BidiGenerateContent"
_PATHS = {
    "openai-realtime": "/v1/realtime",
    "gemini-live": _GEMINI.format("v1beta"),
    "moshi": "/api/chat",
    "pipecat": "/ws-client",
}
"""Where a protocol that is not declared is at home."""

DOORS: dict[str, Door] = {
    "/": _openai_realtime,
    "/v1/realtime": _openai_realtime,
    "/api/chat": _moshi,
    "/ws-client": _pipecat,
    **{_GEMINI.format(version): _gemini_live for version in ("v1", "v1beta", "v1alpha")},
    **{profile.path: _declared(profile) for profile in shipped_profiles().values()},
}


RTC_PATHS = {
    "openai-webrtc": "/v1/realtime/calls",
    "smallwebrtc": "/api/offer",
    "fastrtc": "/webrtc/offer",
    "whip": "/whip",
}
"""Where the offers of a protocol over WebRTC are posted."""

RTC_DOORS: dict[str, Door] = {
    RTC_PATHS["openai-webrtc"]: _openai_call,
    RTC_PATHS["smallwebrtc"]: lambda behaviour, knock: SmallWebRtcServer(tag=knock.tag),
    RTC_PATHS["fastrtc"]: lambda behaviour, knock: FastRtcServer(tag=knock.tag),
    RTC_PATHS["whip"]: lambda behaviour, knock: WhipServer(tag=knock.tag),
}


FOREIGN_KEYS = _FOREIGN.union(*(profile.query for profile in shipped_profiles().values()))
"""Query keys that clients of the copied protocols send and that are no knobs."""


def path_of(protocol: str) -> str:
    """Return the path at which the agent speaks ``NAME[/PROFILE]``."""
    name = protocol.partition("/")[0]
    path = _PATHS.get(name) or RTC_PATHS.get(name)
    return path if path is not None else shipped_profiles()[name].path
