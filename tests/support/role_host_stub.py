"""A small role host for tests, as a program over stdio or HTTP or in a thread, which can be broken in named ways.

As a program: `python role_host_stub.py stdio|PORT [--file FILE] [--log FILE] [--broken NAME] [--tiers a,b]`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.types import CallToolResult, ListResourcesResult, ListToolsResult, TextContent, Tool
from starlette.responses import Response

ALL = ("workspace", "account", "channel")
LIMIT = 32 * 1024
_TOOLS = {
    "role_list": ("scope_ids",),
    "role_get": ("tier", "scope_id"),
    "role_put": ("tier", "scope_id", "name", "content"),
    "role_delete": ("tier", "scope_id"),
}
_FIELDS = {"tier": {"$ref": "#/$defs/Tier"}, "scope_ids": {"type": "object"}}
_ROLE = {"name": "x", "content": "y", "tier": "workspace"}
_WRONG: dict[str, dict[str, Any]] = {
    "contract 2": {"contract": 2, "roles": [], "role": None},
    "two roles": {"contract": 1, "roles": [_ROLE, _ROLE]},
}


class StubHost:
    """The host: what it keeps, what it was asked, and how it is broken.

    Attributes:
        kept: Names and contents by tier and scope.
        calls: Every call of a tool, with its arguments.
        requests: Every HTTP request: its method, and the method of MCP where a header names it.
        headers: The names of all HTTP headers that came.
        broken: How it misbehaves; empty for a sound one.
        tier_schema: What its schemas say of a tier, with `definitions`, where that is not the usual.
    """

    def __init__(
        self,
        *,
        broken: str = "",
        tiers: Sequence[str] = ALL,
        file: Path | None = None,
        log: Path | None = None,
        prefix: str = "",
    ) -> None:
        self.broken, self.tiers, self.file, self.log, self.prefix = broken, tiers, file, log, prefix
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[tuple[str, str]] = []
        self.headers: set[str] = set()
        self.kept: dict[tuple[str, str], tuple[str, str]] = {}
        self.bus = InMemorySubscriptionBus()
        self.listener = ListenHandler(self.bus)
        self.tier_schema: Any = None
        self.definitions: dict[str, Any] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        if file is not None and file.exists():
            self.kept = {(tier, scope): (name, text) for tier, scope, name, text in json.loads(file.read_text())}

    def server(self) -> Server[Any]:
        return Server(
            "stub",
            version="1",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_subscriptions_listen=self.listener,
        )

    def end_streams(self) -> None:
        """End every stream of notices, as a host may. Called from another thread than the host's."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.listener.close)

    def change(self, tier: str, scope_id: str, content: str) -> None:
        """Change a role as another client would, and notify listeners. Called from another thread than the host's."""
        self.kept[tier, scope_id] = ("x", content)
        assert self.loop is not None
        event = ResourceUpdated(uri=f"role://{tier}/{scope_id}")
        asyncio.run_coroutine_threadsafe(self.bus.publish(event), self.loop).result(10)

    async def _list_resources(self, ctx: Any, params: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[])

    async def _list_tools(self, ctx: Any, params: Any) -> ListToolsResult:
        tools = []
        for name, fields in _TOOLS.items():
            if self.broken == f"no {name}":
                continue
            properties: dict[str, Any] = {field: _FIELDS.get(field, {"type": "string"}) for field in fields}
            if "content" in properties and self.broken == "copies content into headers":
                properties["content"] = {"type": "string", "x-mcp-header": "Content"}
            schema: dict[str, Any] = {
                "type": "object",
                "properties": properties,
                "required": list(fields),
                "$defs": {"Tier": {"type": "string", "enum": list(self.tiers)}},
            }
            if self.tier_schema is not None and "tier" in properties:
                schema |= {"properties": properties | {"tier": self.tier_schema}, "$defs": self.definitions}
            tools.append(Tool(name=self.prefix + name, input_schema=schema))
        return ListToolsResult(tools=tools)

    async def _call_tool(self, ctx: Any, params: Any) -> CallToolResult:
        name, arguments = params.name.removeprefix(self.prefix), params.arguments or {}
        self.calls.append((name, arguments))
        self._note(name)
        match self.broken:
            case "hangs":
                await self._hang()
            case "hangs until told" if not self._told():
                await self._hang()
            case "dies":
                os._exit(3)
            case _:
                pass
        return self._answer(name, arguments)

    def _told(self) -> bool:
        """Whether there is a file next to the log, which later processes of this host see too."""
        return self.log is not None and self.log.with_suffix(".told").exists()

    async def _hang(self) -> None:
        self._note("hanging")
        try:
            await asyncio.Event().wait()
        finally:
            self._note("released")

    def content(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """What a call of a tool gives."""
        return dict(self._answer(name, given).structured_content or {})

    def _answer(self, name: str, given: dict[str, Any]) -> CallToolResult:
        match self.broken:
            case "no structure":
                return CallToolResult(content=[TextContent(type="text", text="secret role")])
            case code if code.startswith("code "):
                return _error(code.removeprefix("code "))
            case known if known in _WRONG:
                return _result(_WRONG[known])
            case _:
                return self._obey(name, given)

    def _obey(self, name: str, given: dict[str, Any]) -> CallToolResult:
        if name == "role_list":
            keys = [key for key in given["scope_ids"].items() if key in self.kept]
            return _result({"contract": 1, "roles": [self._record(key) for key in keys]})
        key = (given["tier"], given["scope_id"])
        if key[0] not in self.tiers:
            return _error("invalid")
        if name == "role_put":
            if len(given["content"].encode()) > LIMIT:
                return _error("too_long")
            self.kept[key] = (given["name"], given["content"])
        elif key not in self.kept:
            return _error("not_found")
        result = _result({"contract": 1, "role": self._record(key)})
        if name == "role_delete":
            del self.kept[key]
        if self.file is not None and name != "role_get":
            self.file.write_text(json.dumps([(*key, *value) for key, value in self.kept.items()]))
        return result

    def _record(self, key: tuple[str, str]) -> dict[str, str]:
        name, content = self.kept[key]
        return {"name": name, "content": content, "tier": key[0]}

    def _note(self, what: str) -> None:
        if self.log is not None:
            with self.log.open("a") as out:
                out.write(what + "\n")

    def app(self, token: str | None = None) -> Any:
        """The host as an ASGI application that looks at the token and writes down what was asked."""
        inner = self.server().streamable_http_app()

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await inner(scope, receive, send)
                return
            headers = dict(scope["headers"])
            self.headers |= {name.decode() for name in headers}
            self.requests.append((scope["method"], headers.get(b"mcp-method", b"").decode()))
            if token is not None and headers.get(b"authorization") != f"Bearer {token}".encode():
                await Response("secret words of the host", 401)(scope, receive, send)
            elif self.broken == "bad json":
                await Response('{"secret words', media_type="application/json")(scope, receive, send)
            else:
                await inner(scope, receive, send)

        return guarded


def _result(content: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[], structured_content=content)


def _error(code: str) -> CallToolResult:
    said = TextContent(type="text", text="secret words of the host")
    return CallToolResult(content=[said], structured_content={"contract": 1, "code": code}, is_error=True)


class _Threaded(uvicorn.Server):
    """A server that says when it listens, in a thread of its own, where signals are not its business."""

    def __init__(self, app: Any, port: int) -> None:
        super().__init__(uvicorn.Config(app, port=port, log_config=None, ws="none", timeout_graceful_shutdown=1))
        self.loop: Future[asyncio.AbstractEventLoop] = Future()
        self.thread = threading.Thread(target=self.run, name="server in a thread")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop.set_result(asyncio.get_running_loop())


@contextlib.contextmanager
def in_thread(app: Any, *, port: int = 0, stub: StubHost | None = None) -> Generator[str]:
    """Serve an ASGI application in a thread; give its address. `stub` is told the loop."""
    server = _Threaded(app, port)
    server.thread.start()
    try:
        loop = server.loop.result(20)
        if stub is not None:
            stub.loop = loop
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        server.thread.join(20)


@contextlib.contextmanager
def over_http(stub: StubHost, *, token: str | None = None, port: int = 0) -> Generator[str]:
    """Serve `stub` in a thread; give its address."""
    with in_thread(stub.app(token), port=port, stub=stub) as origin:
        yield f"{origin}/mcp"


def program(*more: str | Path) -> list[str]:
    """The argv of the stub as a program; `stdio` or a port first."""
    return [sys.executable, "-P", __file__, *map(str, more)]


def command(*more: str | Path) -> list[str]:
    """The same, for the code under test to start."""
    from support.forks import forking  # the program does not need it

    return forking(program(*more))


async def _stdio(stub: StubHost) -> None:
    server = stub.server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main(arguments: Iterable[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("where")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--broken", default="")
    parser.add_argument("--tiers", default=",".join(ALL))
    given = parser.parse_args(list(arguments))
    stub = StubHost(broken=given.broken, tiers=given.tiers.split(","), file=given.file, log=given.log)
    if given.where == "stdio":
        asyncio.run(_stdio(stub))
    else:
        uvicorn.run(stub.app(), port=int(given.where), log_config=None, ws="none")


if __name__ == "__main__":
    main(sys.argv[1:])
