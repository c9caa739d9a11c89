"""The messages of a server without the tools that are described otherwise than MCP says.

The library refuses a whole list for the sake of one tool; here the others stay.
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

_NAMED: Final = 100  # misfits that are noted
_REASON: Final = 300  # characters of one; it may quote the server


@asynccontextmanager
async def sifted(
    transport: AbstractAsyncContextManager[TransportStreams], misfits: dict[str, str], version: Callable[[], str]
) -> AsyncGenerator[TransportStreams]:
    """The streams of a server, open inside the block.

    Args:
        transport: Opens the streams as they come.
        misfits: Takes the names of tools that are left out, and why.
        version: The revision that is spoken, which says how a tool is described.
    """
    async with transport as (read, write):
        yield Incoming(read, _Sieve(misfits, version)), write


class _Sieve:
    def __init__(self, misfits: dict[str, str], version: Callable[[], str]) -> None:
        self._misfits = misfits
        self._version = version

    def __call__(self, item: Item) -> Item:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result: Any = item.message.result
            if isinstance(result, dict) and isinstance(result.get("tools"), list) and "content" not in result:
                result["tools"] = [tool for tool in result["tools"] if self._fits(tool)]
        return item

    def _fits(self, tool: Any) -> bool:
        problem = _problem(tool, self._version())
        if problem and len(self._misfits) < _NAMED:
            name = tool.get("name") if isinstance(tool, dict) else None
            self._misfits[str(name)[:100]] = problem
        return not problem


def _problem(tool: Any, version: str) -> str:
    if isinstance(tool, dict) and tool.get("inputSchema") == TOO_DEEP:
        return f"its description is nested deeper than {DEEPEST} levels"
    try:
        read = Tool.model_validate(tool, by_name=False)
    except ValidationError:
        return "it is not described as MCP says"
    if not read.name:
        return "it has no name"
    if read.input_schema.get("type") != "object":
        return "the schema of its arguments describes no object"
    modern = version in MODERN_PROTOCOL_VERSIONS
    if modern and (reason := find_invalid_x_mcp_header(read.input_schema)) is not None:
        return f"its x-mcp-header is invalid: {reason}"[:_REASON]  # the library would drop it without a word to us
    if read.output_schema is not None and not modern and read.output_schema.get("type") != "object":
        return "the schema of its result describes no object"
    try:
        _tools_of(version).validate_python([tool], by_name=False)
    except ValidationError as error:
        # The first two parts are MCP's own names; what is below may be the server's.
        where = error.errors(include_input=False, include_url=False)[0]["loc"][1:3]
        return f"it is not described as MCP says (at {'.'.join(map(str, where))})"
    return ""


@cache
def _tools_of(version: str) -> TypeAdapter[Any]:
    """What the library holds a list of tools to, of this revision; of one that is not known, nothing."""
    page = SERVER_RESULTS.get(("tools/list", version))
    if not (isinstance(page, type) and issubclass(page, BaseModel)):
        return TypeAdapter(Any)
    listed: Any = page.model_fields["tools"].annotation
    return TypeAdapter(listed)


__all__ = ["sifted"]
