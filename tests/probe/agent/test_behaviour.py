from __future__ import annotations

import pytest

from vakforge_probe.agent.behaviour import Behaviour, parse_pairs
from vakforge_probe.errors import ConfigError


def test_text_values_become_typed_ones() -> None:
    knobs = Behaviour().overridden(
        {"reply_delay": "1.2", "greeting": "off", "stop_delay": "never", "echo_db": "-20",
         "chunk": "480", "stall": "0.5", "segments": "3"}
    )  # fmt: skip
    assert knobs.reply_delay == 1.2
    assert knobs.greeting is False
    assert knobs.stop_delay == "never"
    assert knobs.echo_db == -20
    assert (knobs.stall, knobs.segments) == (0.5, 3)
    assert Behaviour(pacing="x10").speed == 10
    assert Behaviour().overridden({"stop_delay": "0.8"}).stop_delay == 0.8


def test_connection_keeps_what_the_process_set() -> None:
    assert Behaviour(reply_delay=2.0).overridden({"seed": "7"}).reply_delay == 2.0


def test_unknown_knob_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"reply_dealy.*did you mean 'reply_delay'") as caught:
        Behaviour().overridden({"reply_dealy": "1"})
    assert caught.value.nearest == "reply_delay"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reply_delay", "nan"),
        ("reply_delay", "inf"),
        ("reply_delay", "-1"),
        ("reply_delay", "soon"),
        ("stop_delay", "sometimes"),
        ("chunk", "0"),
        ("chunk", "1.5ms"),
        ("pacing", "x0"),
        ("pacing", "fast"),
        ("fault", "everything"),
        ("refuse", "200"),
        ("say", "../secret"),
        ("seed", "1.5"),
    ],
)
def test_impossible_value_names_its_key(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Behaviour().overridden({key: value})
    assert caught.value.key in (key, None)


@pytest.mark.parametrize(
    "pairs",
    [
        {"stream": "continuous", "pacing": "burst"},
        {"stream": "continuous", "chunk": "961b"},
        {"echo_db": "-20", "pacing": "x10"},
        {"echo_db": "-20", "chunk": "961b"},
    ],
)
def test_knobs_that_contradict_each_other_are_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Behaviour().overridden(pairs)


def test_pairs_are_split_once_and_never_set_twice() -> None:
    assert parse_pairs(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for wrong in (["a"], ["=b"], ["a=1", "a=2"]):
        with pytest.raises(ConfigError):
            parse_pairs(wrong)


@pytest.mark.parametrize(
    ("chunk", "n_bytes"), [("20ms", 960), ("480", 960), ("961b", 961), ("1ms", 48)]
)
def test_chunk_is_given_in_time_samples_or_bytes(chunk: str, n_bytes: int) -> None:
    assert Behaviour(chunk=chunk).chunk_bytes(24000, 2) == n_bytes


@pytest.mark.parametrize(
    ("knobs", "silence"),
    [({}, 0.45), ({"reply_delay": 0.2}, 0.15), ({"reply_delay": 3.0}, 0.5),
     ({"reply_delay": 0.0}, 0.1), ({"text_lead_ms": 150}, 0.3), ({"endpoint_silence": 0.7}, 0.7)],
)  # fmt: skip
def test_endpoint_silence_leaves_room_for_the_reply_unless_it_is_set(
    knobs: dict[str, float], silence: float
) -> None:
    assert Behaviour(**knobs).silence == pytest.approx(silence)
