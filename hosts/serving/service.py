"""What is served: an MCP server, the tokens that it takes, and how it ends. No transport is known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from mcp.server.lowlevel import Server

from .tokens import Tokens


class Service(Protocol):
    """An MCP server that a transport can serve. One with more to say is `Operated`."""

    @property
    def server(self) -> Server[Any]:
        """The MCP server."""
        ...

    @property
    def tokens(self) -> Tokens[Any] | None:
        """The bearer tokens that it takes over HTTP; None takes every caller."""
        ...

    def end_streams(self) -> None:
        """End the streams that have no end of their own, so that a transport can close."""
        ...


@runtime_checkable
class Operated(Protocol):
    """A service that is watched and ended in order. What it tells has no content and nothing secret."""

    def health(self) -> Mapping[str, Any]:
        """How the process is, as JSON for `/health`. At once, without asking anybody."""
        ...

    async def ready(self) -> Mapping[str, Any]:
        """Whether new work is taken, as JSON for `/ready`; `"ready"` says yes or no."""
        ...

    async def drain(self, seconds: float) -> None:
        """Take no new work, and bring what runs to a place where it can be resumed, within so many seconds."""
        ...


__all__ = ["Operated", "Service"]
