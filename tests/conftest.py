"""Loopback servers without manners and certificates of our own, for all tests."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before numpy is there: threads of the workers' linear algebra would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes tells of the machine, not of the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PATIENCE_S = 30.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let tests on the real clock run one after the other, and workers begin with what is long."""
    for item in items:
        if item.get_closest_marker("wallclock") is not None:
            item.add_marker(pytest.mark.xdist_group("wallclock"))
    if hasattr(config, "workerinput"):  # what is long and last would keep one worker alone
        items.sort(key=lambda item: item.get_closest_marker("no_cover") is None)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Let the mark ``no_cover`` hold in workers, which begin to measure twice and pause once."""
    if pyfuncitem.get_closest_marker("no_cover") is None:
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate, its own CA."""

    cert_file: Path
    key_file: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context


def _sign(folder: Path, host: str, *, expired: bool) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback test")])
    try:
        alt: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        alt = x509.DNSName(host)
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=-1 if expired else 1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([alt]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(encoding))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            encoding,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _sign_with_binary(folder: Path, host: str) -> None:
    kind = "IP" if host.replace(".", "").isdigit() else "DNS"
    options = (
        "req -x509 -nodes -days 1 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
        f" -subj /CN=loopback -addext subjectAltName={kind}:{host} -keyout key.pem -out cert.pem"
    )
    subprocess.run(["openssl", *options.split()], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="session")
def make_certificate(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Certificate]:
    """Return a maker of certificates: ``make_certificate(host="127.0.0.1", expired=False)``."""

    def make(host: str = "127.0.0.1", *, expired: bool = False) -> Certificate:
        folder = tmp_path_factory.mktemp("certificate")
        try:
            _sign(folder, host, expired=expired)
        except ImportError:
            if expired or shutil.which("openssl") is None:
                pytest.skip("needs the package `cryptography` to make this certificate")
            _sign_with_binary(folder, host)
        return Certificate(folder / "cert.pem", folder / "key.pem")

    return make


class RawServer:
    """One loopback connection, served by a script in a thread, below any library's manners."""

    def __init__(
        self,
        script: Callable[[RawServer], None],
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        self._script, self._tls = script, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        if receive_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.settimeout(_PATIENCE_S)
        self.port: int = self._listener.getsockname()[1]
        self.n_connections = 0
        self.request = b""
        self.error: BaseException | None = None
        self.stopped = threading.Event()
        self.connection: socket.socket
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        scheme = "ws" if self._tls is None else "wss"
        return f"{scheme}://127.0.0.1:{self.port}/"

    def _serve(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return
        self.n_connections += 1
        with contextlib.suppress(OSError):  # the client may go away at any moment
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.settimeout(_PATIENCE_S)
            self.connection = accepted
            try:
                if self._tls is not None:
                    self.connection = self._tls.wrap_socket(accepted, server_side=True)
                self._script(self)
            except OSError:
                raise
            except BaseException as error:
                self.error = error
            finally:
                self.connection.close()
                accepted.close()

    def read_request(self) -> None:
        while b"\r\n\r\n" not in self.request:
            data = self.connection.recv(4096)
            if not data:
                raise ConnectionError("no request")
            self.request += data

    def answer(self, *extra: bytes) -> bytes:
        """Return the text of a right answer to the request, with `extra` header lines."""
        lines = self.request.split(b"\r\n")
        name = b"sec-websocket-key"
        key = next(x.split(b":")[1].strip() for x in lines if x.lower().startswith(name))
        digest = hashlib.sha1(key + _ACCEPT_GUID, usedforsecurity=False).digest()
        head = [
            b"HTTP/1.1 101 Switching Protocols",
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest),
            *extra,
        ]
        return b"\r\n".join(head) + b"\r\n\r\n"

    def shake_hands(self, *extra: bytes) -> None:
        self.read_request()
        self.send(self.answer(*extra))

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    @staticmethod
    def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
        n_bytes = len(payload)
        if n_bytes < 126:
            length = bytes([n_bytes])
        elif n_bytes < 65536:
            length = b"\x7e" + n_bytes.to_bytes(2)
        else:
            length = b"\x7f" + n_bytes.to_bytes(8)
        return bytes([(0x80 if fin else 0) | opcode]) + length + payload

    def say_goodbye(self) -> None:
        """Close as a well-behaved server does: it sends first and hangs up last."""
        self.send(self.frame(8, b"\x03\xe8"))
        self.connection.recv(65536)

    def read_until_closed(self) -> bytes:
        data = b""
        while part := self.connection.recv(65536):
            data += part
        return data

    def stop(self) -> None:
        self.stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes an accept that still waits
        self._listener.close()
        self._thread.join(_PATIENCE_S)
        if self.error is not None:
            raise self.error


@pytest.fixture
def raw_server() -> Iterator[Callable[..., RawServer]]:
    """Return a starter of servers: ``raw_server(script, tls=None)``; all are stopped at the end."""
    servers: list[RawServer] = []

    def start(
        script: Callable[[RawServer], None],
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
    ) -> RawServer:
        server = RawServer(script, tls=tls, receive_buffer=receive_buffer)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()
