from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.script import Script, StepKind
from vakforge_probe.errors import ConfigError
from vakforge_probe.scenario.clips import ClipLibrary, data_root
from vakforge_probe.scenario.compile import Compiled
from vakforge_probe.scenario.dtmf import KEYS, tones
from vakforge_probe.scenario.flow import Act, Choice

Compile = Callable[..., Compiled]
MS = 1_000_000
CLIPS = ClipLibrary(data_root() / "clips")
BARE = Capabilities()

SAY = "  - {say: null, clip: en/booking_request}\n"
TOOLS = "tools: [{name: book, result: {ok: true}, delay: 900 ms}]\n"


def acts(compiled: Compiled) -> list[Act]:
    return [node for node in compiled.flow.nodes if isinstance(node, Act)]


def test_speech_is_cut_to_a_margin_and_its_spans_follow(compiled: Compile) -> None:
    clip = CLIPS.get("en/booking_request")
    one = compiled("steps:\n" + SAY)
    (step,), (pcm,) = one.script.steps, one.pcm
    assert pcm is not None
    margin = min(480, clip.voiced[0][0])
    start, end = step.voiced[0][0], step.voiced[-1][1]
    assert start == margin
    assert end - start == clip.voiced[-1][1] - clip.voiced[0][0]
    assert step.n_samples == len(pcm)
    assert np.array_equal(pcm[start:end], clip.pcm[clip.voiced[0][0] : clip.voiced[-1][1]])


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("pause_ms", [1, 25, 600])
def test_a_pause_lasts_from_speech_to_speech(compiled: Compile, rate: int, pause_ms: int) -> None:
    one = compiled(
        f"steps:\n  - say: null\n    parts: [en/booking_think_1, {{pause: {pause_ms} ms}}, "
        "en/booking_think_2]\n",
        rate_hz=rate,
    )
    (step,), (pcm,) = one.script.steps, one.pcm
    assert pcm is not None
    ((lo, hi),) = step.pauses
    assert hi - lo == rate * pause_ms // 1000
    assert lo in [end for _, end in step.voiced]
    assert hi in [start for start, _ in step.voiced]
    assert step.clips == ["en/booking_think_1", "en/booking_think_2"]
    first, second = (CLIPS.get(name) for name in step.clips)
    assert step.text == f"{first.text} {second.text}"
    assert step.n_samples == len(pcm)
    speech = first.voiced[-1][1] - first.voiced[0][0] + second.voiced[-1][1] - second.voiced[0][0]
    spoken = step.voiced[-1][1] - step.voiced[0][0] - (hi - lo)
    assert spoken / rate == pytest.approx(speech / 24_000, abs=2 / rate)


def test_a_step_carries_what_scoring_needs(compiled: Compile) -> None:
    one = compiled(
        TOOLS
        + "budgets: {reply: 7 s, call: 33 s, greeting: 2 s}\nsteps:\n"
        + "  - say: A table for four on Monday\n    clip: en/booking_request\n    lang: en-IN\n"
        + "    entities: [{type: date, text: Monday, normalized: monday}]\n"
        + "    expect_tool: {name: book, arguments: {n: 4}}\n    relevant: [table]\n"
        + "  - {dtmf: '12#', reply_within: 3 s, expect_tool: {class: non_tool}}\n"
        + "  - {sham: null}\n  - {pause: 1 s}\n"
    )
    say, dtmf, sham, pause = one.script.steps
    assert (say.text, say.lang, say.relevant_words) == (
        "A table for four on Monday",
        "en-IN",
        ["table"],
    )
    assert say.entities[0].normalized == "monday"
    assert say.expect_tool is not None
    assert (say.expect_tool.name, say.expect_tool.tool_class) == ("book", "tool_match")
    assert say.reply_within_s == 7.0
    assert (dtmf.text, dtmf.reply_within_s) == ("12#", 3.0)
    assert dtmf.expect_tool is not None
    assert (dtmf.expect_tool.name, dtmf.expect_tool.tool_class) == ("", "non_tool")
    for silent in (sham, pause):
        assert (silent.n_samples, silent.voiced, one.pcm[silent.index]) == (0, [], None)
    assert [s.anchor for s in one.script.steps] == [
        "500 ms after greeting",
        "500 ms after agent end",
        "1 s after agent onset",
        "after previous",
    ]
    assert (one.script.max_call_s, one.flow.greeting_ns) == (33.0, 2000 * MS)
    assert one.script.tools[0].delay_s == 0.9
    assert one.flow.tool_delays_ns == {"book": 900 * MS}
    assert Script.model_validate_json(one.script.model_dump_json()) == one.script
    (clip,) = one.clips
    assert clip.keys() == {"id", "licence", "source", "sha256"}


def test_branches_are_numbered_in_the_order_in_which_they_stand(compiled: Compile) -> None:
    one = compiled(
        "steps:\n"
        + SAY
        + "  - branch:\n"
        + "      - when: {agent_said: [when, what time]}\n        then:\n"
        + "          - {say: null, clip: en/booking_day_fixed}\n          - {pause: 1 s}\n"
        + "      - when: {timeout: 4 s}\n        then: []\n"
        + "      - when: {otherwise: true}\n        then:\n          - {hang_up: null}\n"
        + "  - {say: null, clip: en/booking_name}\n"
    )
    assert [(s.index, s.path, s.kind) for s in one.script.steps] == [
        (0, "steps[0]", StepKind.SAY),
        (1, "steps[1].branch[0].then[0]", StepKind.SAY),
        (2, "steps[1].branch[0].then[1]", StepKind.PAUSE),
        (3, "steps[1].branch[2].then[0]", StepKind.HANG_UP),
        (4, "steps[2]", StepKind.SAY),
    ]
    choice = one.flow.nodes[1]
    assert isinstance(choice, Choice)
    assert choice.path == "steps[1].branch"
    assert choice.ways[0].when.said == ("when", "what time")
    assert choice.ways[1].when.timeout_ns == 4000 * MS
    assert choice.ways[2].when.is_otherwise
    assert one.script.steps[1].anchor == "500 ms after agent end"


def test_time_in_the_flow_is_told_from_speech(compiled: Compile) -> None:
    one = compiled("steps:\n" + SAY + "  - {pause: 2 s}\n  - {wait: 3 s}\n")
    say, pause, wait = acts(one)
    step = one.script.steps[0]
    assert say.lead_ns == round(step.voiced[0][0] / 24e3 * 1e9)
    assert say.speech_ns == pytest.approx(
        (step.voiced[-1][1] - step.voiced[0][0]) / 24e3 * 1e9, abs=1
    )
    assert (pause.limit_ns, wait.limit_ns) == (2000 * MS, 3000 * MS)


BASE = "steps:\n" + SAY + "  - {wait: 3 s}\n"


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace("3 s", "4 s"),
        BASE.replace("request}", "request, level: -3}"),
        BASE.replace("request}", "request, at: 1 s after greeting}"),
        BASE.replace("en/booking_request", "en/booking_name"),
        "system_prompt: Be kind.\n" + BASE,
        TOOLS + BASE,
        "budgets: {reply: 9 s}\n" + BASE,
    ],
)
def test_another_stimulus_has_another_hash(compiled: Compile, other: str) -> None:
    assert compiled(BASE).script.content_hash != compiled(other).script.content_hash


def test_the_same_stimulus_has_the_same_hash_however_it_is_written(compiled: Compile) -> None:
    written = "steps:\n  - clip: en/booking_request\n    say:\n  # later\n  - wait: 3000 ms\n"
    assert compiled(BASE).script.content_hash == compiled(written).script.content_hash
    assert compiled(BASE + "seed: 4\n").script.content_hash == compiled(BASE).script.content_hash


def test_the_phase_is_in_the_frame_spread_by_seed_and_repeatable(compiled: Compile) -> None:
    one = compiled(BASE)
    phases = [one.phase_ns(seed) for seed in range(200)]
    assert phases == [compiled(BASE).phase_ns(seed) for seed in range(200)]
    assert all(0 <= phase < 20 * MS for phase in phases)
    counts, _ = np.histogram(phases, bins=10, range=(0, 20 * MS))
    assert counts.min() >= 5


def test_level_is_a_gain_in_decibels(compiled: Compile) -> None:
    (plain,), (soft,) = (
        compiled(f"steps:\n  - {{say: null, clip: en/booking_request, level: {level}}}\n").pcm
        for level in (0, -20)
    )
    assert plain is not None
    assert soft is not None
    assert np.abs(soft - plain / 10).max() <= 0.5


BACKGROUND = "background: {clip: background/room, level: -6}\n"


@pytest.mark.parametrize("rate", [8000, 24_000])
def test_a_background_is_one_round_at_its_level(compiled: Compile, rate: int) -> None:
    one = compiled(BACKGROUND + BASE, rate_hz=rate)
    assert one.background is not None
    assert len(one.background) == 4 * rate
    clip = CLIPS.get("background/room").at_rate(rate)
    assert np.abs(one.background - clip.pcm * 10 ** (-6 / 20)).max() <= 0.5
    assert [c["id"] for c in one.clips] == ["background/room", "en/booking_request"]
    assert compiled(BASE).background is None


def test_another_background_is_another_stimulus(compiled: Compile) -> None:
    texts = [BASE, BACKGROUND + BASE, BACKGROUND.replace("-6", "0") + BASE]
    assert len({compiled(text).script.content_hash for text in texts}) == 3


_END_ANCHORED: list[Any] = [
    "  - {say: null, clip: en/booking_request, at: 399 ms after greeting}\n",
    SAY + "  - {say: null, clip: en/booking_name, at: 0.3 s after agent end}\n",
    SAY + "  - {sham: null, at: 100 ms after agent end}\n",
    SAY + "  - {backchannel: null, clip: backchannel/haan, at: after agent end}\n",
    SAY + "  - {barge_in: null, clip: en/booking_stop, at: -300 ms after agent end}\n",
    SAY + "  - {dtmf: '1', at: 399.999999 ms after agent end}\n",
]


@pytest.mark.parametrize("steps", _END_ANCHORED)
def test_an_early_offset_after_an_end_needs_a_protocol_that_tells_it(
    compiled: Compile, steps: str
) -> None:
    assert compiled("steps:\n" + steps)
    with pytest.raises(
        ConfigError, match=r"suite\.yaml:\d+: steps\[\d\]\.at: needs at least 400 ms"
    ):
        compiled("steps:\n" + steps, can=BARE)


@pytest.mark.parametrize(
    "steps",
    [
        "  - {say: null, clip: en/booking_request, at: 400 ms after greeting}\n",
        SAY + "  - {wait: 5 s, at: after agent end}\n",
        SAY + "  - {hang_up: null, at: 10 ms after agent end}\n",
        SAY + "  - {sham: null, at: 100 ms after agent onset}\n",
    ],
)
def test_what_a_bare_protocol_can_show_is_accepted(compiled: Compile, steps: str) -> None:
    assert compiled("steps:\n" + steps, can=BARE)


@pytest.mark.parametrize(
    "kind",
    [
        "barge_in: null, clip: en/booking_stop",
        "sham: null",
        "noise: null, clip: noise/cough",
        "say: null, clip: en/booking_name",
    ],
)
def test_a_moment_before_the_end_needs_audio_that_comes_ahead(compiled: Compile, kind: str) -> None:
    steps = "steps:\n" + SAY + f"  - {{{kind}, at: -300 ms after agent end}}\n"
    turns = Capabilities(response_end=True)
    assert compiled(steps, can=turns)
    with pytest.raises(
        ConfigError, match=r"suite\.yaml:\d+: steps\[1\]\.at: cannot be met: a cont"
    ):
        compiled(steps, can=replace(turns, continuous_stream=True))


def test_a_tool_anchor_needs_a_protocol_with_tools(compiled: Compile) -> None:
    steps = (
        TOOLS
        + "steps:\n"
        + SAY
        + "  - {noise: null, clip: noise/cough, at: after tool call book}\n"
    )
    assert compiled(steps)
    with pytest.raises(ConfigError, match="this protocol has no tool calls"):
        compiled(steps, can=Capabilities(response_end=True))


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 48_000])
def test_each_key_has_its_two_tones_equally_strong_at_minus_12_dbfs(rate: int) -> None:
    assert sorted(KEYS) == sorted("0123456789*#ABCD")
    for key, (low, high) in KEYS.items():
        pcm, spans = tones(key, rate)
        assert spans == [(0, rate // 10)]
        level = 10 * np.log10(np.mean(np.square(pcm / 32768)))
        assert level == pytest.approx(-12, abs=0.05)
        power = [
            np.abs(np.exp(-2j * np.pi * hz * np.arange(len(pcm)) / rate) @ pcm) ** 2
            for hz in (low, high)
        ]
        assert power[0] / power[1] == pytest.approx(1, abs=0.1)


def test_keys_are_pressed_100_ms_with_80_ms_between(compiled: Compile) -> None:
    one = compiled("steps:\n  - dtmf: '1*D'\n", rate_hz=8000)
    (step,), (pcm,) = one.script.steps, one.pcm
    assert step.voiced == [(0, 800), (1440, 2240), (2880, 3680)]
    assert pcm is not None
    assert len(pcm) == 3680
    assert not pcm[800:1440].any()


@pytest.mark.parametrize("clip_id", [i for i in CLIPS.ids() if not i.startswith("agent/")])
def test_every_shipped_user_clip_can_be_played_at_every_rate(clip_id: str) -> None:
    clip = CLIPS.get(clip_id)
    for rate in (8000, 16_000, 48_000):
        other = clip.at_rate(rate)
        assert other.voiced[-1][1] <= len(other.pcm)
