"""``agent``, ``demo`` and ``doctor``."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.reader import Capture
from vakforge_probe import machine
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.process import AgentProcess
from vakforge_probe.machine import Finding
from vakforge_probe.scenario import loader


def test_all_settings_are_listed_with_default_and_words(cli: Any) -> None:
    said = cli("agent", "--settings")
    assert said.code == 0
    lines = said.out.splitlines()
    names = [line.partition(" = ")[0] for line in lines[::2]]
    assert names == list(Behaviour.model_fields)
    for words in lines[1::2]:
        assert re.match(r"    \S.{8,}[.)]$", words), words
    assert "reply_delay = 0.5" in lines
    assert "greeting = true" in lines
    assert "noise_dbfs = (unset)" in lines


def test_settings_are_listed_for_programs(cli: Any) -> None:
    settings = cli("agent", "--settings", "--json").document["settings"]
    (setting,) = [setting for setting in settings if setting["name"] == "reply_delay"]
    assert setting["default"] == 0.5
    assert "last voiced sample" in setting["description"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "reply_dely=1"], "did you mean 'reply_delay'"),
        (["--set", "reply_delay=soon"], "reply_delay"),
        (["--set", "reply_delay"], "key=value"),
        (["--set", "seed=1", "--set", "seed=2"], "twice"),
        (["--tls-port", "0"], "go together"),
        (["--tls-cert", "c.pem", "--tls-key", "k.pem"], "go together"),
        (["--tls-port", "0", "--tls-cert", "c.pem", "--tls-key", "k.pem"], "No such file"),
        (["--host", "203.0.113.1", "--port", "0"], "cannot be served"),
        (["--port", "0", "--truth", "no/such/folder/truth.jsonl"], "cannot be served"),
    ],
)
def test_a_bad_option_is_exit_2(cli: Any, options: list[str], words: str) -> None:
    said = cli("agent", *options)
    assert (said.code, said.out) == (2, "")
    assert words in said.err


def test_a_port_that_is_taken_is_exit_2(cli: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said = cli("agent", "--port", listener.getsockname()[1], "--json")
    assert said.code == 2
    assert "in use" in said.document["error"]["message"]


@pytest.mark.wallclock
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_tells_its_url_in_json_and_how_to_use_it_in_words(
    start_cli: Any, number: signal.Signals, code: int
) -> None:
    process = start_cli("agent", "--port", 0)
    url = json.loads(process.stdout.readline())["url"]
    assert re.fullmatch(r"ws://127\.0\.0\.1:\d+/v1/realtime", url)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (code, "")
    assert f"reference agent at {url}" in err
    assert "vakforge-probe run latency --target" in err


@pytest.mark.wallclock
def test_it_speaks_tls_and_the_probe_checks_its_certificate(
    start_cli: Any, cli: Any, make_certificate: Any, write_suite: Any, tmp_path: Path
) -> None:
    certificate = make_certificate()
    process = start_cli(
        "agent", "--tls-port", 0, "--tls-cert", certificate.cert_file,
        "--tls-key", certificate.key_file, "--quiet",
    )  # fmt: skip
    url = json.loads(process.stdout.readline())["url"]
    assert url.startswith("wss://")
    suite = write_suite({"id": "hello", "steps": [{"hang_up": None, "at": "0.2 s"}]})
    said = cli("run", suite, "--target", url, "--ca", certificate.cert_file, "--out", "good")
    assert (said.code, said.err) == (4, "nothing was measured (exit code 4)\n")
    (capture,) = (tmp_path / "good" / "calls").iterdir()
    phases = [line["name"] for line in Capture.open(capture).journal if line["type"] == "phase"]
    assert phases == ["resolve", "connect", "tls", "handshake", "ready"]
    said = cli("run", suite, "--target", url, "--out", "bad")
    assert said.code == 3
    assert "refused in phase tls" in said.err
    assert "certificate" in said.out


@pytest.mark.wallclock
def test_plain_and_tls_are_served_at_once_with_one_truth_log(
    start_cli: Any, cli: Any, make_certificate: Any, write_suite: Any, tmp_path: Path
) -> None:
    certificate = make_certificate()
    truth = tmp_path / "truth.jsonl"
    process = start_cli(
        "agent", "--port", 0, "--tls-port", 0, "--tls-cert", certificate.cert_file,
        "--tls-key", certificate.key_file, "--truth", truth, "--quiet",
    )  # fmt: skip
    urls = json.loads(process.stdout.readline())
    suite = write_suite({"id": "hello", "steps": [{"hang_up": None, "at": "0.2 s"}]})
    for name, scheme in (("url", "ws"), ("tls_url", "wss")):
        assert urls[name].startswith(f"{scheme}://")
        said = cli(
            "run", suite, "--target", urls[name], "--ca", certificate.cert_file, "--out", name
        )
        assert said.code == 4, said.err
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    lines = map(json.loads, truth.read_text().splitlines())
    assert [line["connection"] for line in lines if line["type"] == "connected"] == ["1", "2"]


@pytest.mark.wallclock
def test_it_answers_webrtc_offers_on_a_port_of_their_own(
    start_cli: Any, cli: Any, write_suite: Any, tmp_path: Path
) -> None:
    process = start_cli("agent", "--port", 0, "--webrtc-port", 0, "--quiet")
    urls = json.loads(process.stdout.readline())
    assert set(urls) == {"url", "webrtc_url"}
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1/realtime/calls", urls["webrtc_url"])
    suite = write_suite({"id": "hello", "steps": [{"hang_up": None, "at": "0.2 s"}]})
    options = ("--target", urls["webrtc_url"], "--protocol", "openai-webrtc", "--out", "out")
    said = cli("run", suite, *options)
    assert (said.code, said.err) == (4, "nothing was measured (exit code 4)\n")
    (capture,) = (tmp_path / "out" / "calls").iterdir()
    phases = [line["name"] for line in Capture.open(capture).journal if line["type"] == "phase"]
    assert phases == ["gather", "signal", "ice", "dtls", "channel", "ready"]
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=20)[0], process.returncode) == ("", 143)


@pytest.mark.parametrize("command", ["agent", "run"])
def test_without_aiortc_webrtc_is_exit_2_and_leaves_nothing(
    cli: Any, short_suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in ("agent.webrtc", "net.peer", "net.coded_track"):
        monkeypatch.delitem(sys.modules, f"vakforge_probe.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "aiortc", None)
    if command == "agent":
        said = cli("agent", "--port", 0, "--webrtc-port", 0)
    else:
        target = ("--target", "http://127.0.0.1:1/", "--protocol", "whip")
        said = cli("run", short_suite, *target, "--out", "out")
    assert said.code == 2
    assert "pip install 'vakforge-probe[webrtc]'" in said.err
    assert not [path for path in tmp_path.glob("out/**/*") if path.is_file()]


def test_a_child_agent_does_not_take_the_users_own_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VAKFORGE_PROBE_AGENT_SETTINGS", "1")
    with AgentProcess() as agent:
        assert os.getsid(agent.pid) == agent.pid, "Ctrl-C would reach it"
        pid = agent.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- demo -----------------------------------------------------------------------------------------


@pytest.mark.wallclock
def test_the_demo_compares_two_settings_of_its_own_agent(
    cli: Any, short_suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loader.load_suite
    monkeypatch.setattr(loader, "load_suite", lambda name: real(short_suite))
    said = cli("demo", "--out", "out", "--json")
    assert said.code in (0, 4)
    document = said.document
    assert document["systems"] == ["base", "tuned"]
    assert len(document["turns"]) == 2
    base, tuned = (turn["metrics"]["ttfa"]["value"] for turn in document["turns"])
    assert tuned < base
    assert "calls 2/2" in said.err
    assert document["hardware"]["base"]["reply_delay"] == 0.9
    truth = (tmp_path / "out" / "truth.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["type"] == "turn" for line in truth) == 2


# -- doctor ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("note", 0), ("bad", 4)])
def test_the_doctors_verdict_is_the_exit_code(
    cli: Any, monkeypatch: pytest.MonkeyPatch, verdict: Any, code: int
) -> None:
    findings = [Finding("clock", "ok", "fine", {}), Finding("pacing", verdict, "words", {"n": 1})]
    monkeypatch.setattr(machine, "examine", lambda: findings)
    said = cli("doctor", "--json")
    assert said.code == code
    assert said.document == {"findings": [finding.to_json() for finding in findings]}
    assert f"{verdict:<4} pacing: words" in said.err
    quiet = cli("doctor", "-q")
    assert quiet.out == ""
    assert (quiet.err == "") == (code == 0)


@pytest.mark.wallclock
def test_the_doctor_looks_at_this_machine(cli: Any) -> None:
    said = cli("doctor")
    assert said.code in (0, 4)
    for name in ("machine", "clock", "pacing", "stamps", "disk", "libraries"):
        assert f" {name}: " in said.out + said.err
