"""The MCP server: dispatches requests and finds the grant of their caller. `serving` puts it on a transport.

It uses the library's low-level server. The high-level server quotes invalid arguments in its errors, accepts arguments
that no tool has, and sends errors without structured content; the contract allows none of this.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from mcp import types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from ...core import Tier
from ...role_resolution import RoleStore
from ..serving import Address, HttpOptions, Tokens, listed_tools
from ..serving import serve_http as over_http
from ..serving import serve_stdio as over_stdio
from .contract import TOOLS, schemas
from .tools import EVERYTHING, NOTHING, TEMPLATE, Grant, RoleTools, parse_role_uri, refusal, role_uri

_Context = ServerRequestContext[Any, Any]
_Page = types.PaginatedRequestParams | None


class RoleHost:
    """A role host over one store; `serve_stdio` and `serve_http` put it on a transport.

    Args:
        store: Keeps the roles. The host does not close it.
        tokens: The bearer tokens that it accepts over HTTP, each with its scopes; None accepts every caller.
        grant: The grant of every caller if no tokens are required.

    Attributes:
        server: The MCP server.
        tokens: The argument `tokens`.
    """

    def __init__(self, store: RoleStore, *, tokens: Tokens[Grant] | None = None, grant: Grant = EVERYTHING) -> None:
        self.tokens = tokens
        self._grant = grant
        self._tools_list = listed_tools(TOOLS, schemas(store.tiers))
        self._bus = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._bus)
        self._tools = RoleTools(store, self._granted, self._notify)
        taken = {tool.name: tool.input_schema for tool in self._tools_list}
        self.server: Server[Any] = Server(
            "worldagent-role-host",
            version=version("worldagent"),
            title="Role host",
            instructions="Keeps workspace, account and channel roles: version 1 of the role host contract.",
            get_tool_input_schema=taken.get,  # otherwise the library lists all tools before each call
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_subscriptions_listen=self._listen,
        )

    def end_streams(self) -> None:
        """End the streams of changes after their pending notifications, so that a transport can close."""
        self._listeners.close()

    def _granted(self) -> Grant:
        if self.tokens is None:
            return self._grant
        return self.tokens.grant_of(get_access_token()) or NOTHING

    async def _list_tools(self, ctx: _Context, params: _Page) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools_list)

    async def _call_tool(self, ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool; the tools are {', '.join(TOOLS)}")
        return await self._tools.call(params.name, params.arguments or {})

    async def _list_resources(self, ctx: _Context, params: _Page) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])  # a list would show every caller which scopes have a role

    async def _list_templates(self, ctx: _Context, params: _Page) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def _read(self, ctx: _Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        tier, scope_id = self._check_uri(params.uri)
        answer = await self._tools.call("role_get", {"tier": tier.value, "scope_id": scope_id})
        content = answer.structured_content or {}
        if answer.is_error:
            raise refusal(content["code"], "the role cannot be read")
        text = json.dumps(content, ensure_ascii=False)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, mime_type=TEMPLATE.mime_type, text=text)]
        )

    # --- which role has changed ---

    async def _notify(self, tier: Tier, scope_id: str) -> None:
        await self._bus.publish(ResourceUpdated(uri=role_uri(tier, scope_id)))

    async def _listen(
        self, ctx: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of changes, if the caller can use all roles that it subscribes to."""
        for uri in params.notifications.resource_subscriptions or ():
            self._check_uri(uri)
        return await self._listeners(ctx, params)

    def _check_uri(self, uri: str) -> tuple[Tier, str]:
        """Return the tier and scope that `uri` names.

        Raises:
            MCPError: The URI is invalid, or names a role that the caller cannot use.
        """
        place = parse_role_uri(uri)
        if place is None:
            raise refusal("invalid", "the URI must be role://{tier}/{scope_id}, percent-encoded")
        if not self._granted().allows(*place):
            raise refusal("forbidden", "the token does not reach this scope")
        return place


DRAIN = 5.0
"""Seconds that running requests get to finish when the process is asked to end."""


async def serve_http(
    host: RoleHost, address: Address, *, allow_remote: bool = False, ready: Callable[[Address], None] | None = None
) -> int | None:
    """Serve over streamable HTTP at `/mcp` until a signal arrives.

    It speaks plain HTTP. For other machines, put a TLS proxy in front of it.

    Args:
        host: The host.
        address: Where to listen.
        allow_remote: Whether other machines can reach it.
        ready: Called with the actual address as soon as the server can be reached.

    Returns:
        The number of the signal.

    Raises:
        InvalidArgument: Other machines can reach the address, but `allow_remote` is false or the host has no tokens.
            Or the server cannot listen on the address.
    """
    options = HttpOptions(allow_remote=allow_remote, connections=512, keep_alive=5, drain=DRAIN)
    return await over_http(
        host, address, options, ready=ready, tokens_by="set WORLDAGENT_ROLE_HOST_TOKEN or --token-file"
    )


async def serve_stdio(host: RoleHost) -> int | None:
    """Serve until standard input ends or a signal arrives. Requests that were read by then are answered.

    Args:
        host: The host.

    Returns:
        The number of the signal, or None at the end of input.
    """
    return await over_stdio(host, drain=DRAIN)
