"""A role host over streamable HTTP at `/mcp`. It speaks plain HTTP: for other machines, put a TLS proxy before it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self

import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware

from ....core.errors import InvalidArgument
from .._server import RoleHost
from ._connections import BURST, QUEUE, GuardedConnection
from ._signals import stopped_by_signals

PATH = "/mcp"
DRAIN = 5
"""Seconds that requests under way are given when the process is asked to end."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a host listens.

    Attributes:
        host: A name or an IP address.
        port: The port; 0 takes a free one.
    """

    host: str
    port: int

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
        return f"http://{self.authority}:{self.port}{PATH}"

    @property
    def authority(self) -> str:
        """The host as addresses write it."""
        return f"[{self.host}]" if ":" in self.host else self.host


async def serve_http(
    host: RoleHost, address: Address, *, allow_remote: bool = False, ready: Callable[[Address], None] | None = None
) -> int | None:
    """Serve until a signal asks for the end.

    Args:
        host: The host.
        address: Where to listen.
        allow_remote: Whether other machines may reach it.
        ready: Told where it listens, as soon as it can be reached.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: The address is not for this machine alone and that was not allowed, or there are no tokens; or
            it cannot be listened on.
    """
    _check_reach(host, address, allow_remote)
    server = _Server(
        uvicorn.Config(
            application(host, address),
            log_config=None,
            access_log=False,
            server_header=False,
            http=GuardedConnection,
            ws="none",
            backlog=BURST,
            timeout_graceful_shutdown=DRAIN,
        )
    )
    stopped: list[int] = []

    def stop(number: int) -> None:
        stopped.append(number)
        host.end_streams()
        server.handle_exit(signal.SIGTERM, None)

    with closing(_listening(address)) as listening, stopped_by_signals(stop):
        if ready is not None:
            ready(Address(address.host, listening.getsockname()[1]))
        await server.serve(sockets=[listening])
    return stopped[0] if stopped else None


def application(host: RoleHost, address: Address) -> Starlette:
    """The host as an ASGI application, which answers at `/mcp`.

    Args:
        host: The host; where it has tokens, a request without one gets 401.
        address: Where it will listen; on loopback, requests that were meant for another name are refused.
    """
    app = host.server.streamable_http_app(
        streamable_http_path=PATH, transport_security=_security(address), token_verifier=host.tokens
    )
    if host.tokens is not None:
        # The library adds these two only for a server that names an OAuth issuer; a token of ours has none.
        app.add_middleware(AuthContextMiddleware)
        app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(host.tokens))
    return app


class _Server(uvicorn.Server):
    """A server that leaves signals to us: it would raise them once more when it has ended."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUE)  # asyncio has one number for what may wait and for what it accepts in a row

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _check_reach(host: RoleHost, address: Address, allow_remote: bool) -> None:
    if address.is_loopback:
        return
    if not allow_remote:
        raise InvalidArgument(
            f"{address.host!r} can be reached from other machines",
            remedy="listen on 127.0.0.1, or add --allow-remote and a token",
        )
    if host.tokens is None:
        raise InvalidArgument(
            f"{address.host!r} can be reached from other machines, and no token is asked for",
            remedy="set WORLDAGENT_ROLE_HOST_TOKEN or --token-file",
        )


def _security(address: Address) -> TransportSecuritySettings:
    """A page in a browser may call this machine by a name of its own; such requests are refused (DNS rebinding)."""
    names = [address.authority, "127.0.0.1", "localhost", "[::1]"]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=address.is_loopback,
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[f"http://{name}{port}" for name in names for port in ("", ":*")],
    )


def _listening(address: Address) -> socket.socket:
    problem = ""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((address.host, address.port), family=family)
        # asyncio does this only for sockets that name their protocol; without it each answer waits 40 ms for an ACK.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except UnicodeError:
        problem = "no such name"
    raise InvalidArgument(
        f"{address.authority}:{address.port} cannot be listened on: {problem}",
        remedy="choose another address, or port 0 for a free one",
    )


__all__ = ["Address", "application", "serve_http"]
