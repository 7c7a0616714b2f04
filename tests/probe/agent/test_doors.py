"""At each path one protocol; what clients of it put into the query is no knob."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.doors import DOORS, RTC_DOORS, RTC_PATHS, path_of
from vakforge_probe.agent.server import serve
from vakforge_probe.net.virtual import run
from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.registry import PROTOCOLS, make_client

EVERY = [
    name
    for name in (*PROTOCOLS, *shipped_profiles())
    if not isinstance(make_client(name).signalling, RoomJoin)
]
"""But for a room of LiveKit's, which its own server holds."""


@pytest.mark.parametrize("protocol", EVERY)
def test_every_protocol_has_a_door(protocol: str) -> None:
    is_webrtc = make_client(protocol).signalling is not None
    assert path_of(protocol) in (RTC_DOORS if is_webrtc else DOORS)
    assert path_of(f"{protocol}/some-profile") == path_of(protocol)


def test_no_two_protocols_share_a_door() -> None:
    paths = [profile.path for profile in shipped_profiles().values()]
    assert len(set(paths)) == len(paths)
    assert len(DOORS) == len(paths) + 7  # OpenAI's two, Gemini's three, Moshi's, Pipecat's
    assert len(set(RTC_PATHS.values())) == len(RTC_DOORS) == len(RTC_PATHS)


@pytest.mark.parametrize(("query", "status"), [
    ("model=gpt-realtime&reply_delay=0.4", None), ("agent_id=a&source=s&version=1", None),
    ("key=k&alt=json", None), ("text_prompt=a%20b&voice_prompt=v", None),
    ("surprise=1", 400), ("reply_delay=x", 400),
    ("model=a&model=b", 400),
])  # fmt: skip
def test_what_clients_put_into_the_query_is_no_knob(
    clips: Path, query: str, status: int | None
) -> None:
    async def main() -> int | None:
        async with await serve(Behaviour(), "127.0.0.1", 0, None, clips) as agent:
            try:
                async with connect(f"{agent.url}?{query}"):
                    return None
            except InvalidStatus as error:
                return error.response.status_code

    assert run(main()) == status
