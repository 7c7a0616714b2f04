"""Limits hold in every protocol alike."""

from __future__ import annotations

import pytest

from vakforge_eval.signal.pcm import sample_bytes
from vakforge_eval.timeline.events import AudioChunk, Event, Fault
from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.doors import DOORS, Knock, path_of
from vakforge_probe.limits import Limits
from vakforge_probe.protocol.base import SessionConfig, StartSession
from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.protocol.registry import PROTOCOLS, make_client

OPUS = {"moshi", "unmute"}
"""Their bytes do not tell how long they sound: those of a call are bounded."""
EVERY = [
    name
    for name in (*PROTOCOLS, *shipped_profiles())
    if name not in OPUS and make_client(name).signalling is None
]
"""Those that carry the audio in messages."""


def received(protocol: str, limits: Limits, n_bytes: int, n: int) -> tuple[list[Event], float]:
    """Return what a client tells of `n` messages with audio, and the seconds in one of them."""
    client = make_client(protocol, limits)
    server = DOORS[path_of(protocol)](Behaviour(), Knock({}, {}, "1"))
    for message in client.send(StartSession(SessionConfig())):
        server.receive(message)
    response = server.response()
    response.begin()
    response.begin_message()
    events: list[Event] = []
    for _ in range(n):
        for message in response.audio(bytes(n_bytes)):
            events += client.receive(message, Instant.exact(0))
    (first, *_) = (event for event in events if isinstance(event, AudioChunk))
    codec, rate_hz = server.output_format
    assert (first.codec, first.rate_hz) == (codec, rate_hz)
    return events, n_bytes / (rate_hz * sample_bytes(codec))


@pytest.mark.parametrize("protocol", EVERY)
def test_audio_is_counted_against_its_limit(protocol: str) -> None:
    _, seconds = received(protocol, Limits(), 960, 1)
    events, _ = received(protocol, Limits(max_audio_s=2.5 * seconds), 960, 5)
    assert [type(event) for event in events][-3:] == [AudioChunk, AudioChunk, Fault]
    assert isinstance(events[-1], Fault)
    assert events[-1].limit == "max_audio_s"
