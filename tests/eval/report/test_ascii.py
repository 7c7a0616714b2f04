from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vakforge_eval.metrics.view import CallView
from vakforge_eval.report.ascii import draw_call
from vakforge_eval.timeline.script import StepKind

COLUMNS = 100
WIDTH = COLUMNS + 7
"""A call of 10 s has columns of 100 ms."""


def drawn(call: Any, *, ended: float = 10_000, width: int = WIDTH, **facts: Any) -> list[str]:
    return draw_call(CallView(replace(call.build(ended), **facts)), width)


def lane(lines: list[str], label: str) -> str:
    return next(line[7:] for line in lines if line.startswith(label)).ljust(COLUMNS)


def key(lines: list[str]) -> dict[str, str]:
    """Return what each letter stands for, by letter."""
    found = (line.partition(" ") for line in lines if line[1:2] == " " and line[0] not in "s# ")
    return {letter: " ".join(text.split()) for letter, _, text in found}


def test_each_side_has_a_lane_whose_columns_are_the_seconds_of_the_scale(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000)
    call.reply(2500, call.tone(1500))
    lines = drawn(call)
    assert lane(lines, "s").split() == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
    assert lane(lines, "s").index("4") == 40
    assert lane(lines, "user") == "." * 10 + "#" * 10 + "." * 80
    assert lane(lines, "agent") == "." * 25 + "#" * 15 + "." * 60


def test_what_happened_stands_under_its_instant_and_is_told_in_the_key(new_call: Any) -> None:
    call = new_call()
    call.say(1000, 2000, text="Where is it?")
    call.reply(2500, call.tone(1500))
    lines = drawn(call)
    marks = lines[3][7:]
    assert [marks.index(letter) for letter in "abc"] == [10, 25, 99]
    assert key(lines) == {
        "a": '1.00 s step 0 say "Where is it?"',
        "b": "2.50 s agent answers, 0.50 s after turn 0",
        "c": "10.00 s call ended: cut off",
    }


def test_a_barge_in_shows_the_flush_the_cut_and_what_became_of_the_agents_speech(
    new_call: Any,
) -> None:
    call = new_call()
    call.say(0, 500)
    call.reply(1000, call.tone(6000), pace=0, status="cancelled")
    call.say(3000, 5000, kind=StepKind.BARGE_IN, text="Stop.")
    call.flush(3400, "r1")
    lines = drawn(call)
    assert lane(lines, "agent") == "." * 10 + "#" * 24 + "x" + "." * 65
    told = key(lines).values()
    assert '3.00 s step 1 barge_in "Stop.": agent stopped' in told
    assert "3.40 s agent falls silent, 0.40 s after step 1 began" in told
    assert "3.40 s flush: what is queued of the agent's audio is dropped" in told


def test_what_takes_no_floor_is_drawn_otherwise_and_a_sham_is_only_marked(new_call: Any) -> None:
    call = new_call()
    call.say(0, 500)
    call.reply(1000, call.tone(8000))
    call.say(2000, 2500, kind=StepKind.BACKCHANNEL, text="mm-hm")
    call.say(4000, 4000, kind=StepKind.SHAM, text="")
    lines = drawn(call)
    assert lane(lines, "user")[20:25] == "+++++"
    assert '2.00 s step 1 backchannel "mm-hm": agent held' in key(lines).values()
    assert "4.00 s step 2 sham: agent held" in key(lines).values()


def test_marks_at_one_instant_stand_below_each_other(new_call: Any) -> None:
    call = new_call()
    for _ in range(6):
        call.say(2000, 2500, kind=StepKind.BACKCHANNEL)
    lines = drawn(call)
    assert [row[27] for row in lines[3:7]] == ["a", "b", "c", "d"]
    assert len(key(lines)) == 7, "what finds no room in the lanes is told none the less"


def test_more_marks_than_letters_are_counted(new_call: Any) -> None:
    call = new_call()
    for n in range(60):
        call.say(n * 100, n * 100 + 50, kind=StepKind.BACKCHANNEL)
    lines = drawn(call)
    assert "… and 9 more" in lines


@pytest.mark.parametrize("width", [0, 40, 63, 250])
@pytest.mark.parametrize("ended", [0, 300, 65_000, 3_000_000])
def test_no_line_is_wider_than_asked_for_whatever_the_length(
    new_call: Any, width: int, ended: float
) -> None:
    call = new_call()
    call.say(0, 500, text="x" * 500)
    call.reply(1000, call.tone(1500))
    lines = drawn(call, ended=ended, width=width)
    assert max(map(len, lines)) <= max(width, 40)
    assert len(lane(lines, "user").rstrip()) == max(width, 40) - 7


def test_a_call_that_never_began_says_why(new_call: Any) -> None:
    call = new_call()
    facts = {"kind": "refused", "phase": "connect", "message": "no"}
    lines = drawn(call, ended=0, stream=call.build(0).stream[:0], failure=facts, phases={})
    assert "#" not in lane(lines, "user") + lane(lines, "agent")
    assert key(lines) == {"a": "0.00 s call failed: refused in phase connect"}


def test_noise_in_which_nothing_can_be_told_is_said_in_the_agents_lane(new_call: Any) -> None:
    call = new_call()
    call.say(0, 500)
    call.reply(1000, call.tone(4000), response_id=None)
    assert "noise" in lane(drawn(call), "agent")


def test_text_of_strangers_never_reaches_the_terminal_raw(new_call: Any) -> None:
    call = new_call()
    call.say(0, 500, text="\x1b[31mred\x07\nnext\u202e")
    call.failure = {"kind": "\x1b]0;title\x07", "phase": "call\r\n", "message": ""}
    assert all(line.isprintable() for line in drawn(call))
