"""The pacer on virtual time: its grid, its stalls, and what it promises in any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_probe.net.alarm import Alarm
from vakforge_probe.net.clock import is_virtual
from vakforge_probe.net.pacer import MAX_LATE_NS, Pacer
from vakforge_probe.net.virtual import run

MS = 1_000_000
FRAME = 20 * MS


@dataclass
class Paced:
    """What a run of the pacer did: frames (number, due, sent) and re-anchors."""

    frames: list[tuple[int, int, int]] = field(default_factory=list)
    reanchors: list[tuple[int, int, int]] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)


def pace(
    n_frames: int,
    stalls: dict[int, int] | None = None,
    *,
    frame_ns: int = FRAME,
    first: int = 5 * MS,
    on_frame: Callable[[Pacer, int], None] = lambda pacer, frame: None,
) -> Paced:
    """Pace `n_frames`; after frame k is sent, everything stalls for ``stalls[k]`` ns."""

    async def main() -> Paced:
        loop = asyncio.get_running_loop()
        assert is_virtual(loop)
        paced = Paced()
        done = loop.create_future()
        turn = 0

        def count() -> None:
            nonlocal turn
            turn += 1

        def send(frame: int, due: int) -> None:
            paced.frames.append((frame, due, loop.now_ns))
            paced.turns.append(turn)
            loop.call_soon(count)  # runs in the loop's next turn
            loop.advance((stalls or {}).get(frame, 0))
            on_frame(pacer, frame)
            if frame == n_frames - 1 and not done.done():
                done.set_result(None)

        pacer = Pacer(
            Alarm.of(loop),
            lambda: loop.now_ns,
            frame_ns,
            first,
            send,
            lambda *facts: paced.reanchors.append(facts),
        )
        await done
        pacer.stop()
        await asyncio.sleep(1)
        return paced

    return run(main())


def test_frames_leave_on_their_deadlines() -> None:
    paced = pace(50)
    assert paced.frames == [(k, 5 * MS + k * FRAME, 5 * MS + k * FRAME) for k in range(50)]
    assert paced.reanchors == []


def test_lateness_of_ten_milliseconds_moves_nothing() -> None:
    paced = pace(4, {0: FRAME + MAX_LATE_NS})
    assert [due for _, due, _ in paced.frames] == [5 * MS + k * FRAME for k in range(4)]
    assert paced.frames[1][2] - paced.frames[1][1] == MAX_LATE_NS
    assert paced.reanchors == []


def test_one_nanosecond_more_moves_all_later_deadlines_by_a_frame() -> None:
    paced = pace(4, {0: FRAME + MAX_LATE_NS + 1})
    dues = [due - 5 * MS for _, due, _ in paced.frames]
    assert dues == [0, FRAME, 3 * FRAME, 4 * FRAME]
    assert paced.reanchors == [(1, 1, MAX_LATE_NS + 1)]


def test_a_long_stall_is_not_followed_by_a_burst() -> None:
    paced = pace(5, {1: 300 * MS})
    sent = [at for _, _, at in paced.frames]
    assert paced.reanchors == [(2, 14, 280 * MS)]
    assert [later - earlier for earlier, later in pairwise(sent[2:])] == [FRAME, FRAME]


def test_a_stopped_pacer_sends_nothing_more() -> None:
    paced = pace(3, on_frame=lambda pacer, frame: pacer.stop() if frame == 2 else None)
    assert [frame for frame, _, _ in paced.frames] == [0, 1, 2]


def test_a_pacer_tells_what_comes_next() -> None:
    plans: list[tuple[int, int]] = []
    pace(
        2,
        on_frame=lambda pacer, frame: plans.append((pacer.next_frame, pacer.next_due_ns)),
    )
    assert plans == [(1, 25 * MS), (2, 45 * MS)]


def test_a_frame_must_last() -> None:
    with pytest.raises(ValueError, match="longer than nothing"):
        pace(1, frame_ns=0)


def test_an_error_while_sending_one_frame_does_not_silence_the_next() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        assert is_virtual(loop)
        loop.set_exception_handler(lambda *_: None)
        frames: list[int] = []

        def send(frame: int, due: int) -> None:
            frames.append(frame)
            if frame == 0:
                raise KeyError(frame)

        pacer = Pacer(Alarm.of(loop), lambda: loop.now_ns, FRAME, 0, send, lambda *facts: None)
        await asyncio.sleep(0.05)
        pacer.stop()
        return frames

    assert run(main()) == [0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(
    stalls=st.dictionaries(st.integers(0, 30), st.integers(0, 400 * MS), max_size=8),
    frame_ns=st.sampled_from([10 * MS, 20 * MS, 21_333_333, 100 * MS]),
)
def test_whatever_stalls_frames_stay_apart_and_on_a_grid_of_whole_frames(
    stalls: dict[int, int], frame_ns: int
) -> None:
    paced = pace(32, stalls, frame_ns=frame_ns)
    shift_at = {frame: shift for frame, shift, _ in paced.reanchors}
    late_at = {frame: late for frame, _, late in paced.reanchors}
    assert [frame for frame, _, _ in paced.frames] == list(range(32))
    assert len(set(paced.turns)) == 32, "two frames in one turn of the loop"
    expected = 5 * MS
    for (frame, due, sent), (_, next_due, _) in zip(
        paced.frames, [*paced.frames[1:], (32, None, 0)], strict=True
    ):
        assert due == expected
        assert sent >= due
        assert (sent - due > MAX_LATE_NS) == (frame in shift_at)
        if frame in shift_at:
            assert shift_at[frame] >= 1
            assert late_at[frame] == sent - due
            assert next_due is None or next_due - sent >= frame_ns // 2
        expected += frame_ns * (1 + shift_at.get(frame, 0))
