"""A wrapper around every handler, for each revision of the protocol and any transport.

It makes up for four properties of the SDK:

* Before revision 2026-07-28, a handler keeps running after its client has disconnected.
* In a session of an earlier revision, a stream that its client does not read blocks all others.
* A failing handler sends the text of its exception.
* Spans are named after what callers sent, which can be a role (R7).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

import anyio
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, RequestParamsMeta
from mcp_types.methods import SPEC_CLIENT_NOTIFICATION_METHODS
from pydantic import ValidationError

from .logs import METHODS, log

STATE: Final = "worldagent.client"
"""Key of the `Client` in the state of an HTTP request."""

MAX_UNREAD_NOTIFICATIONS: Final = 8
"""Per request. The SDK buffers 16; one more blocks all requests of the session."""

_METHODS: Final = METHODS | SPEC_CLIENT_NOTIFICATION_METHODS
_UNKNOWN: Final = "?"
_PARENT: Final = "traceparent"


class Client:
    """The client of one request over HTTP.

    Attributes:
        gone: Whether it disconnected before it received the answer.
    """

    def __init__(self) -> None:
        self.gone = False
        self._scope: anyio.CancelScope | None = None
        self._unread = asyncio.BoundedSemaphore(MAX_UNREAD_NOTIFICATIONS)

    def disconnect(self) -> None:
        """Record that it disconnected, and cancel its handler."""
        self.gone = True
        if self._scope is not None:
            self._scope.cancel()

    def read(self) -> None:
        """Record that the connection has taken a message."""
        with suppress(ValueError):  # not every message is a notification
            self._unread.release()

    def cancels(self, scope: anyio.CancelScope) -> None:
        """Cancel this scope when the client disconnects, or now if it already has."""
        self._scope = scope
        if self.gone:
            scope.cancel()

    def pace(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Hold back progress until the client reads. Each request has its own session object."""
        report = ctx.session.report_progress

        async def paced(progress: float, total: float | None = None, message: str | None = None) -> None:
            await self._unread.acquire()
            await report(progress, total, message)

        ctx.session.report_progress = paced  # type: ignore[method-assign]  # handlers call it by this name


def client_of(ctx: ServerRequestContext[Any, Any]) -> Client | None:
    """The client of this request; None over stdio, where there is only one."""
    scope = getattr(ctx.request, "scope", None)
    found = (scope.get("state") or {}).get(STATE) if isinstance(scope, dict) else None
    return found if isinstance(found, Client) else None


def guard(server: Server[Any]) -> None:
    """Make every handler of a server run in `guarded`, and in a span of `Spans`."""
    if guarded not in server.middleware:
        server.middleware[:] = [
            Spans(server) if isinstance(each, OpenTelemetryMiddleware) else each for each in server.middleware
        ]
        server.middleware.append(guarded)


async def guarded(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Run a handler until its client disconnects. Send no faster than the client reads, and replace exceptions."""
    client = client_of(ctx)
    with anyio.CancelScope() as scope:
        if client is not None and ctx.request_id is not None:
            client.cancels(scope)
            if (ctx.meta or {}).get("progress_token") is not None:
                client.pace(ctx)
        try:
            return await call_next(ctx)
        except (MCPError, ValidationError):
            raise
        except Exception as failure:  # of any type: its text must not reach the caller
            log.error("a request failed: %s", type(failure).__name__)
        raise MCPError(INTERNAL_ERROR, "internal error")
    raise MCPError(REQUEST_CANCELLED, "Request cancelled")


class Spans(OpenTelemetryMiddleware):
    """The SDK's spans of requests, with known names only, since a caller can send a role as the name of a tool.

    Args:
        server: The server. Its `get_tool_input_schema` knows which tools exist.
    """

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of a request in its span."""

        async def call_handler(shown: ServerRequestContext[Any, Any]) -> HandlerResult:
            return await call_next(ctx)

        parent = cast("dict[str, Any]", ctx.meta or {}).get(_PARENT)
        shown = replace(
            ctx,
            method=ctx.method if ctx.method in _METHODS else _UNKNOWN,
            params={"name": ctx.params["name"]} if ctx.params and self._calls_tool(ctx) else {},
            request_id=ctx.request_id if isinstance(ctx.request_id, int) else None,
            meta=cast("RequestParamsMeta", {_PARENT: parent}) if isinstance(parent, str) else None,
        )
        return await super().__call__(shown, call_handler)

    def _calls_tool(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        name, known = (ctx.params or {}).get("name"), self._server.get_tool_input_schema
        return ctx.method == "tools/call" and known is not None and isinstance(name, str) and known(name) is not None


def without_text(message: JSONRPCMessage) -> JSONRPCMessage:
    """Remove the text of a client's error message; the SDK would make it the status of a span (R7)."""
    if isinstance(message, JSONRPCError):
        message.error = ErrorData(code=message.error.code, message="")
    return message
