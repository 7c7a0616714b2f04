"""How a WebRTC session is agreed on: our offer by HTTP POST, the answer in the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

from vakforge_probe.protocol.strict import StrictError, dump, parse_object

__all__ = ["Agreed", "HttpRequest", "Refusal", "Signalling"]

_MAX_ANSWER = 1 << 20
_MAX_SDP = 256 * 1024
_MAX_PORT, _MAX_COMPONENT = 65_535, 2


class Refusal(StrictError):
    """A response that succeeded says that the offer did not; `what` is the target's word."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to be made."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the target answered; `goodbye` is to be requested at the end of the call."""

    sdp: str
    goodbye: HttpRequest | None = None


@dataclass(frozen=True, slots=True)
class Signalling:
    """One way to post an offer.

    Attributes
    ----------
    channel
        Label of the data channel that we open; None: there is none.
    form
        ``sdp``: the offer itself (WHIP, RFC 9725; OpenAI calls). ``json``: an object with ``sdp``
        and ``type``, as is the answer.
    fields
        What else is in that object.
    goodbye
        How the resource that the answer names in ``Location`` is ended: by DELETE, or by POST to
        its ``/hangup``.
    """

    channel: str | None
    form: Literal["sdp", "json"] = "json"
    fields: Mapping[str, str] = field(default_factory=dict)
    goodbye: Literal["delete", "hangup"] | None = None

    def offer(self, url: str, sdp: str) -> HttpRequest:
        """Return the request that offers `sdp`."""
        if self.form == "sdp":
            return HttpRequest("POST", url, {"Content-Type": "application/sdp"}, sdp.encode())
        body = dump({**self.fields, "sdp": sdp, "type": "offer"})
        return HttpRequest("POST", url, {"Content-Type": "application/json"}, body.encode())

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> Agreed:
        """Return what a successful response to the offer at `url` says.

        Raises
        ------
        StrictError
            If there is no answer in it.
        Refusal
            If it says why there is none.
        """
        if len(body) > _MAX_ANSWER:
            raise StrictError("the answer is too large")
        sdp = self._sdp(body)
        if not sdp.startswith("v=0") or len(sdp) > _MAX_SDP:
            raise StrictError("the answer is not SDP")
        _check_numbers(sdp)
        return Agreed(sdp, self._goodbye(url, headers.get("Location")))

    def _sdp(self, body: bytes) -> str:
        if self.form == "sdp":
            try:
                return body.decode("utf-8")
            except UnicodeDecodeError:
                raise StrictError("the answer is not text") from None
        message = parse_object(body, _MAX_ANSWER)
        sdp = message.get("sdp")
        if not isinstance(sdp, str):
            _refuse(message)
            raise StrictError("the answer holds no SDP")
        return sdp

    def _goodbye(self, url: str, location: str | None) -> HttpRequest | None:
        if self.goodbye is None or not location:
            return None
        try:
            where = urljoin(url, location)
            # A target must not make us send its credentials elsewhere.
            if urlsplit(where)[:2] != urlsplit(url)[:2]:
                return None
        except ValueError:
            return None
        if self.goodbye == "delete":
            return HttpRequest("DELETE", where, {})
        return HttpRequest("POST", f"{where.rstrip('/')}/hangup", {})


def _refuse(message: dict[str, Any]) -> None:
    """Raise what a response that says it succeeded fails for, e.g. that fastrtc is busy."""
    for place in (message, message.get("meta")):
        if isinstance(place, dict) and isinstance(place.get("error"), str):
            raise Refusal(place["error"][:200])


def _check_numbers(sdp: str) -> None:
    """Refuse numbers that nobody can mean, over which a library stumbles once it uses them."""
    for line in sdp.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name == "a=candidate" and (len(words) < 6 or not _is_candidate(words[1], words[5])):
            raise StrictError("an address in the answer is none")
        if name == "a=sctp-port" and not _is_number(value.strip(), _MAX_PORT):
            raise StrictError("the data channel's port in the answer is none")


def _is_candidate(component: str, port: str) -> bool:
    return _is_number(component, _MAX_COMPONENT) and _is_number(port, _MAX_PORT)


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= most
