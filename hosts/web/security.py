"""Who calls, and which requests are refused for every caller.

A browser sends a person's cookies with requests of every page, so a request that changes something must come from this
app's own pages or from an origin that the app allows. Tokens are accepted in a header, never in a URL, because URLs are
kept in histories and logs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.errors import InvalidArgument
from ..bounds import MAX_QUERY
from ..service.call import Grant
from .errors import HttpRefused, not_logged_in
from .sessions import SESSION_COOKIE, Sessions

Login: TypeAlias = Callable[[Request], "str | Grant | Awaitable[str | Grant | None] | None"]
"""Says who sends a request: the id of an account, which then reaches its own threads; a `Grant`; or None for a request
of a person who is not logged in."""

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_SECRET_NAMES: Final = frozenset(
    {"access_token", "api_key", "apikey", "authorization", "password", "secret", "token", SESSION_COOKIE}
)
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Guard:
    """The outermost middleware. It refuses unsafe requests, and adds headers that tell browsers what is safe.

    Args:
        app: The rest of the app.
        origins: Origins besides the app's own that can send requests that change something, such as
            `https://app.example.com`.
        names: The names of hosts, without a port, that requests can name; None accepts every name. Where no login is
            needed, this keeps out a page whose own name leads here (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, origins: Collection[str] = (), *, names: Collection[str] | None = None) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._names = None if names is None else frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal.response(scope))(scope, receive, sent)

    def _refusal(self, scope: Scope) -> HttpRefused | None:
        if len(scope["query_string"]) > MAX_QUERY:
            return HttpRefused(
                414, "too_large", f"the query of the URL has more than {MAX_QUERY:,} bytes", "send less at once"
            )
        names = {name.lower() for name in QueryParams(scope["query_string"])}
        if names & _SECRET_NAMES:
            return HttpRefused(
                400,
                "secret_in_url",
                "the URL has a parameter for a secret, and URLs are kept in histories and logs",
                "send the token in the header `Authorization: Bearer TOKEN`",
            )
        if self._names is not None and _without_port(Headers(scope=scope).get("host", "")) not in self._names:
            return HttpRefused(
                421,
                "invalid_host",
                "the request names a host that this server does not accept",
                f"call it by one of its names: {', '.join(sorted(self._names))}",
            )
        if scope["method"] not in _SAFE_METHODS and not self._is_trusted(Headers(scope=scope)):
            return HttpRefused(
                403,
                "invalid_origin",
                "the request comes from a page of another origin",
                "call from the app's own pages, or name the origin in `origins`",
            )
        return None

    def _is_trusted(self, headers: Headers) -> bool:
        """Whether a request that changes something comes from this app, an allowed origin, or not from a page."""
        origin = headers.get("origin")
        if origin in self._origins:
            return True
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        # The scheme is not compared: behind a proxy that ends TLS, the app does not know its own.
        return origin is None or origin.partition("://")[2] == headers.get("host")


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if port.isdigit() else host


async def grant_of(request: Request, *, sessions: Sessions | None, login: Login | None, workspace: str | None) -> Grant:
    """Return what the sender of a request can use.

    Args:
        request: The request.
        sessions: The tokens that are accepted, and their sessions; None accepts none.
        login: The hook of the host; None: there is none.
        workspace: The workspace of an account that `login` returns; None if the app serves several.

    Raises:
        HttpRefused: The sender is unknown.
        InvalidArgument: The app serves several workspaces, and `login` returned only an account.
    """
    found: str | Grant | None = None
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if sessions is not None and scheme.lower() == "bearer":
        found = sessions.tokens.grant_of(await sessions.tokens.verify_token(token.strip()))
    elif sessions is not None:
        found = sessions.grant_of(request)
    if found is None and login is not None:
        answer = login(request)
        found = await answer if inspect.isawaitable(answer) else answer
    if found is None:
        raise not_logged_in(accepts_tokens=sessions is not None)
    if isinstance(found, Grant):
        return found
    if workspace is None:
        raise InvalidArgument(
            "`login` returned an account, and the app serves several workspaces",
            remedy="return `Grant.of_account(workspace, account)`",
        )
    return Grant.of_account(workspace, found)
