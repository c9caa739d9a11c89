"""A service as an ASGI application: `/mcp`, and `/health` and `/ready` for a service that is `Operated`.

Starlette routes requests. The SDK checks names, bodies and tokens and speaks the protocol. This module gives each
handler its client, adds a remedy to refusals, and removes what a client sent from every answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared._context_streams import ContextReceiveStream
from mcp.shared.message import SessionMessage
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .address import PATH, Address, HttpOptions
from .handlers import STATE, Client, guard, without_text
from .logs import log
from .service import Operated, Service

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_FRESH: Final = {"cache-control": "no-store"}
_EVENT: Final = b"event: "
_ACCEPTED_TOKEN: Final = "with a token that this server accepts"


def application(
    service: Service,
    address: Address,
    options: HttpOptions = HttpOptions(),  # noqa: B008 -- it is frozen
) -> Starlette:
    """The service as an ASGI application, which answers at `/mcp`.

    Args:
        service: The service. If it has tokens, a call without one gets 401.
        address: Where it will listen. On loopback, calls to any other name are refused.
        options: The limits.

    Returns:
        The application, with its `Sessions` as `state.sessions`.
    """
    guard(service.server)
    sessions = Sessions(
        service.server,
        max_request_body_size=options.max_body,
        max_sessions=options.sessions,
        session_idle_timeout=options.session_idle,
        security_settings=_names(address, options),
    )
    endpoint: ASGIApp = sessions.asgi_app
    middleware: list[Middleware] = []
    if service.tokens is not None:
        endpoint = RequireAuthMiddleware(endpoint, [])
        middleware += [
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(service.tokens)),
            Middleware(AuthContextMiddleware),
        ]
    routes = [Route(PATH, endpoint), *(_pages(service) if isinstance(service, Operated) else ())]
    front = Middleware(Front, paths=[each.path for each in routes])
    app = Starlette(routes=routes, middleware=[front, *middleware], lifespan=lambda _: sessions.run())
    app.router.redirect_slashes = False  # a redirect would quote the path
    app.state.sessions = sessions
    return app


def _names(address: Address, options: HttpOptions) -> TransportSecuritySettings:
    """Which `Host` and `Origin` headers are accepted.

    A web page can make a browser reach this machine under the page's own name (DNS rebinding), so a server on loopback
    accepts only names of loopback. Tokens protect a server that other machines can reach under any name.
    """
    if not (options.names or address.is_loopback):
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    hosts = [f"{name}{port}" for name in (address.authority, *LOOPBACK, *options.names) for port in ("", ":*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def _pages(service: Operated) -> list[Route]:
    async def health(request: Request) -> Response:
        return JSONResponse(dict(service.health()), headers=_FRESH)

    async def ready(request: Request) -> Response:
        content = await service.ready()
        return JSONResponse(dict(content), status_code=200 if content.get("ready") else 503, headers=_FRESH)

    return [Route("/health", health, methods=["GET"]), Route("/ready", ready, methods=["GET"])]  # and HEAD


class Front:
    """The outermost middleware: gives each request its `Client`, and rewords refusals.

    Args:
        app: The rest of the application.
        paths: The paths that exist.
    """

    def __init__(self, app: ASGIApp, paths: Iterable[str]) -> None:
        self._app = app
        self._remedies = {
            401: ("invalid_token", f"send the header `Authorization: Bearer TOKEN`, {_ACCEPTED_TOKEN}"),
            403: ("invalid_origin", "call from a page that has this server's own name; other pages are refused"),
            404: ("not_found", f"correct the path of the URL; the paths of this server are {', '.join(paths)}"),
            405: ("method_not_allowed", "use {allow}"),
            406: ("not_acceptable", "send the header `Accept: application/json, text/event-stream`"),
            421: ("invalid_host", "call the server by a name that it was started for"),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.setdefault("state", {})[STATE] = Client()
        refusal: Message | None = None  # its start, until the body follows
        complete = False

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not complete:
                client.disconnect()
            return message

        async def sent(message: Message) -> None:
            nonlocal refusal, complete
            if message["type"] == "http.response.start" and message["status"] >= 400:
                log.info("a request was refused with HTTP %d", message["status"])
                refusal = message
                return
            if refusal is not None:
                message = {**message, "body": self._reword(refusal, message.get("body", b""))}
                await send(refusal)
                refusal = None
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)
            if message.get("body", b"").startswith(_EVENT):
                client.read()

        await self._app(scope, received, sent)

    def _reword(self, start: Message, body: bytes) -> bytes:
        """Return the new body of a refusal, and change the headers to match.

        The SDK quotes the request in errors of the protocol. This removes the quote: it can hold a role, and clients
        log errors (R7).
        """
        headers = MutableHeaders(scope=start)
        content: Any = json.loads(body) if headers.get("content-type") == "application/json" else {}
        if "jsonrpc" in content:
            kind, colon, _ = content["error"]["message"].partition(":")
            if not colon or kind not in ("Parse error", "Validation error"):
                return body
            content["error"]["message"] = kind
        elif start["status"] in self._remedies:
            code, remedy = self._remedies[start["status"]]
            allow = " or ".join(sorted(each.strip() for each in headers.get("allow", "POST").split(",")))
            content |= {"error": code, "remedy": remedy.format(allow=allow)}
        else:
            return body
        body = json.dumps(content).encode()
        headers["content-type"], headers["content-length"] = "application/json", str(len(body))
        return body


class Sessions(StreamableHTTPSessionManager):
    """The sessions of clients before revision 2026-07-28. Handlers get messages as `without_text` returns them."""

    def end_listening(self) -> None:
        """End the streams that clients opened with GET; they do not end by themselves."""
        for transport in self._server_instances.values():
            transport.close_standalone_sse_stream()

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        transport = super()._admit_session(requestor)
        if transport is not None:
            transport.connect = _without_texts(transport.connect)  # type: ignore[method-assign]  # called by this name
        return transport


class _Received(ContextReceiveStream[SessionMessage | Exception]):
    async def receive(self) -> SessionMessage | Exception:
        item = await super().receive()
        if isinstance(item, SessionMessage):
            item.message = without_text(item.message)
        return item


def _without_texts(connect: Callable[[], AbstractAsyncContextManager[Any]]) -> Any:
    @asynccontextmanager
    async def connected() -> AsyncGenerator[tuple[Any, Any]]:
        async with connect() as (received, sent):
            yield _Received(received._inner), sent

    return connected


__all__ = ["Sessions", "application"]
