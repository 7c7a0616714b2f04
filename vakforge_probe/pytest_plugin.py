"""The pytest plugin: scenarios as tests, by files and by a marker; the fixtures for both.

A suite file (``schema: 1`` with ``scenarios`` or ``steps``) that is named on pytest's command line,
or found while a target is set, becomes one test a scenario. A test function asks for calls by::

    @pytest.mark.scenario("duplex#barge-in")
    def test_stops(call):
        assert call.turns[1]["stop_heard"] < 0.7

Each of them gets one test a scenario and repeat. What the scenario expects (``expect:``) is
asserted in both, under the rules of the command ``run``: a missed expectation and a failed call
are failures; what could not be decided is shown as *undecided*, which fails the run as well.

Nothing else of the probe is imported before a call is asked for: this file is loaded in every
pytest run of an environment that the probe is installed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vakforge_probe.pytest_calls import Calls, Case
    from vakforge_probe.results import CallResult
    from vakforge_probe.scenario.loaded import LoadedScenario

__all__ = ["call", "voice_agent", "voice_call"]

_OPTIONS = (
    ("target", "URL|ALIAS", "the voice agent that scenarios call"),
    ("protocol", "NAME[/PROFILE]", "how it speaks"),
    ("targets", "FILE", "a targets.yaml with aliases"),
    ("repeats", "N", "calls of each scenario"),
    ("out", "DIR", "where captures are kept (default: with pytest's temporary files)"),
)
_SEVERAL = (
    ("header", "NAME=VALUE", "a handshake header; secrets only as ${env:NAME} or file:PATH"),
    (
        "agent",
        "KEY=VALUE",
        "call the reference agent with this setting instead of a target, in this process and on "
        "virtual time; 'default' changes none",
    ),
)
_MARKER = (
    "scenario(*references, agent=None, target=None, check=True): run the test once for each "
    "scenario that is meant (suite, FILE, either with #ID; files relative to the test's own), with "
    "its result as `call`. agent: settings of a reference agent to call; check: whether what the "
    "scenario expects is asserted"
)
_HEAD_BYTES = 65_536
_IS_SCHEMA = re.compile(r"""^[{\s]*["']?schema["']?\s*:\s*1\b""", re.MULTILINE)
_HAS_STEPS = re.compile(r"""(^|[{,])\s*["']?(scenarios|steps)["']?\s*:""", re.MULTILINE)
_REPEATS = re.compile(r"[1-9][0-9]{0,3}")
_UNDECIDED = "voice_undecided"
_CASE = pytest.StashKey["Case"]()
_CALLS = pytest.StashKey["Calls"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--voice-…`` options and the settings ``voice_…`` of the same names."""
    group = parser.getgroup("voice", "voice agents (vakforge-probe)")
    for name, metavar, text in _OPTIONS:
        group.addoption(f"--voice-{name}", metavar=metavar, help=text)
        parser.addini(f"voice_{name}", text)
    for name, metavar, text in _SEVERAL:
        group.addoption(f"--voice-{name}", metavar=metavar, action="append", help=text)
        parser.addini(f"voice_{name}", text, type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker; refuse options that cannot be meant, before anything is collected.

    Raises
    ------
    UsageError
        If an option is empty, if there are two targets, or if the repeats are no number.
    """
    config.addinivalue_line("markers", _MARKER)
    for name in (name for name, *_ in (*_OPTIONS, *_SEVERAL)):
        # A variable that is not set would skip every test, and the run would be green.
        if config.getoption(f"voice_{name}") in ("", [""]):
            raise pytest.UsageError(f"--voice-{name} is empty")
    if config.getoption("voice_target") and config.getoption("voice_agent"):
        raise pytest.UsageError("--voice-target and --voice-agent are one or the other")
    repeats = config.getoption("voice_repeats") or config.getini("voice_repeats")
    if repeats and not _REPEATS.fullmatch(repeats):
        raise pytest.UsageError(f"--voice-repeats: a number from 1 to 9999 (got {repeats!r})")


def calls_of(config: pytest.Config) -> Calls:
    """Return what places the calls of this run."""
    if _CALLS not in config.stash:
        from vakforge_probe.pytest_calls import Calls

        config.stash[_CALLS] = Calls(config)
    return config.stash[_CALLS]


def note_case(item: pytest.Item, case: Case) -> None:
    """Note which call a test is about, for the verdict on it and the report of a failure."""
    item.stash[_CASE] = case


# -- files ------------------------------------------------------------------------------------


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect suite files: those named on the command line, with a target set also those found."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    is_named = parent.session.isinitpath(file_path)
    if not (is_named or _has_target(parent.config)) or not _is_suite(file_path):
        return None
    from vakforge_probe.pytest_files import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path)


def _has_target(config: pytest.Config) -> bool:
    names = ("target", "agent")
    return any(config.getoption(f"voice_{n}") or config.getini(f"voice_{n}") for n in names)


def _is_suite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return _IS_SCHEMA.search(head) is not None and _HAS_STEPS.search(head) is not None


# -- functions --------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a marked test one run for each scenario and repeat."""
    marker = metafunc.definition.get_closest_marker("scenario")
    if marker is None or not _asks_for_our_call(metafunc):
        return
    from vakforge_probe.pytest_calls import cases

    found = cases(metafunc.config, marker, metafunc.definition.path.parent)
    metafunc.parametrize("call", found, indirect=True, ids=[case.name for case in found])


def _asks_for_our_call(metafunc: pytest.Metafunc) -> bool:
    """Whether `call` is the fixture of this plugin: another project may have one of its own."""
    known = getattr(metafunc, "_arg2fixturedefs", {}).get("call", ())
    return bool(known) and known[-1].func.__module__ == __name__


@pytest.fixture
def call(request: pytest.FixtureRequest) -> CallResult:
    """Return what the call of a test's scenario gave; needs ``@pytest.mark.scenario(…)``.

    Tests that ask for the same scenario, repeat and target share one call.
    """
    if not hasattr(request, "param"):
        pytest.fail("the fixture `call` needs @pytest.mark.scenario(…) on the test", pytrace=False)
    case: Case = request.param
    result = calls_of(request.config).place(case)
    note_case(request.node, case)
    return result


@pytest.fixture
def voice_call(request: pytest.FixtureRequest) -> Callable[..., CallResult]:
    """Return a caller: ``voice_call("latency#questions", agent={"reply_delay": 0.3})``.

    It takes one scenario by reference, and `agent`, `target` and `repeat` as the marker does; it
    returns what the call gave and asserts nothing.
    """
    from vakforge_probe.pytest_calls import one_case

    def place(scenario: str | Path | LoadedScenario, **aim: Any) -> CallResult:
        case = one_case(request.config, scenario, request.node.path.parent, **aim)
        return calls_of(request.config).place(case)

    return place


@pytest.fixture(scope="session")
def voice_agent() -> Iterator[Callable[..., str]]:
    """Return a maker of URLs of a reference agent: ``voice_agent(reply_delay=0.3)``.

    The agent is a process of its own on a loopback port, started once a session; settings hold for
    the connections to the URL that was made with them.
    """
    from vakforge_probe.pytest_calls import AgentUrls

    with AgentUrls() as urls:
        yield urls.url


# -- verdicts ---------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Assert what the scenario expects once the test itself has passed."""
    result = yield
    case = item.stash.get(_CASE, None)
    if case is not None and case.is_checked:
        calls_of(item.config).check(case)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the call of a failed test; mark what was not decided."""
    report = yield
    case = item.stash.get(_CASE, None)
    if case is None or report.when != "call" or not report.failed:
        return report
    from vakforge_probe.pytest_calls import Undecided

    report.sections.append(("voice call", calls_of(item.config).tell(case)))
    if call.excinfo is not None and call.excinfo.errisinstance(Undecided):
        report.__dict__[_UNDECIDED] = True  # kept when a worker hands the report over
    return report


def pytest_report_teststatus(report: Any) -> tuple[str, str, Any] | None:
    """Show what was not decided as neither passed nor failed; the exit code is a failure's."""
    if getattr(report, _UNDECIDED, False):
        return "undecided", "U", ("UNDECIDED", {"yellow": True})
    return None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell why what was not decided was not, and show its call."""
    reports = terminalreporter.getreports("undecided")
    if not reports:
        return
    terminalreporter.write_sep("=", "UNDECIDED", yellow=True)
    for report in reports:
        terminalreporter.write_sep("_", report.head_line or report.nodeid, yellow=True)
        terminalreporter.write_line(report.longreprtext)
        for title, text in report.sections:
            terminalreporter.write_sep("-", title)
            terminalreporter.write_line(text)
