"""Where a server listens, and under which address it is reached. Nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, Self

from ...core.errors import InvalidArgument

PATH: Final = "/mcp"


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
        return f"{self.root}{PATH}"

    @property
    def root(self) -> str:
        """What stands before the path in its addresses."""
        return f"http{'s' if self.tls else ''}://{self.authority}:{self.port}"

    @property
    def authority(self) -> str:
        """The host as addresses write it."""
        return f"[{self.host}]" if ":" in self.host else self.host


__all__ = ["PATH", "Address"]
