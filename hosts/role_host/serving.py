"""Puts the role host on a transport, with its own limits. `hosts.serving` has what all servers share."""

from __future__ import annotations

from collections.abc import Callable

from ..serving import Address, HttpOptions
from ..serving import serve_http as over_http
from ..serving import serve_stdio as over_stdio
from .server import RoleHost

DRAIN = 5.0
"""Seconds that running requests get to finish when the process is asked to end."""


async def serve_http(
    host: RoleHost, address: Address, *, allow_remote: bool = False, ready: Callable[[Address], None] | None = None
) -> int | None:
    """Serve over streamable HTTP at `/mcp` until a signal arrives.

    It speaks plain HTTP. For other machines, put a TLS proxy in front of it.

    Args:
        host: The host.
        address: Where to listen.
        allow_remote: Whether other machines can reach it.
        ready: Called with the actual address as soon as the server can be reached.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: Other machines can reach the address, but `allow_remote` is false or the host has no tokens.
            Or the server cannot listen on the address.
    """
    options = HttpOptions(allow_remote=allow_remote, connections=512, keep_alive=5, drain=DRAIN)
    return await over_http(
        host, address, options, ready=ready, tokens_by="set WORLDAGENT_ROLE_HOST_TOKEN or --token-file"
    )


async def serve_stdio(host: RoleHost) -> int | None:
    """Serve until standard input ends or a signal arrives. Requests that were read by then are answered.

    Args:
        host: The host.

    Returns:
        The number of the signal, or None at the end of input.
    """
    return await over_stdio(host, drain=DRAIN)


__all__ = ["serve_http", "serve_stdio"]
