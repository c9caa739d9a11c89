"""What tests of tools use: a web server that says what it is told to, names that lead to it, bodies of file tools."""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpcore2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.serving import serving
from worldagent.core.errors import ToolFailed
from worldagent.tools.files import Roots, file_functions
from worldagent.tools.web.fetch import Address, dialling


def certificate(
    folder: Path, name: str, password: bytes | None = None, *, of: Sequence[str] = ("localhost",)
) -> tuple[Path, Path]:
    """Make a certificate of some names that is its own authority; gives its file and that of its key."""
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
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in of]), critical=False)
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


def saying(body: bytes | str, kind: str | None = "text/plain", status: str = "200 OK", **headers: str) -> Says:
    """Answers every request alike."""

    async def says(request: Request) -> None:
        await request.say(body, kind, status, **headers)

    return says


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
    file, key = certificate(folder, "server", of=names)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file, key)
    return server, lambda: ssl.create_default_context(cafile=str(file))


def outcome(doing: Callable[[], str]) -> str:
    """What a call says, or its error."""
    try:
        return doing()
    except ToolFailed as error:
        return str(error)


class FileTools:
    """The tools over some folders, the first of which is the working folder."""

    def __init__(self, *folders: Path, limit: int = 30_000) -> None:
        self.roots = Roots(folders)
        self.functions = {each.name: each for each in file_functions(self.roots, limit=limit)}
        self.context: Any = SimpleNamespace(cancelled=False)  # the part of a context that the bodies look at

    def __call__(self, name: str, **input: Any) -> str:
        function = self.functions[name]
        params = function.params(**input)
        values = {key: getattr(params, key) for key in type(params).model_fields}
        plain: Callable[..., str] = function.body.__wrapped__  # type: ignore[attr-defined] # `functools.wraps` puts it there
        return plain(self.context, **values) if function.context else plain(**values)

    def read(self, path: str, **more: Any) -> str:
        return self("read_file", path=path, **more)

    def write(self, path: str, content: str) -> str:
        return self("write_file", path=path, content=content)

    def edit(self, path: str, old: str, new: str, **more: Any) -> str:
        return self("edit_file", path=path, old=old, new=new, **more)

    def glob(self, pattern: str, **more: Any) -> str:
        return self("glob_files", pattern=pattern, **more)

    def grep(self, pattern: str, **more: Any) -> str:
        return self("grep_content", pattern=pattern, **more)


def tree(folder: Path, *files: str, content: str = "text\n") -> Path:
    """Make files below a folder; a name that ends with `/` is a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return folder


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/dev/fd"))
