"""A web server on this machine that says what it is told to say, and names of the web that lead to it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpcore2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.serving import serving
from worldagent.tools.web.fetch import Address, dialling


def certificate(folder: Path, name: str, password: bytes | None = None) -> tuple[Path, Path]:
    """Make a certificate of `localhost` that is its own authority; gives its file and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / f"{name}.cert.pem", folder / f"{name}.key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, sealed))
    return cert_file, key_file


Says = Callable[["Request"], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """What a server was asked, and how it answers."""

    path: str
    headers: dict[str, str]
    writer: asyncio.StreamWriter

    async def say(
        self, body: bytes | str = b"", kind: str | None = "text/plain", status: str = "200 OK", **headers: str
    ) -> None:
        """Answer."""
        raw = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status}", "Connection: close"]
        lines += [] if kind is None else [f"Content-Type: {kind}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + raw)
        await self.writer.drain()


@dataclass
class Site:
    """A server under way.

    Attributes:
        port: Its port.
        asked: The requests so far.
    """

    port: int = 0
    asked: list[Request] = field(default_factory=list)


@contextlib.asynccontextmanager
async def site(says: Says, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    """Serve on a free port."""
    made = Site()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        made.asked.append(Request(head[0].split()[1], headers, writer))
        await says(made.asked[-1])

    async with serving(serve, ConnectionError, asyncio.IncompleteReadError, host=host, tls=tls) as made.port:
        yield made


class Names:
    """Looks up names as a test wants it; the last of several answers stays.

    Attributes:
        asked: The names that were looked up.
    """

    def __init__(self, **answers: Sequence[str | list[str]]) -> None:
        self._answers = {name.replace("_", "."): list(each) for name, each in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if not answers:
            raise OSError
        given = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ipaddress.ip_address(each) for each in ([given] if isinstance(given, str) else given)]


class Dial(httpcore2.AsyncNetworkBackend):
    """Connects to this machine instead of to where it was told to.

    Attributes:
        dialled: Where it was told to connect to.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._at = host, port
        self._inner = dialling()
        self.dialled: list[tuple[str, int]] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.dialled.append((host, port))
        return await self._inner.connect_tcp(*self._at, timeout, local_address, socket_options)


def certificates(folder: Path, *names: str) -> tuple[ssl.SSLContext, Callable[[], ssl.SSLContext]]:
    """A server's certificate for names, and what makes a client that trusts it alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, lambda: ssl.create_default_context(cafile=str(file))
