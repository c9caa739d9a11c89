"""A resource of an MCP server, as in the server's list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResource:
    """A resource of an MCP server. All values come from the server.

    Attributes:
        uri: The argument for `McpSource.read`.
        name: Its name.
        description: What it contains.
        media_type: Its media type, such as `text/plain`; empty if unknown.
        size: Its size in bytes, if known.
    """

    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""
    size: int | None = None

    @classmethod
    def of(cls, listed: Mapping[str, Any]) -> McpResource:
        """Make it from an entry of the server's list."""
        return cls(
            uri=str(listed.get("uri", "")),
            name=str(listed.get("title") or listed.get("name") or ""),
            description=str(listed.get("description", "")),
            media_type=str(listed.get("mimeType", "")),
            size=listed.get("size"),
        )


__all__ = ["McpResource"]
