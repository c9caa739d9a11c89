"""MCP servers as a capability: `WorldAgent(..., mcp={"files": McpServer(...)})` (T11)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from ...core import Scope, check_id
from ...core.capability import Capability, Runtime
from ...core.errors import InvalidArgument
from ...memory.owned import OwnedTable
from ..logins import LoginStore
from .kept import TABLES, KeptTasks
from .server import McpServer
from .sources import McpSources


class Mcp(Capability[McpSources]):
    """Offers the tools of MCP servers.

    Args:
        servers: The servers by name.

    Raises:
        InvalidArgument: It is not a mapping of servers, or a name is not an id.
    """

    name = "mcp"
    migrations = TABLES
    owned = (OwnedTable(name="mcp_task", account="account"),)

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        if not isinstance(servers, Mapping) or not all(isinstance(each, McpServer) for each in servers.values()):
            raise InvalidArgument(
                "`mcp` must be a mapping of servers", remedy="pass {'fs': McpServer(StdioHost([...]))}"
            )
        for name in servers:
            check_id("MCP server", name)
        self.servers: Final = dict(servers)

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[McpSources]:
        attachments = runtime.attachments

        async def keep(scope: Scope | None, content: bytes, media_type: str, kind: str) -> Mapping[str, Any]:
            store = attachments if scope is None else attachments.reached_by(scope)
            return (await store.add(content, name=kind, media_type=media_type)).to_json()

        logins = LoginStore(runtime.storage.resolve(), runtime.workspace)
        tasks = KeptTasks(runtime.workspace, runtime.database, runtime.clock)
        sources = McpSources(
            self.servers, registry=runtime.registry, clock=runtime.clock, keep=keep, logins=logins, tasks=tasks
        )
        async with aclosing(sources):
            await sources.start()
            sources.cancel_left()
            runtime.hooks.ended.append(sources.cancel_left)
            if sources.of_accounts:
                runtime.hooks.around.append(sources.serving)
            yield sources


__all__ = ["Mcp"]
