"""Protocol names to codecs: adding a protocol is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import ClientCodec
from vakforge_probe.protocol.declared import load_profile, shipped_profiles
from vakforge_probe.protocol.declared_client import DeclaredClient
from vakforge_probe.protocol.gemini_client import GeminiLiveClient
from vakforge_probe.protocol.livekit_client import LiveKitClient
from vakforge_probe.protocol.moshi_client import MoshiClient
from vakforge_probe.protocol.openai_client import OpenAIRealtimeClient
from vakforge_probe.protocol.pipecat_client import PipecatClient
from vakforge_probe.protocol.webrtc_client import (
    FastRtcClient,
    OpenAICallClient,
    SmallWebRtcClient,
    WhipClient,
)
from vakforge_probe.text import nearest

__all__ = ["PROTOCOLS", "make_client"]

_Maker = Callable[[str, Limits], ClientCodec]


def _without_profiles(make: Callable[[Limits], ClientCodec]) -> _Maker:
    def of_profile(profile: str, limits: Limits) -> ClientCodec:
        codec = make(limits)
        if profile:
            raise ConfigError(f"{codec.name} has no profiles", key="protocol", value=profile)
        return codec

    return of_profile


PROTOCOLS: dict[str, _Maker] = {
    OpenAIRealtimeClient.name: OpenAIRealtimeClient.of_profile,
    GeminiLiveClient.name: _without_profiles(GeminiLiveClient),
    MoshiClient.name: MoshiClient.of_profile,
    PipecatClient.name: _without_profiles(PipecatClient),
    OpenAICallClient.name: _without_profiles(OpenAICallClient),
    SmallWebRtcClient.name: _without_profiles(SmallWebRtcClient),
    FastRtcClient.name: _without_profiles(FastRtcClient),
    WhipClient.name: _without_profiles(WhipClient),
    LiveKitClient.name: _without_profiles(LiveKitClient),
}


def make_client(protocol: str, limits: Limits | None = None) -> ClientCodec:
    """Return a fresh client codec for ``NAME[/PROFILE]`` or for a declared one in a YAML file.

    Raises
    ------
    ConfigError
        If the protocol or its profile is not known (names the nearest one), or the file declares
        what cannot work.
    """
    limits = limits or Limits()
    if protocol.endswith((".yaml", ".yml")):
        return DeclaredClient(load_profile(Path(protocol)), limits)
    name, _, profile = protocol.partition("/")
    if name in PROTOCOLS:
        return PROTOCOLS[name](profile, limits)
    declared = shipped_profiles()
    if name not in declared:
        near = nearest(name, [*PROTOCOLS, *declared], least=0)
        raise ConfigError("unknown protocol", key="protocol", value=name, nearest=near)
    return _without_profiles(partial(DeclaredClient, declared[name]))(profile, limits)
