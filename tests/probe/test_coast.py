"""Messages that go on like the one before are taken in at once: nothing else may change by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.signal.pcm import encode
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, Instant
from vakforge_probe.coast import Coast
from vakforge_probe.ear import Ear
from vakforge_probe.guard import EchoGuard

RATE = 8000
T0 = 5 * NS_PER_S
FRAME = RATE // 50

Pcm = npt.NDArray[np.int16]


def noise(n: int, dbfs: float, seed: int) -> Pcm:
    drawn = np.random.default_rng(seed).normal(0, 32768 * 10 ** (dbfs / 20), n)
    return np.clip(np.rint(drawn), -32768, 32767).astype(np.int16)


def sound(kind: str, ms: int, seed: int) -> Pcm:
    n = ms * RATE // 1000
    match kind:
        case "silence":
            return np.zeros(n, np.int16)
        case "comfort noise":
            return noise(n, -60, seed)
        case "near the gate":
            return noise(n, -56, seed)
        case "room":
            return noise(n, -48, seed)
        case _:
            swell = 10 ** (np.sin(2 * np.pi * 4 * np.arange(n) / RATE + seed) - 1)
            return np.asarray(np.rint(noise(n, -18, seed) * swell), np.int16)


KINDS = ["silence", "comfort noise", "near the gate", "room", "speech", "speech"]
PARTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(5, 900), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)
SETTINGS = st.fixed_dictionaries(
    {"continuous": st.booleans(), "buffer_ns": st.sampled_from([0, 40 * NS_PER_MS])}
)
MOVES = st.dictionaries(
    st.integers(0, 250),
    st.sampled_from(
        ["late", "early", "short", "odd", "tick", "ended", "flush", "flush all", "item", "talk"]
    ),
    max_size=8,
)


class Line:
    """An ear with a guard, and all that it told, message by message."""

    def __init__(self, *, is_guarded: bool, **settings: Any) -> None:
        self.guard = EchoGuard(RATE, FRAME) if is_guarded else None
        self.ear = Ear(guard=self.guard, max_ahead_s=3.0, **settings)
        self.told: list[Any] = []

    def hear(self, data: bytes, now: int, response_id: str | None, item_id: str | None) -> None:
        chunk = AudioChunk(
            at=Instant.exact(now),
            response_id=response_id,
            item_id=item_id,
            rate_hz=RATE,
            data=data,
        )
        self.told.append((self.ear.hear(chunk, now), self.ear.is_flooded))

    def do(self, move: str, now: int, response_id: str | None) -> None:
        match move:
            case "tick":
                self.told.append(self.ear.tick(now + 400 * NS_PER_MS))
            case "ended":
                self.told.append(self.ear.response_ended(response_id, now))
            case "flush":
                self.told.append(self.ear.flush(now, response_id))
            case "flush all":
                self.told.append(self.ear.flush(now, None))


def walk(
    line: Line, pcm: Pcm, moves: dict[int, str], *, is_named: bool, ahead: int, talks: Pcm | None
) -> None:
    """Send `pcm` in messages of 20 ms, and do what `moves` say at some of them."""
    data, now, at, k, n_items = encode(pcm, "pcm_s16le"), T0, 0, 0, 0
    is_talking = False
    while at < len(data):
        move = moves.get(k, "")
        size = {"short": 2 * FRAME // 3, "odd": 2 * FRAME - 1}.get(move, 2 * FRAME)
        now += {"late": 90, "early": 0}.get(move, 20 if k >= ahead else 0) * NS_PER_MS
        n_items += move == "item"
        is_talking ^= move == "talk"
        if line.guard is not None and talks is not None:
            said = talks[k * FRAME % len(talks) :][:FRAME] if is_talking else np.zeros(FRAME)
            line.guard.said(np.asarray(said, "<i2").tobytes(), now)
        line.hear(
            data[at : at + size],
            now,
            f"r{n_items}" if is_named else None,
            f"i{n_items}" if is_named else None,
        )
        line.do(move, now, f"r{n_items}")
        at, k = at + size, k + 1
    line.told.append(line.ear.tick(now + 5 * NS_PER_S))
    line.told.append(line.ear.flush(now + 1, None))


@settings(deadline=None, max_examples=60)
@given(
    parts=PARTS,
    moves=MOVES,
    settings_=SETTINGS,
    is_named=st.booleans(),
    is_guarded=st.booleans(),
    ahead=st.sampled_from([0, 0, 5, 100]),
)
def test_what_is_told_is_the_same_message_by_message_as_without_it(
    parts: list[tuple[str, int, int]],
    moves: dict[int, str],
    settings_: dict[str, Any],
    is_named: bool,
    is_guarded: bool,
    ahead: int,
) -> None:
    pcm = np.concatenate([sound(*part) for part in parts])
    # Its own voice comes back for a while, so that the guard has something to refuse.
    talks = pcm[len(pcm) // 3 :][: RATE * 2]
    fast, slow = (Line(is_guarded=is_guarded, **settings_) for _ in range(2))
    walk(fast, pcm, moves, is_named=is_named, ahead=ahead, talks=talks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coast, "fits", lambda *_: False)
        walk(slow, pcm, moves, is_named=is_named, ahead=ahead, talks=talks)
    assert fast.told == slow.told
