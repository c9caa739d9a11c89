"""A sidecar for benchmarks, as a process over HTTP and over standard streams, the agent it serves, and small clients.

The clients look at bytes and parse only the last message, so that they add little to the figures. `sidecar.py` does the
measuring.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from dspy.lm15 import Request

from worldagent import Storage, WorldAgent

from ._stubs import answering, constant_lm

WORKSPACE = "bench"
LONG = "Tell me all of it."
"""The text that is answered in many pieces. Any other text is answered in twenty."""
PIECES = 300
TOKEN = "token-of-a-benchmark"
MODERN, LEGACY = "2026-07-28", "2025-11-25"

_COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "serve")
_APP = "worldagent.benchmarks._sidecars:make"
_META = "io.modelcontextprotocol/"
_INFO = {"name": "bench", "version": "1"}
_LONGEST = 1 << 24  # bytes in a line
_PROGRESS = b'"notifications/progress"'
_MANY = "[[ ## reply ## ]]\n" + " ".join(f"word{number}" for number in range(PIECES)) + "\n\n[[ ## completed ## ]]"

Seen = Callable[[bytes], None]
"""Called with each event, as the bytes of its message."""


def reply(request: Request) -> str:
    """The completions of the served agent."""
    return _MANY if LONG in str(request.messages[-1]) else answering(request)


def make(workspace: str) -> WorldAgent:
    """Make the served agent, and the one that it is compared with."""
    return agent_in(Path(os.environ["WORLDAGENT_HOME"]), workspace)


def agent_in(home: Path, workspace: str = WORKSPACE) -> WorldAgent:
    """Make an agent with its files in a folder."""
    return WorldAgent(workspace, lm=constant_lm(reply), storage=Storage(home=home))


class Caller(Protocol):
    """A client of a sidecar."""

    async def call(self, tool: str, arguments: Mapping[str, Any], seen: Seen | None = None) -> dict[str, Any]:
        """Call a tool and return the structured content of its answer."""
        ...


@dataclass
class _Client:
    """The base of the clients: messages of their revision."""

    revision: str
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1), init=False)

    def message(self, method: str, params: Mapping[str, Any], *, events: bool = False) -> dict[str, Any]:
        number = next(self._ids)
        meta: dict[str, Any] = {"progressToken": number} if events else {}
        if self.revision == MODERN:
            meta |= {f"{_META}protocolVersion": MODERN, f"{_META}clientCapabilities": {}, f"{_META}clientInfo": _INFO}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}

    @property
    def hello(self) -> dict[str, Any]:
        return {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _INFO}


@dataclass
class HttpCaller(_Client):
    """A client over one HTTP connection, which makes one call after the other."""

    url: str
    session: str = field(default="", init=False)
    _reader: asyncio.StreamReader = field(init=False)
    _writer: asyncio.StreamWriter = field(init=False)

    async def open(self) -> HttpCaller:
        """Connect, with a handshake if the revision requires it."""
        await self._connect()
        if self.revision == LEGACY:
            await self._ask(self.message("initialize", self.hello), None)
            await self._ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, None)
        return self

    def close(self) -> None:
        self._writer.close()

    async def _connect(self) -> None:
        where = urlsplit(self.url)
        self._reader, self._writer = await asyncio.open_connection(where.hostname, where.port, limit=_LONGEST)

    async def call(self, tool: str, arguments: Mapping[str, Any], seen: Seen | None = None) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        return _content(await self._ask(self.message("tools/call", params, events=seen is not None), seen))

    async def _ask(self, message: dict[str, Any], seen: Seen | None) -> bytes:
        body = json.dumps(message).encode()
        headers = [
            "POST /mcp HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {TOKEN}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(body)}",
        ]
        if self.revision == MODERN:
            headers += [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {message['method']}"]
            headers += [f"Mcp-Name: {message['params']['name']}"] if "name" in message["params"] else []
        elif self.session:
            headers += [f"MCP-Protocol-Version: {LEGACY}", f"Mcp-Session-Id: {self.session}"]
        if self._reader.at_eof():  # the server closes idle connections
            self._writer.close()
            await self._connect()
        self._writer.write("\r\n".join([*headers, "", ""]).encode() + body)
        return await self._answer(seen)

    async def _answer(self, seen: Seen | None) -> bytes:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        assert head[0].split()[1] in ("200", "202"), head[0]
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        self.session = found.get("mcp-session-id", self.session)
        if found.get("transfer-encoding") != "chunked":
            return await self._reader.readexactly(int(found.get("content-length", "0")))
        last = rest = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            *lines, rest = (rest + (await self._reader.readexactly(size + 2))[:-2]).split(b"\n")
            for line in lines:
                if not line.startswith(b"data: {"):
                    continue
                if _PROGRESS in line:
                    assert seen is not None
                    seen(line)
                else:
                    last = line[6:]
        await self._reader.readexactly(2)
        return last


@dataclass
class StdioCaller(_Client):
    """A client over the standard streams of a process, which makes one call after the other."""

    process: asyncio.subprocess.Process

    async def open(self) -> StdioCaller:
        """Make the handshake if the revision requires it."""
        if self.revision == LEGACY:
            await self._ask(self.message("initialize", self.hello), None)
            self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def call(self, tool: str, arguments: Mapping[str, Any], seen: Seen | None = None) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        return _content(await self._ask(self.message("tools/call", params, events=seen is not None), seen))

    async def _ask(self, message: dict[str, Any], seen: Seen | None) -> bytes:
        assert self.process.stdout is not None
        self._say(message)
        while line := await self.process.stdout.readline():
            if _PROGRESS not in line:
                return line
            assert seen is not None
            seen(line)
        raise RuntimeError("the sidecar has ended")

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")


def _content(answer: bytes) -> dict[str, Any]:
    said = json.loads(answer)
    result = said.get("result") or {}
    content = result.get("structuredContent")
    assert isinstance(content, dict), str(said)[:300]
    assert not result.get("isError"), str(content)[:300]
    return content


@asynccontextmanager
async def over_http(home: Path, *, app: str = _APP) -> AsyncGenerator[tuple[str, int]]:
    """Start a sidecar over HTTP, which requires a token. Yields its address and process id."""
    async with _process(home, app, "--http", "127.0.0.1:0", "--log-level", "warning") as process:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        assert url, "the sidecar did not start"
        yield url, process.pid


@asynccontextmanager
async def over_stdio(home: Path, revision: str) -> AsyncGenerator[tuple[StdioCaller, int]]:
    """Start a sidecar over standard streams. Yields its client and process id."""
    async with _process(home, _APP, "--stdio") as process:
        yield await StdioCaller(revision, process).open(), process.pid


@asynccontextmanager
async def _process(home: Path, app: str, *options: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    home.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"WORLDAGENT_HOME": str(home), "WORLDAGENT_SIDECAR_TOKEN": TOKEN}
    words = (*_COMMAND, "--app", app, "--home", str(home), "--workspace", WORKSPACE, *options)
    process = await asyncio.create_subprocess_exec(*words, env=env, stdin=PIPE, stdout=PIPE, limit=_LONGEST)
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


__all__ = [
    "LEGACY",
    "LONG",
    "MODERN",
    "PIECES",
    "Caller",
    "HttpCaller",
    "Seen",
    "agent_in",
    "make",
    "over_http",
    "over_stdio",
]
