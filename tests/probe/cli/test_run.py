"""``run`` against a reference agent in real time: files, streams, exit codes, signals, secrets."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.recover import recover

CANARY = "canary-1f0e9d8c7b6a"


def captures(folder: Path) -> list[Capture]:
    return [Capture.open(path) for path in sorted((folder / "calls").iterdir())]


# -- what it does -----------------------------------------------------------------------------


@pytest.mark.wallclock
def test_a_run_leaves_captures_a_report_and_one_document(
    cli: Any, agent_url: str, short_suite: Path, tmp_path: Path
) -> None:
    said = cli("run", short_suite, "--target", agent_url, "--out", "out", "--json")
    document = said.document
    assert document == json.loads((tmp_path / "out" / "report.json").read_text())
    assert document["systems"] == ["tuned"]
    assert len(document["turns"]) == 1
    assert (tmp_path / "out" / "report.md").exists()
    assert (tmp_path / "out" / "report.html").exists()
    (capture,) = captures(tmp_path / "out")
    assert capture.verify() == []
    assert capture.header["stamp_source"] in ("kernel", "loop")
    assert "calls 1/1" in said.err
    assert "\nagent  " in said.err, "the one call is drawn"
    # How well this machine kept up decides between these two; the target was there.
    assert said.code in (0, 4)
    assert (said.code == 0) == (document["verdict"]["status"] == "valid")


@pytest.mark.wallclock
def test_a_baseline_is_interleaved_and_all_options_reach_the_capture(
    cli: Any, agent_url: str, short_suite: Path, tmp_path: Path
) -> None:
    (tmp_path / "hardware.yaml").write_text("gpu: 1 × L4\nbatch size: 8\n", "utf-8")
    said = cli(
        "run", f"{short_suite}#short", "--target", agent_url, "--baseline-target", agent_url,
        "--name", "next", "--concurrency", 2, "--seed", 5, "--model", "small",
        "--hardware", "hardware.yaml", "--header", "X-Region=eu", "--json",
    )  # fmt: skip
    assert said.document["systems"] == ["base", "next"]
    assert said.document["hardware"]["next"] == {"gpu": "1 × L4", "batch size": 8}
    (folder,) = (tmp_path / "runs").iterdir()
    base, tuned = captures(folder)
    assert (base.header["system"], tuned.header["system"]) == ("base", "next")
    assert base.header["seed"] == tuned.header["seed"] == 5
    assert base.script.content_hash == tuned.script.content_hash
    assert "calls 2/2" in said.err
    sent = (tuned.path / "user.wire").read_bytes()
    assert b'"model":"small"' in sent.replace(b" ", b"")


def test_a_closed_port_is_exit_3_with_captures_and_a_report(
    cli: Any, short_suite: Path, tmp_path: Path
) -> None:
    said = cli("run", short_suite, "--target", "ws://127.0.0.1:1/", "--out", "out", "--repeats", 3)
    assert said.code == 3
    assert "refused in phase connect" in said.out
    assert "(3 ×)" in said.out
    assert said.err == "all calls failed: refused in phase connect (exit code 3)\n"
    assert "report: out/report.html" in said.out
    assert len(captures(tmp_path / "out")) == 3


def test_quiet_says_only_what_went_wrong(cli: Any, short_suite: Path) -> None:
    said = cli("run", short_suite, "--target", "ws://127.0.0.1:1/", "--quiet")
    assert (said.code, said.out) == (3, "")
    assert said.err == "all calls failed: refused in phase connect (exit code 3)\n"


@pytest.mark.parametrize(("protocol", "is_said"), [("telnyx", True), ("deepgram-agent", False)])
def test_an_experimental_protocol_says_so(
    cli: Any, short_suite: Path, protocol: str, is_said: bool
) -> None:
    said = cli("run", short_suite, "--target", "ws://127.0.0.1:1/", "--protocol", protocol)
    assert (f"{protocol} is experimental" in said.out) is is_said


def test_a_full_disk_is_exit_4_and_said_once(
    cli: Any, short_suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        free = 1000

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Full)
    said = cli("run", short_suite, "--target", "ws://127.0.0.1:1/", "--repeats", 2, "--json")
    assert said.code == 4
    assert said.document["error"]["exit_code"] == 4
    assert "bytes are free" in said.err


# -- what is wrong before -----------------------------------------------------------------------


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a port on which nobody may call, nor anywhere else."""
    made: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: made.append(address))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert made == []


BAD_SUITE = """\
schema: 1
scenarios:
  - id: a
    locale: en-US
    language: {primary: en}
    steps:
      - sya: null
        clip: en/order_delivery_date
"""


@pytest.mark.parametrize(
    ("file", "content", "options", "line", "key", "value", "nearest"),
    [
        ("s.yaml", BAD_SUITE, [], 7, "scenarios[0].steps[0]", None, "say"),
        (
            "s.yaml", BAD_SUITE.replace("sya", "say").replace("delivery_date", "delivery_dat"), [],
            8, "scenarios[0].steps[0].clip", "en/order_delivery_dat", "en/order_delivery_date",
        ),
        (
            "s.yaml", BAD_SUITE.replace("sya", "say") + "        at: 600 ms after agent onst\n", [],
            9, "scenarios[0].steps[0].at", "600 ms after agent onst", None,
        ),
        ("s.yaml", "schema: 1\nscenarios: *x\n", [], 2, None, None, None),
        ("s.yaml", "schema: 1\nschema: 1\n", [], 2, "schema", None, None),
        (
            "t.yaml", "schema: 1\ntargets:\n  a:\n    ulr: ws://h/\n", ["--targets", "t.yaml"],
            4, "targets.a.ulr", None, "url",
        ),
        ("h.yaml", "- gpu\n", ["--hardware", "h.yaml"], 1, None, None, None),
        ("ca.pem", "nothing\n", ["--ca", "ca.pem"], None, "ca", None, None),
    ],
)  # fmt: skip
def test_a_bad_file_is_exit_2_with_its_place_and_nothing_is_dialled(
    cli: Any, untouched: str, short_suite: Path, tmp_path: Path,
    file: str, content: str, options: list[str],
    line: int | None, key: str | None, value: str | None, nearest: str | None,
) -> None:  # fmt: skip
    (tmp_path / file).write_text(content)
    suite = file if file == "s.yaml" else short_suite
    said = cli("run", suite, "--target", untouched, "--out", "out", "--json", *options)
    assert said.code == 2
    error = said.document["error"]
    assert error["file"] == file
    assert error["line"] == line
    assert key is None or error["key"] == key
    assert value is None or error["value"] == value
    assert error["nearest"] == nearest
    place = file if line is None else f"{file}:{line}"
    assert said.err.startswith(f"error: {place}")
    assert nearest is None or f"did you mean '{nearest}'" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (["--target", "http://127.0.0.1/"], "--target"),
        (["--target", "prod"], "--target"),
        (["--header", "Authorization=secret-in-the-open"], "--header"),
        (["--auth-token", "secret-in-the-open"], "--auth-token"),
        (["--header", "X-Key=${env:NO_SUCH_KEY}"], "X-Key"),
        (["--protocol", "openai-realtme"], "protocol"),
        (["--name", "a/b"], "--name"),
        (["--name", "base", "--baseline-target", "ws://127.0.0.1:1/"], "--name"),
        (["--out", "taken"], "--out"),
    ],
)
def test_a_bad_option_is_exit_2_and_nothing_is_dialled(
    cli: Any, untouched: str, short_suite: Path, tmp_path: Path, options: list[str], key: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    target = [] if "--target" in options else ["--target", untouched]
    said = cli("run", short_suite, *target, *options, "--json")
    assert said.code == 2
    assert said.document["error"]["key"] == key
    assert "secret-in-the-open" not in said.out + said.err
    assert not (tmp_path / "runs").exists()


def test_an_unknown_suite_names_the_nearest_shipped_one(cli: Any, untouched: str) -> None:
    said = cli("run", "latncy", "--target", untouched)
    assert said.code == 2
    assert "did you mean 'latency'" in said.err


# -- signals ------------------------------------------------------------------------------------


class Patient:
    """A target that takes the call, lets it talk, and says when it is told goodbye."""

    def __init__(self) -> None:
        self.is_talking = threading.Event()
        self.has_goodbye = threading.Event()
        self.answers_goodbye = True

    def __call__(self, server: Any) -> None:
        server.shake_hands()
        for kind in ("created", "updated"):
            message = {"type": f"session.{kind}", "session": {"type": "realtime"}}
            server.send(server.frame(1, json.dumps(message).encode()))
        n_frames = 0
        while True:
            opcode = self._read_frame(server.connection)
            n_frames += 1
            if n_frames > 20:
                self.is_talking.set()
            if opcode == 8:
                self.has_goodbye.set()
                break
        if self.answers_goodbye:
            server.say_goodbye()
        server.stopped.wait(20)

    def _read_frame(self, connection: socket.socket) -> int:
        opcode, length = self._take(connection, 2)
        n = length & 0x7F
        if n >= 126:
            n = int.from_bytes(self._take(connection, 2 if n == 126 else 8))
        self._take(connection, 4 + n)
        return opcode & 0x0F

    @staticmethod
    def _take(connection: socket.socket, n: int) -> bytes:
        data = b""
        while len(data) < n:
            part = connection.recv(n - len(data))
            if not part:
                raise ConnectionError("gone")
            data += part
        return data


@pytest.fixture
def long_suite(write_suite: Any) -> Path:
    path: Path = write_suite(
        {"id": "long", "budgets": {"call": "60 s"}, "steps": [{"hang_up": None, "at": "50 s"}]},
        name="long",
    )
    return path


@pytest.mark.wallclock
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_hangs_up_closes_the_captures_and_reports_what_there_is(
    start_cli: Any, raw_server: Any, long_suite: Path, tmp_path: Path,
    number: signal.Signals, code: int,
) -> None:  # fmt: skip
    target = Patient()
    url = raw_server(target).url
    process = start_cli("run", long_suite, "--target", url, "--out", "out", "--json")
    assert target.is_talking.wait(20)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert target.has_goodbye.is_set()
    assert json.loads(out) == json.loads((tmp_path / "out" / "report.json").read_text())
    assert f"stopped after 1 call (exit code {code})" in err
    (capture,) = captures(tmp_path / "out")
    assert capture.verify() == []
    (ended,) = [line for line in capture.journal if line["type"] == "call_ended"]
    assert ended["reason"] == "stopped"


@pytest.mark.wallclock
def test_a_second_signal_leaves_at_once_and_the_capture_can_be_recovered(
    start_cli: Any, raw_server: Any, long_suite: Path, tmp_path: Path
) -> None:
    target = Patient()
    target.answers_goodbye = False
    url = raw_server(target).url
    process = start_cli("run", long_suite, "--target", url, "--out", "out")
    assert target.is_talking.wait(20)
    process.send_signal(signal.SIGINT)
    assert target.has_goodbye.wait(20)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)
    assert process.returncode == 130
    (torn,) = (tmp_path / "out" / "calls").iterdir()
    assert torn.name.endswith(".partial")
    assert not (tmp_path / "out" / "report.html").exists()
    done = recover(torn)
    assert done.n_messages > 20
    assert Capture.open(done.path).verify() == []


# -- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["refusal", "error", "goodbye"])
def test_no_byte_of_a_secret_leaves_the_process_but_towards_the_target(
    start_cli: Any, raw_server: Any, short_suite: Path, tmp_path: Path, where: str
) -> None:
    def echo(server: Any) -> None:
        server.read_request()
        assert f"Authorization: Bearer {CANARY}".encode() in server.request
        secret = CANARY.encode()
        if where == "refusal":
            server.send(b"HTTP/1.1 401 " + secret + b"\r\nX-Echo: " + secret + b"\r\n\r\n" + secret)
            return
        server.send(server.answer(b"X-Echo: " + secret))
        if where == "error":
            error = {"code": CANARY, "message": f"bad key {CANARY}", "type": CANARY}
            message = {"type": "error", "error": error}
            server.send(server.frame(1, json.dumps(message).encode()))
        server.send(server.frame(8, b"\x0f\xa0revoked " + secret))
        with contextlib.suppress(OSError):
            server.read_until_closed()

    server = raw_server(echo)
    (tmp_path / "targets.yaml").write_text(
        "schema: 1\ntargets:\n  prod:\n"
        f"    url: {server.url}?token=${{env:PROBE_KEY}}\n"
        '    headers: {Authorization: "Bearer ${env:PROBE_KEY}"}\n'
    )
    process = start_cli(
        "run", short_suite, "--targets", "targets.yaml", "--target", "prod", "--out", "out",
        "--json", PROBE_KEY=CANARY,
    )  # fmt: skip
    out, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert f"token={CANARY}".encode() in server.request
    assert CANARY not in out
    assert CANARY not in err
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) >= 10
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path
