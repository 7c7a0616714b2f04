"""TwiML: the stream is found, and what must not be trusted is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_probe.protocol.strict import StrictError
from vakforge_probe.protocol.twiml import VoiceWebhook, read_twiml, signature

STREAM = '<Connect><Stream url="wss://bot.example/ws">{}</Stream></Connect>'


def response(inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><Response>{inner}</Response>'.encode()


def test_the_stream_and_its_parameters_are_found() -> None:
    parameters = '<Parameter name="who" value="a &amp; b"/><Parameter name="empty" value=""/>'
    found = read_twiml(response(STREAM.format(parameters)))
    assert found.url == "wss://bot.example/ws"
    assert found.parameters == {"who": "a & b", "empty": ""}
    assert found.skipped == []


def test_what_comes_before_the_stream_is_told_and_what_comes_behind_is_not() -> None:
    found = read_twiml(response(f"<Say>Hi</Say><Pause/>{STREAM.format('')}<Hangup/>{STREAM}"))
    assert (found.url, found.skipped) == ("wss://bot.example/ws", ["Say", "Pause"])


@pytest.mark.parametrize(("data", "words"), [
    (b"", "not XML"),
    (b"{}", "not XML"),
    (b"<Response><Connect>", "not XML"),
    (b"<Response/>", "has nothing"),
    (response("<Say>No</Say><Hangup/>"), "<Say>, <Hangup>"),
    (response("<Hangup/>" + STREAM), "has <Hangup>"),
    (response("<Start><Stream url='wss://h/'/></Start>"), "has <Start>"),
    (response("<Connect><Stream/></Connect>"), "no url"),
    (response(STREAM.format("<Parameter name='a'/>")), "without name or value"),
    (response(STREAM.format(f"<Parameter name='a' value='{'x' * 500}'/>")), "500"),
    (STREAM.format("").encode(), "at the top"),
    (b"<Response>" + b"<a>" * 100 + b"</a>" * 100 + b"</Response>", "too deep"),
    (b"<!DOCTYPE x><Response/>", "declared"),
    (b'<!DOCTYPE x [<!ENTITY a "b">]><Response>&a;</Response>', "declared"),
    (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><Response/>', "declared"),
    (b"<Response>&a;</Response>", "not XML"),
    (b'<?xml version="1.0" encoding="no-such"?><Response/>', "not XML"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(StrictError, match=words):
        read_twiml(data)


@given(st.binary(max_size=200) | st.text(max_size=200).map(response))
def test_any_bytes_are_twiml_or_refused(data: bytes) -> None:
    with suppress(StrictError):
        read_twiml(data)


@pytest.mark.parametrize(("url", "words"), [
    ("wss://h/ws?x=1", "query"), ("wss://h/ws#x", "query"), ("wss://u:p@h/ws", "credentials"),
    ("https://h/ws", "whole wss"), ("/ws", "whole wss"), ("wss:///ws", "whole wss"),
    ("wss://h:0/", "whole wss"), ("wss://h:x/", "none"), ("wss://h/a b", "ASCII"),
    ("ws://h/ws", "whole wss"), ("wss://h/" + "x" * 5000, "too long"),
])  # fmt: skip
def test_a_url_of_a_stream_is_checked(url: str, words: str) -> None:
    data = response(f'<Connect><Stream url="{url}"/></Connect>')
    with pytest.raises(StrictError, match=words) as caught:
        VoiceWebhook("CA1", "AC1").answered(data, must_be_secure=True)
    assert url not in str(caught.value)


def test_only_a_webhook_without_tls_may_name_a_stream_without() -> None:
    data = response('<Connect><Stream url="ws://127.0.0.1:1/ws"/></Connect>')
    webhook = VoiceWebhook("CA1", "AC1")
    assert webhook.answered(data, must_be_secure=False) == "ws://127.0.0.1:1/ws"
    assert webhook.form["CallSid"] == "CA1"


def test_a_known_request_has_its_known_signature() -> None:
    """Of Twilio's documentation of its request validation."""
    form: dict[str, Any] = {
        "CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234",
        "From": "+14158675309", "To": "+18005551212",
    }  # fmt: skip
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert signature("12345", url, form) == "RSOYDt4T1cUTdK1PDd93/VVr8B8="
