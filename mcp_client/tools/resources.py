"""A resource of an MCP server, as its list has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResource:
    """Something that an MCP server lets one read. All of it is what the server says.

    Attributes:
        uri: What `McpSource.read` takes.
        name: What it is called.
        description: What is in it.
        media_type: What it is, such as `text/plain`; empty where that is not said.
        size: Bytes, where that is said.
    """

    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""
    size: int | None = None

    @classmethod
    def of(cls, listed: Mapping[str, Any]) -> McpResource:
        """Read it from what the server lists."""
        return cls(
            uri=str(listed.get("uri", "")),
            name=str(listed.get("title") or listed.get("name") or ""),
            description=str(listed.get("description", "")),
            media_type=str(listed.get("mimeType", "")),
            size=listed.get("size"),
        )


__all__ = ["McpResource"]
