"""The life of a connection to a role host: which tools of the contract there are, calls of them, change notices."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

from mcp import Client
from mcp.client.session import ClientSession
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
)

from ...core import Clock, Tier
from .. import _failures as failures
from .._contract import CONTRACT, Answer, Operation, offered_tiers
from .._failures import Failure
from .._hosts import TOOLS, Host
from .._request import Request
from .._transports import open_transport
from ._link import Link
from ._notices import Notices

T = TypeVar("T")

_PAGES: Final = 20  # of the list of tools


class RoleLink(Link):
    """A link to a role host.

    Args:
        host: The host.
        delay: Seconds to wait before connecting.
        clock: What waits.
        on_change: Told of the tier and scope whose role changed.
    """

    def __init__(self, host: Host, *, delay: float, clock: Clock, on_change: Callable[[Tier, str], None]) -> None:
        self.tiers: frozenset[Tier] = frozenset()
        self._notices = Notices(on_change)
        self._tools: frozenset[str] = frozenset()
        super().__init__(host, delay=delay, clock=clock)

    def watch(self, scope_ids: dict[Tier, str]) -> None:
        """Ask the host, in the background, to tell of changes in these scopes; it need not be able to."""
        self._notices.watch(scope_ids)

    def _client(self) -> Client:
        return Client(
            open_transport(self._host, self._lose),
            mode=self._host.mode,
            client_info=Implementation(name="worldagent", version=str(CONTRACT)),
            cache=None,
            message_handler=self._noticed,
        )

    async def _meet(self, client: Client) -> Failure | None:
        """Learn which tools there are, and which tiers the host keeps.

        The session's own `list_tools` would keep the host's schemas and let them copy arguments into HTTP headers,
        which proxies log.
        """
        schemas: dict[str, object] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
            page = await client.session.send_request(request, ListToolsResult)
            schemas |= {tool.name: tool.input_schema for tool in page.tools}
            self._heard()
            cursor = page.next_cursor
            if cursor is None:
                break
        self._tools = frozenset(tool for tool in TOOLS if self._name(tool) in schemas)
        if "role_list" not in self._tools:
            return self._lacking("role_list")
        self.tiers = offered_tiers(schemas.get(self._name("role_get")))
        if not self.tiers:
            return failures.invalid(self._host.label, "keeps none of the tiers that a host can keep")
        return None

    def _beside(self, client: Client) -> Coroutine[Any, Any, None]:
        return self._notices.follow(client)

    async def _send(self, session: ClientSession, request: Request[T]) -> T | Failure:
        operation = cast("Operation[T]", request)
        if operation.tool not in self._tools:
            return self._lacking(operation.tool)
        params = CallToolRequestParams(name=self._name(operation.tool), arguments=operation.arguments())
        result = await session.send_request(CallToolRequest(params=params), CallToolResult)
        self._has_answered()
        answer = Answer(cast("object", result.structured_content), bool(result.is_error))
        return operation.read(answer, self._host.label)

    def _name(self, tool: str) -> str:
        return self._host.tools.get(tool, tool)

    def _lacking(self, tool: str) -> Failure:
        return failures.invalid(
            self._host.label,
            f"has no tool {self._name(tool)!r}",
            f"let it offer one, or say what it calls it: {{{tool!r}: ...}} as tools= or in the setting role_host_tools",
        )


__all__ = ["RoleLink"]
