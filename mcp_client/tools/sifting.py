"""Removes tools from a server's messages whose description violates MCP.

The library refuses a complete list because of one such tool; this module keeps the other tools.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, Final

from mcp.client._transport import TransportStreams
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse, Tool
from mcp.types.methods import SERVER_RESULTS
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from ..nesting import DEEPEST, TOO_DEEP
from ..transports import Incoming, Item

MAX_INVALID_TOOLS: Final = 100  # the limit of invalid tools that are reported
_REASON: Final = 300  # the limit of characters of a reason, which can quote the server


@asynccontextmanager
async def sifted(
    transport: AbstractAsyncContextManager[TransportStreams], invalid_tools: dict[str, str], version: Callable[[], str]
) -> AsyncGenerator[TransportStreams]:
    """The streams of a server, open inside the block.

    Args:
        transport: Opens the unfiltered streams.
        invalid_tools: Receives the names of removed tools, and why.
        version: Returns the protocol revision, which defines how a tool is described.
    """
    async with transport as (read, write):
        yield Incoming(read, _Sieve(invalid_tools, version)), write


class _Sieve:
    def __init__(self, invalid_tools: dict[str, str], version: Callable[[], str]) -> None:
        self._invalid_tools = invalid_tools
        self._version = version

    def __call__(self, item: Item) -> Item:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result: Any = item.message.result
            if isinstance(result, dict) and isinstance(result.get("tools"), list) and "content" not in result:
                result["tools"] = [tool for tool in result["tools"] if self._fits(tool)]
        return item

    def _fits(self, tool: Any) -> bool:
        problem = _problem(tool, self._version())
        if problem and len(self._invalid_tools) < MAX_INVALID_TOOLS:
            name = tool.get("name") if isinstance(tool, dict) else None
            self._invalid_tools[str(name)[:100]] = problem
        return not problem


def _problem(tool: Any, version: str) -> str:
    if isinstance(tool, dict) and tool.get("inputSchema") == TOO_DEEP:
        return f"its description is nested deeper than {DEEPEST} levels"
    try:
        read = Tool.model_validate(tool, by_name=False)
    except ValidationError:
        return "its description violates MCP"
    if not read.name:
        return "it has no name"
    if read.input_schema.get("type") != "object":
        return "the schema of its arguments must describe an object"
    modern = version in MODERN_PROTOCOL_VERSIONS
    if modern and (reason := find_invalid_x_mcp_header(read.input_schema)) is not None:
        return f"its x-mcp-header is invalid: {reason}"[:_REASON]  # the library would drop it silently
    if read.output_schema is not None and not modern and read.output_schema.get("type") != "object":
        return "the schema of its result must describe an object"
    try:
        _tools_of(version).validate_python([tool], by_name=False)
    except ValidationError as error:
        # The first two parts are MCP's own names; deeper parts can come from the server.
        where = error.errors(include_input=False, include_url=False)[0]["loc"][1:3]
        return f"its description violates MCP (at {'.'.join(map(str, where))})"
    return ""


@cache
def _tools_of(version: str) -> TypeAdapter[Any]:
    """The library's model of a list of tools in this revision; any value is valid if the revision is unknown."""
    page = SERVER_RESULTS.get(("tools/list", version))
    if not (isinstance(page, type) and issubclass(page, BaseModel)):
        return TypeAdapter(Any)
    listed: Any = page.model_fields["tools"].annotation
    return TypeAdapter(listed)


__all__ = ["sifted"]
