"""One page over HTTP: redirects, size limits, compression. No cookies, no proxies, no credentials.

A connection goes to exactly the address that was checked: a name is looked up once, here, for each connection. `page`
turns a page into text.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import httpcore2
import httpx2

from ...core.errors import AddressRefused, ToolFailed
from ...mcp_client.tls import trusted

# --- connections ------------------------------------------------------------------------------------------------------

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Reach = Literal["public", "private", "never"]

_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Networks that are missing in Python's tables, in some versions.
_PRIVATE: Final = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "3fff::/20"))
)
# "This host", and the addresses where clouds serve a machine its own keys.
_NEVER: Final = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128"),
    )
)
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_INSIDE: Final = tuple(
    map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)


def reach(address: Address) -> Reach:
    """Classify an address: `never` is where no page can be, such as a cloud's keys or a multicast address."""
    if _in(address, _NEVER):
        return "never"
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            within = reach(inner)
            # A public address that is written in such a form hides something, since it could be written plainly.
            return within if within != "public" or address in _TRANSLATED or address.ipv4_mapped else "private"
        if address.is_loopback or address in ipaddress.IPv6Network("fc00::/7"):
            return "private"
        if address not in _UNICAST:
            return "never"
    if address.is_multicast or address.is_unspecified or address.is_link_local:
        return "never"
    if isinstance(address, ipaddress.IPv4Address) and address.is_reserved:
        return "never"
    return "public" if address.is_global and not _in(address, _PRIVATE) else "private"


def _in(address: Address, networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]) -> bool:
    return any(address in network for network in networks)


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address inside an IPv6 address, in any of the forms that some system follows."""
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    number = int(address)
    if number < 2:  # the unspecified address, and the loopback
        return None
    if (number >> 32) & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE) or _in(address, _INSIDE):
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return None


def check_host(host: str, *, allow_private: bool) -> Address | None:
    """Refuse a host that is neither a plain name nor a plain address; a name is not looked up.

    Args:
        host: The host of the URL, without brackets.
        allow_private: Whether it can be this machine or its network.

    Returns:
        The address; None for a name.

    Raises:
        AddressRefused: It leads to this machine or its network, or is a number in another form.
        ToolFailed: It is not a valid host.
    """
    plain = host.lower().removesuffix(".")
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        address = None
    if address is not None:
        check_address(host, address, allow_private=allow_private)
    elif not _NAME.fullmatch(plain):
        raise ToolFailed(f"{host[:200]!r} is not a valid host", remedy="use a host's name")
    elif _NUMBER.fullmatch(plain.rpartition(".")[2]):
        raise AddressRefused(f"the host {host!r} is a number in an odd form", remedy="use the host's name")
    elif not allow_private and (plain == "localhost" or plain.endswith(".localhost")):
        refuse(host)
    return address


def check_address(host: str, address: Address, *, allow_private: bool) -> None:
    """Refuse an address of this machine or its network.

    Args:
        host: The host that has it, for the error.
        address: The address.
        allow_private: Whether it can be of this machine or its network.

    Raises:
        AddressRefused: The address is refused.
    """
    where = reach(address)
    if where == "never" or (where == "private" and not allow_private):
        refuse(host)


def refuse(host: str) -> None:
    """Refuse a host.

    Raises:
        AddressRefused: Always.
    """
    raise AddressRefused(f"the host {host!r} is in this machine or its network", remedy="use a public page")


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
        if (address := check_host(host, allow_private=self._allow_private)) is not None:
            return [address]
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


# --- pages ------------------------------------------------------------------------------------------------------------

LARGEST: Final = 5 << 20
"""Bytes of a page that are read, both compressed and decompressed."""

_REDIRECTS: Final = 5
_MOVED: Final = (301, 302, 303, 307, 308)
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:-]{1,40})", re.ASCII | re.IGNORECASE)
_OTHER: Final = "use another page"
_HEADERS: Final = (
    (b"User-Agent", b"worldagent"),
    (b"Accept", b"text/html, application/xhtml+xml, text/*, application/json;q=0.9, */*;q=0.1"),
    (b"Accept-Encoding", b"gzip, deflate"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A page as the server sent it.

    Attributes:
        url: Its address after redirects.
        kind: Its media type, such as `text/html`; empty if the server sends none.
        charset: Its encoding, if the server sends it.
        body: Its bytes, decompressed.
        cut: Whether there is more of it.
    """

    url: str
    kind: str
    charset: str | None
    body: bytes
    cut: bool


class Fetcher:
    """Fetches pages.

    Args:
        network: Makes the connections.
        tls: Makes the TLS context that checks certificates.
    """

    def __init__(self, network: CheckedNetwork, *, tls: Callable[[], ssl.SSLContext] = trusted) -> None:
        self._network = network
        self._tls = tls
        self._context: ssl.SSLContext | None = None

    async def get(self, url: str) -> Fetched:
        """Fetch the page at an address, following redirects.

        Raises:
            AddressRefused: It, or a redirect, leads to this machine or its network.
            ToolFailed: It is not the address of a page, no page is there, or the page cannot be read.
        """
        at = _parsed(url)
        if self._context is None:
            self._context = await asyncio.to_thread(self._tls)  # it reads files
        problem = ""
        try:
            async with httpcore2.AsyncConnectionPool(
                ssl_context=self._context, network_backend=self._network, max_connections=1, retries=0
            ) as pool:
                for _ in range(_REDIRECTS + 1):
                    given = await self._once(pool, at)
                    if isinstance(given, Fetched):
                        return given
                    at = given
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            problem = _problem(error)
        if problem:
            raise ToolFailed(f"the host {at.host!r} {problem}", remedy=_OTHER)
        raise ToolFailed(f"the host {at.host!r} redirects more than {_REDIRECTS} times", remedy=_OTHER)

    async def _once(self, pool: httpcore2.AsyncConnectionPool, at: httpx2.URL) -> Fetched | httpx2.URL:
        """Make one request; returns a page, or the address of a redirect."""
        target = httpcore2.URL(scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path)
        async with pool.stream("GET", target, headers=[(b"Host", at.netloc), *_HEADERS]) as response:
            headers = {name.lower(): value.decode("utf-8", "replace").strip() for name, value in response.headers}
            moved = headers.get(b"location")
            if response.status in _MOVED and moved:
                return _parsed(moved, at)
            if not 200 <= response.status < 300:
                raise ToolFailed(f"the host {at.host!r} answers with status {response.status}", remedy=_OTHER)
            unpacked = _Unpacked(at.host, headers.get(b"content-encoding", ""))
            async for chunk in response.aiter_stream():
                if not unpacked.take(chunk):
                    break
        kind = headers.get(b"content-type", "")
        charset = _CHARSET.search(kind)
        return Fetched(
            url=str(at),
            kind=kind.partition(";")[0].strip().lower(),
            charset=charset[1] if charset else None,
            body=unpacked.body,
            cut=unpacked.cut,
        )


def _parsed(given: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """Parse an address to fetch. Its other parts than the host can hold a secret, so no error quotes them."""
    try:
        url = httpx2.URL(given) if base is None else base.join(given)
    except (httpx2.InvalidURL, ValueError):
        url = None
    where = "the address" if base is None else f"the redirect of {base.host!r}"
    if url is None or not url.raw_host or not (url.port is None or 0 < url.port < 65536):
        raise ToolFailed(f"{where} must be the address of a page", remedy="write it as https://host/path")
    if url.scheme not in ("http", "https"):
        raise ToolFailed(f"{where} must use https or http, got {url.scheme[:20]!r}", remedy="use https or http")
    if url.userinfo or b"@" in url.netloc:
        raise ToolFailed(f"{where} must not contain a user's name or password", remedy="remove it")
    return url.copy_with(fragment=None)


def _problem(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "has no certificate for its name that is trusted on this machine"
        if isinstance(cause, ssl.SSLError):
            return "does not speak TLS as it should"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore2.ProtocolError):
        return "does not speak HTTP as it should"
    return "ended the connection"


class _Unpacked:
    """A body as it is received, decompressed only up to its limit.

    Raises:
        ToolFailed: It is compressed in an unknown way.
    """

    def __init__(self, host: str, packing: str) -> None:
        self._host = host
        self._got = bytearray()
        self._taken = 0
        self._packing = packing.lower()
        self.cut = False
        if self._packing not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ToolFailed(f"the host {host!r} compresses its page as {packing[:40]!r}", remedy=_OTHER)
        self._packed = self._packing not in ("", "identity")
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)

    @property
    def body(self) -> bytes:
        """The bytes so far."""
        return bytes(self._got)

    def take(self, chunk: bytes) -> bool:
        """Take some bytes; returns whether more are wanted."""
        raw = self._taken == 0 and self._packing == "deflate" and chunk[:1] and chunk[0] & 0x0F != 8
        if raw:  # some servers omit the header
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._taken += len(chunk)
        if self._packed:
            self._unpack(chunk)
        else:
            self._got += chunk
        if len(self._got) > LARGEST or self._taken > LARGEST:
            self.cut = True
            del self._got[LARGEST:]
        return not self.cut

    def _unpack(self, chunk: bytes) -> None:
        problem = False
        while chunk and len(self._got) <= LARGEST:
            try:
                self._got += self._stream.decompress(chunk, LARGEST + 1 - len(self._got))
            except zlib.error:
                problem = True
                break
            chunk = self._stream.unconsumed_tail
            if self._stream.eof:
                chunk = self._stream.unused_data
                if self._packing == "deflate" or not chunk.startswith(b"\x1f\x8b"):
                    break  # the bytes that follow do not belong to the page
                self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
        if problem:
            raise ToolFailed(f"the page of the host {self._host!r} cannot be decompressed", remedy=_OTHER)
