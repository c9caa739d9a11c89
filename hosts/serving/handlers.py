"""What every handler of a served server runs in, in each revision of the protocol. What handlers do is not known here.

Of the library alone, only revision 2026-07-28 cancels a handler whose client has gone. In a session of an earlier one,
a stream that its client does not read stops all others; a handler that fails gives its client the text of the
exception; and the span of a request is named after what its caller sent, which may be a role (R7).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

import anyio
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, RequestParamsMeta
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from pydantic import ValidationError

from ._client import Pace, client_of
from .logs import log

_METHODS: Final = SPEC_CLIENT_METHODS | SPEC_CLIENT_NOTIFICATION_METHODS
_UNKNOWN: Final = "?"
_PARENT: Final = "traceparent"


def watching(server: Server[Any]) -> None:
    """Have every handler of a server run as `watched` says, and in a span that has nothing of a caller's."""
    if watched not in server.middleware:
        server.middleware[:] = [
            Span(server, each) if isinstance(each, OpenTelemetryMiddleware) else each for each in server.middleware
        ]
        server.middleware.append(watched)


class Span:
    """The library's span of a request, which is told of no names but those that there are.

    Which tools there are is what the server's `get_tool_input_schema` knows.

    Args:
        server: Whose requests they are.
        span: The library's own.
    """

    def __init__(self, server: Server[Any], span: OpenTelemetryMiddleware) -> None:
        self._server = server
        self._span = span

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of a request in its span."""

        async def go_on(told: ServerRequestContext[Any, Any]) -> HandlerResult:
            return await call_next(ctx)

        parent = cast("dict[str, Any]", ctx.meta or {}).get(_PARENT)
        told = replace(
            ctx,
            method=ctx.method if ctx.method in _METHODS else _UNKNOWN,
            params=self._tool(ctx),
            request_id=ctx.request_id if isinstance(ctx.request_id, int) else None,
            meta=cast("RequestParamsMeta", {_PARENT: parent}) if isinstance(parent, str) else None,
        )
        return await self._span(told, go_on)

    def _tool(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, str]:
        name, known = (ctx.params or {}).get("name"), self._server.get_tool_input_schema
        if ctx.method != "tools/call" or known is None or not isinstance(name, str) or known(name) is None:
            return {}
        return {"name": name}


async def watched(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Run a handler until its client goes, no faster than it reads, and keep what it fails with inside."""
    client = client_of(ctx)
    if client is None or ctx.request_id is None:
        return await _contained(ctx, call_next)
    if (ctx.meta or {}).get("progress_token") is not None:
        _pace(ctx, client.pace)
    with anyio.CancelScope() as scope, client.gone.calling(scope.cancel):
        return await _contained(ctx, call_next)
    raise MCPError(REQUEST_CANCELLED, "Request cancelled")


async def _contained(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception as failure:  # not by name: whatever a handler lets through, its text must not reach the caller
        log.error("a request failed: %s", type(failure).__name__)
    raise MCPError(INTERNAL_ERROR, "internal error")


def _pace(ctx: ServerRequestContext[Any, Any], pace: Pace) -> None:
    """Have progress wait for the client. The session object is made anew for each request."""
    report = ctx.session.report_progress

    async def paced(progress: float, total: float | None = None, message: str | None = None) -> None:
        await pace.give()
        await report(progress, total, message)

    ctx.session.report_progress = paced  # type: ignore[method-assign]  # handlers call it by this name


__all__ = ["Span", "watched", "watching"]
