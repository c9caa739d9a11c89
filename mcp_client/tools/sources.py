"""The MCP servers of one agent, by name: opened and closed with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import pairwise

from ...core import Clock
from ...core.errors import InvalidArgument, NameTaken
from ...harness import Registry
from .results import Keep
from .server import McpServer
from .source import McpSource


def check_prefixes(servers: Mapping[str, McpServer]) -> None:
    """Refuse servers if one of them could give its tools the names of another's.

    With the prefixes `git_` and `git_hub_`, a tool `hub_push` of the first gets the name of the tool `push` of the
    second, and the approval rules for it. A rule for `git_*` would also cover both.

    Raises:
        NameTaken: One prefix begins another; the text names both servers.
    """
    prefixes = sorted((server.prefix_as(name), name) for name, server in servers.items())
    # In sorted order a prefix comes directly before one that it begins, if any exists.
    for (short, first), (long, second) in pairwise(prefixes):
        if long.startswith(short):
            raise NameTaken(
                f"a tool of MCP server {first!r} could take the name of one of MCP server {second!r}: "
                f"the prefix {short!r} begins the prefix {long!r}",
                remedy="give one of them another `prefix`, such as 'hub_' where 'git_' and 'git_hub_' clash",
            )


class McpSources:
    """The MCP servers of an agent: `sources[name]`, and their names by iteration.

    Args:
        servers: The servers by name.
        registry: Receives their Functions.
        clock: Waits between attempts to connect.
        keep: Stores images and other media that they return.

    Raises:
        NameTaken: See `check_prefixes`.
    """

    def __init__(
        self, servers: Mapping[str, McpServer], *, registry: Registry, clock: Clock, keep: Keep | None = None
    ) -> None:
        check_prefixes(servers)
        self._sources = {
            name: McpSource(name, server, registry=registry, clock=clock, keep=keep) for name, server in servers.items()
        }

    def __getitem__(self, name: str) -> McpSource:
        """The server called `name`.

        Raises:
            InvalidArgument: The server does not exist.
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
        """Connect to all servers concurrently. The agent starts even if some are down.

        Raises:
            NameTaken: A tool has the name of another function.
        """
        starts = (source.start() for source in self._sources.values())
        for outcome in await asyncio.gather(*starts, return_exceptions=True):  # wait for all of them, even if one fails
            if outcome is not None:
                raise outcome

    async def aclose(self) -> None:
        """End all connections."""
        await asyncio.gather(*(source.aclose() for source in self._sources.values()))


__all__ = ["McpSources", "check_prefixes"]
