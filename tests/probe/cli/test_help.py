"""Help is quick and whole, and every option may come from the environment."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vakforge_probe.cli.run import run
from vakforge_probe.protocol.openai_profile import WORDS

COMMANDS = [
    "demo", "run", "report", "agent", "capture verify", "capture recover", "validate", "schema",
    "doctor",
]  # fmt: skip

HEAVY = (
    "asyncio", "jinja2", "jsonschema", "numpy", "pydantic", "rich", "scipy", "sounddevice",
    "soundfile", "soxr", "webrtcvad", "websockets", "yaml",
)  # fmt: skip

TRY = """
import sys
from vakforge_probe.cli.app import main
sys.argv = {argv!r}
try:
    main()
except SystemExit:
    pass
print(sorted(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["", "run", "doctor"])
def test_help_loads_nothing_heavy(command: str) -> None:
    argv = ["vakforge-probe", *command.split(), "--help"]
    done = subprocess.run(
        [sys.executable, "-c", TRY.format(argv=argv, heavy=HEAVY)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Usage:" in done.stdout
    # Some versions of typer read a command's options by means of pydantic.
    assert done.stderr.strip() in (["[]", "['pydantic']"] if command else ["[]"])


@pytest.mark.wallclock
def test_help_takes_less_than_0_4_s_of_a_processor() -> None:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "vakforge_probe", "--help"]
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.4


def test_help_lists_every_command_and_exit_code(cli: Any) -> None:
    said = cli("--help")
    assert said.code == 0
    for command in COMMANDS:
        assert command.split()[0] in said.out
    for code in ("0", "2", "3", "4", "5", "130/143"):
        assert re.search(rf"\b{code}\b", said.out)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_by_which_variable_it_may_be_set(cli: Any, command: str) -> None:
    text = " ".join(cli(*command.split(), "--help").out.split())
    options = re.findall(r" (--[a-z-]+)", text.partition("Options:")[2])
    options = [o for o in dict.fromkeys(options) if o not in ("--help", "--tls-cert")]
    prefix = f"VAKFORGE_PROBE_{command.replace(' ', '_').upper()}_"
    for option in options:
        assert prefix + option[2:].replace("-", "_").upper() in text, option
    assert "--json" in options


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_its_words(cli: Any, command: str) -> None:
    options = cli(*command.split(), "--help").out.partition("Options:")[2]
    for line in options.splitlines():
        if re.match(r"  (-\w, )?--", line):
            assert re.search(r"  [A-Z]", line[10:]) or line.endswith(">"), line


def test_no_command_is_a_mistake_with_help(cli: Any) -> None:
    said = cli()
    assert said.code == 2
    assert "Usage:" in said.out + said.err


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["run", "latency", "--traget", "x"], "--target"),
        (["valdate", "x"], "validate"),
        (["schema", "scenrio"], "did you mean 'scenario'"),
        (["schema", "nope"], "scenario, targets, report"),
        (["agent", "--set", "pacing=x0"], "a pace of x0 never ends"),
        (["run", "latency"], "--target"),
        (["agent", "--port", "99999"], "65535"),
        (["demo", "--repeats", "0"], "1"),
    ],
)
def test_a_wrong_command_line_is_exit_2_and_names_what_would_be_right(
    cli: Any, args: list[str], hint: str
) -> None:
    said = cli(*args)
    assert said.code == 2
    assert hint in said.err
    assert "Value error" not in said.err
    assert said.out == ""


def test_the_version_is_told(cli: Any) -> None:
    said = cli("--version")
    assert said.code == 0
    assert re.fullmatch(r"vakforge-probe \d+\.\d+\.\d+\n", said.out)


def test_flags_and_values_come_from_the_environment(cli: Any) -> None:
    env = {"VAKFORGE_PROBE_VALIDATE_JSON": "1", "VAKFORGE_PROBE_VALIDATE_PROTOCOL": "nonsense"}
    said = cli("validate", "demo", env=env)
    assert said.code == 2
    assert said.document["error"]["value"] == "nonsense"


def test_the_command_line_wins_over_the_environment(cli: Any) -> None:
    env = {"VAKFORGE_PROBE_VALIDATE_PROTOCOL": "nonsense"}
    assert cli("validate", "demo", "--protocol", "openai-realtime", env=env).code == 0


def test_settings_of_the_agent_come_from_the_environment(cli: Any) -> None:
    env = {"VAKFORGE_PROBE_AGENT_SET": "reply_delay=0.5 nonsense=1"}
    said = cli("agent", env=env)
    assert said.code == 2
    assert "nonsense" in said.err


def test_headers_come_from_the_environment_one_a_line(cli: Any, short_suite: Any) -> None:
    env = {"VAKFORGE_PROBE_RUN_HEADER": "X-A=a b\nAuthorization=Bearer ${env:NO_SUCH_KEY}"}
    said = cli("run", short_suite, "--target", "ws://127.0.0.1:1/", env=env)
    assert said.code == 2
    assert "NO_SUCH_KEY is not set" in said.err


def test_every_word_of_a_profile_is_explained() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    shown = re.findall(r"[a-z0-9]+", str(run.__annotations__["protocol"]))
    for word in WORDS:
        assert f"`{word}`" in readme, word
        assert word == "auto" or word in shown, word
