"""The MCP servers of one agent, by name: opened and closed with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from ...core import Clock
from ...core.errors import InvalidArgument
from ...harness import Registry
from ._results import Keep
from ._server import McpServer
from ._source import McpSource


class McpSources:
    """The MCP servers of an agent: `sources[name]`, and their names by iteration.

    Args:
        servers: The servers by name.
        registry: Where their Functions go.
        clock: What waits between attempts to connect.
        keep: Keeps images and the like that they give.
    """

    def __init__(
        self, servers: Mapping[str, McpServer], *, registry: Registry, clock: Clock, keep: Keep | None = None
    ) -> None:
        self._sources = {
            name: McpSource(name, server, registry=registry, clock=clock, keep=keep) for name, server in servers.items()
        }

    def __getitem__(self, name: str) -> McpSource:
        """The server called `name`.

        Raises:
            InvalidArgument: There is none.
        """
        if name in self._sources:
            return self._sources[name]
        known = ", ".join(sorted(self._sources)) or "none"
        raise InvalidArgument(f"there is no MCP server {name!r}", remedy=f"the MCP servers are: {known}")

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    async def start(self) -> None:
        """Connect to all at once; those that are down do not keep the agent from starting.

        Raises:
            NameTaken: A tool is called as another function is.
        """
        starts = (source.start() for source in self._sources.values())
        for outcome in await asyncio.gather(*starts, return_exceptions=True):  # none is cut off by another's failure
            if outcome is not None:
                raise outcome

    async def aclose(self) -> None:
        """End all connections."""
        await asyncio.gather(*(source.aclose() for source in self._sources.values()))


__all__ = ["McpSources"]
