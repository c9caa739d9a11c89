"""The connection to an MCP server that outlives the server's restarts; see `mcp_client._connection`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...core import Clock
from ...core.errors import WorldAgentError
from .._connection import Connection
from .._failures import Failure
from .._request import Request
from ._failures import of_server
from ._listed import Listed
from ._server import McpServer

if TYPE_CHECKING:
    from ._link import Elicit, ToolLink

T = TypeVar("T")


class ToolConnection(Connection["ToolLink"]):
    """The connection to one MCP server.

    Args:
        name: What errors call it.
        server: The server.
        clock: What waits between attempts.
        on_tools: Told what the server offers, at first and after each change.
        elicit: Has a person asked for what the server asks; None where it may not ask.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        *,
        clock: Clock,
        on_tools: Callable[[Listed], None],
        elicit: Elicit | None = None,
    ) -> None:
        super().__init__(server.host, clock=clock)
        self._name = name
        self._server = server
        self._on_tools = on_tools
        self._elicit = elicit

    @property
    def connected(self) -> bool:
        """Whether calls can be made at once."""
        return self._link is not None and self._link.serving

    @property
    def modern(self) -> bool:
        """Whether the revision 2026-07-28, or a newer one, is spoken."""
        return self._link is not None and self._link.modern

    async def connect(self) -> None:
        """Connect, if it is not connected.

        Raises:
            HostError: The server cannot be reached or used.
            UsageError: The connection is closed, or another loop's.
        """
        await self._linked()

    async def call(self, request: Request[T], seconds: float) -> T:
        """Make one call; cancelling it cancels it in the server.

        Raises:
            HostError: The server cannot be reached or used, or did not answer in time.
            ToolFailed: It did not take the call.
            UsageError: The connection is closed, or another loop's.
        """
        return await self._call(request, seconds)

    def _error(self, failure: Failure) -> WorldAgentError:
        return of_server(failure, self._name, self._host).error()

    def _make(self, pause: float) -> ToolLink:
        # Here, because the MCP library is loaded only where a server is used.
        from ._link import ToolLink

        return ToolLink(
            self._name,
            self._server,
            delay=pause,
            clock=self._clock,
            on_tools=self._on_tools,
            elicit=self._elicit,
        )


__all__ = ["ToolConnection"]
