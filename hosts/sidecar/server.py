"""The MCP server over all surfaces of the agent. How it is reached is in `serving`, what it does in `calls`.

It is the library's low-level server. The high-level one turns arguments that do not fit into a text that quotes them,
and gives an error no structured content; the contract allows neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from ...agent import WorldAgent
from ...storage import Storage
from ..serving import RequestLog, Tokens
from .access import EVERYTHING, NOTHING, Grant
from .calls import Context, House, Noted, call_tool
from .client_roles import ClientRoles
from .contract import TOOLS, published
from .pool import Agents, Limits
from .readiness import Databases

_NOTED: ContextVar[Noted | None] = ContextVar("worldagent_sidecar_noted", default=None)

DRAIN = 10.0
"""Seconds that turns are given to come to their next step, where nobody says otherwise."""

_INSTRUCTIONS = "Drives a World Agent: version 1 of the sidecar's contract. `next` in an answer says what to call then."


class Sidecar:
    """The agents of many workspaces as one MCP server; `serve_stdio` and `serve_http` put it on a transport.

    Use it as `async with Sidecar(...) as sidecar:`. Leaving it stops the turns at their next step.

    Args:
        make: Makes the agent of a workspace, not yet open. It is called when somebody first asks for the workspace, and
            again after the agent was closed since others needed its place.
        tokens: The bearer tokens that it takes over HTTP, each with its grant; None takes every caller.
        grant: What a caller may use where no tokens are asked for.
        limits: What it does at once; None is `Limits()`.
        client_roles: Where agents find the roles that the one client over standard streams keeps, where it does.
        storage: Where agents keep turns, as far as that is known before one is open; `ready` looks whether it is there.

    Attributes:
        server: The MCP server.
        tokens: As given.
    """

    def __init__(
        self,
        make: Callable[[str], WorldAgent],
        *,
        tokens: Tokens[Grant] | None = None,
        grant: Grant = EVERYTHING,
        limits: Limits | None = None,
        client_roles: ClientRoles | None = None,
        storage: Storage | None = None,
    ) -> None:
        self.tokens = tokens
        self._grant = grant
        limits = limits or Limits()
        self._agents = Agents(make, limits)
        self._databases = Databases(self._agents, storage)
        self._house = House(agents=self._agents, limits=limits, ending=asyncio.Event(), client_roles=client_roles)
        self._log = RequestLog(tools=TOOLS)
        self._tools_list = published()
        taken = {tool.name: tool.input_schema for tool in self._tools_list}
        self.server: Server[Any] = Server(
            "worldagent",
            version=version("worldagent"),
            title="World Agent",
            instructions=_INSTRUCTIONS,
            get_tool_input_schema=taken.get,  # else the library lists all tools before each call
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self.server.middleware.append(self._logged)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain(DRAIN)

    def end_streams(self) -> None:
        """End what waits for events of turns that run elsewhere, so that a transport can close."""
        self._house.ending.set()

    async def drain(self, seconds: float) -> None:
        """Take no new calls, let each turn stop at its next step, and close the agents. Twice is as good as once.

        Args:
            seconds: How long to wait for that; what is not there by then is cut off. It is resumed all the same.
        """
        self.end_streams()
        await self._agents.drain(seconds)

    def health(self) -> dict[str, Any]:
        """How the process is: `{"draining": false, "workspaces": 1, "turns": 0}`."""
        return {
            "draining": self._agents.draining,
            "workspaces": self._agents.open,
            "turns": self._agents.turns,
        }

    async def ready(self) -> dict[str, Any]:
        """Whether new calls can be taken: `{"ready": true, ...}`, with what `health` tells.

        They cannot while the sidecar is ending, or where none of its databases can be reached; `databases` tells how
        many there are, `unreached` how many of them are out of reach.
        """
        if self._agents.draining:
            return {"ready": False, **self.health()}
        databases, unreached = await self._databases.unreached()
        ready = not self._agents.draining and not 0 < databases == unreached
        return {"ready": ready, **self.health(), "databases": databases, "unreached": unreached}

    def _granted(self) -> Grant:
        if self.tokens is None:
            return self._grant
        return self.tokens.grant_of(get_access_token()) or NOTHING

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=self._tools_list)

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        if params.name not in TOOLS:
            raise MCPError(INVALID_PARAMS, f"unknown tool; the tools are {', '.join(TOOLS)}")
        noted = _NOTED.get() or Noted()
        noted.tool = params.name
        return await call_tool(self._house, ctx, params, grant=self._granted(), noted=noted)

    async def _logged(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Write one line of each request. A server middleware, which sees also what no handler does."""
        if ctx.request_id is None:
            return await call_next(ctx)
        noted, began = Noted(code="cancelled"), time.perf_counter()
        token = _NOTED.set(noted)
        try:
            answer = await call_next(ctx)
            noted.code = "ok" if noted.code == "cancelled" else noted.code
            return answer
        except MCPError as error:
            if error.error.code != REQUEST_CANCELLED:  # as revisions before 2026-07-28 tell it
                noted.code = str(error.error.code)
            raise
        except Exception as error:
            noted.code = type(error).__name__
            raise
        finally:
            _NOTED.reset(token)
            self._log.record(
                method=ctx.method,
                tool=noted.tool,
                workspace=noted.workspace,
                thread=noted.thread,
                turn=noted.turn,
                code=noted.code,
                ms=(time.perf_counter() - began) * 1000,
            )


__all__ = ["Sidecar"]
