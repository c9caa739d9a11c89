"""The role host on a transport. What it shares with other servers is in `serving`; its limits are here."""

from __future__ import annotations

from collections.abc import Callable

from ..serving import Address, HttpOptions
from ..serving import serve_http as over_http
from ..serving import serve_stdio as over_stdio
from .server import RoleHost

DRAIN = 5.0
"""Seconds that requests under way are given when the process is asked to end."""


async def serve_http(
    host: RoleHost, address: Address, *, allow_remote: bool = False, ready: Callable[[Address], None] | None = None
) -> int | None:
    """Serve over streamable HTTP at `/mcp` until a signal asks for the end.

    It speaks plain HTTP: for other machines, put a TLS proxy before it.

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
    options = HttpOptions(allow_remote=allow_remote, connections=512, keep_alive=5, drain=DRAIN)
    return await over_http(
        host, address, options, ready=ready, tokens_by="set WORLDAGENT_ROLE_HOST_TOKEN or --token-file"
    )


async def serve_stdio(host: RoleHost) -> int | None:
    """Serve until standard input ends or a signal asks for it. Requests that were read by then are answered.

    Args:
        host: The host.

    Returns:
        The number of the signal, or None at the end of input.
    """
    return await over_stdio(host, drain=DRAIN)


__all__ = ["serve_http", "serve_stdio"]
