"""The life of a connection to a role host: which tools of the contract there are, calls of them, change notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

from mcp import Client
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
)

from ..core import Clock, Tier
from .contract import Answer, Operation, offered_tiers
from .failures import Failure, Failures
from .hosts import TOOLS, Host
from .link import Link, pages
from .notices import Notices

T = TypeVar("T")

_PAGES: Final = 20  # of the list of tools


class RoleLink(Link):
    """A link to a role host.

    Args:
        host: The host.
        failures: Makes its failures.
        delay: Seconds to wait before connecting.
        clock: What waits.
        on_change: Receives the tier and scope whose role changed.
    """

    def __init__(
        self, host: Host, failures: Failures, *, delay: float, clock: Clock, on_change: Callable[[Tier, str], None]
    ) -> None:
        self.tiers: frozenset[Tier] = frozenset()
        self._notices = Notices(on_change)
        self._tools: frozenset[str] = frozenset()
        super().__init__(host, failures, delay=delay, clock=clock)

    def watch(self, scope_ids: dict[Tier, str]) -> None:
        """Ask the host, in the background, to report changes in these scopes; it need not be able to."""
        self._notices.watch(scope_ids)

    async def ask(self, operation: Operation[T]) -> T | Failure:
        """Make one call of the contract."""
        if operation.tool not in self._tools:
            return self._lacking(operation.tool)
        params = CallToolRequestParams(name=self._name(operation.tool), arguments=operation.arguments())
        result = await self._send(CallToolRequest(params=params), CallToolResult)
        answer = Answer(cast("object", result.structured_content), bool(result.is_error))
        return operation.read(answer, self._failures)

    async def _meet(self, client: Client) -> Failure | None:
        """Learn which tools there are, and which tiers the host keeps."""

        # Not the session's own `list_tools`, which would keep the host's schemas and let them copy arguments into HTTP
        # headers, which proxies log.
        async def fetch(params: PaginatedRequestParams) -> ListToolsResult:
            return await client.session.send_request(ListToolsRequest(params=params), ListToolsResult)

        schemas: dict[str, object] = {}
        async for page in pages(fetch, _PAGES):
            schemas |= {tool.name: tool.input_schema for tool in page.tools}
            self._heard()
        self._tools = frozenset(tool for tool in TOOLS if self._name(tool) in schemas)
        if "role_list" not in self._tools:
            return self._lacking("role_list")
        self.tiers = offered_tiers(schemas.get(self._name("role_get")))
        return None if self.tiers else self._failures.invalid("keeps none of the tiers that a host can keep")

    async def _follow(self, client: Client) -> None:
        await self._notices.follow(client)

    def _name(self, tool: str) -> str:
        return self._host.tools.get(tool, tool)

    def _lacking(self, tool: str) -> Failure:
        return self._failures.invalid(
            f"has no tool {self._name(tool)!r}",
            f"let it offer one, or say what it calls it: {{{tool!r}: ...}} as tools= or in the setting role_host_tools",
        )


__all__ = ["RoleLink"]
