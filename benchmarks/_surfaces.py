"""All surfaces of an agent that read bodies, in this process and without a network, for `hostile_requests.py`.

The loop's thread then does what it does in a server, and no client's work counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mcp.server.lowlevel import Server

from worldagent import Memory, Settings, Storage, WorldAgent
from worldagent.benchmarks._stubs import answering, constant_lm
from worldagent.core.bounds import Bounds
from worldagent.hosts.acp.server import _METHODS, _Server
from worldagent.hosts.bounds import CALL, PROMPT
from worldagent.hosts.serving import Address, application
from worldagent.hosts.serving.handlers import guard
from worldagent.hosts.serving.stdio_server import Run, _Connection
from worldagent.hosts.sidecar import Sidecar, schemas
from worldagent.hosts.sidecar.server import EVERYTHING
from worldagent.hosts.sidecar.tools import TOOLS
from worldagent.hosts.web import Grant, WebApp
from worldagent.hosts.web.routes import ENDPOINTS
from worldagent.members import AuthorityConfig, RoleSpec, WorkspaceConfig

WORKSPACE: Final = "bench"
_MODERN: Final = "2026-07-28"
_META: Final = "io.modelcontextprotocol/"
_THREAD: Final = "@@thread@@"  # a new one in each body, since a thread's messages are read again in its next turn
_LONG: Final = 1000  # characters of a text
_NUMBERS: Final = itertools.count()

_USER: Final = {"id": "m", "role": "user", "content": "Hello."}
_IN_MESSAGE: Final = b'[{"id":"m","role":"user","content":%s}]'
_BLOCKS: Final = (
    b'[{"type":"text","text":%s}]',
    b'[{"type":"image","mimeType":"image/png","data":%s}]',
    b'[{"type":"resource","resource":{"uri":"file:///a","text":%s}}]',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What takes a body.

    Attributes:
        name: Its name.
        arguments: The names of its arguments.
        least: Those that it requires, with values that it takes.
        wraps: What else a hostile part is put into, in an argument.
        method, path: Those of HTTP; the path can have a query.
    """

    name: str
    arguments: Sequence[str]
    least: Mapping[str, Any]
    wraps: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    method: str = "POST"
    path: str = ""


@dataclass(frozen=True, slots=True)
class Surface:
    """A surface.

    Attributes:
        name: Its name.
        tools: What takes a body.
        send: Returns the exchange of a body of a tool for an answer.
    """

    name: str
    tools: Sequence[Tool]
    send: Callable[[Tool, bytes], Coroutine[Any, Any, None]]


def _agent(home: Path) -> WorldAgent:
    member = RoleSpec(
        role_id="cro",
        workspace=WORKSPACE,
        soul="You are cro.",
        domains=(),
        reports_to="",
        operator_ids=(),
        authority=AuthorityConfig(),
        parent_role_id="",
    )
    return WorldAgent(
        WORKSPACE,
        lm=constant_lm(answering),
        storage=Storage(home=home),
        settings=Settings(model_attempts=1, thread_wait=0.1),
        memory=Memory(),
        society=WorkspaceConfig(id=WORKSPACE, name="Bench", owner="ana", roles=(member,)),
    )


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[Sequence[Surface]]:
    """Open all surfaces: the web app, AG-UI, OpenAI's API, MCP over HTTP and over streams, and ACP."""
    async with AsyncExitStack() as stack:
        agent, editor = _agent(home / "served"), await stack.enter_async_context(_agent(home / "editor"))
        sidecar = await stack.enter_async_context(Sidecar(lambda _: agent, grant=EVERYTHING))
        web = WebApp(sidecar, grant=Grant((WORKSPACE,), ("*",), operator=True))
        mcp = application(sidecar, Address("127.0.0.1", 80))
        await stack.enter_async_context(mcp.state.sessions.run())
        lines = await stack.enter_async_context(_lines(_mcp_run(sidecar.server), CALL))
        server = _Server(editor, None, None, {}, AsyncExitStack())
        editing = await stack.enter_async_context(_lines(server.run, PROMPT))
        hello = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}'
        await editing.send(hello)
        session = await _session(editing)
        paths = [_endpoint(each) for each in ENDPOINTS if each.has_body]
        login = Tool(name="login", arguments=["token"], least={}, path="/login")
        yield [
            Surface("web", [*paths, login], lambda tool, body: _post(web, tool.method, tool.path, body)),
            Surface("ag_ui", [_AG_UI], lambda tool, body: _post(web, tool.method, tool.path, body)),
            Surface("openai", [_OPENAI], lambda tool, body: _post(web, tool.method, tool.path, body)),
            Surface("mcp_http", _TOOLS, lambda tool, body: _called(mcp, tool, body)),
            Surface("mcp_stdio", _TURNS, lambda tool, body: lines.send(_call_of(tool, body))),
            Surface("acp", _acp_tools(session), lambda tool, body: _edited(editing, session, tool, body)),
        ]


# --- what takes a body ------------------------------------------------------------------------------------------------


def _least(schema: Mapping[str, Any]) -> dict[str, Any]:
    definitions = schema.get("$defs", {})
    found = {name: _example(schema["properties"][name], definitions) for name in schema.get("required", ())}
    return {**found, **({"thread": _THREAD} if "thread" in found else {})}


def _example(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    if "$ref" in part:
        part = definitions[part["$ref"].removeprefix("#/$defs/")]
    if "examples" in part:
        return part["examples"][0]
    if "enum" in part:
        return part["enum"][0]
    if part.get("type") == "object":
        return {name: _example(part["properties"][name], definitions) for name in part.get("required", ())}
    return {"integer": 1, "number": 1, "boolean": True, "array": []}.get(str(part.get("type")), "x")


def _is_wide(part: Mapping[str, Any]) -> bool:
    """Whether a value of a schema can be long, or have parts."""
    if part.get("type") == "string":
        return part.get("maxLength", _LONG) >= _LONG and not {"const", "enum"} & part.keys()
    return part.get("type") in ("object", "array") or "$ref" in part or any(map(_is_wide, part.get("anyOf", ())))


def _tool(name: str, *, leave: Sequence[str] = (), **more: Any) -> Tool:
    schema = schemas()[f"{name}.input"]
    least = {key: value for key, value in _least(schema).items() if key not in leave}
    names = [key for key in schema["properties"] if key not in leave]
    wide = [key for key in names if _is_wide(schema["properties"][key])]
    arguments = [*wide, *[key for key in names if key not in wide][:1]]  # short ones are all checked in the same way
    return Tool(name=name, arguments=arguments, least=least, wraps={"role": (b'{"content":%s}',)}, **more)


_PATHS: Final = [each.operation.name for each in ENDPOINTS if each.has_body]
_TURNS: Final = [_tool(name) for name in ("converse", "task", "run_skill", "run_scheduled", "resume")]
_TOOLS: Final = [*_TURNS, *(_tool(name) for name in TOOLS if name not in _PATHS and name != "run_scheduled")]
"""Those that run a turn, and those that are not paths of the web app with a body. The others take the same."""


def _endpoint(endpoint: Any) -> Tool:
    path = endpoint.path.replace("{thread:path}", _THREAD).replace("{tier}", "workspace")
    for name in endpoint.in_path:
        path = path.replace(f"{{{name}}}", "x")
    return _tool(endpoint.operation.name, leave=endpoint.in_path, method=endpoint.method, path=path)


_RUN: Final = ("threadId", "runId", "state", "messages", "tools", "context", "resume", "forwardedProps")
_AG_UI: Final = Tool(
    name="ag_ui",
    arguments=_RUN,
    least={
        "state": {},
        "forwardedProps": {},
        "tools": [],
        "context": [],
        "threadId": _THREAD,
        "runId": _THREAD,
        "messages": [_USER],
    },
    wraps={
        "messages": (_IN_MESSAGE,),
        "forwardedProps": (b'{"inputs":%s}', b'{"role":{"content":%s}}', b'{"attachments":%s}'),
    },
    path="/ag-ui",
)
_OPENAI: Final = Tool(
    name="chat_completions",
    arguments=("model", "messages", "response_format", "stream_options", "tools", "metadata"),
    least={"model": WORKSPACE, "messages": [_USER]},
    wraps={
        "messages": (_IN_MESSAGE, b'[{"role":"system","content":%s},{"role":"user","content":"Hello."}]'),
        "response_format": (b'{"type":"json_schema","json_schema":{"schema":%s}}',),
    },
    path="/v1/chat/completions",
)


def _acp_tools(session: str) -> list[Tool]:
    found = []
    for name, (model, _) in _METHODS.items():
        if name == "session/cancel":  # a notification, which nothing answers
            continue
        aliases = [field.alias or key for key, field in model.model_fields.items()]
        known = {"sessionId": session, "cwd": "/tmp", "mcpServers": [], "protocolVersion": 1, "modeId": "none"}
        least = {key: value for key, value in known.items() if key in aliases}
        if name == "session/prompt":
            least["prompt"] = [{"type": "text", "text": "Hello."}]
        found.append(Tool(name=name, arguments=aliases, least=least, wraps={"prompt": _BLOCKS}, method=name))
    return found


# --- over HTTP --------------------------------------------------------------------------------------------------------


def on_thread(tool: Tool, thread: str) -> Tool:
    """The tool with a path of one thread, in place of a new thread for each call."""
    return replace(tool, path=tool.path.replace(_THREAD, thread))


def _with_thread(body: bytes) -> bytes:
    return body.replace(_THREAD.encode(), b"t%d" % next(_NUMBERS))


def _post(
    app: Any, method: str, path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
) -> Coroutine[Any, Any, None]:
    path, _, query = path.replace(_THREAD, f"t{next(_NUMBERS)}").partition("?")
    body = _with_thread(body)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"accept", b"application/json, text/event-stream" if headers else b"application/json"),
            *headers,
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    received: list[bytes] = [body]

    async def receive() -> dict[str, Any]:
        if not received:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": received.pop(), "more_body": False}

    async def send(message: Any) -> None:
        pass

    return app(scope, receive, send)  # type: ignore[no-any-return]  # an ASGI app has no types


def _call_of(tool: Tool, arguments: bytes) -> bytes:
    meta = {f"{_META}protocolVersion": _MODERN, f"{_META}clientCapabilities": {}, f"{_META}clientInfo": _INFO}
    params = json.dumps({"name": tool.name, "_meta": meta}).encode()
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s,"arguments":%s}}' % (
        next(_NUMBERS),
        params[:-1],
        _with_thread(arguments),
    )


_INFO: Final = {"name": "bench", "version": "1"}


def _called(app: Any, tool: Tool, arguments: bytes) -> Coroutine[Any, Any, None]:
    headers = [
        (b"mcp-protocol-version", _MODERN.encode()),
        (b"mcp-method", b"tools/call"),
        (b"mcp-name", tool.name.encode()),
    ]
    return _post(app, "POST", "/mcp", _call_of(tool, arguments), headers)


# --- over streams -----------------------------------------------------------------------------------------------------


def _mcp_run(server: Server[Any]) -> Run:
    guard(server)

    async def run(received: Any, sent: Any) -> None:
        await server.run(received, sent, server.create_initialization_options())

    return run


def _method_of(tool: Tool, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (next(_NUMBERS), tool.method.encode(), params)


class _Lines:
    """A client of a connection, which waits for the answer of each line."""

    def __init__(self, to_server: int, from_server: int) -> None:
        self._to_server = to_server
        self._answers = os.fdopen(from_server, "rb")

    async def send(self, line: bytes) -> None:
        await asyncio.to_thread(self.exchange, line)

    def exchange(self, line: bytes) -> dict[str, Any]:
        left = memoryview(line + b"\n")
        while left:
            left = left[os.write(self._to_server, left) :]
        while True:
            answer: dict[str, Any] = json.loads(self._answers.readline())
            if "method" not in answer:
                return answer

    def close(self) -> None:
        os.close(self._to_server)
        self._answers.close()


@asynccontextmanager
async def _lines(run: Run, bounds: Bounds) -> AsyncGenerator[_Lines]:
    """Serve a client over pipes."""
    (incoming, to_server), (from_server, outgoing) = os.pipe(), os.pipe()
    lines = os.fdopen(incoming, "rb")
    connection = _Connection(lines, outgoing, bounds)

    async def finish() -> None:
        """There is nothing to finish."""

    serving = asyncio.create_task(connection.run(run, finish))
    client = _Lines(to_server, from_server)
    try:
        yield client
    finally:
        client.close()
        await asyncio.wait_for(serving, 10)
        lines.close()
        os.close(outgoing)


async def _edited(editing: _Lines, session: str, tool: Tool, body: bytes) -> None:
    if tool.name == "session/prompt":  # in a session of its own: what earlier prompts left costs time, too
        body = body.replace(session.encode(), (await _session(editing)).encode())
    await editing.send(_method_of(tool, body))


async def _session(editing: _Lines) -> str:
    new = b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}'
    answer = await asyncio.to_thread(editing.exchange, new)
    return str(answer["result"]["sessionId"])
