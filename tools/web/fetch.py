"""One page over HTTP: redirects, the size of what comes, how it is packed. No cookies, no proxies, no credentials.

Where a connection may lead is `_network`'s matter, what a page says `page`'s.
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
"""Bytes of a page that are read, packed and unpacked."""

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
    """What a server gave.

    Attributes:
        url: Where it was in the end.
        kind: Its media type, such as `text/html`; empty where the server says none.
        charset: Its encoding, where the server says it.
        body: Its bytes, unpacked.
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
        network: Makes its connections.
        tls: Makes what certificates are checked with.
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
        """Fetch what is at an address, over redirects.

        Raises:
            AddressRefused: It, or what it redirects to, leads inward.
            ToolFailed: It is no address of a page, there is none, or it cannot be read.
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
        """One request: a page, or where it has moved to."""
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
    """An address that can be fetched. What it has beside the host may be a secret, so that no error quotes it."""
    try:
        url = httpx2.URL(given) if base is None else base.join(given)
    except (httpx2.InvalidURL, ValueError):
        url = None
    where = "the address" if base is None else f"what {base.host!r} redirects to"
    if url is None or not url.raw_host or not (url.port is None or 0 < url.port < 65536):
        raise ToolFailed(f"{where} is no address of a page", remedy="write it as https://host/path")
    if url.scheme not in ("http", "https"):
        raise ToolFailed(f"{where} is of the kind {url.scheme[:20]!r}", remedy="use https or http")
    if url.userinfo or b"@" in url.netloc:
        raise ToolFailed(f"{where} holds a user's name or password", remedy="leave it out")
    return url.copy_with(fragment=None)


def _problem(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "has no certificate for its name that is trusted here"
        if isinstance(cause, ssl.SSLError):
            return "does not speak TLS as it should"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore2.ProtocolError):
        return "does not speak HTTP as it should"
    return "ended the connection"


class _Unpacked:
    """A body as it comes in, unpacked no further than it may be long.

    Raises:
        ToolFailed: It is packed in another way than was asked for.
    """

    def __init__(self, host: str, packing: str, most: int) -> None:
        self._host = host
        self._most = most
        self._got = bytearray()
        self._taken = 0
        self._packing = packing.lower()
        self.cut = False
        if self._packing not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ToolFailed(f"the host {host!r} packs its page as {packing[:40]!r}", remedy=_OTHER)
        self._packed = self._packing not in ("", "identity")
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)

    @property
    def body(self) -> bytes:
        """What came so far."""
        return bytes(self._got)

    def take(self, chunk: bytes) -> bool:
        """Take some bytes; whether more are wanted."""
        raw = self._taken == 0 and self._packing == "deflate" and chunk[:1] and chunk[0] & 0x0F != 8
        if raw:  # some servers leave the header out
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
                    break  # what follows is none of it
                self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
        if problem:
            raise ToolFailed(f"the page of the host {self._host!r} cannot be unpacked", remedy=_OTHER)


__all__ = ["LARGEST", "Fetched", "Fetcher"]
