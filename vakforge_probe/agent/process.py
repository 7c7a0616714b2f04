"""The reference agent as a process of its own: to be run, and to be started by the probe."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from vakforge_probe.agent.behaviour import Behaviour, parse_pairs
from vakforge_probe.agent.server import serve
from vakforge_probe.errors import ConfigError, ExitCode, ProbeFault
from vakforge_probe.heap import frozen_heap
from vakforge_probe.net.loop import new_event_loop
from vakforge_probe.scenario.clips import data_root

__all__ = ["AgentProcess", "describe_settings", "run_agent"]

_START_S = 20.0


def describe_settings() -> list[dict[str, Any]]:
    """Return all settings: ``name``, ``default`` and ``description``."""
    return [
        {
            "name": name,
            "default": field.default,
            "description": " ".join((field.description or "").split()),
        }
        for name, field in Behaviour.model_fields.items()
    ]


def run_agent(
    host: str,
    port: int,
    settings: Sequence[str],
    truth: Path | None,
    *,
    certificate: tuple[Path, Path] | None = None,
    tls_port: int | None = None,
    webrtc_port: int | None = None,
    on_ready: Callable[[str], None] = lambda url: None,
) -> ExitCode:
    """Serve until SIGINT or SIGTERM; prints one JSON line with the URLs once it listens.

    Parameters
    ----------
    settings
        ``key=value`` texts.
    certificate
        Files of a certificate and its key, to speak TLS on `port`.
    tls_port
        Speak TLS here instead, and plain on `port`.
    webrtc_port
        Answer WebRTC offers here; None: nowhere.
    on_ready
        Called with each URL before they are printed.

    Raises
    ------
    ConfigError
        If a setting, a file or the address cannot be used.
    """
    behaviour = Behaviour().overridden(parse_pairs(settings))
    tls = None if certificate is None else _server_tls(*certificate)

    async def go() -> ExitCode:
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[ExitCode] = loop.create_future()

        def stop(code: ExitCode) -> None:
            if not stopped.done():
                stopped.set_result(code)

        for number, code in (
            (signal.SIGINT, ExitCode.INTERRUPTED),
            (signal.SIGTERM, ExitCode.TERMINATED),
        ):
            loop.add_signal_handler(number, stop, code)
        clips = data_root() / "clips"
        try:
            server = await serve(
                behaviour,
                host,
                port,
                truth,
                clips,
                ssl=tls,
                tls_port=tls_port,
                webrtc_port=webrtc_port,
            )
        except OSError as error:
            raise ConfigError(
                f"cannot be served: {error.strerror}", value=error.filename or f"{host}:{port}"
            ) from None
        async with server:
            urls = {"url": server.url}
            if server.tls_url is not None and server.tls_url != server.url:
                urls["tls_url"] = server.tls_url
            for url in urls.values():
                on_ready(url)
            if webrtc_port is not None:
                urls["webrtc_url"] = server.url_for("openai-webrtc")
            print(json.dumps(urls), flush=True)  # noqa: T201 - read by whoever waits
            with frozen_heap():
                return await stopped

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(go())


def _server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        reason = "they are no pair" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"certificate and key cannot be used: {reason}", file=str(certificate), key="tls"
        ) from None
    return context


class AgentProcess:
    """A reference agent in a child process on a free loopback port; a context manager.

    Raises
    ------
    ProbeFault
        If it does not come up.
    """

    def __init__(
        self,
        *,
        truth: Path | None = None,
        settings: Mapping[str, object] = {},
        has_webrtc: bool = False,
    ) -> None:
        self._command = [sys.executable, "-m", "vakforge_probe", "agent", "--port", "0", "--quiet"]
        if has_webrtc:
            self._command += ["--webrtc-port", "0"]
        if truth is not None:
            self._command += ["--truth", str(truth)]
        for key, value in settings.items():
            self._command += ["--set", f"{key}={value}"]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.webrtc_url: str | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        if self._process is None:
            raise ProbeFault("the reference agent is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C is for the probe, which hangs up while the agent still is
        # there. Options meant for the user's own agent are not meant for this one.
        own = {k: v for k, v in os.environ.items() if not k.startswith("VAKFORGE_PROBE_")}
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=own,
            start_new_session=True,
        )
        try:
            urls = json.loads(self._first_line(self._process))
            self.url, self.webrtc_url = urls["url"], urls.get("webrtc_url")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None  # noqa: S101 - asked for above
        deadline = time.monotonic() + _START_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline and not selector.select(0.1):
                if process.poll() is not None:
                    break
        line = process.stdout.readline() if process.poll() is None else ""
        if line:
            return line
        process.kill()
        said = process.communicate()[1].strip().splitlines()
        raise ProbeFault(f"the reference agent did not start: {said[-1] if said else 'no reason'}")

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        if process.poll() is None:
            process.kill()
        process.communicate()
