from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.script import Expectation, Script, StepKind
from vakforge_probe.errors import ConfigError
from vakforge_probe.scenario.compile import Compiled
from vakforge_probe.scenario.expect import KINDS_OF, ExpectationsField, parse_expectation

Compile = Callable[..., Compiled]

SAY = "  - {say: null, clip: en/booking_request}\n"
BARGE_IN = "  - {barge_in: null, clip: en/booking_stop, expect: stop within 0.7 s}\n"
TEXT = Capabilities(response_end=True, text_before_audio=True)


@pytest.mark.parametrize(
    ("text", "kind", "within_s", "words"),
    [
        ("stop", "stop", None, []),
        ("stop within 0.7 s", "stop", 0.7, []),
        ("stop within 700 ms", "stop", 0.7, []),
        ("hold", "hold", None, []),
        ("reply within 2 s", "reply", 2.0, []),
        ("reply mentions table", "mentions", None, ["table"]),
        ("reply mentions half past, Tuesday", "mentions", None, ["half past", "Tuesday"]),
        ("reply mentions ऑर्डर,何時", "mentions", None, ["ऑर्डर", "何時"]),
    ],
)  # fmt: skip
def test_an_expectation_is_read(
    text: str, kind: Any, within_s: float | None, words: list[str]
) -> None:
    assert parse_expectation(text) == Expectation(
        text=text, kind=kind, within_s=within_s, words=words
    )


@pytest.mark.parametrize(
    "text",
    ["", "stops", "stop within 0.7s", "stop within -1 s", "hold within 1 s", "reply", "Hold",
     " hold", "hold\n", "reply within", "reply mentions", "reply mentions ", "reply mentions a,,b",
     "reply mentions a,", "reply mentions ?", "stop within 0 s", "reply within 0 ms", "hold, stop",
     "reply mentions a\nb", "reply mentions " + ", ".join("a" * 51), "reply mentions " + "a" * 201,
     None, True, 1, ["hold"]],
)  # fmt: skip
def test_whatever_is_no_expectation_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"expectation|more than no time|letter or digit"):
        parse_expectation(text)


def test_every_kind_of_step_that_is_heard_can_be_expected_something_of() -> None:
    shown = frozenset().union(*KINDS_OF.values())
    assert shown == set(StepKind) - {StepKind.PAUSE, StepKind.WAIT, StepKind.HANG_UP}


@given(text=st.text(alphabet="stop within hold reply mentions 0.7 s,ab\n", max_size=40))
def test_what_is_accepted_fits_the_exported_pattern(text: str) -> None:
    pattern = TypeAdapter(ExpectationsField).json_schema()["anyOf"][0]["pattern"]
    try:
        parse_expectation(text)
    except ValueError:
        return
    assert re.search(pattern, text)


@pytest.mark.parametrize("written", ["hold", "[hold]"])
def test_one_text_is_a_list_of_one(compiled: Compile, written: str) -> None:
    one = compiled(f"steps:\n{SAY}  - {{sham: null, expect: {written}}}\n")
    assert [e.text for e in one.script.steps[1].expect] == ["hold"]


@pytest.mark.parametrize("written", ["null", "5", "true", "{stop: 1}"])
def test_neither_text_nor_list_is_refused_in_these_words(compiled: Compile, written: str) -> None:
    barge_in = BARGE_IN.replace("stop within 0.7 s", written)
    with pytest.raises(ConfigError, match="must be one expectation or a list of them"):
        compiled(f"steps:\n{SAY}{barge_in}")


def test_expectations_are_in_the_compiled_script_in_order(compiled: Compile) -> None:
    one = compiled(
        "steps:\n" + SAY + "  - barge_in: null\n    clip: en/booking_stop\n"
        "    expect: [stop within 0.7 s, reply within 2 s, 'reply mentions day, table']\n",
        can=TEXT,
    )
    expected = one.script.steps[1].expect
    assert [e.kind for e in expected] == ["stop", "reply", "mentions"]
    assert one.script.steps[0].expect == []
    assert Script.model_validate_json(one.script.model_dump_json()) == one.script


def test_what_is_expected_is_no_part_of_the_stimulus(compiled: Compile) -> None:
    hashes = {
        compiled("steps:\n" + SAY + BARGE_IN.replace("0.7", limit)).script.content_hash
        for limit in ("0.7", "0.9")
    }
    assert len(hashes) == 1


@pytest.mark.parametrize(
    "step",
    [
        BARGE_IN,
        "  - {sham: null, expect: hold}\n",
        "  - {noise: null, clip: noise/cough, expect: hold}\n",
    ],
)
def test_a_half_duplex_protocol_can_show_neither_stop_nor_hold(
    compiled: Compile, step: str
) -> None:
    assert compiled("steps:\n" + SAY + step)
    with pytest.raises(
        ConfigError, match=r"suite\.yaml:\d+: steps\[1\]\.expect: .*this protocol is half duplex"
    ):
        compiled("steps:\n" + SAY + step, can=Capabilities(response_end=True, barge_in=False))


def test_a_stop_may_be_expected_for_as_long_as_the_agent_is_watched(compiled: Compile) -> None:
    head = f"budgets: {{reply: 4 s}}\nsteps:\n{SAY}"
    # The words take 2 s and more; the agent is watched from their begin on.
    assert compiled(head + BARGE_IN.replace("0.7", "5.5"))
    with pytest.raises(ConfigError, match=r"suite\.yaml:\d+: steps\[1\]\.expect: is more than"):
        compiled(head + BARGE_IN.replace("0.7", "9"))


def test_a_push_to_talk_agent_can_show_no_stop_of_its_own(compiled: Compile) -> None:
    by_hand = Capabilities(response_end=True, manual_commit=True)
    assert compiled("steps:\n" + SAY + "  - {barge_in: null, clip: en/booking_stop}\n", can=by_hand)
    with pytest.raises(ConfigError, match=r"steps\[1\]\.expect: .*push-to-talk"):
        compiled("steps:\n" + SAY + BARGE_IN, can=by_hand)


@pytest.mark.parametrize(
    "step",
    [
        "  - {barge_in: null, clip: en/booking_stop}\n",
        "  - {sham: null}\n",
        "  - {say: null, clip: en/booking_stop, at: 300 ms after agent onset}\n",
        "  - {say: null, clip: en/booking_stop, at: -300 ms after agent end}\n",
    ],
)
def test_nothing_is_said_into_the_speech_of_a_half_duplex_agent(
    compiled: Compile, step: str
) -> None:
    assert compiled("steps:\n" + SAY + step)
    with pytest.raises(ConfigError, match=r"steps\[1\]\.at: .*half duplex"):
        compiled("steps:\n" + SAY + step, can=Capabilities(response_end=True, barge_in=False))


def test_a_half_duplex_agent_can_be_talked_to_in_turns(compiled: Compile) -> None:
    steps = "steps:\n" + SAY + "  - {say: null, clip: en/booking_stop, at: 1 s after agent end}\n"
    assert compiled(steps, can=Capabilities(response_end=True, barge_in=False))


def test_what_a_reply_mentions_needs_a_protocol_that_tells_it(compiled: Compile) -> None:
    steps = "steps:\n" + SAY.replace("}", ", expect: reply mentions table}")
    assert compiled(steps, can=TEXT)
    with pytest.raises(ConfigError, match=r"steps\[0\]\.expect: .*does not tell what the agent"):
        compiled(steps, can=Capabilities(response_end=True))
    late = "steps:\n" + SAY.replace("}", ", expect: reply within 2 s}")
    assert compiled(late, can=Capabilities(barge_in=False))
