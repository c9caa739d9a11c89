"""Where a server listens, under which address it is reached, and what one caller can use up. Nothing is opened here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

from ...core.errors import InvalidArgument

PATH: Final = "/mcp"
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: A name or an IP address.
        port: The port; 0 takes a free one.
        tls: Whether it speaks TLS; `serve_http` says so.
    """

    host: str
    port: int
    tls: bool = False

    @classmethod
    def parse(cls, given: str) -> Self:
        """Read `HOST:PORT`, where an IPv6 address stands in brackets.

        Raises:
            InvalidArgument: It is something else.
        """
        host, _, port = given.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if host and bracketed == (":" in host) and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            return cls(host[1:-1] if bracketed else host, int(port))
        raise InvalidArgument(f"--http {given!r} is no address", remedy="write HOST:PORT, such as 127.0.0.1:8100")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url(self) -> str:
        """Its MCP endpoint."""
        return f"http{'s' if self.tls else ''}://{self.authority}:{self.port}{PATH}"

    @property
    def authority(self) -> str:
        """The host as addresses write it."""
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Reach and limits of a server over HTTP.

    Attributes:
        allow_remote: Whether other machines may reach it without TLS, such as through a proxy that has it.
        tls_cert: A file with the certificate and its chain, as PEM. With `tls_key`, other machines may reach it.
        tls_key: A file with the certificate's key, as PEM without a password.
        names: The names under which other machines reach it; calls under any other name are refused. Empty: any name.
        max_body: Bytes of a request's body.
        keep_alive: Seconds that a connection may be idle between two requests.
        connections: Connections at once; above it, requests are answered with 503.
        sessions: Sessions at once, of clients before revision 2026-07-28; above it, a new one is answered with 503.
        session_idle: Seconds after which such a session ends if no request of it runs.
        drain: Seconds that work under way is given when the process is asked to end.

    Raises:
        InvalidArgument: A limit is not above 0, or the certificate is given without its key.
    """

    allow_remote: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    names: tuple[str, ...] = ()
    max_body: int = 4 * MIB
    keep_alive: float = 30.0
    connections: int = 2048
    sessions: int = 10_000
    session_idle: float = 1800.0
    drain: float = 10.0

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidArgument("TLS needs a certificate and its key", remedy="give both --tls-cert and --tls-key")
        for name in ("max_body", "keep_alive", "connections", "sessions", "session_idle"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgument(f"{name} {value!r} is no limit", remedy="give a number above 0")
        if not (math.isfinite(self.drain) and self.drain >= 0):
            raise InvalidArgument(f"drain {self.drain!r} is no number of seconds", remedy="give 0 or more")

    @property
    def tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.tls_cert is not None


__all__ = ["MIB", "PATH", "Address", "HttpOptions"]
