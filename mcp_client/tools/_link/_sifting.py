"""The messages of a server without the tools that are described otherwise than MCP says.

The library refuses a whole list for the sake of one tool; here the others stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse, Tool
from pydantic import ValidationError

from ..._hosts import Host
from ..._transports import Incoming, Item, Lost, open_transport

_NAMED: Final = 100  # misfits that are noted


@contextlib.asynccontextmanager
async def sifted(
    host: Host, lost: Lost, misfits: dict[str, str], modern: Callable[[], bool]
) -> AsyncGenerator[TransportStreams]:
    """The streams of `host`; see `open_transport`.

    Args:
        host: The server.
        lost: Called once no message can come any more.
        misfits: Takes the names of tools that are left out, and why.
        modern: Whether the newer revision is spoken, in which a result may be of any type.
    """
    async with open_transport(host, lost) as (read, write):
        yield Incoming(read, _Sieve(misfits, modern)), write


class _Sieve:
    def __init__(self, misfits: dict[str, str], modern: Callable[[], bool]) -> None:
        self._misfits = misfits
        self._modern = modern

    def __call__(self, item: Item) -> Item:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result: Any = item.message.result
            if isinstance(result, dict) and isinstance(result.get("tools"), list) and "content" not in result:
                result["tools"] = [tool for tool in result["tools"] if self._fits(tool)]
        return item

    def _fits(self, tool: Any) -> bool:
        problem = _problem(tool, modern=self._modern())
        if problem and len(self._misfits) < _NAMED:
            name = tool.get("name") if isinstance(tool, dict) else None
            self._misfits[str(name)[:100]] = problem
        return not problem


def _problem(tool: Any, *, modern: bool) -> str:
    try:
        read = Tool.model_validate(tool, by_name=False)
    except ValidationError:
        return "it is not described as MCP says"
    if read.input_schema.get("type") != "object":
        return "the schema of its arguments describes no object"
    if read.output_schema is not None and not modern and read.output_schema.get("type") != "object":
        return "the schema of its result describes no object"
    return ""


__all__ = ["sifted"]
