"""One page over HTTP: redirects, size limits, compression. No cookies, no proxies, no credentials.

`network` decides which connections are allowed, `page` turns a page into text.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpcore2
import httpx2

from ...core.errors import ToolFailed
from .network import CheckedNetwork, trusted

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
        most: Bytes of a page that are read.
    """

    def __init__(
        self, network: CheckedNetwork, *, tls: Callable[[], ssl.SSLContext] = trusted, most: int = LARGEST
    ) -> None:
        self._network = network
        self._tls = tls
        self._most = most
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
            unpacked = _Unpacked(at.host, headers.get(b"content-encoding", ""), self._most)
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

    def __init__(self, host: str, packing: str, most: int) -> None:
        self._host = host
        self._most = most
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
        if len(self._got) > self._most or self._taken > self._most:
            self.cut = True
            del self._got[self._most :]
        return not self.cut

    def _unpack(self, chunk: bytes) -> None:
        problem = False
        while chunk and len(self._got) <= self._most:
            try:
                self._got += self._stream.decompress(chunk, self._most + 1 - len(self._got))
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


__all__ = ["LARGEST", "Fetched", "Fetcher"]
