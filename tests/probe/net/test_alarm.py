"""The alarm: never early, in order, cheap to call off, gone with its loop."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from functools import partial
from typing import Any

import pytest

from vakforge_probe.net.alarm import Alarm
from vakforge_probe.net.virtual import run

MS = 1_000_000

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux")


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_virtual_alarms_fire_at_the_very_nanosecond() -> None:
    async def main() -> list[int]:
        loop: Any = asyncio.get_running_loop()
        alarm = Alarm.of(loop)
        seen: list[int] = []
        for ns in (30 * MS + 1, 30 * MS, 7):
            alarm.call_at(ns, lambda: seen.append(loop.now_ns))
        await alarm.sleep_until(40 * MS)
        return [*seen, loop.now_ns]

    assert run(main()) == [7, 30 * MS, 30 * MS + 1, 40 * MS]


def test_real_alarms_are_never_early_and_come_in_order() -> None:
    async def main() -> None:
        alarm = Alarm.of(asyncio.get_running_loop())
        fired: list[tuple[int, int]] = []

        def note(due: int) -> None:
            fired.append((due, time.monotonic_ns()))

        start = time.monotonic_ns()
        dues = [start + n * 300_000 for n in (5, 1, 9, 3, 3)]
        for due in dues:
            alarm.call_at(due, partial(note, due))
        await alarm.sleep_until(start + 4 * MS)
        assert [due for due, _ in fired] == sorted(dues)
        assert all(at >= due for due, at in fired)

    asyncio.run(main())


def test_an_instant_in_the_past_fires_at_once_but_not_inside_the_call() -> None:
    async def main() -> None:
        alarm = Alarm.of(asyncio.get_running_loop())
        fired = asyncio.Event()
        alarm.call_at(-5, fired.set)
        assert not fired.is_set()
        await fired.wait()

    asyncio.run(main())


def test_a_cancelled_alarm_stays_silent_and_may_be_cancelled_again() -> None:
    async def main() -> None:
        alarm = Alarm.of(asyncio.get_running_loop())
        start, seen = time.monotonic_ns(), []
        off = alarm.call_at(start + MS, lambda: seen.append("off"))
        on = alarm.call_at(start + MS, lambda: seen.append("on"))
        off.cancel()
        off.cancel()
        await alarm.sleep_until(start + 2 * MS)
        on.cancel()
        assert seen == ["on"]

    asyncio.run(main())


def test_an_alarm_called_off_by_one_that_fires_with_it_stays_silent() -> None:
    async def main() -> None:
        alarm = Alarm.of(asyncio.get_running_loop())
        seen: list[str] = []
        alarm.call_at(1, lambda: second.cancel())
        second = alarm.call_at(2, lambda: seen.append("second"))
        await alarm.sleep_until(time.monotonic_ns() + MS)
        assert seen == []

    asyncio.run(main())


def test_many_cancelled_alarms_do_not_pile_up_and_the_others_still_fire() -> None:
    async def main() -> None:
        alarm: Any = Alarm.of(asyncio.get_running_loop())
        far, seen = time.monotonic_ns() + 3600 * 1000 * MS, []
        for _ in range(5000):
            alarm.call_at(far, lambda: seen.append("far")).cancel()
        alarm.call_at(time.monotonic_ns(), lambda: seen.append("near"))
        if sys.platform == "linux":
            assert len(alarm._heap) < 200
        await alarm.sleep_until(time.monotonic_ns() + MS)
        assert seen == ["near"]

    asyncio.run(main())


def test_a_callback_may_set_an_earlier_alarm_than_all_others() -> None:
    async def main() -> list[str]:
        alarm = Alarm.of(asyncio.get_running_loop())
        start, seen = time.monotonic_ns(), []
        alarm.call_at(start + 60_000 * MS, lambda: seen.append("last"))
        alarm.call_at(start, lambda: alarm.call_at(start + MS, lambda: seen.append("inner")))
        await alarm.sleep_until(start + 2 * MS)
        return seen

    assert asyncio.run(main()) == ["inner"]


def test_a_failing_callback_is_reported_and_spares_the_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reported: list[Any] = []
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        alarm = Alarm.of(loop)
        seen: list[str] = []
        alarm.call_at(1, lambda: {"here": 1}["missing"])
        alarm.call_at(2, lambda: seen.append("other"))
        await alarm.sleep_until(time.monotonic_ns() + MS)
        assert seen == ["other"]
        assert [type(error) for error in reported] == [KeyError]

    asyncio.run(main())


def test_a_cancelled_sleeper_leaves_nothing_that_rings_later() -> None:
    async def main() -> None:
        alarm = Alarm.of(asyncio.get_running_loop())
        sleeper = asyncio.ensure_future(alarm.sleep_until(time.monotonic_ns() + MS))
        await asyncio.sleep(0)
        sleeper.cancel()
        await alarm.sleep_until(time.monotonic_ns() + 2 * MS)
        assert sleeper.cancelled()

    asyncio.run(main())


def test_a_loop_has_one_alarm() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert Alarm.of(loop) is Alarm.of(loop)

    asyncio.run(main())


@linux_only
def test_closing_the_loop_closes_the_timer_even_with_alarms_pending() -> None:
    async def main() -> Alarm:
        alarm = Alarm.of(asyncio.get_running_loop())
        alarm.call_at(time.monotonic_ns() + 3600 * 1000 * MS, int)
        await alarm.sleep_until(time.monotonic_ns())
        return alarm

    before = n_descriptors()
    alarm = asyncio.run(main())
    assert n_descriptors() == before
    with pytest.raises(RuntimeError, match="closed"):
        alarm.call_at(1, int)
