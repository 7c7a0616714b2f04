"""``agent``: the reference agent, to try the probe or a client against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vakforge_probe.cli.common import JsonFlag, QuietFlag, command, human, print_json
from vakforge_probe.errors import ConfigError, ExitCode

__all__ = ["agent"]

_DEFAULT_PORT = 8765


@command
def agent(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port; 0 takes a free one. [default: 8765, or none if --tls-port is given]",
        ),
    ] = None,
    tls_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Speak TLS on this port; needs --tls-cert and --tls-key.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's key (PEM).")
    ] = None,
    webrtc_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Answer WebRTC offers on this port (HTTP); needs the extra webrtc.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            envvar="VAKFORGE_PROBE_AGENT_SET",
            help="A setting of its behaviour.",
        ),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write its truth log (JSON lines).")
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="List all settings and leave.")
    ] = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> ExitCode | None:
    """Run the reference agent: OpenAI Realtime at / and /v1/realtime, others at their own paths.

    Once it listens it prints {"url": …} on stdout, with or without --json; with --port and
    --tls-port together {"url": …, "tls_url": …}. Settings may also be given for one connection by
    the URL's query: ws://127.0.0.1:8765/v1/realtime?reply_delay=0.5

    Gemini Live is at /ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent,
    Moshi at /api/chat, Pipecat at /ws-client, the declared protocols at their profiles' paths:
    /twilio, /telnyx, /plivo, /exotel, /vonage, /v1/live/sessions, /v1/agent/converse, …
    WebRTC offers are answered at /v1/realtime/calls, /api/offer, /webrtc/offer and /whip of
    --webrtc-port; {"webrtc_url": …} is then printed as well.

    A certificate for --tls-port: openssl req -x509 -nodes -newkey ec -pkeyopt
    ec_paramgen_curve:prime256v1 -subj /CN=agent -addext subjectAltName=IP:127.0.0.1 -keyout key.pem
    -out cert.pem
    """
    from vakforge_probe.agent.process import describe_settings, run_agent

    if settings:
        _list_settings(describe_settings(), as_json=json)
        return None
    certificate = _certificate(tls_port, tls_cert, tls_key)
    console = human(as_json=True, quiet=quiet)

    def tell(url: str) -> None:
        ca = f" --ca {tls_cert}" if url.startswith("wss:") else ""
        for line in (
            f"reference agent at {url} (Ctrl-C stops it)",
            f"  probe it:  vakforge-probe run latency --target '{url}?reply_delay=0.8'{ca}",
            "  settings:  vakforge-probe agent --settings",
        ):
            console.print(line, markup=False)

    plain = _DEFAULT_PORT if port is None else port
    return run_agent(
        host,
        tls_port if port is None and tls_port is not None else plain,
        set_ or [],
        truth,
        certificate=certificate,
        tls_port=None if port is None else tls_port,
        webrtc_port=webrtc_port,
        on_ready=tell,
    )


def _certificate(
    port: int | None, certificate: Path | None, key: Path | None
) -> tuple[Path, Path] | None:
    if port is not None and certificate is not None and key is not None:
        return certificate, key
    if (port, certificate, key) != (None, None, None):
        raise ConfigError("--tls-port, --tls-cert and --tls-key go together", key="--tls-port")
    return None


def _list_settings(settings: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"settings": settings})
        return
    console = human(as_json=False)
    for setting in settings:
        console.print(f"{setting['name']} = {_as_typed(setting['default'])}", markup=False)
        console.print(f"    {setting['description']}", markup=False)


def _as_typed(value: Any) -> str:
    """Return a default as it would be written after ``=``."""
    if value is None:
        return "(unset)"
    return str(value).lower() if isinstance(value, bool) else str(value)
