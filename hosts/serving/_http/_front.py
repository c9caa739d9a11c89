"""What every request passes before any token is looked at: its headers, the name that it was meant for, its end.

An ASGI middleware, and no more than that: what the request asks is not read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .._client import STATE
from .._options import HttpOptions
from ..logs import log
from ._exchange import Exchange, Streams

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_CLOSE: Final = {"connection": "close"}


class Front:
    """The middleware.

    Args:
        app: What answers.
        options: The limits.
        names: The names that a request may be meant for; None takes any.
        streams: Where streams that must be ended are noted.
    """

    def __init__(self, app: ASGIApp, *, options: HttpOptions, names: Collection[str] | None, streams: Streams) -> None:
        self._app = app
        self._options = options
        self._names = None if names is None else frozenset(name.lower() for name in names)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            log.info("a request was refused with HTTP %d", refusal.status_code)
            await refusal(scope, receive, send)
            return
        exchange = Exchange(receive, send) if scope["method"] != "GET" else self._streams.opened(receive, send)
        scope.setdefault("state", {})[STATE] = exchange.client
        try:
            await self._app(scope, exchange.receive, exchange.send)
            await exchange.complete()
        finally:
            self._streams.open.discard(exchange)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        raw = cast("list[tuple[bytes, bytes]]", scope["headers"])
        size = sum(len(name) + len(value) for name, value in raw) + len(scope.get("raw_path") or b"")
        size += len(scope.get("query_string") or b"")
        if len(raw) > self._options.max_headers or size > self._options.max_header_bytes:
            return PlainTextResponse("The headers are too many or too long; send fewer", 431, headers=_CLOSE)
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self._names is not None and _name(host) not in self._names:
            return PlainTextResponse("Invalid Host header; use a name that the server was started for", 421)
        origin = headers.get("origin", "").lower()
        if origin and not self._takes(origin, host):
            return PlainTextResponse("Invalid Origin header; a page of another origin may not call this server", 403)
        return None

    def _takes(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may call: one of a name of ours, or, where any name is ours, of the same."""
        try:
            authority = urlsplit(origin).netloc
        except ValueError:
            return False
        return authority == host if self._names is None else _name(authority) in self._names


def _name(authority: str) -> str:
    """The name without its port; an IPv6 address stands in brackets."""
    name, colon, port = authority.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else authority


__all__ = ["LOOPBACK", "Front"]
