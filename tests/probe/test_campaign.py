"""Campaigns: the order of their calls, seeds, concurrency, and how they are stopped."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.events import Event
from vakforge_probe.call import CallOutcome, CallPlan
from vakforge_probe.campaign import (
    Progress,
    System,
    new_folder,
    plan_campaign,
    run_campaign,
    systems_of,
)
from vakforge_probe.errors import CaptureFault, ConfigError, TargetRefused
from vakforge_probe.limits import Limits
from vakforge_probe.net.virtual import run
from vakforge_probe.scenario.loaded import LoadedScenario
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

QUESTION = "en/order_delivery_date"
BASE = System("base", Target(url="ws://127.0.0.1:1/", label="b"))
TUNED = System("tuned", Target(url="ws://127.0.0.1:1/", label="t"))


def brief(scenario_id: str, **facts: Any) -> dict[str, Any]:
    """A scenario of half a second in which nobody speaks."""
    return {"id": scenario_id, "steps": [{"hang_up": None, "at": "0.5 s"}], **facts}


@pytest.fixture
def scenarios(write_suite: Callable[..., Path]) -> Callable[..., tuple[LoadedScenario, ...]]:
    def load(*found: dict[str, Any], **facts: Any) -> tuple[LoadedScenario, ...]:
        return load_suite(write_suite(*found, **facts)).scenarios

    return load


def order_of(plans: Sequence[CallPlan]) -> list[tuple[str, str, int]]:
    return [(p.system, p.compiled.script.id, p.repeat) for p in plans]


# -- planning ---------------------------------------------------------------------------------


def test_systems_take_turns_and_the_first_one_alternates(scenarios: Any, tmp_path: Path) -> None:
    plans = plan_campaign(
        [BASE, TUNED], scenarios(brief("a"), brief("b")), folder=tmp_path, repeats=2
    )
    assert order_of(plans) == [
        ("base", "a", 0),
        ("tuned", "a", 0),
        ("tuned", "b", 0),
        ("base", "b", 0),
        ("tuned", "a", 1),
        ("base", "a", 1),
        ("base", "b", 1),
        ("tuned", "b", 1),
    ]
    assert [p.order for p in plans] == list(range(8))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_each_system_goes_first_equally_often_in_every_scenario(
    scenarios: Any, tmp_path: Path, n: int
) -> None:
    chosen = scenarios(*(brief(f"s{i}") for i in range(n)))
    plans = plan_campaign([BASE, TUNED], chosen, folder=tmp_path, repeats=6)
    for name in {p.compiled.script.id for p in plans}:
        own = [p.system for p in plans if p.compiled.script.id == name]
        assert own[::2].count("base") == own[::2].count("tuned") == 3


def test_both_systems_get_the_same_stimulus(scenarios: Any, tmp_path: Path) -> None:
    chosen = scenarios(brief("a", seed=7), brief("b"), seed=3)
    plans = plan_campaign([BASE, TUNED], chosen, folder=tmp_path, repeats=2, seed=100)
    by_pair: dict[tuple[str, int], set[tuple[int, str]]] = {}
    for p in plans:
        key = (p.compiled.script.id, p.repeat)
        by_pair.setdefault(key, set()).add((p.seed, p.compiled.script.content_hash))
    assert all(len(stimuli) == 1 for stimuli in by_pair.values())
    seeds = {key: next(iter(stimuli))[0] for key, stimuli in by_pair.items()}
    assert seeds == {("a", 0): 107, ("a", 1): 108, ("b", 0): 103, ("b", 1): 104}


def test_repeats_of_a_call_are_spread_over_the_frame(scenarios: Any, tmp_path: Path) -> None:
    plans = plan_campaign([TUNED], scenarios(brief("a")), folder=tmp_path, repeats=200)
    phases = [p.compiled.phase_ns(p.seed) for p in plans]
    assert all(0 <= phase < 20_000_000 for phase in phases)
    per_quarter = [sum(phase // 5_000_000 == quarter for phase in phases) for quarter in range(4)]
    assert min(per_quarter) > 30


def test_scenarios_have_their_own_repeats_unless_told_otherwise(
    scenarios: Any, tmp_path: Path
) -> None:
    chosen = scenarios(brief("a", repeats=3), brief("b"), repeats=1)
    plans = plan_campaign([TUNED], chosen, folder=tmp_path)
    assert order_of(plans) == [
        ("tuned", "a", 0),
        ("tuned", "b", 0),
        ("tuned", "a", 1),
        ("tuned", "a", 2),
    ]
    assert len(plan_campaign([TUNED], chosen, folder=tmp_path, repeats=5)) == 10


def test_every_call_has_a_folder_of_its_own_with_a_plain_name(
    scenarios: Any, tmp_path: Path
) -> None:
    plans = plan_campaign(
        [BASE, TUNED],
        scenarios(brief("a" * 60), brief("b" * 60)),
        folder=tmp_path,
        repeats=2,
    )
    folders = {p.folder for p in plans}
    assert len(folders) == len(plans)
    for p in plans:
        assert p.folder.parent == tmp_path
        assert p.call_id.startswith(f"{p.folder.name}-")
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,130}", p.call_id)


def test_no_two_runs_share_a_call_id(scenarios: Any, tmp_path: Path) -> None:
    chosen = scenarios(brief("a"), brief("b"))
    ids = [
        {p.call_id for p in plan_campaign([BASE, TUNED], chosen, folder=tmp_path)} for _ in range(2)
    ]
    assert len(ids[0]) == len(ids[1]) == 4
    assert not ids[0] & ids[1]


def test_two_scenarios_of_one_name_from_two_files_are_refused(
    write_suite: Any, tmp_path: Path
) -> None:
    chosen = [
        loaded
        for name in ("one", "two")
        for loaded in load_suite(write_suite(brief("a"), name=name)).scenarios
    ]
    with pytest.raises(ConfigError, match="another scenario has this id") as caught:
        plan_campaign([TUNED], chosen, folder=tmp_path)
    assert caught.value.file is not None
    assert caught.value.file.endswith("two.yaml")
    assert caught.value.line == 1


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 41, "-a", "тест"])
def test_a_system_has_a_plain_name(name: str) -> None:
    with pytest.raises(ConfigError, match="--name"):
        systems_of(TUNED.target, None, name)


def test_a_system_is_not_called_like_its_baseline() -> None:
    with pytest.raises(ConfigError, match="baseline's name"):
        systems_of(TUNED.target, BASE.target, "base")
    assert systems_of(TUNED.target, None, "base") == [System("base", TUNED.target)]
    assert systems_of(TUNED.target, BASE.target, "v2") == [BASE, System("v2", TUNED.target)]


# -- the run's folder -------------------------------------------------------------------------


def test_a_run_has_a_new_folder_under_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [new_folder() for _ in range(3)]
    assert len(set(folders)) == 3
    for folder in folders:
        assert folder.is_dir()
        assert re.fullmatch(r"runs/\d{8}T\d{6}Z(-\d)?", str(folder))


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert new_folder(out) == out
    assert new_folder(out) == out
    (out / "file").touch()
    with pytest.raises(ConfigError, match="new or empty"):
        new_folder(out)
    with pytest.raises(ConfigError, match="cannot be made"):
        new_folder(out / "file")


# -- running ----------------------------------------------------------------------------------


def planned(
    url: str, found: Sequence[LoadedScenario], folder: Path, repeats: int, **limits: Any
) -> list[CallPlan]:
    system = System("tuned", Target(url=url, label="target"))
    return plan_campaign([system], found, folder=folder, repeats=repeats, limits=Limits(**limits))


@pytest.mark.parametrize("concurrency", [1, 3, 20])
def test_no_more_calls_run_at_once_than_asked_for(
    with_agent: Any, scenarios: Any, tmp_path: Path, concurrency: int
) -> None:
    seen: list[tuple[int, int, int]] = []

    def note(progress: Progress) -> None:
        seen.append((progress.planned, progress.done, len(progress.running)))

    async def play(url: str) -> tuple[list[CallOutcome], float]:
        plans = planned(url, scenarios(brief("a")), tmp_path, repeats=6)
        outcomes = await run_campaign(plans, concurrency=concurrency, on_progress=note)
        return outcomes, asyncio.get_running_loop().time()

    outcomes, took_s = with_agent(play)
    assert [o.plan.order for o in outcomes] == list(range(6))
    assert {o.reason for o in outcomes} == {"hang_up"}
    assert max(running for _, _, running in seen) == min(concurrency, 6)
    assert seen[-1] == (6, 6, 0)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    n_rounds = -(-6 // concurrency)
    assert took_s == pytest.approx(0.5 * n_rounds, abs=0.05 * n_rounds)


def test_failed_calls_are_counted_and_the_others_go_on(scenarios: Any, tmp_path: Path) -> None:
    last: list[int] = []

    async def main() -> list[CallOutcome]:
        plans = planned("ws://127.0.0.1:1/", scenarios(brief("a")), tmp_path, repeats=3)
        return await run_campaign(plans, on_progress=lambda p: last.append(p.failed))

    outcomes = run(main())
    assert len(outcomes) == 3
    assert all(isinstance(o.failure, TargetRefused) for o in outcomes)
    assert last[-1] == 3
    assert all(Capture.open(o.capture).verify() == [] for o in outcomes)


def test_no_call_at_all_is_no_campaign() -> None:
    async def main() -> list[CallOutcome]:
        return await run_campaign([], concurrency=4)

    assert run(main()) == []


def test_less_than_one_call_at_once_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="never begin"):
        run(run_campaign([], concurrency=0))


@pytest.mark.parametrize("at_s", [0.0, 0.2, 0.7])
def test_a_stop_hangs_up_what_runs_and_starts_nothing(
    with_agent: Any, scenarios: Any, tmp_path: Path, at_s: float
) -> None:
    async def play(url: str) -> list[CallOutcome]:
        plans = planned(url, scenarios(brief("a")), tmp_path, repeats=10)
        stop = asyncio.Event()
        if at_s:
            asyncio.get_running_loop().call_later(at_s, stop.set)
        else:
            stop.set()
        return await run_campaign(plans, concurrency=2, stop=stop)

    outcomes = with_agent(play)
    n_done = 2 * int(at_s / 0.5)
    n_begun = n_done + (2 if at_s else 0)
    reasons = [o.reason for o in outcomes]
    assert reasons == ["hang_up"] * n_done + ["stopped"] * (n_begun - n_done)
    assert all(Capture.open(o.capture).verify() == [] for o in outcomes)
    assert len(list(tmp_path.glob("*/index.json"))) == n_begun


def test_a_bug_in_one_call_is_raised_as_it_is_after_the_others_have_closed(
    with_agent: Any, scenarios: Any, tmp_path: Path
) -> None:
    def refuse(plan: CallPlan, event: Event) -> None:
        if plan.order == 1:
            raise ZeroDivisionError("my bug")

    async def play(url: str) -> None:
        plans = planned(url, scenarios(brief("a")), tmp_path, repeats=6)
        with pytest.raises(ZeroDivisionError, match="my bug"):
            await run_campaign(plans, concurrency=2, on_event=refuse)

    with_agent(play)
    assert sorted(p.name[:4] for p in tmp_path.glob("0*")) == ["0000", "0001"]
    assert all(Capture.open(p).verify() == [] for p in tmp_path.glob("0*"))


def test_a_cancelled_campaign_closes_its_captures(
    with_agent: Any, scenarios: Any, tmp_path: Path
) -> None:
    async def play(url: str) -> None:
        plans = planned(url, scenarios(brief("a")), tmp_path, repeats=6)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await run_campaign(plans, concurrency=2)

    with_agent(play)
    folders = list(tmp_path.glob("0*"))
    assert len(folders) == 4
    assert all(Capture.open(p).verify() == [] for p in folders)


def test_a_call_whose_capture_cannot_begin_is_an_outcome_and_nothing_is_dialled(
    scenarios: Any, tmp_path: Path
) -> None:
    async def main() -> list[CallOutcome]:
        plans = planned(
            "ws://127.0.0.1:1/", scenarios(brief("a")), tmp_path, repeats=2,
            min_free_bytes=1 << 62,
        )  # fmt: skip
        return await run_campaign(plans)

    outcomes = run(main())
    assert len(outcomes) == 2
    for outcome in outcomes:
        assert isinstance(outcome.failure, CaptureFault)
        assert "bytes are free" in (outcome.recorder_problem or "")
        assert not outcome.capture.exists()


def test_events_come_with_the_call_that_they_belong_to(
    with_agent: Any, scenarios: Any, tmp_path: Path
) -> None:
    ready: list[int] = []

    def note(plan: CallPlan, event: Event) -> None:
        if event.TYPE == "ready":
            ready.append(plan.order)

    async def play(url: str) -> None:
        plans = planned(url, scenarios(brief("a")), tmp_path, repeats=3)
        await run_campaign(plans, on_event=note)

    with_agent(play)
    assert ready == [0, 1, 2]
