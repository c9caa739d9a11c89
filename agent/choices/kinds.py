"""Arguments that are of another kind than they should be."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import iscoroutinefunction

from ...core import check_id
from ...core.errors import InvalidArgument
from ...mcp_client.tools import McpServer


def check_kinds(**given: tuple[object, type]) -> None:
    """Refuse arguments that are of another type.

    Args:
        given: By their names, the values, which may be None, and their types.

    Raises:
        InvalidArgument: One is.
    """
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise InvalidArgument(
                f"{name}= is of type {type(value).__name__!r}", remedy=f"pass {kind.__name__}(...) or leave it out"
            )


def check_approver(given: object) -> None:
    """Refuse what cannot answer approvals.

    Raises:
        InvalidArgument: It is no async function, and nothing that is called as one.
    """
    if given is not None and not (iscoroutinefunction(given) or iscoroutinefunction(type(given).__call__)):
        raise InvalidArgument(
            f"approver= is of type {type(given).__name__!r}", remedy="pass an async function of a pause"
        )


def check_notifier(given: object) -> None:
    """Refuse what cannot notify a person of a pause.

    Raises:
        InvalidArgument: It has no async method `notify`.
    """
    if given is not None and not iscoroutinefunction(getattr(given, "notify", None)):
        raise InvalidArgument(
            f"`notifier` must have an async method `notify(pause)`, got {type(given).__name__!r}",
            remedy="pass an object whose class defines `async def notify(self, pause)`",
        )


def mcp_servers(given: object) -> dict[str, McpServer]:
    """MCP servers by name, as one argument gives them.

    Raises:
        InvalidArgument: It does not.
    """
    servers = dict(given) if isinstance(given, Mapping) else {}
    if (given is not None and not isinstance(given, Mapping)) or not all(
        isinstance(server, McpServer) for server in servers.values()
    ):
        raise InvalidArgument("mcp= is no mapping of servers", remedy="give {'fs': McpServer(StdioHost([...]))}")
    for name in servers:
        check_id("MCP server", name)
    return servers


__all__ = ["check_approver", "check_kinds", "check_notifier", "mcp_servers"]
