"""Reports of real captures: calls against the reference agent on virtual time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import soundfile

from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.report.build import find_captures, make_report
from vakforge_eval.report.schema import validate
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.server import serve
from vakforge_probe.campaign import System, plan_campaign, run_campaign
from vakforge_probe.net.virtual import run
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loader import load_suite
from vakforge_probe.target import Target

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

FILES = ("report.json", "report.md", "report.html")


def record(folder: Path, suite: str = "latency", number: int = 0) -> Path:
    """Record one base and one tuned call into `folder`, with 900 and 400 ms of reply delay."""

    async def main() -> None:
        clips = data_root() / "clips"
        async with await serve(Behaviour(), "127.0.0.1", 0, None, clips) as agent:
            systems = [
                System(
                    name, Target(url=f"{agent.url}?reply_delay={delay}&reply_length=5", label=name)
                )
                for name, delay in (("base", 0.9), ("tuned", 0.4))
            ]
            chosen = load_suite(suite).scenarios[number : number + 1]
            plans = plan_campaign(systems, chosen, folder=folder, repeats=1)
            await run_campaign(plans, concurrency=2)

    run(main())
    return folder


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("run") / "calls")


@pytest.fixture(scope="module")
def duplex_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("duplex") / "calls", "demo", 1)


def test_a_report_of_interruptions_holds_their_outcomes_and_verdicts(duplex_calls: Path) -> None:
    document = make_report(find_captures(duplex_calls))
    validate(document)
    assert {item["kind"] for item in document["outcomes"]} > {"barge_in"}
    for counts in document["expectations"].values():
        assert sum(counts.values()) > 0
    row = next(row for row in document["turns"] if row["kind"] == "barge_in")
    assert row["outcome"] == "stopped"
    assert row["metrics"]["stop_heard"]["value"] > 0
    sample = next(sample for sample in document["samples"] if sample["kind"] == "barge_in")
    marks = [mark["name"] for mark in sample["answers"]["tuned"]["timeline"]["marks"]]
    assert "agent silent" in marks


def test_the_same_interruptions_give_the_same_bytes(duplex_calls: Path, tmp_path: Path) -> None:
    found = find_captures(duplex_calls)
    for name, captures in (("one", found), ("two", list(reversed(found)))):
        make_report(captures, out=tmp_path / name)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_report_of_captures_fits_its_schema_and_holds_the_change(calls: Path) -> None:
    document = make_report(find_captures(calls))
    validate(document)
    assert document["systems"] == ["base", "tuned"]
    ttfa = next(row for row in document["summary"] if row["metric"] == "ttfa")
    assert ttfa["systems"]["base"]["p50"] == 0.9
    assert ttfa["systems"]["tuned"]["p50"] == 0.4
    assert ttfa["delta"] == pytest.approx(-0.5)


def test_the_same_captures_give_the_same_bytes_wherever_they_lie(
    calls: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere" / "calls"
    shutil.copytree(calls, moved)
    make_report(find_captures(calls), out=tmp_path / "one")
    make_report(list(reversed(find_captures(moved))), out=tmp_path / "two")
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert str(tmp_path) not in (tmp_path / "two" / "report.json").read_text()


def test_samples_are_linked_to_audio_of_their_own_turn(calls: Path, tmp_path: Path) -> None:
    document = make_report(find_captures(calls), out=tmp_path)
    assert json.loads((tmp_path / "report.json").read_text()) == document
    answers = [a for sample in document["samples"] for a in sample["answers"].values()]
    assert len(answers) == 4
    for answer in answers:
        pcm, rate_hz = soundfile.read(tmp_path / answer["audio"], dtype="int16")
        lanes = answer["timeline"]
        assert len(pcm) / rate_hz == pytest.approx(lanes["duration"], abs=0.001)
        for channel, name in enumerate(("user", "agent")):
            start, end = lanes[name][-1]
            inside = pcm[round(start * rate_hz) : round(end * rate_hz), channel]
            assert abs(inside).max() > 500
            assert not pcm[round((end + 0.05) * rate_hz) :, channel].any()


def test_a_baseline_may_be_named_apart(calls: Path) -> None:
    found = find_captures(calls)
    base = [path for path in found if "base" in path.name]
    tuned = [path for path in found if "tuned" in path.name]
    document = make_report(base, baseline=tuned)
    assert document["systems"] == ["base", "tuned"]
    ttfa = next(row for row in document["summary"] if row["metric"] == "ttfa")
    assert ttfa["delta"] == pytest.approx(0.5)


def test_one_system_is_no_comparison(calls: Path) -> None:
    tuned = [path for path in find_captures(calls) if "tuned" in path.name]
    document = make_report(tuned)
    assert document["systems"] == ["tuned"]
    assert any(banner["kind"] == "no_baseline" for banner in document["banners"])


def test_a_capture_a_run_and_a_folder_of_captures_are_found(calls: Path) -> None:
    one = find_captures(calls)[0]
    assert find_captures(one) == [one]
    assert find_captures(calls) == find_captures(calls.parent)


def test_a_torn_capture_and_a_file_are_told_apart_from_none(calls: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(find_captures(calls)[0], torn)
    (torn / "index.json").unlink()
    with pytest.raises(CaptureError, match="recover"):
        find_captures(torn)
    with pytest.raises(CaptureError, match="not a folder"):
        find_captures(torn / "header.json")
    (tmp_path / "empty").mkdir()
    assert find_captures(tmp_path / "empty") == []


def test_two_runs_that_differ_in_nothing_are_pooled(calls: Path, tmp_path: Path) -> None:
    again = record(tmp_path / "calls")
    document = make_report([*find_captures(calls), *find_captures(again)])
    ttfa = next(row for row in document["summary"] if row["metric"] == "ttfa")
    assert ttfa["systems"]["tuned"]["n"] == 4
    # The same conversation twice is no second piece of evidence.
    assert ttfa["systems"]["tuned"]["clusters"] == 1
