"""How a server over HTTP is reached, and what one caller can use up of it. Nothing is enforced here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.errors import InvalidArgument

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Reach and limits of a server over HTTP.

    Attributes:
        allow_remote: Whether other machines may reach it without TLS, such as through a proxy that has it.
        tls_cert: A file with the certificate and its chain, as PEM. With `tls_key`, other machines may reach it.
        tls_key: A file with the certificate's key, as PEM without a password.
        names: The names under which other machines reach it; requests for any other name are refused. Empty: any name.
        max_body: Bytes of a request's body.
        max_headers: Headers of a request.
        max_header_bytes: Bytes of a request's headers.
        arrival: Seconds that a request may take to arrive, head and body, and a TLS handshake.
        keep_alive: Seconds that a connection may be idle.
        stall: Seconds after which a client that reads nothing of what waits for it is cut off.
        connections: Connections at once, if the process may open twice as many files.
        sessions: Sessions at once, of clients before revision 2026-07-28.
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
    max_headers: int = 100
    max_header_bytes: int = 1 << 15
    arrival: float = 10.0
    keep_alive: float = 30.0
    stall: float = 60.0
    connections: int = 2048
    sessions: int = 2000
    session_idle: float = 1800.0
    drain: float = 10.0

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidArgument("TLS needs a certificate and its key", remedy="give both --tls-cert and --tls-key")
        for name in _LIMITS:
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgument(f"{name} {value!r} is no limit", remedy="give a number above 0")
        if not (math.isfinite(self.drain) and self.drain >= 0):
            raise InvalidArgument(f"drain {self.drain!r} is no number of seconds", remedy="give 0 or more")

    @property
    def tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.tls_cert is not None


_LIMITS: Final = (
    "max_body",
    "max_headers",
    "max_header_bytes",
    "arrival",
    "keep_alive",
    "stall",
    "connections",
    "sessions",
    "session_idle",
)

__all__ = ["HttpOptions"]
