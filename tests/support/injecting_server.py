"""An MCP server over stdio that says what it is told to, in results, in errors or in descriptions.

`python injecting_server.py TEXT WHERE`; `where` is `result`, `error` or `description`. Its one tool is `page`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool


def server(text: str, where: str) -> Server[Any]:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        told = text if where == "description" else "Get a page."
        schema = {"type": "object", "additionalProperties": False}
        return ListToolsResult(tools=[Tool(name="page", description=told, input_schema=schema)])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        said = "Nothing." if where == "description" else text
        return CallToolResult(content=[TextContent(type="text", text=said)], is_error=where == "error")

    return Server("pages", on_list_tools=list_tools, on_call_tool=call_tool)


def command(text: str, where: str) -> list[str]:
    """How the program is started."""
    return [sys.executable, "-P", str(Path(__file__)), text, where]


async def main() -> None:
    made = server(*sys.argv[1:])
    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options(NotificationOptions()))


if __name__ == "__main__":
    asyncio.run(main())
