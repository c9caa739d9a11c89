"""Replaces tools of a list whose JSON is too deeply nested for the MCP library, so that the other tools remain.

The library drops a message that is nested too deeply, and the request for it then never gets an answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final

DEEPEST: Final = 190
"""The depth to which the JSON of one message can be nested; the parser of the library fails at 200."""

TOO_DEEP: Final = "nested deeper than this client reads"
"""Replaces the schema of a tool that is nested too deeply."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_OPENING: Final = b"[{"


async def readable(message: bytes) -> bytes:
    """Return the message. In a list of tools, those that are nested too deeply get `TOO_DEEP` as their schema.

    Args:
        message: One message as JSON. Anything else is returned unchanged.
    """
    if message.count(b"{") + message.count(b"[") <= DEEPEST or b'"tools"' not in message:
        return message
    # In a thread, because a hostile message of several MiB takes seconds.
    return await asyncio.to_thread(_without_deep_tools, message)


def _without_deep_tools(message: bytes) -> bytes:
    shallow = _cut(message)
    if shallow is message:
        return message
    try:
        read: Any = json.loads(shallow)
    except (ValueError, RecursionError):
        return message
    result = read.get("result") if isinstance(read, dict) else None
    if not isinstance(result, dict) or not isinstance(result.get("tools"), list) or "content" in result:
        return message
    result["tools"] = [_flat(tool) for tool in result["tools"]]
    return json.dumps(read).encode()


def _flat(tool: Any) -> Any:
    if TOO_DEEP not in json.dumps(tool):
        return tool
    return {"name": tool.get("name") if isinstance(tool, Mapping) else None, "inputSchema": TOO_DEEP}


def _cut(message: bytes) -> bytes:
    """Replace each part below `DEEPEST` by a text; return the same object if all parts are above it."""
    pieces: list[bytes] = []
    depth = kept = 0
    for token in _TOKEN.finditer(message):
        first = token[0][:1]
        if first == b'"':
            continue
        if first in _OPENING:
            depth += 1
            if depth == DEEPEST + 1:
                pieces.append(message[kept : token.start()])
        else:
            if depth == DEEPEST + 1:
                pieces.append(json.dumps(TOO_DEEP).encode())
                kept = token.end()
            depth -= 1
    return b"".join((*pieces, message[kept:])) if pieces else message


__all__ = ["DEEPEST", "TOO_DEEP", "readable"]
