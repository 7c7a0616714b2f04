"""The agent's speech as it counts for turn-taking."""

from __future__ import annotations

from typing import Any

import pytest

from vakforge_eval.metrics.hearing import Hearing, hear
from vakforge_eval.metrics.overlap import TALK_GAP_NS
from vakforge_eval.metrics.spans import Stretch, joined
from vakforge_eval.timeline.instant import NS_PER_MS

TOLERANCE_MS = 0.3


def near(*pairs: tuple[float, float]) -> Any:
    return [pytest.approx(pair, abs=TOLERANCE_MS) for pair in pairs]


def in_ms(call: Any, stretches: list[Stretch]) -> list[tuple[float, float]]:
    return [((a - call.origin) / NS_PER_MS, (b - call.origin) / NS_PER_MS) for a, b in stretches]


def sounds(hearing: Hearing) -> list[Stretch]:
    return [(begin.when.at, end.when.at) for begin, end in hearing.sounds]


def talk(hearing: Hearing) -> list[Stretch]:
    return joined(sounds(hearing), TALK_GAP_NS)


def test_talk_joins_silence_below_200_ms_and_sounds_join_nothing(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(400), call.hush(190), call.tone(400), call.hush(210), call.tone(400))
    hearing = hear(call.build())
    assert in_ms(call, sounds(hearing)) == near((500, 900), (1090, 1490), (1700, 2100))
    assert in_ms(call, talk(hearing)) == near((500, 1490), (1700, 2100))
    assert len(hearing.segments) == 1


def test_talk_goes_on_from_one_response_to_the_next(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(400), response_id="r1")
    call.reply(1000, call.tone(400), response_id="r2")
    call.reply(1700, call.tone(400), response_id="r3")
    assert in_ms(call, talk(hear(call.build()))) == near((500, 1400), (1700, 2100))


def test_sound_that_a_flush_cuts_ends_with_the_flush_and_has_its_error(new_call: Any) -> None:
    call = new_call()
    call.reply(500, call.tone(2000), pace=0)
    call.flush(1200)
    hearing = hear(call.build())
    assert in_ms(call, sounds(hearing)) == near((500, 1200))
    assert hearing.sounds[-1][1] == hearing.segments[-1].end
