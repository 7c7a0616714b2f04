"""How an offer is posted, and what an answer may say."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_probe.protocol.signalling import Agreed, HttpRequest, Refusal, Signalling
from vakforge_probe.protocol.strict import StrictError

URL = "https://bot.example/api/offer?model=m"
SDP = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\n"
JSON = Signalling("text", fields={"webrtc_id": "w"})
PLAIN = Signalling(None, "sdp", goodbye="delete")


def read(
    signalling: Signalling, body: bytes | dict[str, object], headers: Mapping[str, str] = {}
) -> Agreed:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return signalling.read(URL, headers, data)


def test_an_offer_is_posted_as_sdp_or_in_an_object() -> None:
    plain = PLAIN.offer(URL, SDP)
    assert (plain.method, plain.url, plain.body) == ("POST", URL, SDP.encode())
    assert plain.headers == {"Content-Type": "application/sdp"}
    wrapped = JSON.offer(URL, SDP)
    assert wrapped.headers == {"Content-Type": "application/json"}
    assert json.loads(wrapped.body) == {"sdp": SDP, "type": "offer", "webrtc_id": "w"}


def test_an_answer_is_read_in_the_form_that_was_posted() -> None:
    assert read(PLAIN, SDP.encode()) == Agreed(SDP)
    assert read(JSON, {"sdp": SDP, "type": "answer", "pc_id": "1"}) == Agreed(SDP)


@pytest.mark.parametrize("body", [
    {"status": "failed", "meta": {"error": "concurrency_limit_reached", "limit": 1}},
    {"error": "concurrency_limit_reached"},
])  # fmt: skip
def test_a_success_that_says_it_failed_is_a_refusal_in_its_words(body: dict[str, object]) -> None:
    with pytest.raises(Refusal, match=r"^concurrency_limit_reached$"):
        read(JSON, body)


def test_a_refusal_without_end_is_cut() -> None:
    with pytest.raises(Refusal) as caught:
        read(JSON, {"error": "x" * 100_000})
    assert len(caught.value.what) == 200


@pytest.mark.parametrize("body", [
    b"", b"<html>", b"\xff\xfe", b"v=1\r\n", b"v=0" + b" " * 300_000, b" " * 2_000_000,
])  # fmt: skip
@pytest.mark.parametrize("signalling", [PLAIN, JSON])
def test_what_is_no_answer_is_refused_and_is_no_refusal(
    signalling: Signalling, body: bytes
) -> None:
    with pytest.raises(StrictError) as caught:
        read(signalling, body)
    assert not isinstance(caught.value, Refusal)


@pytest.mark.parametrize("body", [
    {}, {"sdp": 1}, {"sdp": None}, {"sdp": ""}, {"sdp": [SDP]}, {"type": "answer"},
    {"meta": 1}, {"meta": {"error": {}}}, {"error": ["x"]},
])  # fmt: skip
def test_an_object_without_sdp_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(StrictError):
        read(JSON, body)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_refused(body: bytes) -> None:
    for signalling in (PLAIN, JSON):
        with contextlib.suppress(StrictError):
            assert read(signalling, body).sdp.startswith("v=0")


@pytest.mark.parametrize(("location", "where"), [
    ("/sessions/1", "https://bot.example/sessions/1"),
    ("sessions/1", "https://bot.example/api/sessions/1"),
    ("https://bot.example/sessions/1", "https://bot.example/sessions/1"),
    ("https://bot.example/s/1/", "https://bot.example/s/1"),
])  # fmt: skip
def test_goodbye_is_said_to_the_resource_that_the_answer_names(location: str, where: str) -> None:
    headers = {"Location": location}
    delete = read(PLAIN, SDP.encode(), headers).goodbye
    assert delete is not None
    assert (delete.method, delete.url.rstrip("/"), delete.body) == ("DELETE", where, b"")
    hangup = read(Signalling(None, "sdp", goodbye="hangup"), SDP.encode(), headers).goodbye
    assert hangup == HttpRequest("POST", f"{where}/hangup", {})


@pytest.mark.parametrize("location", [
    "http://bot.example/s/1", "https://bot.example:8443/s/1", "https://other.example/s/1",
    "//other.example/s/1", "https://user:word@bot.example/s/1", "ftp://bot.example/s",
    "file:///etc/passwd", "https://[", "https://bot.example:port/", "",
])  # fmt: skip
def test_a_resource_of_another_origin_gets_no_goodbye_and_no_credentials(location: str) -> None:
    assert read(PLAIN, SDP.encode(), {"Location": location}).goodbye is None


def test_without_a_location_or_a_custom_of_it_nothing_is_said() -> None:
    assert read(PLAIN, SDP.encode()).goodbye is None
    assert read(JSON, {"sdp": SDP}, {"Location": "/s/1"}).goodbye is None


@pytest.mark.parametrize(
    "line",
    [
        "a=candidate:1 1 udp 1 192.0.2.1 65536 typ host",
        "a=candidate:1 1 udp 1 192.0.2.1 0 typ host",
        "a=candidate:1 1 udp 1 192.0.2.1 -5 typ host",
        "a=candidate:1 3 udp 1 192.0.2.1 9 typ host",
        "a=candidate:1 0 udp 1 192.0.2.1 9 typ host",
        "a=candidate:1 1 udp",
        "a=sctp-port:70000",
        "a=sctp-port:x",
    ],
)
def test_numbers_that_nobody_can_mean_are_refused(line: str) -> None:
    sdp = f"v=0\r\n{line}\r\n"
    with pytest.raises(StrictError, match="in the answer is none"):
        Signalling(channel=None, form="sdp").read("http://h/x", {}, sdp.encode())


def test_candidates_as_servers_write_them_are_taken() -> None:
    sdp = (
        "v=0\r\na=candidate:842163049 1 udp 1677729535 192.0.2.7 3478 typ srflx raddr 0.0.0.0 "
        "rport 0 generation 0\r\na=candidate:1 2 tcp 1 2001:db8::1 9 typ host tcptype active\r\n"
        "a=sctp-port:5000\r\na=end-of-candidates\r\n"
    )
    read = Signalling(channel=None, form="sdp").read("http://h/x", {}, sdp.encode())
    assert read.sdp == sdp
