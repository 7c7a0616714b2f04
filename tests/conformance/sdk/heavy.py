"""Large frameworks drive the reference agent by their own clients for OpenAI's protocols.

Run it from the project's root; it makes a venv for each framework (1.2 GB in all), and the calls
take a minute::

    python tests/conformance/sdk/heavy.py --out benchmarks/conformance/sdk.json

Each asks for a first response (GPT-Live: gets a greeting), talks over it and is answered. The
agent's log says what it sent and what it was told; that the framework got it is what is tested.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.truth.bench import host_line, write_results
from tests.conformance.venvs import python_of, version_of
from vakforge_probe.agent.process import AgentProcess
from vakforge_probe.header import probe_host, scheduling, versions
from vakforge_probe.scenario.clips import ClipLibrary, data_root

HERE = Path(__file__).parent
CLIP = "en/booking_confirm"
RATE_HZ = 24_000


@dataclass(frozen=True)
class Client:
    """One client: what to install, the script that uses it, and how the agent is set for it."""

    package: str
    requirement: str
    script: str
    kind: str
    what: str
    scheme: str
    settings: dict[str, object] = field(default_factory=dict)


_BURST: dict[str, object] = {"pacing": "burst", "greeting": False, "endpoint_silence": 0.3}
_PIPECAT = ("pipecat-ai", "pipecat-ai[openai]==1.14.0", "pipecat_client.py")
_LIVEKIT = ("livekit-plugins-openai", "livekit-plugins-openai==1.8.9", "livekit_client.py")
CLIENTS = (
    Client(*_PIPECAT, "realtime", "OpenAIRealtimeLLMService", "ws", _BURST),
    Client(*_PIPECAT, "live", "OpenAILiveLLMService", "ws"),
    Client(*_LIVEKIT, "realtime", "AgentSession, RealtimeModel", "http", _BURST),
    Client(*_LIVEKIT, "live", "AgentSession, GPTLiveModel", "http"),
)


def spoken() -> tuple[bytes, str]:
    """Return what the client says, with a second of silence behind it, and its words."""
    clip = ClipLibrary(data_root() / "clips").get(CLIP)
    pcm = np.pad(clip.at_rate(RATE_HZ).pcm, (RATE_HZ // 10, RATE_HZ))
    return pcm.astype("<i2").tobytes(), clip.text or ""


def call(client: Client, python: Path, folder: Path) -> dict[str, Any]:
    """Return what came of one call, by the client and by the agent's log."""
    audio, words = spoken()
    said, truth = folder / "said.pcm", folder / f"{client.package}-{client.kind}.jsonl"
    said.write_bytes(audio)
    with AgentProcess(truth=truth, settings=client.settings) as agent:
        host = agent.url.split("/")[2]
        done = subprocess.run(
            [python, HERE / client.script, client.kind, f"{client.scheme}://{host}", said],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    notes = [json.loads(line) for line in truth.read_text().splitlines()]
    row: dict[str, Any] = {
        "client": f"{client.package} {version_of(python, client.package)}",
        "class": client.what,
        "protocol": "gpt-live" if client.kind == "live" else "openai-realtime",
    }
    if done.returncode:
        fault = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        return {**row, "fault": fault, "met": False}
    return {**row, **judged(client, json.loads(done.stdout.splitlines()[-1]), notes, words)}


def judged(
    client: Client, got: dict[str, Any], notes: Sequence[dict[str, Any]], words: str
) -> dict[str, Any]:
    """Return the client's account held against the agent's."""
    audio = [note for note in notes if note["type"] == "sent" and note["kind"] == "audio"]
    sent = sum(note["n"] for note in audio) * 2
    speech = sum(note["n"] for note in audio if note["response"]) * 2
    texts = [note["text"] for note in notes if note["type"] == "reply"]
    cuts = [note["audio_end_ms"] for note in notes if note["type"] == "truncated"]
    if client.kind == "live":
        # What is silent in a stream that never pauses may be left out of what is played.
        is_whole = speech <= got["n_bytes"] <= sent
        is_stopped = any(n["type"] == "ended" and n["status"] == "cancelled" for n in notes)
    else:
        is_whole = got["n_bytes"] == sent
        first = next(note["response"] for note in audio)
        held = sum(note["n"] for note in audio if note["response"] == first) / RATE_HZ * 1000
        is_stopped = len(cuts) == 1 and 0 < cuts[0] < held
    is_told = got["heard"].strip() == words and all(text in got["said"] for text in texts)
    return {
        "sent_bytes": sent,
        "of_it_speech_bytes": speech,
        "received_bytes": got["n_bytes"],
        "truncated_at_ms": cuts,
        "errors": got["errors"],
        "is_whole": is_whole,
        "is_stopped": is_stopped,
        "is_told": is_told,
        "met": is_whole and is_stopped and is_told and not got["errors"],
    }


def markdown(doc: dict[str, Any]) -> str:
    """Return the results for people."""
    lines = [
        "# Frameworks' clients against the reference agent",
        "",
        host_line(doc),
        "",
        "Each gets a first response, talks over it and is answered. Audio is whole when the "
        "framework handed on every byte that the agent sent (GPT-Live: all of the speech, and no "
        "more than was sent). A barge-in is understood when the agent was told, within the length "
        "of the first response, where its playing stopped (GPT-Live: when the agent heard it and "
        "stopped).",
        "",
        "| client | class | protocol | sent, received (bytes) | audio whole | barge-in understood "
        "| texts of both | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in doc["rows"]:
        cells = [row["client"], row["class"], row["protocol"]]
        if "fault" in row:
            cells += [row["fault"], "–", "–", "–", "missed"]
        else:
            cut = f", at {row['truncated_at_ms'][0]:g} ms" if row["truncated_at_ms"] else ""
            cells += [f"{row['sent_bytes']:,}, {row['received_bytes']:,}",
                      "yes" if row["is_whole"] else "no",
                      f"yes{cut}" if row["is_stopped"] else "no",
                      "yes" if row["is_told"] else "no",
                      "met" if row["met"] else "missed"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Install, call, write and print; returns 1 when a client did not get what was sent."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results.json; .md goes beside it")
    parser.add_argument("--venvs", type=Path, help="folder to keep the venvs in [default: none]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        venvs = options.venvs or Path(folder)
        rows = []
        for client in CLIENTS:
            python = python_of(venvs / client.package, [[client.requirement]])
            print(f"{client.package}: {client.what}", flush=True)
            rows.append(call(client, python, Path(folder)))
    doc = {
        "measured_on": time.strftime("%Y-%m-%d"),
        "machine": probe_host(),
        "scheduling": scheduling(),
        "versions": versions(),
        "classes": {},
        "bars": [],
        "rows": rows,
    }
    write_results(options.out, json.loads(json.dumps(doc)), markdown(doc))
    return int(not all(row["met"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
