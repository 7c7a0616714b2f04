"""Who is called: an alias, where it listens, how it speaks, and secrets by reference only.

A header's value or a URL may hold ``${env:NAME}``, and a header's value may be ``file:PATH``. What
that resolves to lives in this object alone, is left out of its `repr`, and is handed to the
recorder so that it never reaches disk.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, Field, JsonValue, RootModel, ValidationInfo

from vakforge_probe.errors import ConfigError, MissingDependency
from vakforge_probe.protocol.base import ClientCodec
from vakforge_probe.protocol.livekit_room import RoomJoin
from vakforge_probe.protocol.registry import make_client
from vakforge_probe.protocol.signalling import Signalling
from vakforge_probe.scenario.files import read_bounded
from vakforge_probe.scenario.grammar import Strict
from vakforge_probe.scenario.loader import load_model, top_level_keys
from vakforge_probe.text import clean, nearest

__all__ = [
    "Hardware",
    "Target",
    "TargetEntry",
    "TargetsFile",
    "is_targets_file",
    "load_targets",
    "parse_header",
    "resolve_target",
    "targets_schema",
]

_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_STUN = re.compile(r"stun:[A-Za-z0-9.-]+(:[0-9]{1,5})?")
_FILE = "file:"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LOOKS_SECRET = re.compile(r"auth|key|token|secret|password|cookie|credential", re.IGNORECASE)
_OWN_HEADERS = re.compile(
    r"host|connection|upgrade|content-length|transfer-encoding|sec-websocket-.*", re.IGNORECASE
)
_DEFAULT_PROTOCOL = "openai-realtime"
_MIN_SECRET = 8
"""A shorter text turns up by chance in base64 audio, so that masking it would damage a capture."""
_MAX_SECRET_BYTES = 16 * 1024
_REFERENCE = "use ${env:NAME} or file:PATH"


@dataclass(frozen=True, slots=True)
class Target:
    """A target ready to be dialled; `label` is safe to show, `url` and `headers` are not."""

    url: str = field(repr=False)
    label: str
    protocol: str = _DEFAULT_PROTOCOL
    model: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    auth_token: str | None = field(default=None, repr=False)
    """Signs what a telephone network asks, or, as KEY:SECRET, the token for a room of LiveKit's."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ca: Path | None = None
    stun: tuple[str, ...] = ()
    """Servers that tell a WebRTC client its address as seen from outside; none is asked unasked."""
    hardware: dict[str, Any] | None = None


def _as_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss", "http", "https"):
        raise ValueError("must be a ws:// or wss:// URL")
    if not parts.hostname:
        raise ValueError("the URL has no host")
    if parts.port == 0:
        raise ValueError("port 0 cannot be dialled")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong in a URL; use a header")
    return urlunsplit(parts._replace(fragment=""))


def _as_url_of(url: str, info: ValidationInfo) -> str:
    # Where the protocol is wrong, that is told instead.
    if "protocol" in info.data:
        _check_scheme(url, info.data["protocol"])
    return url


def _check_scheme(url: str, protocol: str) -> None:
    codec, is_http = make_client(protocol), url.startswith("http")
    is_offered = isinstance(codec.signalling, Signalling)
    if is_offered and not is_http:
        raise ValueError("must be a http:// or https:// URL")
    if not is_offered and codec.webhook is None and is_http:
        raise ValueError("must be a ws:// or wss:// URL")


def _as_stun(servers: list[str]) -> list[str]:
    for server in servers:
        if not _STUN.fullmatch(server):
            raise ValueError(f"{server}: must be stun:HOST or stun:HOST:PORT")
    return servers


def _as_protocol(name: str) -> str:
    try:
        make_client(name)
    except ConfigError as error:
        near = f"; did you mean {error.nearest!r}?" if error.nearest else ""
        raise ValueError(f"{error.message}{near}") from None
    return name


def _as_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, reference in headers.items():
        _check_name(name)
        if _LOOKS_SECRET.search(name) and not _is_reference(reference):
            raise ValueError(
                f"{name}: a secret is never written out: use ${{env:NAME}} or file:PATH"
            )
    return headers


def _as_reference(text: str) -> str:
    if not _is_reference(text):
        raise ValueError("a secret is never written out: use ${env:NAME} or file:PATH")
    return text


def _check_name(name: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("not a header's name")
    if _OWN_HEADERS.fullmatch(name):
        raise ValueError(f"{name}: belongs to the connection itself")


def _is_reference(text: str) -> bool:
    return text.startswith(_FILE) or _ENV.search(text) is not None


class TargetEntry(Strict):
    """One alias of ``targets.yaml``; `ca` and ``file:`` are looked for beside that file.

    `auth_token` signs what a telephone network asks, ``X-Twilio-Signature``, or, as KEY:SECRET,
    the token for a room of LiveKit's. `stun` are the servers that a WebRTC client may ask for its
    address.
    """

    protocol: Annotated[str, AfterValidator(_as_protocol)] = _DEFAULT_PROTOCOL
    url: Annotated[str, AfterValidator(_as_url), AfterValidator(_as_url_of)]
    model: str | None = None
    headers: Annotated[dict[str, str], AfterValidator(_as_headers)] = Field(default_factory=dict)
    auth_token: Annotated[str, AfterValidator(_as_reference)] | None = None
    ca: str | None = None
    stun: Annotated[list[str], AfterValidator(_as_stun)] = Field(default_factory=list)
    hardware: dict[str, JsonValue] | None = None


class TargetsFile(Strict):
    """A ``targets.yaml``: aliases and how to reach them."""

    schema_: Literal[1] = Field(alias="schema")
    targets: dict[str, TargetEntry]


def targets_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``targets.yaml``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vakforge-probe targets, version 1",
        **TargetsFile.model_json_schema(by_alias=True),
    }


class Hardware(RootModel[dict[str, JsonValue]]):
    """The serving path's hardware as its owner states it: names and values, free in form."""


def is_targets_file(name: str) -> bool:
    """Return whether a YAML file holds targets rather than scenarios."""
    path = Path(name)
    return os.path.isfile(path) and "targets" in top_level_keys(path)


def load_targets(path: Path) -> dict[str, TargetEntry]:
    """Return the aliases in a ``targets.yaml``.

    Raises
    ------
    ConfigError
        If the file is not a valid targets file; names file, line and key, and never shows what a
        URL or a header holds.
    """
    try:
        entries = load_model(path, TargetsFile).targets
    except ConfigError as error:
        raise _discreet(error) from None
    return {name: _beside(path, entry) for name, entry in entries.items()}


def _discreet(error: ConfigError) -> ConfigError:
    """Return `error` without what may be a secret."""
    place = error.key or ""
    if not re.search(r"\.(url|headers|auth_token)\b", place):
        return error
    # The YAML reader quotes what it refuses; a checked header's message names the header only.
    message = error.message
    if ".headers." in place or (".auth_token" in place and "never" not in message):
        message = f"must be text in quotes, and for a secret {_REFERENCE}"
    return ConfigError(message, file=error.file, line=error.line, key=place, nearest=error.nearest)


def _beside(path: Path, entry: TargetEntry) -> TargetEntry:
    def beside(text: str) -> str:
        is_file = text.startswith(_FILE)
        return f"{_FILE}{path.parent / text.removeprefix(_FILE)}" if is_file else text

    headers = {name: beside(text) for name, text in entry.headers.items()}
    token = None if entry.auth_token is None else beside(entry.auth_token)
    ca = None if entry.ca is None else str(path.parent / entry.ca)
    return entry.model_copy(update={"headers": headers, "auth_token": token, "ca": ca})


def resolve_target(
    name: str,
    *,
    targets: dict[str, TargetEntry] | None = None,
    protocol: str | None = None,
    model: str | None = None,
    headers: tuple[str, ...] = (),
    auth_token: str | None = None,
    ca: Path | None = None,
    hardware: dict[str, Any] | None = None,
) -> Target:
    """Return the target that `name` (an alias or a URL) means.

    A URL is ws:// or wss://; http:// or https:// where the protocol posts an offer (WebRTC), or
    has a voice webhook.

    Options given here win over the alias's own. `headers` are ``NAME=VALUE`` texts whose values
    refer to secrets by ``${env:NAME}`` or ``file:PATH``; so does `auth_token`.

    Raises
    ------
    ConfigError
        If the alias is not known, the URL or a header cannot be used, or what is referred to is
        not there.
    MissingDependency
        If the protocol takes a library that is not installed.
    """
    entry, label = _entry(name, targets or {})
    secrets: set[str] = set()
    url, found = _from_environment("url", entry.url)
    secrets |= _maskable("url", found)
    resolved: dict[str, str] = {}
    for key, reference in {**entry.headers, **dict(map(parse_header, headers))}.items():
        resolved[key], found = _resolve(key, reference)
        secrets |= found
    token = auth_token or entry.auth_token
    if token is not None:
        if not _is_reference(token):
            raise ConfigError(f"a secret is never written out: {_REFERENCE}", key="--auth-token")
        token, found = _resolve("auth_token", token)
        secrets |= found
    ca = ca or (None if entry.ca is None else Path(entry.ca))
    if ca is not None:
        _check_certificates(ca)
    protocol = protocol or entry.protocol
    codec = make_client(protocol)
    _check_installed(codec)
    try:
        _check_scheme(url, protocol)
    except ValueError as error:
        raise ConfigError(f"{error} for {protocol}", key="--target") from None
    if isinstance(codec.signalling, RoomJoin):
        codec.signalling.entrance(url, resolved, token, 0.0)
    return Target(
        url=url,
        label=label,
        protocol=protocol,
        model=model or entry.model,
        headers=resolved,
        auth_token=token,
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
        ca=ca,
        stun=tuple(entry.stun),
        hardware=hardware or entry.hardware,
    )


def _check_installed(codec: ClientCodec) -> None:
    """Refuse, before anything is made, a protocol whose library is missing."""
    if isinstance(codec.signalling, RoomJoin):
        if find_spec("livekit") is None:
            raise MissingDependency("LiveKit's SDK", "livekit")
    elif codec.signalling is not None and find_spec("aiortc") is None:
        raise MissingDependency("aiortc, which speaks WebRTC,", "webrtc")


def parse_header(text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE`` and check the name; an error shows nothing of the text."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not _HEADER_NAME.fullmatch(name):
        # Whoever writes "NAME: SECRET" must not find the secret in a log.
        raise ConfigError("a header is written NAME=VALUE", key="--header")
    try:
        _as_headers({name: value.strip()})
    except ValueError as error:
        raise ConfigError(str(error), key="--header") from None
    return name, value.strip()


def _entry(name: str, targets: dict[str, TargetEntry]) -> tuple[TargetEntry, str]:
    """Return what `name` stands for, and how it is called where anybody may read it."""
    entry = targets.get(name)
    if entry is not None:
        return entry, clean(name, 100)
    if "://" not in name:
        known = f"; known: {', '.join(sorted(targets))}" if targets else "; no targets file given"
        raise ConfigError(
            f"neither a ws:// or wss:// URL nor an alias{known}",
            key="--target",
            value=name,
            nearest=nearest(name, targets),
        )
    try:
        url = _as_url(name)
    except ValueError as error:
        raise ConfigError(str(error), key="--target") from None
    # Path and query may carry tenants or keys; host and port are enough to tell targets apart.
    return TargetEntry.model_construct(url=url), clean(urlsplit(url).netloc, 100)


def _check_certificates(ca: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except OSError as error:
        reason = "no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"not a file of certificates: {reason}", file=str(ca), key="ca") from None


def _resolve(name: str, reference: str) -> tuple[str, set[str]]:
    """Return a header's value, and which parts of it are secret."""
    if reference.startswith(_FILE):
        value = _read_secret(name, Path(reference.removeprefix(_FILE)))
        found = {value}
    else:
        value, found = _from_environment(name, reference)
    if not (value.isascii() and value.isprintable()):
        raise ConfigError("the header's value holds control or non-ASCII characters", key=name)
    return value, _maskable(name, found)


def _read_secret(name: str, path: Path) -> str:
    try:
        value = read_bounded(path, _MAX_SECRET_BYTES).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError("the secret file is not text", file=str(path), key=name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot read the secret file: {reason}", file=str(path), key=name
        ) from None
    if not value:
        raise ConfigError("the secret file is empty", file=str(path), key=name)
    return value


def _from_environment(name: str, reference: str) -> tuple[str, set[str]]:
    """Return `reference` with every ``${env:NAME}`` replaced, and what they were replaced by."""
    found: set[str] = set()

    def value_of(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if not value:
            state = "not set" if value is None else "empty"
            raise ConfigError(f"environment variable {match[1]} is {state}", key=name)
        found.add(value)
        return value

    return _ENV.sub(value_of, reference), found


def _maskable(name: str, found: set[str]) -> set[str]:
    short = {value for value in found if len(value) < _MIN_SECRET}
    if short and _LOOKS_SECRET.search(name):
        raise ConfigError(
            f"a secret of fewer than {_MIN_SECRET} characters cannot be kept out of a recording",
            key=name,
        )
    return found - short
