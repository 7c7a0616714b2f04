"""The Python API: exact values on virtual time, and that no assert passes on a missing number."""

from __future__ import annotations

import asyncio
import doctest
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.events import Event
from vakforge_eval.timeline.values import Flag
from vakforge_probe import api as probe
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import serve
from vakforge_probe.errors import ConfigError, TargetClosed
from vakforge_probe.results import Turn
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loader import load_suite

QUESTION = "en/order_delivery_date"


def asks(n: int, scenario_id: str = "asks", **facts: Any) -> dict[str, Any]:
    """A scenario of `n` turns."""
    first = {"say": None, "clip": QUESTION, "at": "0.2 s"}
    more = {"say": None, "clip": QUESTION, "at": "413.7 ms after agent end"}
    last = {"hang_up": None, "at": "100 ms after agent end"}
    return {"id": scenario_id, "steps": [first, *[more] * (n - 1), last], **facts}


@pytest.fixture
def called(with_agent: Any, write_suite: Any, tmp_path: Path) -> Callable[..., probe.CallResult]:
    """Return a caller: ``called(scenario, **knobs)`` gives the result of one call."""

    def go(scenario: dict[str, Any], **knobs: Any) -> probe.CallResult:
        async def play(url: str) -> probe.CallResult:
            async with probe.call(write_suite(scenario), target=url, out=tmp_path / "run") as call:
                return await call.result()

        result: probe.CallResult = with_agent(play, **knobs)
        return result

    return go


# -- one call ---------------------------------------------------------------------------------


def test_a_result_is_used_in_plain_asserts(called: Any, tmp_path: Path) -> None:
    result = called(asks(2), reply_delay=0.4, leading_silence=0.1, say="short_ok")
    assert result.failure is None
    assert result.reason == "hang_up"
    assert result.system == "tuned"
    assert len(result.turns) == 2
    for turn in result.turns:
        assert turn["ttfa"] == pytest.approx(0.4, abs=1e-6)
        assert turn["ttfa_heard"] == pytest.approx(0.5, abs=1e-3)
        assert turn.user_text == "And when will it be delivered?"
        assert turn.agent_text
        assert (turn.kind, turn.valid, turn.flags) == ("say", True, ())
    assert [turn.index for turn in result.turns] == [0, 1]
    assert result.p50("ttfa") == result.p95("ttfa") == pytest.approx(0.4, abs=1e-6)
    assert result["setup"] == 0.0
    assert result.capture.parent == tmp_path / "run" / "calls"
    assert Capture.open(result.capture).verify() == []


def test_a_value_comes_with_its_error(called: Any) -> None:
    value = called(asks(1)).turns[0].metric("ttfa_heard")
    assert isinstance(value, probe.Measured)
    assert value.u == (0.0, 0.0)
    assert max(value.u_detect) <= 0.001


def test_a_number_that_does_not_exist_is_an_error_with_its_reason(called: Any) -> None:
    turn = called(asks(1)).turns[0]
    with pytest.raises(probe.NotMeasured, match="tool_wait of turn 0: not applicable") as caught:
        turn["tool_wait"]
    assert caught.value.reason == "not_applicable"
    assert isinstance(turn.metric("tool_wait"), probe.Undefined)


def test_a_reply_that_never_came_is_no_number_but_a_bound(called: Any) -> None:
    scenario = asks(1, budgets={"reply": "1.5 s"})
    turn = called(scenario, reply_delay=30.0).turns[0]
    assert "no_reply" in turn.flags
    assert isinstance(turn.metric("ttfa"), probe.Censored)
    with pytest.raises(probe.NotMeasured, match="had not come") as caught:
        turn["ttfa"]
    assert caught.value.reason == "censored"


def test_a_reply_that_talks_over_the_user_is_no_fast_reply(called: Any) -> None:
    turn = called(asks(1), early_talk=0.3).turns[0]
    assert "early" in turn.flags
    value = turn.metric("ttfa")
    assert isinstance(value, probe.Measured)
    assert value.value < 0
    with pytest.raises(probe.NotMeasured, match="before the user had ended") as caught:
        turn["ttfa"]
    assert caught.value.reason == "early"
    assert turn["total_response"] > 0


def test_a_turn_that_the_probe_spoilt_gives_no_number(called: Any) -> None:
    good = called(asks(1)).turns[0]
    spoilt = Turn(replace(good._score, flags=(Flag.INVALID_PACING,), valid=False))
    with pytest.raises(probe.NotMeasured, match="the probe spoilt") as caught:
        spoilt["ttfa"]
    assert caught.value.reason == "invalid_pacing"
    assert spoilt.metric("ttfa") == good.metric("ttfa")


def test_a_misspelt_metric_names_the_nearest_one(called: Any) -> None:
    result = called(asks(1))
    with pytest.raises(KeyError, match="did you mean 'ttfa'"):
        result.turns[0]["ttfaa"]
    with pytest.raises(KeyError, match="did you mean 'setup'"):
        result["setp"]
    with pytest.raises(KeyError, match="did you mean 'ttfa'"):
        result.p50("ttfaa")
    with pytest.raises(KeyError, match="no metric of a call 'ttfa'"):
        result["ttfa"]


def test_a_share_is_a_number_too(called: Any) -> None:
    result = called(asks(2), no_reply=2)
    assert result["no_reply_rate"] == result.p50("no_reply_rate") == 0.5
    assert result.metric("no_reply_rate") == probe.Rate(1, 2)


def test_a_share_of_nothing_is_no_number(called: Any) -> None:
    result = called({"id": "mute", "steps": [{"hang_up": None, "at": "0.3 s"}]})
    assert result.turns == ()
    with pytest.raises(probe.NotMeasured, match="nothing was counted"):
        result["no_reply_rate"]
    with pytest.raises(probe.NotMeasured):
        result.p50("ttfa")


def test_a_failure_of_the_target_is_told_and_what_came_before_it_is_measured(called: Any) -> None:
    result = called(asks(3), close_at=5.0)
    assert isinstance(result.failure, TargetClosed)
    assert result.reason == "target_closed"
    assert result.turns[0]["ttfa"] == pytest.approx(0.5, abs=1e-6)


def test_the_report_is_that_of_the_capture(called: Any, tmp_path: Path) -> None:
    result = called(asks(1))
    document = result.report(tmp_path / "report")
    assert document["turns"][0]["metrics"]["ttfa"]["value"] == result.turns[0]["ttfa"]
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == document
    again = result.report()
    assert (again["summary"], again["turns"]) == (document["summary"], document["turns"])


# -- the block --------------------------------------------------------------------------------


def test_leaving_the_block_early_hangs_up_and_closes_the_capture(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> tuple[probe.CallResult, float]:
        async with probe.call(write_suite(asks(5)), target=url, out=tmp_path / "run") as call:
            await asyncio.sleep(4.0)
            assert not call.is_over
        assert call.is_over
        left_at = asyncio.get_running_loop().time()
        return await call.result(), left_at

    result, left_at = with_agent(play)
    assert left_at < 4.2
    assert (result.reason, result.failure) == ("stopped", None)
    assert result.turns[0]["ttfa"] == pytest.approx(0.5, abs=1e-6)
    assert Capture.open(result.capture).verify() == []


def test_an_error_in_the_block_comes_out_as_it_is_once_the_capture_is_closed(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> None:
        async with probe.call(write_suite(asks(5)), target=url, out=tmp_path / "run"):
            await asyncio.sleep(1.0)
            raise ZeroDivisionError("in the test")

    with pytest.raises(ZeroDivisionError, match="in the test"):
        with_agent(play)
    (capture,) = (tmp_path / "run" / "calls").iterdir()
    assert Capture.open(capture).verify() == []


def test_a_bug_in_the_call_does_not_go_unseen(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    def refuse(event: Event) -> None:
        raise ZeroDivisionError("my bug")

    async def play(url: str) -> None:
        suite = write_suite(asks(1))
        async with probe.call(suite, target=url, out=tmp_path / "run", on_event=refuse):
            await asyncio.sleep(1.0)

    with pytest.raises(ZeroDivisionError, match="my bug"):
        with_agent(play)


def test_a_time_out_around_the_result_leaves_the_call_running(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> probe.CallResult:
        async with probe.call(write_suite(asks(1)), target=url, out=tmp_path / "run") as call:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await call.result()
            assert not call.is_over
            first = await call.result()
            assert await call.result() is first
            return first

    assert with_agent(play).reason == "hang_up"


def test_hanging_up_ends_the_call_and_the_block_goes_on(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> str:
        async with probe.call(write_suite(asks(5)), target=url, out=tmp_path / "run") as call:
            await asyncio.sleep(0.5)
            call.hang_up()
            return (await call.result()).reason

    assert with_agent(play) == "stopped"


def test_events_are_told_as_they_arrive(with_agent: Any, write_suite: Any, tmp_path: Path) -> None:
    told: list[str] = []

    async def play(url: str) -> None:
        suite = write_suite(asks(1))
        async with probe.call(
            suite, target=url, out=tmp_path / "run", on_event=lambda e: told.append(e.TYPE)
        ) as call:
            await call.result()

    with_agent(play)
    assert told[0] == "ready"
    assert "audio_chunk" in told


def test_a_call_begins_with_its_block(write_suite: Any, tmp_path: Path) -> None:
    call = probe.call(write_suite(asks(1)), target="ws://127.0.0.1:1/", out=tmp_path / "run")
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(call.result())
    assert list((tmp_path / "run").iterdir()) == []


# -- what is called ---------------------------------------------------------------------------


def test_a_scenario_is_named_by_suite_and_id_by_file_or_is_given(
    write_suite: Any, tmp_path: Path
) -> None:
    path = write_suite(asks(1, "first"), asks(1, "second"))
    url = "ws://127.0.0.1:1/"
    named: list[tuple[probe.Scenario, str]] = [
        ("latency#questions", "questions"),
        (f"{path}#second", "second"),
        (load_suite(path).scenarios[0], "first"),
    ]
    for n, (scenario, name) in enumerate(named):
        call = probe.call(scenario, target=url, out=tmp_path / str(n))
        assert call._plan.compiled.script.id == name


def test_a_suite_of_several_is_no_scenario_and_its_ids_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="#questions, #thinking"):
        probe.call("latency", target="ws://127.0.0.1:1/", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_scenario_of_a_suite_names_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'questions'"):
        probe.call("latency#question", target="ws://127.0.0.1:1/", out=tmp_path / "run")


def test_a_file_with_a_hash_in_its_name_is_still_a_file(write_suite: Any, tmp_path: Path) -> None:
    path = write_suite(asks(1, "only"), name="issue#7")
    call = probe.call(path, target="ws://127.0.0.1:1/", out=tmp_path / "run")
    assert call._plan.compiled.script.id == "only"


def test_headers_go_by_reference(
    write_suite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_KEY", "canary-1f0e9d8c7b6a")
    suite, url = write_suite(asks(1)), "ws://127.0.0.1:1/"
    headers = {"Authorization": "Bearer ${env:PROBE_KEY}"}
    call = probe.call(suite, target=url, headers=headers, out=tmp_path / "run")
    assert call._plan.target.headers == {"Authorization": "Bearer canary-1f0e9d8c7b6a"}
    with pytest.raises(ConfigError, match="never written out"):
        probe.call(suite, target=url, headers={"Authorization": "Bearer canary-1f0e9d8c7b6a"})


def test_a_target_may_be_made_by_hand(write_suite: Any, tmp_path: Path) -> None:
    mine = probe.Target(url="ws://127.0.0.1:1/", label="mine")
    call = probe.call(write_suite(asks(1)), target=mine, out=tmp_path / "run")
    assert call._plan.target is mine


# -- runs -------------------------------------------------------------------------------------


def test_a_run_compares_two_systems(with_agent: Any, write_suite: Any, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    async def play(url: str) -> probe.RunResult:
        return await probe.run(
            write_suite(asks(1, "a"), asks(2, "b")),
            target=f"{url}?reply_delay=0.3",
            baseline_target=f"{url}?reply_delay=0.6",
            repeats=2,
            concurrency=3,
            out=tmp_path / "run",
            on_progress=lambda progress: seen.append((progress.done, progress.planned)),
        )

    result = with_agent(play)
    assert result.systems == ("base", "tuned")
    order = "".join(call.system[0] for call in result.calls)
    assert order == "bt" + "tb" + "tb" + "bt"
    assert len(result.turns) == 6
    assert result.p50("ttfa") == result.p95("ttfa", "tuned") == pytest.approx(0.3, abs=1e-6)
    assert result.p50("ttfa", system="base") == pytest.approx(0.6, abs=1e-6)
    assert result.p50("no_reply_rate") == 0.0
    assert result.failures == ()
    assert seen[-1] == (8, 8)
    row = next(r for r in result.report()["summary"] if r["metric"] == "ttfa")
    assert row["delta"] == pytest.approx(-0.3, abs=1e-6)
    with pytest.raises(KeyError, match="did you mean 'tuned'"):
        result.p50("ttfa", system="tune")


def test_a_run_that_is_stopped_gives_what_there_is(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> probe.RunResult:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(6.0, stop.set)
        return await probe.run(
            write_suite(asks(1)), target=url, repeats=50, out=tmp_path / "run", stop=stop
        )

    result = with_agent(play, say="short_ok")
    assert [call.reason for call in result.calls[:-1]] == ["hang_up"] * (len(result.calls) - 1)
    assert result.calls[-1].reason == "stopped"
    assert 1 < len(result.calls) < 5
    assert result.p50("ttfa") == pytest.approx(0.5, abs=1e-6)


def test_a_run_counts_failures_and_measures_the_rest(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> probe.RunResult:
        return await probe.run(
            [write_suite(asks(1)), "latency#questions"],
            target=f"{url}?close_at=5",
            out=tmp_path / "run",
        )

    result = with_agent(play, say="short_ok")
    assert [type(failure) for failure in result.failures] == [TargetClosed]
    assert [call.failure is None for call in result.calls] == [True, False]


def test_a_run_that_could_record_nothing_has_failures_and_no_call(
    with_agent: Any, write_suite: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> probe.RunResult:
        limits = probe.Limits(min_free_bytes=1 << 62)
        return await probe.run(
            write_suite(asks(1)), target=url, out=tmp_path / "run", limits=limits
        )

    result = with_agent(play)
    assert (result.calls, result.turns, len(result.failures)) == ((), (), 1)
    with pytest.raises(probe.NotMeasured):
        result.p50("ttfa")


# -- the real clock ---------------------------------------------------------------------------


@pytest.mark.wallclock
@pytest.mark.parametrize("loop_factory", [None, probe.new_event_loop], ids=["plain", "stamping"])
def test_a_call_on_a_real_loop_holds_the_truth_in_its_bounds(
    write_suite: Any, tmp_path: Path, loop_factory: Any
) -> None:
    scenario = asks(1)
    scenario["steps"][0] = {"say": None, "clip": "backchannel/mm_hm", "at": "0.1 s"}
    knobs = {"greeting": False, "reply_delay": 0.2, "say": "short_ok"}
    truth = tmp_path / "truth.jsonl"

    async def main() -> probe.CallResult:
        clips = data_root() / "clips"
        async with await serve(Behaviour(**knobs), "127.0.0.1", 0, truth, clips) as agent:
            suite = write_suite(scenario)
            async with probe.call(suite, target=agent.url, out=tmp_path / "run") as call:
                return await call.result()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        result = runner.run(main())
    assert result.failure is None
    value = result.turns[0].metric("ttfa")
    lines = map(json.loads, truth.read_text().splitlines())
    (turn,) = [line for line in lines if line["type"] == "turn"]
    told = turn["microphone"]["ttfa"]
    # How wide the bounds are is the machine's affair; that they meet the truth's is not.
    assert isinstance(value, probe.Measured)
    assert value.lo <= told["hi"]
    assert value.hi >= told["lo"]


def test_the_examples_of_the_documentation_work() -> None:
    assert doctest.testmod(probe).failed == 0
    assert doctest.testmod(probe).attempted > 0
