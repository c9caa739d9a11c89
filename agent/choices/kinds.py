"""Type checks of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import iscoroutinefunction

from ...core import check_id
from ...core.errors import InvalidArgument
from ...mcp_client.tools import McpServer


def check_kinds(**given: tuple[object, type]) -> None:
    """Refuse arguments of a wrong type.

    Args:
        given: By argument name, the value, which can be None, and its type.

    Raises:
        InvalidArgument: A value is of another type.
    """
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise InvalidArgument(
                f"`{name}` must be a {kind.__name__}, got {type(value).__name__!r}",
                remedy=f"pass {kind.__name__}(...) or omit it",
            )


def check_approver(given: object) -> None:
    """Refuse an approver that is not an async callable.

    Raises:
        InvalidArgument: It is neither an async function nor an object with an async `__call__`.
    """
    if given is not None and not (iscoroutinefunction(given) or iscoroutinefunction(type(given).__call__)):
        raise InvalidArgument(
            f"`approver` must be an async function, got {type(given).__name__!r}",
            remedy="pass an async function of a pause",
        )


def check_notifier(given: object) -> None:
    """Refuse a notifier without an async method `notify`.

    Raises:
        InvalidArgument: It has no async method `notify`.
    """
    if given is not None and not iscoroutinefunction(getattr(given, "notify", None)):
        raise InvalidArgument(
            f"`notifier` must have an async method `notify(pause)`, got {type(given).__name__!r}",
            remedy="pass an object whose class defines `async def notify(self, pause)`",
        )


def mcp_servers(given: object) -> dict[str, McpServer]:
    """Return the MCP servers of an argument by name.

    Raises:
        InvalidArgument: It is not a mapping of servers.
    """
    servers = dict(given) if isinstance(given, Mapping) else {}
    if (given is not None and not isinstance(given, Mapping)) or not all(
        isinstance(server, McpServer) for server in servers.values()
    ):
        raise InvalidArgument("`mcp` must be a mapping of servers", remedy="pass {'fs': McpServer(StdioHost([...]))}")
    for name in servers:
        check_id("MCP server", name)
    return servers


__all__ = ["check_approver", "check_kinds", "check_notifier", "mcp_servers"]
