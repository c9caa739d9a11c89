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
        async with asyncio.TaskGroup() as starting:
            tasks = [starting.create_task(_outcome(source)) for source in self._sources.values()]
        for task in tasks:
            error = task.result()
            if error is not None:
                raise error

    async def aclose(self) -> None:
        """End all connections."""
        await asyncio.gather(*(source.aclose() for source in self._sources.values()))


async def _outcome(source: McpSource) -> Exception | None:
    # Not raised, since the group would cut off the others and wrap it.
    try:
        await source.start()
    except Exception as error:
        return error
    return None


__all__ = ["McpSources"]
