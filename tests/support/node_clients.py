"""The official TypeScript SDK of the 1.x line as a client, in a process of its own."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from support.example_hosts import NODE
from support.house import ROOT
from support.role_hosts import BOUND

FOLDER = ROOT / "tests" / "mcp_tools" / "servers"


class NodeClient:
    """A client that has listed the tools, so that its SDK validates every structured answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def said(self, tool: str, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Call a tool; gives what the SDK made of it: `result` or `thrown`, and `events`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"tool": tool, "arguments": arguments, **options}).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), BOUND)
        assert line, "the client has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; gives the structured content of its answer, of an error too."""
        said = await self.said(tool, arguments)
        assert "result" in said, said
        content: dict[str, Any] = said["result"]["structuredContent"]
        return content


@asynccontextmanager
async def node_client(url: str, token: str = "") -> AsyncGenerator[NodeClient]:
    """Start a client of the server at `url`."""
    assert (FOLDER / "node_modules").is_dir(), "the packages of the client are missing: run `make setup`"
    words = (NODE, str(FOLDER / "client.mjs"), url, *([token] if token else []))
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
    try:
        yield NodeClient(process)
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.wait_for(process.wait(), BOUND)


__all__ = ["NodeClient", "node_client"]
