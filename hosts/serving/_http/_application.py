"""A service as an ASGI application: `/mcp`, and where it is operated `/health` and `/ready`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .._options import HttpOptions
from ..address import PATH, Address
from ..handlers import watching
from ..service import Operated, Service
from ._exchange import Streams
from ._front import Front
from ._reach import allowed_names
from ._refusals import not_found
from ._sessions import make_room, withhold_texts

_FRESH = {"cache-control": "no-store"}


class Operation:
    """What `/health` and `/ready` say.

    Attributes:
        draining: Whether the process is about to end.
    """

    def __init__(self, service: Operated) -> None:
        self._service = service
        self.draining = False

    async def health(self, request: Request) -> Response:
        """Say that the process serves."""
        return JSONResponse(dict(self._service.health()), headers=_FRESH)

    async def ready(self, request: Request) -> Response:
        """Say whether it takes new work, by the status too."""
        told: Mapping[str, Any] = await self._service.ready()
        ready = bool(told.get("ready")) and not self.draining
        answer = {**told, "ready": ready, "draining": bool(told.get("draining")) or self.draining}
        return JSONResponse(answer, status_code=200 if ready else 503, headers=_FRESH)


def application(
    service: Service,
    address: Address,
    options: HttpOptions = HttpOptions(),  # noqa: B008 -- it is frozen
    *,
    streams: Streams | None = None,
    operation: Operation | None = None,
) -> Starlette:
    """The service as an ASGI application, which answers at `/mcp`.

    Args:
        service: What is served; where it has tokens, a request without one gets 401.
        address: Where it will listen; on loopback, requests that were meant for another name are refused.
        options: The limits.
        streams: Where streams without an end are noted.
        operation: What `/health` and `/ready` say; without it there are none.
    """
    watching(service.server)
    routes = [] if operation is None else _routes(operation)
    app = service.server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=options.max_body,
        max_sessions=options.sessions,
        session_idle_timeout=options.session_idle,
        # `Front` looks at names, for every path; the library would log those that do not fit.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        token_verifier=service.tokens,
        custom_starlette_routes=routes,
    )
    make_room(service.server.session_manager)
    withhold_texts(service.server.session_manager)
    app.router.redirect_slashes = False  # it would answer with an address that is made of what was sent
    app.add_exception_handler(404, not_found([PATH, *(each.path for each in routes)]))
    if service.tokens is not None:
        # The library adds these two only for a server that names an OAuth issuer; a token of ours has none.
        app.add_middleware(AuthContextMiddleware)
        app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(service.tokens))
    app.add_middleware(
        Front,
        options=options,
        names=allowed_names(address, options),
        streams=Streams() if streams is None else streams,
    )
    return app


def _routes(operation: Operation) -> list[Route]:
    pages: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/health": operation.health,
        "/ready": operation.ready,
    }
    return [Route(path, page, methods=["GET"]) for path, page in pages.items()]  # HEAD is there with GET


__all__ = ["Operation", "application"]
