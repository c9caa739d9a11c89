"""Connections to exactly the address that was checked: a name is looked up once, here, for each connection.

The HTTP library requests a connection to a host. It gets one to an address, and still checks the certificate against
the host. `addresses` decides which addresses are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, cast

import httpcore2

from ...core.errors import ToolFailed
from .addresses import Address, check_address, check_host

Resolver = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Returns the addresses of a name."""

_TRY: Final = 5.0  # seconds for an address, if there is another
MAX_ADDRESSES: Final = 8  # addresses to try


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a name, as this system knows them.

    Raises:
        OSError, UnicodeError: The name has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(str(each[4][0])) for each in found]


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to public hosts.

    Args:
        allow_private: Whether to connect also to this machine and its network.
        resolver: Looks up names.
        dial: Makes the connections to addresses.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        resolver: Resolver = resolve,
        dial: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._resolver = resolver
        self._dial = dial or dialling()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first of the host's addresses that answers.

        Raises:
            AddressRefused: One of them leads to this machine or its network: a host with both kinds is not trustworthy.
            ToolFailed: It has no address, or none answers.
        """
        addresses = await self._addresses(host, port)
        for left in range(len(addresses) - 1, -1, -1):
            address = addresses[len(addresses) - 1 - left]
            try:
                return await self._dial.connect_tcp(str(address), port, _TRY if left else None, None, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        raise ToolFailed(f"the host {host!r} cannot be reached", remedy="try another page")

    async def _addresses(self, host: str, port: int) -> list[Address]:
        check_host(host, allow_private=self._allow_private)
        try:
            return [ipaddress.ip_address(host.removesuffix("."))]
        except ValueError:
            pass
        try:
            found = list(dict.fromkeys(await self._resolver(host, port)))
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise ToolFailed(f"the host {host!r} has no address", remedy="check the name")
        for address in found:
            check_address(host, address, allow_private=self._allow_private)
        return found[:MAX_ADDRESSES]

    async def sleep(self, seconds: float) -> None:
        """Sleep; the library calls this."""
        await asyncio.sleep(seconds)


def dialling() -> httpcore2.AsyncNetworkBackend:
    """Return the backend that connects to addresses."""
    return cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())  # pyright sees a substitute type


def trusted() -> ssl.SSLContext:
    """Return a TLS context with the certificates that this system trusts."""
    import httpx2

    return httpx2.create_ssl_context()


__all__ = ["CheckedNetwork", "Resolver", "dialling", "resolve", "trusted"]
