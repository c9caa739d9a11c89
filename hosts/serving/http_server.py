"""Serves a service over streamable HTTP, on uvicorn, until a signal arrives.

The application answers at `/mcp`, and at `/health`, `/ready` and `/metrics` for a service that is `Operated`. A web app
can have the other paths. Starlette
routes requests. The SDK checks names, bodies and tokens and speaks the protocol. `Front` gives each handler its client,
adds a remedy to refusals, and removes what a client sent from every answer.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager, suppress
from typing import Any, Final

import uvicorn
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
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...core.bounds import OutOfBounds
from ...core.errors import InvalidArgument
from ..bounds import CALL
from .address import PATH, Address, HttpOptions
from .handlers import STATE, Client, guard, without_text
from .logs import log
from .service import Counting, Operated, Reporting, Service, drain, stopped_by_signals

CLOSE_SECONDS: Final = 5
"""Seconds that clients get to read their answers after the service was drained."""

MAX_HEAD_BYTES: Final = 1 << 15
"""The largest head of a request that arrives in pieces."""

SEND_BUFFER_BYTES: Final = 1 << 18
"""Bytes that the operating system buffers for a client that does not read. The system's default is several MB."""


LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_FRESH: Final = {"cache-control": "no-store"}
_EXPOSITION: Final = "text/plain; version=0.0.4"
_EVENT: Final = b"event: "
_ACCEPTED_TOKEN: Final = "with a token that this server accepts"


def application(
    service: Service,
    address: Address,
    options: HttpOptions = HttpOptions(),  # noqa: B008 -- it is frozen
    web: ASGIApp | None = None,
) -> Starlette:
    """The service as an ASGI application, which answers at `/mcp`.

    Args:
        service: The service. If it has tokens, a call without one gets 401.
        address: Where it will listen. On loopback, calls to any other name are refused.
        options: The limits.
        web: Answers at all other paths, and checks names by itself (`accepted_names`); None: there are none.

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
    endpoint: ASGIApp = _Bounded(sessions.asgi_app, service, options.max_body)
    middleware: list[Middleware] = []
    if service.tokens is not None:
        endpoint = RequireAuthMiddleware(endpoint, [])
        middleware += [
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(service.tokens)),
            Middleware(AuthContextMiddleware),
        ]
    routes = [Route(PATH, endpoint), *(_pages(service) if isinstance(service, Operated) else ())]
    front = Middleware(Front, paths=[each.path for each in routes], others=web)
    app = Starlette(routes=routes, middleware=[front, *middleware], lifespan=lambda _: sessions.run())
    app.router.redirect_slashes = False  # a redirect would quote the path
    app.state.sessions = sessions
    return app


def _names(address: Address, options: HttpOptions) -> TransportSecuritySettings:
    """Which `Host` and `Origin` headers are accepted.

    A web page can make a browser reach this machine under the page's own name (DNS rebinding), so a server on loopback
    accepts only names of loopback. Tokens protect a server that other machines can reach under any name.
    """
    names = accepted_names(address, options)
    if names is None:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    hosts = [f"{name}{port}" for name in names for port in ("", ":*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def accepted_names(address: Address, options: HttpOptions) -> tuple[str, ...] | None:
    """Return the names of hosts that requests can name, without a port; None accepts every name.

    Args:
        address: Where the server listens.
        options: Its options, which can have more names.
    """
    return (address.authority, *LOOPBACK, *options.names) if options.names or address.is_loopback else None


@asynccontextmanager
async def serving_pages(reporting: Reporting, address: Address) -> AsyncGenerator[Address]:
    """Answer at `/health`, `/ready` and `/metrics` while the block runs; there is nothing else to call.

    Args:
        reporting: What the pages are about.
        address: Where to listen.

    Yields:
        The actual address.

    Raises:
        InvalidArgument: The address cannot be used.
    """
    routes = _pages(reporting)
    app = Starlette(routes=routes, middleware=[Middleware(Front, paths=[each.path for each in routes])])
    app.router.redirect_slashes = False
    server = _Server(_config(app, lifespan="off"))
    with closing(_listening(address)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Address(address.host, listener.getsockname()[1])
        finally:
            server.stop()
            await serving


def _pages(service: Reporting) -> list[Route]:
    async def health(request: Request) -> Response:
        return JSONResponse(dict(service.health()), headers=_FRESH)

    async def ready(request: Request) -> Response:
        content = await service.ready()
        return JSONResponse(dict(content), status_code=200 if content.get("ready") else 503, headers=_FRESH)

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(exposition(service.health()), headers=_FRESH, media_type=_EXPOSITION)

    pages = {"/health": health, "/ready": ready, "/metrics": metrics}
    return [Route(path, page, methods=["GET"]) for path, page in pages.items()]  # and HEAD


def exposition(report: Mapping[str, Any]) -> str:
    """Return the numbers of a report in Prometheus' text format. Names that end in `_total` are counters."""
    lines: list[str] = []
    for name, value in report.items():
        if isinstance(value, int | float):
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# TYPE worldagent_{name} {kind}", f"worldagent_{name} {value:g}"]
    return "".join(f"{line}\n" for line in lines)


class Front:
    """The outermost middleware: gives each request its `Client`, and rewords refusals.

    Args:
        app: The rest of the application.
        paths: The paths that exist.
        others: Answers at all other paths, in its own words.
    """

    def __init__(self, app: ASGIApp, paths: Iterable[str], others: ASGIApp | None = None) -> None:
        self._app = app
        self._paths, self._others = frozenset(paths), others
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
        if self._others is not None and scope["path"] not in self._paths:
            await self._others(scope, receive, send)
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


class _Bounded:
    """Refuses bodies that would hold the event loop. The SDK refuses those with too many bytes.

    Args:
        app: The rest of the application. It is called after the token was checked.
        service: The service, which can count refusals.
        longest: The most bytes of a body.
    """

    def __init__(self, app: ASGIApp, service: Service, longest: int) -> None:
        self._app, self._longest = app, longest
        self._counting = service if isinstance(service, Counting) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._counting is not None and not self._counting.accepts():
            remedy = "wait a minute, and correct what the server refused"
            content = {"error": "too_many_turns", "problem": "too many requests were refused", "remedy": remedy}
            await JSONResponse(content, 429, {"retry-after": "60"})(scope, receive, send)
            return
        declared = Request(scope).headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._longest:
            await self._app(scope, receive, send)  # refuses it before it arrives
            return
        read: list[Message] = []
        size, more, refusal = 0, True, None
        while more:
            read.append(await receive())
            size += len(read[-1].get("body", b""))
            more = read[-1].get("more_body", False) and size <= self._longest
        try:
            if size <= self._longest:
                await CALL.check(b"".join(each.get("body", b"") for each in read))
        except OutOfBounds as error:
            refusal = {"error": "too_large", "problem": f"the body has {error}", "remedy": error.remedy}
        if refusal is not None:
            if self._counting is not None:
                self._counting.refused()
            await JSONResponse(refusal, 413)(scope, receive, send)
            return

        async def received() -> Message:
            return read.pop(0) if read else await receive()

        await self._app(scope, received, send)


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


async def serve_http(
    service: Service,
    address: Address,
    options: HttpOptions = HttpOptions(),  # noqa: B008 -- it is frozen
    *,
    ready: Callable[[Address], None] | None = None,
    draining: Callable[[], object] | None = None,
    tokens_by: str = "ask for a token",
    web: ASGIApp | None = None,
) -> int | None:
    """Serve until a signal arrives; a second signal ends the process at once.

    At the first signal the server stops accepting connections and drains the service. Meanwhile it still serves open
    connections, including their calls of `/ready`. Then streams end, and the remaining answers are sent.

    Args:
        service: The service.
        address: Where to listen.
        options: Who can reach the server, and its limits.
        ready: Called with the actual address as soon as the server can be reached.
        draining: Called when draining begins.
        tokens_by: How to set tokens; it is the remedy of the error for missing tokens.
        web: Answers at all paths that the service does not have.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: Other machines can reach the address, but the options do not allow it or the service has no
            tokens. Or the address or the certificate cannot be used.
    """
    _check_reach(service, address, options, tokens_by)
    context = _tls_context(options)
    app = application(service, address, options, web)

    async def end() -> None:
        await drain(service, options.drain, draining)
        app.state.sessions.end_listening()

    config = _config(
        app,
        limit_concurrency=options.connections,
        timeout_keep_alive=options.keep_alive,  # fractions of a second work
        timeout_graceful_shutdown=CLOSE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_context_factory=None if context is None else lambda *_: context,
    )
    server = _Server(config, end)
    _allow_files(2 * options.connections)
    with closing(_listening(address)) as listener, stopped_by_signals(server.stop) as stopped:
        if ready is not None:
            ready(Address(address.host, listener.getsockname()[1], tls=options.tls))
        await server.serve(sockets=[listener])
    return stopped[0] if stopped else None


def _config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    # uvicorn's other parsers do not bound the head of a request
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    return uvicorn.Config(app, http=_Protocol, ws="none", **quiet, **more)


class _Protocol(H11Protocol):
    """A connection that is freed when its client resets it; uvicorn keeps it until its keep-alive timer fires."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()


class _Server(uvicorn.Server):
    """uvicorn's server, which drains the service before it closes connections.

    Args:
        config: Its configuration.
        end: Drains the service; None: there is nothing to drain.
    """

    def __init__(self, config: uvicorn.Config, end: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(config)
        self._end = end

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:  # frees the port for a new process; open connections are still served
            server.close()
        if self._end is not None:
            await self._end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # `serve_http` handles signals; uvicorn would raise them again at the end


def _check_reach(service: Service, address: Address, options: HttpOptions, tokens_by: str) -> None:
    """Refuse an address that other machines can reach, unless that is allowed and the service has tokens."""
    if address.is_loopback:
        return
    reached = f"{address.host!r} can be reached from other machines"
    if not (options.allow_remote or options.tls):
        remedy = "listen on 127.0.0.1, or set tokens and a certificate, or tokens and --allow-remote"
        raise InvalidArgument(reached, remedy=remedy)
    if service.tokens is None:
        raise InvalidArgument(f"{reached}, and no token is required", remedy=tokens_by)


def _tls_context(options: HttpOptions) -> ssl.SSLContext | None:
    """The TLS context of the server, or None without TLS."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    problem = ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # With an empty password OpenSSL fails at an encrypted key, instead of asking on the terminal.
        context.load_cert_chain(options.tls_cert.expanduser(), options.tls_key.expanduser(), password=lambda: b"")
        return context
    except ssl.SSLError as error:
        problem = (error.reason or "they are not PEM files").replace("_", " ").lower()
    except (OSError, RuntimeError, ValueError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    raise InvalidArgument(
        f"the certificate {str(options.tls_cert)!r} and the key {str(options.tls_key)!r} cannot be used: {problem}",
        remedy="give readable PEM files of one certificate and its key; the key must have no password",
    )


def _listening(address: Address) -> socket.socket:
    """Return a socket that listens at the address."""
    problem, remedy = "no such name", "choose another address, or port 0 for a free one"
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((address.host, address.port), family=family)
        # Connections inherit both options. asyncio sets TCP_NODELAY only if the socket names its protocol; without it
        # each answer waits 40 ms for an ACK.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return made
    except socket.gaierror as error:
        problem = error.strerror or problem
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__  # `strerror` repeats the address
        if error.errno == errno.EADDRINUSE:
            problem = "another program listens there"
            remedy = "choose another port, or 0 for a free one; `worldagent ps` lists the running sidecars"
    except UnicodeError:
        pass
    raise InvalidArgument(f"cannot listen on {address.authority}:{address.port}: {problem}", remedy=remedy)


def _allow_files(wanted: int) -> None:
    """Raise the limit of open files as far as the system allows."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit; some systems have a lower one
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < wanted:  # a negative number means unlimited
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
