"""The life of a connection to a role host: the tools of the contract it has, calls of them, and change notifications.

A host that reports a changed role ends the cache entry of that role early (R9). Over revisions before 2026-07-28, and
for a host that offers no subscriptions, only the time to live limits a cache entry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar, cast
from urllib.parse import quote

from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
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

T = TypeVar("T")

_PAGES: Final = 20  # pages of the list of tools
_SCOPES: Final = 256  # the limit of watched scopes; the one unused for longest is dropped first


class RoleLink(Link):
    """A link to a role host.

    Args:
        host: The host.
        failures: Makes the failures of the host.
        delay: Seconds to wait before connecting.
        clock: Waits.
        on_change: Called with the tier and scope whose role changed.
    """

    def __init__(
        self, host: Host, failures: Failures, *, delay: float, clock: Clock, on_change: Callable[[Tier, str], None]
    ) -> None:
        self.tiers: frozenset[Tier] = frozenset()
        self._on_change = on_change
        self._watched: dict[str, tuple[Tier, str]] = {}
        self._more = asyncio.Event()
        self._listening = False
        self._tools: frozenset[str] = frozenset()
        super().__init__(host, failures, delay=delay, clock=clock)

    def watch(self, scope_ids: dict[Tier, str]) -> None:
        """Ask the host, in the background, to report changes in these scopes.

        A host that cannot do this is not an error.
        """
        for tier, scope_id in scope_ids.items():
            uri = f"role://{tier.value}/{quote(scope_id, safe='')}"
            if self._watched.pop(uri, None) is None or not self._listening:
                self._more.set()
            self._watched[uri] = (tier, scope_id)
        while len(self._watched) > _SCOPES:
            del self._watched[next(iter(self._watched))]

    async def ask(self, operation: Operation[T]) -> T | Failure:
        """Make one call of the contract."""
        if operation.tool not in self._tools:
            return self._lacking(operation.tool)
        params = CallToolRequestParams(name=self._name(operation.tool), arguments=operation.arguments())
        result = await self._send(CallToolRequest(params=params), CallToolResult)
        answer = Answer(cast("object", result.structured_content), bool(result.is_error))
        return operation.read(answer, self._failures)

    async def _discover(self, client: Client) -> Failure | None:
        """Learn which tools the host has, and which tiers it keeps."""

        # Not `list_tools` of the session: it keeps the schemas of the host, and these can copy arguments into HTTP
        # headers, which proxies log.
        async def fetch(params: PaginatedRequestParams) -> ListToolsResult:
            return await client.session.send_request(ListToolsRequest(params=params), ListToolsResult)

        schemas: dict[str, object] = {}
        async for page in pages(fetch, _PAGES):
            schemas |= {tool.name: tool.input_schema for tool in page.tools}
            self._reset_silence()
        self._tools = frozenset(tool for tool in TOOLS if self._name(tool) in schemas)
        if "role_list" not in self._tools:
            return self._lacking("role_list")
        self.tiers = offered_tiers(schemas.get(self._name("role_get")))
        return None if self.tiers else self._failures.invalid("keeps none of the tiers that a role host can keep")

    async def _follow(self, client: Client) -> None:
        resources = client.server_capabilities.resources
        if resources is not None and resources.subscribe:
            await self._listen(lambda: self._listen_to_watched(client))

    async def _listen_to_watched(self, client: Client) -> bool:
        """Listen to the watched scopes until there are new ones or the stream ends. Return True if the stream ended."""
        await self._more.wait()
        self._more.clear()
        scopes = dict(self._watched)

        async def read() -> None:
            with contextlib.suppress(SubscriptionLost):
                async for event in stream:
                    if isinstance(event, ResourceUpdated) and event.uri in scopes:
                        self._on_change(*scopes[event.uri])

        async with client.listen(resource_subscriptions=list(scopes)) as stream:
            self._listening = True
            tasks = [asyncio.create_task(each) for each in (read(), self._more.wait())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return tasks[0].done()
            finally:
                self._listening = False
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def _name(self, tool: str) -> str:
        return self._host.tools.get(tool, tool)

    def _lacking(self, tool: str) -> Failure:
        return self._failures.invalid(
            f"has no tool {self._name(tool)!r}",
            f"add it to the host, or map its name with {{{tool!r}: ...}} as tools= or in the setting role_host_tools",
        )


__all__ = ["RoleLink"]
