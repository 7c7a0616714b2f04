"""Twilio's own library takes our signatures, and its TwiML is read."""

from __future__ import annotations

import pytest

from vakforge_probe.protocol.twiml import VoiceWebhook, read_twiml, signature

TOKEN = "0123456789abcdef0123456789abcdef"
pytest.importorskip("twilio")


@pytest.mark.parametrize("url", [
    "https://bot.example/voice", "https://bot.example/voice?tenant=a%20b&x=%C3%A9",
    "http://127.0.0.1:8080/voice", "https://bot.example:8443/",
])  # fmt: skip
def test_the_webhooks_signature_is_valid(url: str) -> None:
    from twilio.request_validator import RequestValidator

    form = VoiceWebhook("CA1", "AC1").form
    validator = RequestValidator(TOKEN)
    assert validator.validate(url, form, signature(TOKEN, url, form))
    assert not validator.validate(url, {**form, "From": "+1"}, signature(TOKEN, url, form))
    assert not validator.validate(url, form, signature("another", url, form))


@pytest.mark.parametrize("url", ["wss://bot.example/stream", "wss://bot.example:8443/stream"])
def test_the_streams_signature_is_valid(url: str) -> None:
    from twilio.request_validator import RequestValidator

    assert RequestValidator(TOKEN).validate(url, {}, signature(TOKEN, url, {}))


def test_its_twiml_is_read() -> None:
    from twilio.twiml.voice_response import Connect, VoiceResponse

    answer, connect = VoiceResponse(), Connect()
    connect.stream(url="wss://bot.example/stream").parameter(name="who", value='<"é">')
    answer.say("One moment")
    answer.append(connect)
    answer.pause(length=40)
    found = read_twiml(str(answer).encode())
    assert (found.url, found.parameters) == ("wss://bot.example/stream", {"who": '<"é">'})
    assert found.skipped == ["Say"]
