"""The MCP server over all surfaces of the agent. `serving` puts it on a transport. Tokens say what its callers can use.

It uses the library's low-level server. The high-level server quotes invalid arguments in its errors, and sends errors
without structured content; the contract allows neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from mcp import types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError

from ...agent import WorldAgent
from ...storage import Storage
from ..service.call import ANY, GRANT_LISTS, CallFacts, Grant, Refused
from ..service.pool import Agents, Databases, Limits
from ..serving import RequestLog, Tokens, id_lists, listed_tools
from ..serving import read_token_file as read_tokens
from .client_roles import ClientRoles
from .following import Context, SidecarParts
from .tasks import TaskJson, TaskMethods
from .tools import TOOLS, call_tool, schemas

_EXAMPLE: Final = (
    '[[token]], token = "..." and lists such as workspaces = ["novel"], accounts = ["ana"], threads = ["*"], and '
    "operator = true for a token that can resume, answer and cancel turns of other accounts"
)
EVERYTHING: Final = Grant((ANY,), (ANY,), operator=True)
NOTHING: Final = Grant()


def tokens_of_setting(token: str, grant: Grant = EVERYTHING) -> Tokens[Grant]:
    """Return the tokens for the setting `sidecar_token`, which holds a single token.

    Args:
        token: The token.
        grant: Its grant.

    Raises:
        InvalidArgument: The token is invalid. The error shows nothing of it.
    """
    return Tokens([(token, grant)], source="the setting sidecar_token (WORLDAGENT_SIDECAR_TOKEN)")


def read_token_file(path: Path, grant: Grant = EVERYTHING) -> Tokens[Grant]:
    """Read the tokens of a sidecar from a file.

    A file whose name ends in `.toml` has tokens with their grants. Any other file has one token.

    Args:
        path: The file.
        grant: The grant of the token in a file that has one token.

    Raises:
        InvalidArgument: The file is unreadable or invalid. The error shows nothing of its text.
    """
    return read_tokens(path, grant, entry=_grant_of, example=_EXAMPLE)


def _grant_of(table: dict[str, Any]) -> Grant:
    lists: dict[str, Any] = {**id_lists(table, GRANT_LISTS, "operator")}
    operator = table.get("operator", False)
    if not isinstance(operator, bool):
        raise ValueError("must have true or false as operator")
    if not lists.get("workspaces"):
        raise ValueError("must name at least one workspace in workspaces")
    return Grant(**lists, operator=operator)


_FACTS: ContextVar[CallFacts | None] = ContextVar("worldagent_sidecar_facts", default=None)


def _facts() -> CallFacts:
    return _FACTS.get() or CallFacts()


DRAIN = 10.0
"""Seconds that turns get to reach their next step, by default."""

_INSTRUCTIONS = "Drives a World Agent: version 1 of the sidecar's contract. `next` in an answer says what to call then."


class Sidecar:
    """The agents of many workspaces as one MCP server; `serve_stdio` and `serve_http` put it on a transport.

    Use it as `async with Sidecar(...) as sidecar:`. Leaving the block stops the turns at their next step.

    Args:
        make: Makes the agent of a workspace, not yet open. It is called at the first call for the workspace, and again
            after the agent was closed because another workspace needed its place.
        tokens: The bearer tokens that it accepts over HTTP, each with its grant; None accepts every caller.
        grant: The grant of every caller if no tokens are required.
        limits: The limits; None means `Limits()`.
        client_roles: The roles of the client over standard streams, for a client that can keep roles.
        storage: The configured storage of the agents; `ready` checks it while no agent is open.

    Attributes:
        server: The MCP server.
        tokens: The argument `tokens`.
        parts: The agents and the limits, for a web app that serves the same agents.
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
        self.parts = SidecarParts(agents=self._agents, limits=limits, ending=asyncio.Event(), client_roles=client_roles)
        self._log = RequestLog(tools=TOOLS)
        self._tools_list = listed_tools(TOOLS, schemas())
        taken = {tool.name: tool.input_schema for tool in self._tools_list}
        self.server: Server[Any] = Server(
            "worldagent",
            version=version("worldagent"),
            title="World Agent",
            instructions=_INSTRUCTIONS,
            get_tool_input_schema=taken.get,  # otherwise the library lists all tools before each call
            on_list_tools=self._list_tools,
        )
        self.server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        TaskMethods(self.parts, granted=self._granted, facts=_facts).add_to(self.server)
        self.server.middleware.append(self._logged)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain(DRAIN)

    def end_streams(self) -> None:
        """End calls that wait for events of turns in other processes, so that a transport can close."""
        self.parts.ending.set()

    async def drain(self, seconds: float) -> None:
        """Refuse new calls, stop each turn at its next step, and close the agents. A second call does nothing.

        Args:
            seconds: How long to wait. Turns that have not stopped by then are interrupted; they can be resumed too.
        """
        self.end_streams()
        await self._agents.drain(seconds)

    def health(self) -> dict[str, Any]:
        """Return the state of the process: `{"draining": false, "workspaces": 1, "turns": 0}`."""
        return {
            "draining": self._agents.draining,
            "workspaces": self._agents.open,
            "turns": self._agents.turns,
        }

    async def ready(self) -> dict[str, Any]:
        """Report whether the sidecar accepts new calls: `{"ready": true, ...}`, with the fields of `health`.

        It does not while it is ending, or if none of its databases can be reached. `databases` is the number of
        databases, and `unreached` is the number of those that cannot be reached.
        """
        if self._agents.draining:
            return {"ready": False, **self.health()}
        databases, unreached = await self._databases.unreached()
        ready = not self._agents.draining and not 0 < databases == unreached
        return {"ready": ready, **self.health(), "databases": databases, "unreached": unreached}

    def accepts(self) -> bool:
        """Return whether a request of the current caller is read; see `Limits.account_refused`."""
        with suppress(Refused):
            self._agents.refusals.check(self._granted())
            return True
        return False

    def refused(self) -> None:
        """Count a request of the current caller that was refused."""
        self._agents.refusals.note(self._granted())

    def _granted(self) -> Grant:
        if self.tokens is None:
            return self._grant
        return self.tokens.grant_of(get_access_token()) or NOTHING

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools_list)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | TaskJson:
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool; the tools are {', '.join(TOOLS)}")
        facts = _facts()
        facts.tool = params.name
        return await call_tool(self.parts, ctx, params, grant=self._granted(), facts=facts)

    async def _logged(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Log one line for each request. This is a server middleware, so it also sees requests without a handler."""
        if ctx.request_id is None:
            return await call_next(ctx)
        facts, began = CallFacts(code="cancelled"), time.perf_counter()
        token = _FACTS.set(facts)
        try:
            answer = await call_next(ctx)
            facts.code = "ok" if facts.code == "cancelled" else facts.code
            return answer
        except MCPError as error:
            if error.error.code != REQUEST_CANCELLED:  # a cancellation, in revisions before 2026-07-28
                facts.code = str(error.error.code)
            raise
        except Exception as error:
            facts.code = type(error).__name__
            raise
        finally:
            _FACTS.reset(token)
            self._log.record(
                method=ctx.method,
                tool=facts.tool,
                workspace=facts.workspace,
                thread=facts.thread,
                turn=facts.turn,
                code=facts.code,
                ms=(time.perf_counter() - began) * 1000,
            )
