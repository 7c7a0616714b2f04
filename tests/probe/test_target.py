"""Targets and their secrets: by reference only, and shown nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vakforge_probe.errors import ConfigError, MissingDependency
from vakforge_probe.target import (
    Target,
    is_targets_file,
    load_targets,
    parse_header,
    resolve_target,
    targets_schema,
)

URL = "wss://agent.example/v1/realtime"
CANARY = "canary-1f0e9d8c7b6a"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a writer of a targets.yaml with one alias, ``prod``, that holds these lines."""

    def targets(*lines: str) -> Path:
        path = tmp_path / "targets.yaml"
        body = "\n".join(f"    {line}" for line in lines)
        path.write_text(f"schema: 1\ntargets:\n  prod:\n{body}\n", "utf-8")
        return path

    return targets


# -- who is meant -----------------------------------------------------------------------------


def test_a_url_is_a_target_named_by_its_host_alone() -> None:
    target = resolve_target("wss://agent.example:8443/tenant-7/v1?key=abc#part")
    assert target.url == "wss://agent.example:8443/tenant-7/v1?key=abc"
    assert target.label == "agent.example:8443"
    assert target.protocol == "openai-realtime"


def test_an_alias_is_a_target_under_its_own_name(write: Any) -> None:
    path = write(
        f"url: {URL}", "model: small", "protocol: openai-realtime/beta", "hardware: {gpu: 1 × L4}"
    )
    target = resolve_target("prod", targets=load_targets(path))
    assert (target.url, target.label, target.model) == (URL, "prod", "small")
    assert target.protocol == "openai-realtime/beta"
    assert target.hardware == {"gpu": "1 × L4"}


def test_options_win_over_the_alias(write: Any) -> None:
    known = load_targets(
        write(f"url: {URL}", "model: small", 'headers: {X-A: "1", X-B: "2"}', "hardware: {a: b}")
    )
    target = resolve_target(
        "prod",
        targets=known,
        model="large",
        protocol="openai-realtime/ga",
        headers=("X-B=3", "X-C=a=b"),
        hardware={"gpu": "2"},
    )
    assert target.model == "large"
    assert target.protocol == "openai-realtime/ga"
    assert target.headers == {"X-A": "1", "X-B": "3", "X-C": "a=b"}
    assert target.hardware == {"gpu": "2"}


def test_an_unknown_alias_names_the_nearest_one(write: Any) -> None:
    known = load_targets(write(f"url: {URL}"))
    with pytest.raises(ConfigError, match="did you mean 'prod'") as caught:
        resolve_target("prd", targets=known)
    assert (caught.value.key, caught.value.value) == ("--target", "prd")


def test_an_alias_without_a_targets_file_says_so() -> None:
    with pytest.raises(ConfigError, match="no targets file given"):
        resolve_target("prod")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://agent.example/", "ws:// or wss://"),
        ("ftp://agent.example/", "ws:// or wss://"),
        ("ws://", "no host"),
        ("ws://:80/", "no host"),
        ("ws://host:99999/", "[Pp]ort"),
        ("ws://host:0/", "port 0"),
        ("ws://host:abc/", "[Pp]ort"),
        ("ws://[::1/", "IPv6"),
        (f"ws://user:{CANARY}@host/", "credentials"),
        (f"ws://{CANARY}@host/", "credentials"),
    ],
)
def test_a_url_that_cannot_be_dialled_is_refused_without_being_shown(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        resolve_target(url)
    assert CANARY not in str(caught.value)


def test_an_unknown_protocol_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'openai-realtime'"):
        resolve_target(URL, protocol="openai-realtme")


def test_certificates_are_read_before_anything_is_dialled(
    tmp_path: Path, make_certificate: Any
) -> None:
    assert resolve_target(URL, ca=make_certificate().cert_file).ca is not None
    (tmp_path / "empty.pem").touch()
    for name, why in (("missing.pem", "No such file"), ("empty.pem", "no certificate")):
        with pytest.raises(ConfigError, match=why) as caught:
            resolve_target(URL, ca=tmp_path / name)
        assert caught.value.file == str(tmp_path / name)


# -- targets.yaml -----------------------------------------------------------------------------


def test_a_targets_file_is_told_from_a_suite(write: Any, write_suite: Any) -> None:
    assert is_targets_file(str(write(f"url: {URL}")))
    assert not is_targets_file(str(write_suite({"id": "a", "steps": []})))
    assert not is_targets_file("demo")


def test_what_lies_beside_the_file_is_found_from_anywhere(
    write: Any, tmp_path: Path, make_certificate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "ca.pem"
    certificate.write_bytes(make_certificate().cert_file.read_bytes())
    (tmp_path / "key").write_text(f"  {CANARY}\n")
    path = write(f"url: {URL}", "ca: ca.pem", 'headers: {Authorization: "file:key"}')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    target = resolve_target("prod", targets=load_targets(path))
    assert target.ca == certificate
    assert target.headers == {"Authorization": CANARY}
    assert target.secrets == (CANARY,)


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ("ulr: ws://h/", "targets.prod.ulr", "did you mean 'url'"),
        ("url: http://h/", "targets.prod.url", "ws:// or wss://"),
        (f"url: ws://u:{CANARY}@h/", "targets.prod.url", "credentials"),
        ("protocol: openai-realtme", "targets.prod.protocol", "did you mean 'openai-realtime'"),
        (f"headers: {{Authorization: {CANARY}}}", "targets.prod.headers", "never written out"),
        (f"headers: {{X-Api-Key: {CANARY}}}", "targets.prod.headers", "never written out"),
        (f"headers: {CANARY}", "targets.prod.headers", ""),
        (f'headers: {{"Bearer {CANARY}": x}}', "targets.prod.headers", "not a header's name"),
        ("headers: {X-Token: 0123456789012345}", "targets.prod.headers.X-Token", "in quotes"),
        ("headers: {X-Token: 12345678}", "targets.prod.headers.X-Token", "in quotes"),
        ("headers: {Host: other}", "targets.prod.headers", "belongs to the connection"),
        ("headers: {Sec-WebSocket-Protocol: x}", "targets.prod.headers", "belongs"),
        ("model: 4", "targets.prod.model", "got 4"),
        ("hardware: [a]", "targets.prod.hardware", ""),
    ],
)
def test_a_bad_targets_file_names_file_line_and_key_and_shows_no_secret(
    write: Any, line: str, key: str, words: str
) -> None:
    path = write(*([] if line.startswith("url") else [f"url: {URL}"]), line)
    with pytest.raises(ConfigError) as caught:
        load_targets(path)
    error = caught.value
    assert error.file == str(path)
    assert error.line == (4 if line.startswith("url") else 5)
    assert error.key == key
    assert words in str(error)
    for secret in (CANARY, "0123456789012345", "12345678"):
        assert secret not in str(error)


def test_the_schema_takes_a_good_file_and_refuses_an_unknown_key() -> None:
    schema = targets_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {"schema": 1, "targets": {"a": {"url": URL, "headers": {"X": "${env:X}"}}}}
    jsonschema.validate(good, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": 1, "targets": {"a": {"ulr": URL}}}, schema)


# -- secrets ----------------------------------------------------------------------------------


def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY", CANARY)
    target = resolve_target(URL, headers=("Authorization=Bearer ${env:PROBE_KEY}",))
    assert target.headers == {"Authorization": f"Bearer {CANARY}"}
    assert target.secrets == (CANARY,)


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{CANARY}\n")
    target = resolve_target(URL, headers=(f"X-Api-Key=file:{tmp_path / 'key'}",))
    assert target.headers == {"X-Api-Key": CANARY}
    assert target.secrets == (CANARY,)


def test_a_url_may_refer_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY", CANARY)
    target = resolve_target("wss://agent.example/v1?token=${env:PROBE_KEY}")
    assert target.url.endswith(f"?token={CANARY}")
    assert target.secrets == (CANARY,)
    assert target.label == "agent.example"


def test_the_longer_of_two_secrets_is_masked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", CANARY[:12])
    monkeypatch.setenv("B", CANARY)
    target = resolve_target(URL, headers=("X-A=${env:A}", "X-B=${env:B}"))
    assert target.secrets == (CANARY, CANARY[:12])


def test_a_target_shows_neither_its_url_nor_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY", CANARY)
    target = resolve_target(
        f"wss://agent.example/{CANARY}", headers=("Authorization=Bearer ${env:PROBE_KEY}",)
    )
    assert CANARY not in repr(target)
    assert CANARY not in str(target)


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"Authorization: Bearer {CANARY}=",
        f"Bearer {CANARY}",
        f"={CANARY}",
        f"Authorization={CANARY}",
        f"X-Session-Token=Bearer {CANARY}",
        f"Cookie=a={CANARY}",
        f"Host={CANARY}",
    ],
)
def test_a_header_option_that_is_wrong_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_header(text)
    assert caught.value.key == "--header"
    assert CANARY not in str(caught.value)


def test_a_header_that_is_no_secret_may_be_written_out() -> None:
    assert resolve_target(URL, headers=("X-Region = eu ",)).headers == {"X-Region": "eu"}


@pytest.mark.parametrize(("value", "why"), [(None, "not set"), ("", "empty")])
def test_an_environment_without_the_secret_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str | None, why: str
) -> None:
    monkeypatch.delenv("PROBE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("PROBE_KEY", value)
    with pytest.raises(ConfigError, match=f"PROBE_KEY is {why}") as caught:
        resolve_target(URL, headers=("Authorization=Bearer ${env:PROBE_KEY}",))
    assert caught.value.key == "Authorization"


def test_a_secret_too_short_to_be_masked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY", "1234567")
    with pytest.raises(ConfigError, match="fewer than 8") as caught:
        resolve_target(URL, headers=("Authorization=${env:PROBE_KEY}",))
    assert "1234567" not in str(caught.value)


def test_what_is_short_and_no_secret_is_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGION", "eu")
    target = resolve_target(URL, headers=("X-Region=${env:REGION}",))
    assert (target.headers, target.secrets) == ({"X-Region": "eu"}, ())


@pytest.mark.parametrize("text", ["a\r\nX-Evil: 1", "a\x00b", "naïve-and-long-enough"])
def test_a_secret_that_is_no_header_value_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "key").write_text(text, "utf-8", newline="")
    with pytest.raises(ConfigError, match="control or non-ASCII") as caught:
        resolve_target(URL, headers=(f"Authorization=file:{tmp_path / 'key'}",))
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"\xff\xfe", "not text"),
        (b"x" * 20_000, "larger than"),
    ],
)
def test_a_secret_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=why) as caught:
        resolve_target(URL, headers=(f"Authorization=file:{path}",))
    assert caught.value.file == str(path)


def test_a_target_can_be_made_by_hand() -> None:
    assert Target(url=URL, label="mine").headers == {}


# -- the voice webhook of a telephone bot -------------------------------------------------------


def test_a_webhook_is_a_target_where_the_protocol_has_one() -> None:
    assert resolve_target("https://bot.example/voice", protocol="twilio").url.startswith("https:")
    with pytest.raises(ConfigError, match="ws:// or wss:// URL for telnyx"):
        resolve_target("https://bot.example/voice", protocol="telnyx")


def test_its_token_is_a_reference_and_never_shown(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOT_TOKEN", CANARY)
    lines = "url: 'https://b.example/voice'", "protocol: twilio"
    entries = load_targets(write(*lines, "auth_token: ${env:BOT_TOKEN}"))
    target = resolve_target("prod", targets=entries)
    assert (target.auth_token, target.secrets) == (CANARY, (CANARY,))
    assert CANARY not in repr(target)
    for token, words in ((CANARY, "never written out"), ("1234567890", "in quotes")):
        with pytest.raises(ConfigError, match=words) as caught:
            load_targets(write(*lines, f"auth_token: {token}"))
        assert token not in str(caught.value)


def test_its_token_may_be_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_TOKEN", CANARY)
    url = "https://bot.example/voice"
    target = resolve_target(url, protocol="twilio", auth_token="${env:BOT_TOKEN}")
    assert (target.auth_token, target.secrets) == (CANARY, (CANARY,))
    with pytest.raises(ConfigError, match="--auth-token: a secret is never written") as caught:
        resolve_target(url, protocol="twilio", auth_token=CANARY)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("protocol", "url", "extra"),
    [
        ("whip", "http://127.0.0.1/whip", "webrtc"),
        ("livekit", "ws://127.0.0.1", "livekit"),
    ],
)
def test_a_missing_library_is_told_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, protocol: str, url: str, extra: str
) -> None:
    monkeypatch.setattr("vakforge_probe.target.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=rf"vakforge-probe\[{extra}\]"):
        resolve_target(url, protocol=protocol)


@pytest.mark.parametrize(
    "server", ["stun.example", "turn:x", "stun:", "stun:x:1234567", "stun:a b"]
)
def test_what_is_no_stun_server_is_refused(tmp_path: Path, server: str) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(
        f"schema: 1\ntargets: {{a: {{url: 'http://h/whip', protocol: whip, stun: ['{server}']}}}}\n"
    )
    with pytest.raises(ConfigError, match="must be stun:HOST"):
        load_targets(path)
