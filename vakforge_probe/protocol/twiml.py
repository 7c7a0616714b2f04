"""The webhook before a telephone stream: what is asked, how it is signed, and what TwiML answers.

The voice webhook of a bot is asked by a form, as Twilio does when a call comes in, and its answer
says where the call's audio goes: ``<Connect><Stream url="wss://…">`` with ``<Parameter>``s.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit
from xml.parsers import expat

from vakforge_probe.protocol.strict import StrictError
from vakforge_probe.text import clean

__all__ = ["SIGNATURE_HEADER", "Twiml", "VoiceWebhook", "read_twiml", "signature"]

SIGNATURE_HEADER = "X-Twilio-Signature"
MAX_PARAMETER_CHARS = 500
MAX_DEPTH = 32
MAX_URL_CHARS = 4096
_ENDING = frozenset({"Hangup", "Reject", "Redirect"})
"""Verbs after which no later one is reached."""
_CALLER, _CALLED = "+12025550100", "+12025550101"
"""Numbers that nobody has."""


@dataclass(slots=True)
class Twiml:
    """What matters of an answer: `skipped` are the verbs before it that nobody carried out."""

    url: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def signature(token: str, url: str, form: Mapping[str, str]) -> str:
    """Return what `SIGNATURE_HEADER` holds for a request to `url` with `form`."""
    signed = url + "".join(name + form[name] for name in sorted(form))
    # What the protocol prescribes; SHA-1 inside of an HMAC is not broken.
    mac = hmac.new(token.encode(), signed.encode(), hashlib.sha1)
    return base64.b64encode(mac.digest()).decode("ascii")


class VoiceWebhook:
    """The webhook of one call.

    Parameters
    ----------
    call, account
        Names that the stream will say again.

    Attributes
    ----------
    form
        What is posted.
    parameters
        What the answer gives the stream along; empty before it came.
    skipped
        Verbs before the stream, such as ``Say``, that were not carried out.
    """

    def __init__(self, call: str, account: str) -> None:
        self.form = {
            "CallSid": call,
            "AccountSid": account,
            "From": _CALLER,
            "To": _CALLED,
            "Direction": "inbound",
            "CallStatus": "ringing",
        }
        self.parameters: dict[str, str] = {}
        self.skipped: list[str] = []

    def answered(self, data: bytes, *, must_be_secure: bool) -> str:
        """Return the URL of the stream.

        Raises
        ------
        StrictError
            If `data` is no TwiML with a stream that can be connected to.
        """
        found = read_twiml(data)
        _check_url(found.url, must_be_secure=must_be_secure)
        self.parameters, self.skipped = found.parameters, found.skipped
        return found.url


def _check_url(url: str, *, must_be_secure: bool) -> None:
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise StrictError("TwiML: <Stream> has a url that is none") from None
    if parts.scheme not in (("wss",) if must_be_secure else ("ws", "wss")) or not is_usable:
        raise StrictError("TwiML: the url of <Stream> must be a whole wss:// URL")
    if parts.username is not None or parts.password is not None:
        raise StrictError("TwiML: the url of <Stream> holds credentials")
    if "?" in url or "#" in url:
        raise StrictError("TwiML: the url of <Stream> has a query, which is not passed on; "
                          "use <Parameter>")  # fmt: skip
    if len(url) > MAX_URL_CHARS or not (url.isascii() and url.isprintable()) or " " in url:
        raise StrictError("TwiML: the url of <Stream> is too long or not ASCII")


def read_twiml(data: bytes) -> Twiml:
    """Return the stream that `data` connects to.

    Raises
    ------
    StrictError
        If it is no XML, declares a document type, or connects to no stream.
    """
    reader = _Reader()
    try:
        reader.parse(data)
    except StrictError:
        raise
    except (expat.ExpatError, ValueError, LookupError):
        raise StrictError("the webhook's answer is not XML") from None
    if not reader.found.url:
        words = ", ".join(f"<{verb}>" for verb in reader.found.skipped[:5]) or "nothing"
        raise StrictError(f"TwiML without <Connect><Stream url=…>; it has {words}")
    return reader.found


class _Reader:
    """Walks through the elements; nothing is kept but what a stream needs."""

    def __init__(self) -> None:
        self.found = Twiml()
        self._path: list[str] = []
        self._is_over = False

    def parse(self, data: bytes) -> None:
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.Parse(data, True)

    def _refuse(self, *_: object) -> NoReturn:
        raise StrictError("TwiML: a document type or an entity is declared")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if len(self._path) > MAX_DEPTH:
            raise StrictError("TwiML: nested too deep")
        if self._path[0] != "Response":
            raise StrictError("TwiML: <Response> is not at the top")
        if self._is_over:
            return
        if self._path[1:] == ["Connect", "Stream"] and not self.found.url:
            self.found.url = attributes.get("url", "")
            if not self.found.url:
                raise StrictError("TwiML: <Stream> has no url")
        elif self._path[1:] == ["Connect", "Stream", "Parameter"]:
            self._parameter(attributes)
        elif len(self._path) == 2 and name != "Connect":
            self.found.skipped.append(clean(name, 40))
            self._is_over = name in _ENDING

    def _parameter(self, attributes: dict[str, str]) -> None:
        name, value = attributes.get("name"), attributes.get("value")
        if not name or value is None:
            raise StrictError("TwiML: a <Parameter> without name or value")
        if len(name) + len(value) > MAX_PARAMETER_CHARS:
            raise StrictError(f"TwiML: a <Parameter> of more than {MAX_PARAMETER_CHARS} characters")
        self.found.parameters[name] = value

    def _end(self, name: str) -> None:
        # One stream takes the whole call: what comes behind it is never reached.
        self._is_over = self._is_over or (self._path[1:] == ["Connect"] and bool(self.found.url))
        self._path.pop()
