"""A small service of its own on the transports of `hosts.serving`, as a process that notes what happens to it.

Run as `python -m support.served NOTES OPTIONS`: `OPTIONS` is JSON, and what happens is written to `NOTES`, a line each.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from support.processes import clean_environment, eventually, listening
from worldagent.hosts.serving import (
    Address,
    HttpOptions,
    RequestLog,
    Tokens,
    http_server,
    quiet_logs,
    serve_http,
    serve_stdio,
    stdio_server,
)
from worldagent.hosts.serving.handlers import client_of

BOUND = 60  # seconds
SECRET = "Speak as the night ferryman of the lower river speaks."
TOOLS = ("say", "count", "wait", "fail", "open", "ask")


class Plain:
    """A service that says what it is told, counts by progress, waits, and fails."""

    def __init__(self, notes: Path, tokens: Tokens[str] | None) -> None:
        self.tokens = tokens
        self._notes = notes
        self._log = RequestLog(TOOLS)
        self._ended = asyncio.Event()
        self.server: Server[Any] = Server(
            "served", version="1", on_list_tools=self._list_tools, on_call_tool=self._call_tool
        )

    def end_streams(self) -> None:
        self.note("streams ended")
        self._ended.set()

    def note(self, what: str) -> None:
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(what + "\n")

    async def _list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in TOOLS])

    async def _call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        began = time.perf_counter()
        code = "ok"
        self.note(f"{params.name} began")
        try:
            text = await self._run(ctx, params.name, params.arguments or {})
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)])
        except asyncio.CancelledError:
            client = client_of(ctx)
            self.note(f"{params.name} cancelled {client.gone if client else None}")
            code = "cancelled"
            raise
        except Exception:
            code = "failed"
            raise
        finally:
            ms = 1000 * (time.perf_counter() - began)
            self._log.record(method=ctx.method, tool=params.name, workspace="novel", code=code, ms=ms)

    async def _run(self, ctx: ServerRequestContext[Any, Any], tool: str, arguments: Mapping[str, Any]) -> str:
        if tool == "say":
            grant = "" if self.tokens is None else str(self.tokens.grant_of(get_access_token()))
            return f"{grant}{arguments.get('text', '')}"
        if tool == "count":
            for number in range(arguments["to"]):
                await ctx.session.report_progress(number, message="x" * arguments.get("size", 1))
                self.note(f"counted {number}")
        elif tool == "ask":
            try:
                await ctx.session.send_request(types.PingRequest(), types.EmptyResult)
            except MCPError as error:
                return error.error.model_dump_json()
        elif tool == "wait":
            await asyncio.Event().wait()
        elif tool == "open":  # as a turn that stops at its next step when the service drains
            await ctx.session.report_progress(1, message="opened")
            await self._ended.wait()
            await ctx.session.report_progress(2, message="last")
        else:
            raise ValueError(SECRET)
        return "done"


class Watched(Plain):
    """The same, watched and drained."""

    draining = False

    def health(self) -> Mapping[str, Any]:
        return {"status": "ok"}

    async def ready(self) -> Mapping[str, Any]:
        return {"ready": not self.draining, "draining": self.draining}

    async def drain(self, seconds: float) -> None:
        self.draining = True
        self.note(f"drain {seconds:g}")
        hold = self._notes.with_suffix(".hold")
        await eventually(lambda: not hold.exists(), seconds)


@dataclass
class Served:
    """A process that serves, from the outside."""

    process: subprocess.Popen[bytes]
    address: Address
    notes: Path
    errors: Path

    def noted(self) -> list[str]:
        """What it has noted so far."""
        return self.notes.read_text(encoding="utf-8").splitlines() if self.notes.exists() else []

    async def notes_that(self, what: str, limit: float = BOUND) -> bool:
        """Wait until it notes something."""
        return await eventually(lambda: what in self.noted(), limit)

    def told(self) -> str:
        """What stands in its log."""
        return self.errors.read_text(encoding="utf-8")


def command(notes: Path, **options: Any) -> list[str]:
    """The words that start one."""
    return [sys.executable, "-P", "-m", "support.served", str(notes), json.dumps(options)]


@contextmanager
def served(folder: Path, **options: Any) -> Generator[Served, None, None]:
    """Serve over HTTP on a free port. Options are those of `HttpOptions`, `tokens`, `level`, `form`, and bounds."""
    notes, errors = folder / "notes", folder / "errors"
    with listening(command(notes, **options), env=clean_environment(), errors=errors) as (line, process):
        host, port = line.split()
        yield Served(process, Address(host, int(port)), notes, errors)


async def main(notes: Path, given: dict[str, Any]) -> int | None:
    """Serve as the options say."""
    tokens = given.pop("tokens", None)
    for module, bound in ((http_server, "CLOSE_SECONDS"), (stdio_server, "ANSWER_SECONDS")):
        setattr(module, bound, given.pop(bound, getattr(module, bound)))
    service = Watched(notes, None if tokens is None else Tokens(tokens.items()))
    with quiet_logs(level=given.pop("level", "info"), form=given.pop("form", "text")):
        if given.pop("stdio", False):
            stopped = await serve_stdio(service, drain=given.pop("drain", 10.0))
        else:
            address = Address(given.pop("host", "127.0.0.1"), 0)
            options = HttpOptions(**given)
            stopped = await serve_http(service, address, options, ready=_ready, draining=lambda: service.note("end"))
    service.note("ended in order")
    return stopped


def _ready(address: Address) -> None:
    sys.stdout.write(f"{address.host} {address.port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    stopped_by = asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
    sys.exit(0 if stopped_by is None else 130 if stopped_by == signal.SIGINT else 143)


MODERN, LEGACY = "2026-07-28", "2025-11-25"
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_META = "io.modelcontextprotocol/"
_HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass
class Answer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, or the last event of a stream."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return self.events[-1]
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream."""
        rows = self.body.replace(b"\r\n", b"\n").split(b"\n")
        return [json.loads(row[5:]) for row in rows if row.startswith(b"data:") and len(row) > 6]


@dataclass
class Wire:
    """One connection.

    Attributes:
        address: Whereto.
        buffer: Bytes that the system keeps for what is not read yet; 0 is as the system has it.
    """

    address: Address
    buffer: int = 0
    socket: socket.socket = field(init=False)

    def __enter__(self) -> Wire:
        family = socket.AF_INET6 if ":" in self.address.host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if self.buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        self.socket.settimeout(BOUND)
        self.socket.connect((self.address.host, self.address.port))
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request and read its answer whole."""
        self.send(request(method, path, body, headers))
        return self.read(method)

    def read(self, method: str = "POST") -> Answer:
        """Read the answer to a request of this method whole."""
        response = HTTPResponse(self.socket, method=method)
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a request."""
    named = {"Host": "127.0.0.1", **({"Content-Length": str(len(body))} if body else {}), **(headers or {})}
    rows = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{rows}\r\n".encode("latin-1", "surrogateescape") + body


def call(tool: str, arguments: Mapping[str, Any], *, progress: bool = False, number: int = 7) -> dict[str, Any]:
    """The message that calls a tool."""
    meta = {"_meta": {"progressToken": number}} if progress else {}
    params = {"name": tool, "arguments": dict(arguments), **meta}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def modern(message: dict[str, Any], **more: str) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a message of revision 2026-07-28."""
    params = message["params"]
    meta = {f"{_META}protocolVersion": MODERN, f"{_META}clientCapabilities": {}, **params.get("_meta", {})}
    meta[f"{_META}clientInfo"] = {"name": "t", "version": "1"}
    whole = {**message, "params": {**params, "_meta": meta}}
    named = {"Mcp-Name": params["name"]} if "name" in params else {}
    routed = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"], **named}
    return json.dumps(whole).encode(), {**JSON, **routed, **more}


def initialize(wire: Wire, **more: str) -> dict[str, str]:
    """Open a session of an earlier revision, and give the headers of its requests."""
    answer = wire.ask("POST", "/mcp", json.dumps(INITIALIZE).encode(), **JSON, **more)
    assert answer.status == 200, answer
    headers = {**JSON, **more, "MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": answer.headers["mcp-session-id"]}
    assert wire.ask("POST", "/mcp", json.dumps(READY).encode(), **headers).status == 202
    return headers
