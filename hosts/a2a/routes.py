"""The paths of the members that a web app offers over A2A: a card and an endpoint each, both under its tokens."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...core.errors import UnknownMember
from ..service.call import Caller
from ..sidecar.following import SidecarParts
from ..web.errors import HttpRefused
from .card import card_of
from .handler import Asked, OfferedMembers

Answering = Callable[[Request], Awaitable[Response]]

PATH: Final = "/a2a/{member}"


class _ContextBuilder(DefaultServerCallContextBuilder):
    """Tells the handler who asks which member."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state["asked"] = request.state.asked
        return context


def a2a_routes(
    members: Collection[str],
    parts: SidecarParts,
    *,
    caller_of: Callable[[Request], Awaitable[Caller]],
    checked: Callable[[Answering], Answering],
    body: Callable[[Request], Awaitable[bytes]],
) -> list[Route]:
    """Return the routes of the offered members.

    Args:
        members: The ids of the members.
        parts: The agents and limits of the web app.
        caller_of: Finds the caller of a request.
        checked: Wraps an endpoint, so that it answers with the record of an error.
        body: Reads the body of a request within bounds, once its sender is known.
    """
    # The SDK logs requests that it refuses, with their texts.
    logging.getLogger("a2a").setLevel(logging.CRITICAL)
    offered = frozenset(members)
    dispatcher = JsonRpcDispatcher(OfferedMembers(parts), _ContextBuilder())

    async def asked_of(request: Request) -> Asked:
        caller, member = await caller_of(request), request.path_params["member"]
        if member not in offered:
            raise _unknown()
        return Asked(caller, member)

    async def card(request: Request) -> Response:
        asked = await asked_of(request)
        async with parts.agents.use(asked.caller.workspace) as agent:
            try:
                member = await agent.society.members.member(asked.caller.workspace, asked.member)
            except UnknownMember:
                raise _unknown() from None
        url = str(request.url.replace(path=request.scope.get("root_path", "") + f"/a2a/{asked.member}", query=""))
        return JSONResponse(MessageToDict(card_of(member, url)))

    async def call(request: Request) -> Response:
        request.state.asked = await asked_of(request)
        request._body = await body(request)  # which the SDK reads from there
        answer: Response = await dispatcher.handle_requests(request)
        return answer

    return [
        Route(PATH + AGENT_CARD_WELL_KNOWN_PATH, checked(card), methods=["GET"], name="a2a_card"),
        Route(PATH, checked(call), methods=["POST"], name="a2a"),
    ]


def _unknown() -> HttpRefused:
    return HttpRefused(404, "not_found", "there is no such agent", "use the address of an agent that is offered here")
