"""Who is called: an alias, where it listens, how it speaks, and secrets by reference only.

A header's value may hold ``${env:NAME}`` or be ``file:PATH``; what that resolves to lives in this
object alone, is masked in its `repr`, and is handed to the recorder so that it never reaches disk.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, JsonValue, RootModel

from vakforge_probe.errors import ConfigError
from vakforge_probe.scenario.grammar import Strict
from vakforge_probe.scenario.loader import load_model, top_level_keys
from vakforge_probe.text import clean

__all__ = [
    "Hardware",
    "Target",
    "TargetEntry",
    "TargetsFile",
    "is_targets_file",
    "load_targets",
    "parse_header",
    "resolve_target",
]

_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LOOKS_SECRET = re.compile(r"authorization|key|token|secret|password|cookie", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """A target ready to be dialled; `label` is safe to show, `headers` are not."""

    url: str = field(repr=False)
    label: str
    protocol: str = "openai-realtime"
    model: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ca: Path | None = None
    hardware: dict[str, Any] | None = None


class TargetEntry(Strict):
    """One alias of ``targets.yaml``."""

    url: str
    protocol: str = "openai-realtime"
    model: str | None = None
    headers: dict[str, str] = {}
    ca: str | None = None
    hardware: dict[str, Any] | None = None


class TargetsFile(Strict):
    """A ``targets.yaml``: aliases and how to reach them."""

    schema_: Literal[1] = Field(alias="schema")
    targets: dict[str, TargetEntry]


class Hardware(RootModel[dict[str, JsonValue]]):
    """The serving path's hardware as its owner states it: names and values, free in form."""


def is_targets_file(name: str) -> bool:
    """Return whether a YAML file holds targets rather than scenarios."""
    path = Path(name)
    return path.is_file() and "targets" in top_level_keys(path)


def load_targets(path: Path) -> dict[str, TargetEntry]:
    """Return the aliases in a ``targets.yaml``.

    Raises
    ------
    ConfigError
        If the file is not a valid targets file; names file, line and key.
    """
    return load_model(path, TargetsFile).targets


def resolve_target(
    name: str,
    *,
    targets: dict[str, TargetEntry] | None = None,
    protocol: str | None = None,
    model: str | None = None,
    headers: tuple[str, ...] = (),
    ca: Path | None = None,
    hardware: dict[str, Any] | None = None,
) -> Target:
    """Return the target that `name` (an alias or a ws:// or wss:// URL) means.

    Options given here win over the alias's own. `headers` are ``NAME=VALUE`` texts whose values
    refer to secrets by ``${env:NAME}`` or ``file:PATH``.
    """
    entry = (targets or {}).get(name)
    if entry is None:
        entry = _adhoc(name, targets)
        label = _host_label(entry.url)
    else:
        label = name
    url = _checked_url(entry.url)
    named = {**entry.headers, **dict(parse_header(h) for h in headers)}
    resolved: dict[str, str] = {}
    secrets: set[str] = set()
    for key, reference in named.items():
        resolved[key], found = _resolve(key, reference)
        secrets |= found
    if entry.ca is not None and ca is None:
        ca = Path(entry.ca)
    return Target(
        url=url,
        label=label,
        protocol=protocol or entry.protocol,
        model=model or entry.model,
        headers=resolved,
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
        ca=ca,
        hardware=hardware or entry.hardware,
    )


def parse_header(text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE`` and check the name."""
    name, equals, value = text.partition("=")
    if not equals or not _HEADER_NAME.fullmatch(name.strip()):
        raise ConfigError("a header is written NAME=VALUE", key="--header", value=name)
    return name.strip(), value.strip()


def _adhoc(name: str, targets: dict[str, TargetEntry] | None) -> TargetEntry:
    if "://" in name:
        return TargetEntry(url=name)
    raise ConfigError(
        "not a ws:// or wss:// URL and not an alias"
        + (f"; known: {', '.join(sorted(targets))}" if targets else "; no targets file was given"),
        key="--target",
        value=name,
    )


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss"):
        raise ConfigError(
            "this protocol needs a ws:// or wss:// URL", key="url", value=parts.scheme
        )
    try:
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError as error:
        raise ConfigError(f"bad port: {error}", key="url") from None
    if not has_host:
        raise ConfigError("the URL has no host", key="url")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("credentials do not belong in a URL; use a header", key="url")
    return urlunsplit(parts._replace(fragment=""))


def _host_label(url: str) -> str:
    # Path and query may carry tenants or keys; host and port are enough to tell targets apart.
    return clean(urlsplit(url).netloc.rpartition("@")[2], 100)


def _resolve(name: str, reference: str) -> tuple[str, set[str]]:
    """Return a header's value, and which parts of it are secret."""
    if reference.startswith("file:"):
        path = Path(reference.removeprefix("file:"))
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the secret file: {error}", key=name) from None
        return _safe_value(name, value), {value} - {""}
    found: set[str] = set()

    def from_environment(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if value is None:
            raise ConfigError(f"environment variable {match[1]} is not set", key=name)
        found.add(value)
        return value

    value = _ENV.sub(from_environment, reference)
    if not found and _LOOKS_SECRET.search(name):
        raise ConfigError("a secret is never written out: use ${env:NAME} or file:PATH", key=name)
    return _safe_value(name, value), found - {""}


def _safe_value(name: str, value: str) -> str:
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise ConfigError("the header's value holds control characters", key=name)
    return value
