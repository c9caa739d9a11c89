"""Sessions of clients before revision 2026-07-28: which one makes room where all are taken, and what theirs are given.

Clients of earlier revisions that lose their connection leave their session behind. Of the library alone it stays until
it has been idle for half an hour, and by then nobody new gets in. No request is read here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from .._received import Received
from ..logs import log

_Streams: TypeAlias = tuple[Any, Any]  # what comes, and what goes


def make_room(manager: StreamableHTTPSessionManager) -> None:
    """Have a new session push out the one that is idle the longest, where the manager would refuse it.

    A token that holds more than half of all loses its own first, and is refused where none of its own is idle.
    """
    admit = manager._admit_session

    def admit_or_push_out(requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if manager.max_sessions is not None and len(manager._server_instances) >= manager.max_sessions:
            _push_out(manager, requestor)
        return admit(requestor)

    manager._admit_session = admit_or_push_out  # type: ignore[method-assign]  # it is called by this name


def withhold_texts(manager: StreamableHTTPSessionManager) -> None:
    """Give every session what its client sends as `Received` has it."""
    admit = manager._admit_session

    def admit_without_texts(requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        transport = admit(requestor)
        if transport is not None:
            transport.connect = _received(transport.connect)  # type: ignore[method-assign]  # it is called by this name
        return transport

    manager._admit_session = admit_without_texts  # type: ignore[method-assign]  # it is called by this name


def _received(connect: Callable[[], AbstractAsyncContextManager[_Streams]]) -> Any:
    @asynccontextmanager
    async def connected() -> AsyncGenerator[_Streams]:
        async with connect() as (incoming, outgoing):
            yield Received(incoming), outgoing

    return connected


def _push_out(manager: StreamableHTTPSessionManager, requestor: AuthorizationContext | None) -> None:
    owners = {session: _name(manager._session_owners.get(session)) for session in manager._server_instances}
    most, held = Counter(owners.values()).most_common(1)[0]
    idle = {session: ends for session, each in manager._server_instances.items() if (ends := _ends(each)) < math.inf}
    if 2 * held > len(owners):
        own = {session: ends for session, ends in idle.items() if owners[session] == most}
        idle = own if own or most == _name(requestor) else idle
    if not idle:
        return
    session = min(idle, key=lambda each: idle[each])
    scope = manager._server_instances.pop(session).idle_scope
    manager._session_owners.pop(session, None)
    if scope is not None:
        scope.cancel()  # as if it had been idle for too long: the manager winds it down
    log.info("%d sessions are open: the one that was idle the longest is ended for a new one", len(owners))


def _ends(transport: StreamableHTTPServerTransport) -> float:
    """When it would end of itself: never while a request of it runs, a stream of it is open, or it is being opened."""
    return math.inf if transport.idle_scope is None else transport.idle_scope.deadline


def _name(owner: AuthorizationContext | None) -> str | None:
    return None if owner is None else owner["client_id"]


__all__ = ["make_room", "withhold_texts"]
