"""Protocol names to codecs: adding a protocol is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import ClientCodec
from vakforge_probe.protocol.openai_client import OpenAIRealtimeClient
from vakforge_probe.text import nearest

__all__ = ["PROTOCOLS", "make_client"]

PROTOCOLS: dict[str, Callable[[str, Limits], ClientCodec]] = {
    OpenAIRealtimeClient.name: OpenAIRealtimeClient.of_profile,
}


def make_client(protocol: str, limits: Limits | None = None) -> ClientCodec:
    """Return a fresh client codec for ``NAME[/PROFILE]``.

    Raises
    ------
    ConfigError
        If the protocol or its profile is not known; names the nearest one.
    """
    name, _, profile = protocol.partition("/")
    maker = PROTOCOLS.get(name)
    if maker is None:
        near = nearest(name, PROTOCOLS, least=0)
        raise ConfigError("unknown protocol", key="protocol", value=name, nearest=near)
    return maker(profile, limits or Limits())
