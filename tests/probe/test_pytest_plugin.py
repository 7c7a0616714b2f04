"""The pytest plugin in pytest runs of its own, in this process; calls on virtual time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# What a run inside imports is dropped after it, and some modules cannot be imported twice.
import scipy.special  # noqa: F401
import webrtcvad  # noqa: F401

import vakforge_probe.agent.server
import vakforge_probe.pytest_files
from vakforge_probe.agent.process import AgentProcess

QUESTION = {"say": None, "clip": "en/order_delivery_date", "at": "0.2 s"}
END = {"hang_up": None, "at": "100 ms after agent end"}
PROMPT = "--voice-agent=greeting=false"


def scenario(name: str, *expect: str, **step: Any) -> dict[str, Any]:
    """Return a scenario of one question, and maybe of a step that disturbs the answer."""
    question = {**QUESTION, "expect": list(expect)} if expect else QUESTION
    return {"id": name, "steps": [question, *([step] if step else []), END]}


FAST = scenario("fast", "reply within 1 s")
SLOW = scenario("slow", "reply within 0.1 s")
# The agent's short answer ends by itself before it can be seen to talk through anything.
VOID = scenario("void", sham=None, at="100 ms after agent onset", expect="hold")


@pytest.fixture
def write(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Return a writer of suites into the folder of the run: ``write(*scenarios, name="own")``."""

    def go(*scenarios: dict[str, Any], name: str = "own") -> Path:
        defaults = {"locale": "en-US", "language": {"primary": "en"}}
        suite = {"schema": 1, "defaults": defaults, "scenarios": scenarios}
        path = pytester.path / f"{name}.yaml"
        path.write_text(json.dumps(suite))
        return path

    return go


@pytest.fixture
def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Return a runner of pytest with this plugin alone, in which any warning is an error."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def go(*args: object) -> pytest.RunResult:
        plugin = ("-p", "vakforge_probe.pytest_plugin", "-p", "no:cacheprovider", "-W", "error")
        return pytester.runpytest_inprocess(*plugin, *map(str, args))

    return go


# -- files ----------------------------------------------------------------------------------------


def test_a_suite_file_is_a_test_for_each_scenario(write: Any, run: Any) -> None:
    result = run(write(FAST, scenario("plain")), PROMPT, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["own.yaml::fast PASSED*", "own.yaml::plain PASSED*"])


def test_a_missed_expectation_fails_with_the_call_drawn_and_in_numbers(
    write: Any, run: Any
) -> None:
    result = run(write(SLOW), PROMPT)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*scenario slow*",
            "1 of 1 expectations is missed: slow, step 0 (say): reply within 0.1 s: *",
            "s      0 * 1 *",
            "user   *##*",
            "agent  *##*",
            'a *step 0 say "*',
            "*agent answers, 0.50 s after turn 0",
            "turn 0 (say)",
            "  ttfa_heard * 0.500 s  [[]0.*, 0.*[]]",
            "  fail: reply within 0.1 s: replied after 500 ms",
            "capture: *",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    (capture,) = re.findall(r"capture: (\S+)", result.stdout.str())
    assert (Path(capture) / "index.json").is_file()


def test_what_cannot_be_decided_is_neither_passed_nor_skipped_nor_green(
    write: Any, run: Any
) -> None:
    result = run(write(FAST, VOID), PROMPT, "--voice-agent=say=short_ok", "-v")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "own.yaml::void UNDECIDED*",
            "*= UNDECIDED =*",
            "*_ scenario void _*",
            "1 of 1 expectations is void or not measurable: void, step 1 (sham): hold: *",
            "step 1 (sham): ended, void",
            "*1 passed, 1 undecided*",
        ]
    )


def test_what_was_expected_of_a_step_that_was_left_out_is_undecided(write: Any, run: Any) -> None:
    late = scenario("late", sham=None, at="4 s after agent onset", expect="hold")
    result = run(write(late), PROMPT, "--voice-agent=say=short_ok")
    why = "was left out, since the agent did not speak so long"
    result.stdout.fnmatch_lines(
        [
            f"1 of 1 expectations is void or not measurable: late, step 1 (sham): hold: {why}",
            f"step 1 (sham) {why}",
            "*1 undecided*",
        ]
    )


def test_an_undecided_test_survives_the_way_from_a_worker(write: Any, pytester: Any) -> None:
    seen: list[str] = []

    class Worker:
        @pytest.hookimpl(trylast=True)
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call":
                sent = self.config.hook.pytest_report_to_serializable(
                    config=self.config, report=report
                )
                data = json.loads(json.dumps(sent))
                got = self.config.hook.pytest_report_from_serializable(
                    config=self.config, data=data
                )
                status = self.config.hook.pytest_report_teststatus(report=got, config=self.config)
                seen.append(status[0])

        def pytest_configure(self, config: pytest.Config) -> None:
            self.config = config

    args = [write(VOID), PROMPT, "--voice-agent=say=short_ok", "-p", "vakforge_probe.pytest_plugin"]
    pytester.inline_run(*map(str, args), plugins=[Worker()])
    assert seen == ["undecided"]


def test_a_target_that_is_not_there_fails_the_test_with_the_phase(write: Any, run: Any) -> None:
    result = run(write(scenario("plain")), "--voice-target=ws://127.0.0.1:1/")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["all calls failed: refused in phase connect"])


def test_a_wrong_option_or_file_is_named_and_nothing_is_dialled(write: Any, run: Any) -> None:
    suite = write(scenario("plain"))
    for option, words in {
        "--voice-target=prod": "*neither a ws:// or wss:// URL nor an alias*",
        "--voice-protocol=morse": "*morse*",
        "--voice-agent=reply_delai=1": "*did you mean 'reply_delay'*",
    }.items():
        extra = [] if "agent" in option or "-target" in option else ["--voice-target=ws://h:1/"]
        result = run(suite, option, *extra)
        assert result.ret not in (pytest.ExitCode.OK, pytest.ExitCode.INTERNAL_ERROR)
        assert any(line.strip() for line in result.outlines)
        lines = result.outlines + result.errlines
        assert [x for x in lines if re.search(words.strip("*").replace("*", ".*"), x)], lines
        assert not [x for x in lines if "Traceback" in x or "During handling" in x]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--voice-target="], "*--voice-target is empty"),
        (["--voice-agent="], "*--voice-agent is empty"),
        (["--voice-header=", "--voice-agent=default"], "*--voice-header is empty"),
        (["--voice-target=ws://h:1/", "--voice-agent=default"], "*one or the other"),
        (["--voice-repeats=0", "--voice-agent=default"], "*a number from 1 to 9999 (got '0')"),
        (["-o", "voice_repeats=x"], "*a number from 1 to 9999 (got 'x')"),
    ],
)
def test_options_that_cannot_be_meant_stop_the_run_before_anything_is_collected(
    write: Any, run: Any, options: list[str], words: str
) -> None:
    result = run(write(scenario("plain")), *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {words}"])
    assert "collecting" not in result.stdout.str()


def test_a_wrong_suite_is_a_collection_error_with_file_line_and_key(write: Any, run: Any) -> None:
    wrong = scenario("bad") | {"stepz": []}
    result = run(write(wrong), PROMPT)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*own.yaml:1: *stepz*did you mean 'steps'*"])
    assert "Traceback" not in result.stdout.str()


def test_a_suite_without_a_target_is_skipped_with_the_reason_if_it_was_named(
    write: Any, run: Any
) -> None:
    result = run(write(FAST), "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no target: --voice-target URL*"])
    assert run().ret == pytest.ExitCode.NO_TESTS_COLLECTED, "found, and nobody asked for it"


def test_suites_are_found_once_a_target_is_set_and_other_files_never(
    write: Any, run: Any, pytester: pytest.Pytester
) -> None:
    write(FAST)
    pytester.makefile(".yaml", targets="schema: 1\ntargets: {a: {url: 'ws://h/'}}\n")
    pytester.makefile(".yml", compose="services: {a: {image: b}}\nscenarios: none\n")
    (pytester.path / "binary.yaml").write_bytes(bytes(range(256)))
    pytester.makeini("[pytest]\nvoice_agent = greeting=false\n")
    run().assert_outcomes(passed=1)


def test_repeats_are_calls_of_their_own(write: Any, run: Any, pytester: pytest.Pytester) -> None:
    result = run(write(FAST), PROMPT, "--voice-repeats=2", "--voice-out=kept", "-v")
    result.stdout.fnmatch_lines(["own.yaml::fast PASSED*", "own.yaml::fast-1 PASSED*"])
    captures = sorted(pytester.path.glob("kept/*/calls/*/header.json"))
    assert sorted(json.loads(path.read_text())["seed"] for path in captures) == [0, 1]


# -- the marker -----------------------------------------------------------------------------------


def test_a_marked_test_runs_once_for_each_scenario_with_its_call(
    write: Any, run: Any, pytester: pytest.Pytester
) -> None:
    write(FAST, scenario("plain"))
    write(scenario("more"), name="second")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.scenario("own.yaml", "second.yaml#more", agent={"greeting": False})
        def test_answers(call):
            assert call.turns[0]["ttfa_heard"] == pytest.approx(0.5, abs=0.01)
            assert call.scenario in ("fast", "plain", "more")
            assert [v.status for v in call.expectations] in (["pass"], [])
        """
    )
    result = run("-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*::test_answers[[]fast[]] PASSED*", "*[[]more[]] PASSED*"])


def test_expectations_are_asserted_unless_the_marker_says_no(
    write: Any, run: Any, pytester: pytest.Pytester
) -> None:
    write(SLOW)
    pytester.makepyfile(
        """
        import pytest

        AGENT = {"greeting": False}

        @pytest.mark.scenario("own.yaml", agent=AGENT)
        def test_asserted(call):
            pass

        @pytest.mark.scenario("own.yaml", agent=AGENT, check=False)
        def test_looked_at(call):
            assert call.expectations[0].status == "fail"

        @pytest.mark.scenario("own.yaml", agent=AGENT)
        def test_own_assert(call):
            assert call.turns[0]["ttfa_heard"] < 0.2
        """
    )
    result = run("--voice-out=kept")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["1 of 1 expectations is missed:*", "*- voice call -*", "E *assert 0.* < 0.2*"]
    )
    assert len(list((pytester.path / "kept").iterdir())) == 1, "they share one call"


def test_without_a_target_a_marked_test_is_skipped_and_without_a_marker_told_so(
    run: Any, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.scenario("latency#questions")
        def test_marked(call):
            raise AssertionError("nobody was to be called")

        def test_bare(call):
            pass
        """
    )
    result = run("-rs")
    result.assert_outcomes(skipped=1, errors=1)
    result.stdout.fnmatch_lines(["*needs @pytest.mark.scenario*", "SKIPPED*no target*"])


def test_a_scenario_that_does_not_exist_is_a_collection_error_with_the_nearest(
    run: Any, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.scenario("latency#question")
        def test_marked(call):
            pass
        """
    )
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no such scenario*did you mean 'questions'*"])
    assert "During handling" not in result.stdout.str()


def test_a_caller_places_calls_that_the_test_itself_judges(
    write: Any, run: Any, pytester: pytest.Pytester
) -> None:
    write(SLOW)
    pytester.makepyfile(
        """
        def test_slower(voice_call):
            calls = [
                voice_call("own.yaml", agent={"greeting": False, "reply_delay": delay})
                for delay in (0.3, 0.6)
            ]
            quick, slow = (call.turns[0]["ttfa_heard"] for call in calls)
            assert 0.29 < slow - quick < 0.31
        """
    )
    run().assert_outcomes(passed=1)


@pytest.mark.wallclock
def test_a_reference_agent_serves_a_session_and_can_be_the_target(
    write: Any, run: Any, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    enter = AgentProcess.__enter__

    def counted(self: AgentProcess) -> AgentProcess:
        started.append(self)
        return enter(self)

    monkeypatch.setattr(AgentProcess, "__enter__", counted)
    # The agent's process is to find the package where this one did.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    write(scenario("plain"))
    pytester.makepyfile(
        """
        import pytest

        from vakforge_probe.errors import ConfigError

        def test_real_time(voice_agent, voice_call):
            url = voice_agent(greeting=False, reply_delay=0.2, say="short_ok")
            call = voice_call("own.yaml", target=url)
            assert call.reason == "hang_up"

        def test_settings(voice_agent):
            assert voice_agent().partition("?")[2] == ""
            assert voice_agent(greeting=False).partition("?")[2] == "greeting=false"
            with pytest.raises(ConfigError, match="did you mean 'reply_delay'"):
                voice_agent(reply_delai=1)
        """
    )
    run().assert_outcomes(passed=2)
    assert len(started) == 1


# -- other projects -------------------------------------------------------------------------------


def test_a_project_with_a_fixture_and_a_marker_of_the_same_names_keeps_them(
    run: Any, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nmarkers = scenario: ours\naddopts = --strict-markers\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def call():
            return "ours"

        @pytest.mark.scenario("anything")
        def test_ours(call):
            assert call == "ours"

        @pytest.mark.scenario
        def test_bare():
            pass
        """
    )
    run().assert_outcomes(passed=2)


def test_loading_it_loads_nothing_else_of_the_probe() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import vakforge_probe.pytest_plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["vakforge_probe", "vakforge_probe.pytest_plugin"]


def test_its_options_are_its_own_and_explained(run: Any) -> None:
    result = run("--help")
    text = result.stdout.str()
    assert "voice agents (vakforge-probe)" in text
    for name in ("target", "protocol", "targets", "repeats", "out", "header", "agent"):
        assert f"--voice-{name}=" in text
        assert f"voice_{name}" in text
    assert "@pytest.mark.scenario(*references" in run("--markers").stdout.str()


def test_the_package_installs_it() -> None:
    import tomllib

    root = Path(vakforge_probe.pytest_files.__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {
        "vakforge_probe.pytest_plugin": "vakforge_probe.pytest_plugin"
    }
