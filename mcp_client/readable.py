"""Messages of a host that would hold the event loop, changed before anything parses them.

A list of tools is cut to those that can be used, and what is left of the others says why. Any other message with too
many values becomes an error of its request.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from ..core.bounds import Bounds, OutOfBounds, marks_of, member_of
from .hosts import LONGEST_ANSWER

DEEPEST: Final = 190
"""The depth to which the JSON of one message can be nested; the parser of the library fails at 200."""

MAX_TOOLS: Final = 1000
"""The limit of tools of a server."""

MAX_LEFT_OUT: Final = 100
"""The limit of tools that are left out by name; how many more there are is said once."""

LEFT_OUT: Final = "worldagent: "
"""What replaces the schema of a tool that is left out begins with this, and the reason follows."""

OUT_OF_BOUNDS: Final = -32_991
"""The code of the error that replaces a message with too many values."""

ANSWER: Final = Bounds(values=50_000, levels=LONGEST_ANSWER, characters=LONGEST_ANSWER)
"""Of one message; deeper ones are refused by the parser."""

_TOOL_VALUES: Final = 4096
_SMALL: Final = 1 << 15  # bytes of a message that is read as it is, if it is not deep
_NAMED: Final = 1 << 16  # bytes of a tool that is parsed for its name
_ID: Final = re.compile(rb'"(?:[^"\\]|\\.){0,200}"|-?[0-9]{1,18}')


async def readable(message: bytes) -> bytes:
    """Return the message, or what replaces it.

    Args:
        message: One message as JSON. Anything else is returned unchanged.
    """
    deep = message.count(b"{") + message.count(b"[") > DEEPEST
    if (deep or len(message) > _SMALL) and b'"tools"' in message:
        message = await asyncio.to_thread(_with_usable_tools, message)  # in Python, which lets the loop run meanwhile
    if len(message) > _SMALL:
        try:
            await ANSWER.check(message)
        except OutOfBounds:
            return await asyncio.to_thread(_refused, message)
    return message


@dataclass(slots=True)
class _Tool:
    """A tool in a message: where it is, and what it has."""

    start: int
    end: int = 0
    values: int = 1
    levels: int = 0


class _Listing:
    """Finds the tools of a list of tools in the marks of a message; none in another message.

    Attributes:
        tools: The tools.
    """

    def __init__(self, message: bytes) -> None:
        self.tools: list[_Tool] = []
        self._tool: _Tool | None = None
        self._depth, self._is_list = 0, False
        key = b""
        for mark, start, end in marks_of(message):
            if mark == b'"':
                key = message[start:end] if self._depth == 2 else key
                if self._depth == 2 and key == b'"content"':  # the result of a call
                    self.tools = []
                    return
            elif mark in b"[{":
                self._open(start, is_list=mark == b"[" and key == b'"tools"')
            elif mark in b"]}":
                self._close(end)
            elif self._tool is not None:
                self._tool.values += 1

    def _open(self, start: int, *, is_list: bool) -> None:
        self._depth += 1
        if self._depth == 3:
            self._is_list = is_list
        elif self._depth == 4 and self._is_list:
            self._tool = _Tool(start)
        if self._tool is not None:
            self._tool.values += 1
            self._tool.levels = max(self._tool.levels, self._depth)

    def _close(self, end: int) -> None:
        if self._depth == 4 and self._tool is not None:
            self._tool.end = end
            self.tools.append(self._tool)
            self._tool = None
        self._depth -= 1


def _with_usable_tools(message: bytes) -> bytes:
    tools = _Listing(message).tools
    kept: list[bytes] = []
    values, changed, left = 0, False, 0
    for number, tool in enumerate(tools):
        why = ""
        if tool.levels > DEEPEST:
            why = f"its description is nested deeper than {DEEPEST} levels"
        elif tool.values > _TOOL_VALUES:
            why = f"its description has more than {_TOOL_VALUES:,} values"
        elif number >= MAX_TOOLS:
            why = f"the server lists more than {MAX_TOOLS:,} tools"
        elif values + tool.values > ANSWER.values:
            why = f"the tools before it have {ANSWER.values:,} values, which are read at most"
        if not why:
            values += tool.values
            kept.append(message[tool.start : tool.end])
            continue
        changed, left = True, left + 1
        if left <= MAX_LEFT_OUT:
            kept.append(_stub(_name(message[tool.start : tool.end]), why))
    if left > MAX_LEFT_OUT:
        kept.append(_stub(f"and {left - MAX_LEFT_OUT:,} more", "they are not read either"))
    if not changed:
        return message
    return b"".join((message[: tools[0].start], b",".join(kept), message[tools[-1].end :]))


def _stub(name: Any, why: str) -> bytes:
    return json.dumps({"name": name, "inputSchema": f"{LEFT_OUT}{why}"}).encode()


def _name(tool: bytes) -> Any:
    """Return the name of a tool that is left out; None if it cannot be read."""
    text = _shallow(tool)
    try:
        found = json.loads(text) if len(text) <= _NAMED else None
        return found.get("name") if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        return None


def _shallow(tool: bytes) -> bytes:
    """Replace everything below the first level of a tool by null."""
    pieces: list[bytes] = []
    depth = kept = 0
    for mark, start, end in marks_of(tool):
        if mark in b"[{":
            depth += 1
            if depth == 2:
                pieces.append(tool[kept:start])
        elif mark in b"]}":
            if depth == 2:
                pieces.append(b"null")
                kept = end
            depth -= 1
    return b"".join((*pieces, tool[kept:]))


def _refused(message: bytes) -> bytes:
    """Return the error that answers the request of a message; nothing that means anything if it has none."""
    found = member_of(message, b"id")
    if found is None or not _ID.fullmatch(found):
        return b"{}"
    return b'{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":""}}' % (found, OUT_OF_BOUNDS)
