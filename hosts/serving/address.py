"""The address and the limits of a server. This module opens no sockets and no files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

from ...core.checks import check_limits
from ...core.errors import InvalidArgument

PATH: Final = "/mcp"
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: A name or an IP address.
        port: The port; 0 takes a free one.
        tls: Whether it speaks TLS; `serve_http` sets it.
    """

    host: str
    port: int
    tls: bool = False

    @classmethod
    def parse(cls, given: str, *, option: str = "--http") -> Self:
        """Read `HOST:PORT`, with an IPv6 address in brackets; the error names the option.

        Raises:
            InvalidArgument: The text has another form.
        """
        host, _, port = given.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if host and bracketed == (":" in host) and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            return cls(host[1:-1] if bracketed else host, int(port))
        raise InvalidArgument(f"{option} must be HOST:PORT, got {given!r}", remedy="write for example 127.0.0.1:8100")

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
        """The host as URLs write it: an IPv6 address in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Who can reach a server over HTTP, and its limits.

    Attributes:
        allow_remote: Whether other machines can reach it without TLS, for example through a proxy that adds TLS.
        tls_cert: A PEM file with the certificate and its chain. With `tls_key`, other machines can reach the server.
        tls_key: A PEM file with the certificate's key, without a password.
        names: The names under which other machines reach it. It refuses calls under other names. Empty means any name.
        max_body: The largest request body, in bytes.
        keep_alive: Seconds that a connection can be idle between two requests.
        connections: The most concurrent connections. Above this, requests get 503.
        sessions: The most concurrent sessions, of clients before revision 2026-07-28. Above this, a new one gets 503.
        session_idle: Seconds without a running request after which such a session ends.
        drain: Seconds that running work gets to finish when the process is asked to end.

    Raises:
        InvalidArgument: A limit is not above 0, or only one of certificate and key is set.
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
            raise InvalidArgument("TLS needs a certificate and its key", remedy="set both --tls-cert and --tls-key")
        check_limits(self, "max_body", "keep_alive", "connections", "sessions", "session_idle")
        if not (math.isfinite(self.drain) and self.drain >= 0):
            raise InvalidArgument(
                f"drain must be a finite number of seconds, 0 or more, got {self.drain!r}", remedy="give 0 or more"
            )

    @property
    def tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.tls_cert is not None
