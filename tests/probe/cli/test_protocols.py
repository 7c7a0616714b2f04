"""A protocol that is not known or cannot work is exit 2, with what is wrong, before any call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from vakforge_probe.protocol.declared import shipped_profiles
from vakforge_probe.protocol.registry import PROTOCOLS

EVERY = [*PROTOCOLS, *shipped_profiles()]
URL = "ws://127.0.0.1:1/"


def refused(cli: Any, protocol: object) -> str:
    """Return the words with which a protocol is refused."""
    said = cli("run", "latency", "--target", URL, "--protocol", protocol, "--out", "out")
    assert (said.code, said.out) == (2, "")
    assert not Path("out").exists()
    return str(said.err)


@pytest.mark.parametrize("protocol", EVERY)
def test_a_misspelt_protocol_is_refused_with_the_nearest(cli: Any, protocol: str) -> None:
    middle = len(protocol) // 2
    wrong = protocol[:middle] + protocol[middle + 1 :]
    assert f"did you mean '{protocol}'?" in refused(cli, wrong)


@pytest.mark.parametrize("protocol", EVERY)
def test_an_unknown_profile_is_refused(cli: Any, protocol: str) -> None:
    words = refused(cli, f"{protocol}/no_such_one")
    assert "no_such_one" in words
    assert "has no profiles" in words or ("unknown profile" in words and "did you mean" in words)


Change = Callable[[dict[str, Any]], object]


def drop_audio(profile: dict[str, Any]) -> None:
    profile["agent_audio"]["messages"] = [{"type": "sound"}]


def unordered_without_number(profile: dict[str, Any]) -> None:
    profile["user_audio"].update(is_unordered=True, message={"sound": "$audio"})


def flush_on_nothing(profile: dict[str, Any]) -> None:
    profile["flush_on"] = ["speech_started"]
    profile.setdefault("server", {}).pop("speech_started", None)


MAPPINGS: list[tuple[Change, str]] = [
    (drop_audio, "agent_audio.messages: has no $audio"),
    (
        lambda p: p["user_audio"].update(message={"a": "$audoi"}),
        "user_audio.message: has no $audio",
    ),
    (lambda p: p["user_audio"].update(codec="mp3"), "user_audio.codec"),
    (lambda p: p["user_audio"].update(rate_hz=1), "user_audio.rate_hz"),
    (lambda p: p["agent_audio"].update(rate="8000"), "agent_audio.rate"),
    (lambda p: p.setdefault("server", {}).update(text={"t": "x"}), "server.text: has no $text"),
    (lambda p: p.setdefault("server", {}).update(sing={"t": "x"}), "server.sing"),
    (lambda p: p.setdefault("client", {}).update(start={"t": "$raet_hz"}), "$rate_hz"),
    (lambda p: p.setdefault("client", {}).update(start={"t": "${seq}${call}"}), "two holes"),
    (unordered_without_number, "user_audio.is_unordered: user_audio.message has no $chunk"),
    (flush_on_nothing, "flush_on: server.speech_started is not declared"),
    (lambda p: p.update(path="no slash"), "path"),
    (lambda p: p.update(webhook="smoke signals"), "webhook"),
]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    # Each in another profile: what is wrong does not depend on the rest.
    [(name, *mapping) for name, mapping in zip(cycle(sorted(shipped_profiles())), MAPPINGS)],
)
def test_an_impossible_mapping_is_refused_with_its_key(
    cli: Any, tmp_path: Path, name: str, change: Change, words: str
) -> None:
    folder = files("vakforge_probe.protocol") / "profiles"
    profile = copy.deepcopy(yaml.safe_load((folder / f"{name}.yaml").read_text("utf-8")))
    change(profile)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(profile))
    said = refused(cli, path)
    assert words in said
    assert "mine.yaml" in said
