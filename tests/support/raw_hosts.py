"""Role hosts made of plain bytes, for what no library lets a host do: answers that are no MCP, no JSON or no text.

As a program: `python raw_hosts.py HOW`; with `plain HOW` it is a sound host that breaks as a process in a named way. It
imports little, so that it starts at once.
"""

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIERS = ["workspace", "account", "channel"]
LONGEST = 32 * 1024

_TEXT = {"type": "string"}
_TIER = {"type": "string", "enum": TIERS}
_SCOPE_IDS = {"type": "object", "propertyNames": {"enum": TIERS}, "additionalProperties": _TEXT}
_PLAIN_TOOLS: dict[str, dict[str, Any]] = {
    "role_list": {"scope_ids": _SCOPE_IDS},
    "role_get": {"tier": _TIER, "scope_id": _TEXT},
    "role_put": {"tier": _TIER, "scope_id": _TEXT, "name": _TEXT, "content": _TEXT},
    "role_delete": {"tier": _TIER, "scope_id": _TEXT},
}


def plain_host(how: str = "") -> list[str]:
    """The argv of such a host."""
    return [sys.executable, "-S", "-E", str(Path(__file__)), "plain", how]


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and bool(value.strip())


def _fits(tool: str, given: dict[str, Any]) -> bool:
    if given.keys() != _PLAIN_TOOLS[tool].keys():
        return False
    if tool == "role_list":
        scopes = given["scope_ids"]
        return isinstance(scopes, dict) and all(tier in TIERS and _is_label(scope) for tier, scope in scopes.items())
    content = given.get("content", "some")
    labels = (given["scope_id"], given.get("name", "some"))
    return given["tier"] in TIERS and all(map(_is_label, labels)) and isinstance(content, str) and bool(content.strip())


class PlainHost:
    """The host, with its roles in memory."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.kept: dict[tuple[str, str], dict[str, str]] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The result of a request, or its error."""
        params = asked.get("params", {})
        match asked["method"]:
            case "initialize":
                revision = "1999-01-01" if self.how == "an unknown revision" else "2025-11-25"
                server = {"capabilities": {"tools": {}}, "serverInfo": {"name": "plain", "version": "1"}}
                found: dict[str, Any] = {"protocolVersion": revision, **server}
            case "tools/list":
                found = {"tools": [{"name": name, "inputSchema": self.schema(name)} for name in _PLAIN_TOOLS]}
            case "tools/call" if params["name"] in _PLAIN_TOOLS:
                self.break_(params["name"])
                content = self.call(params["name"], params.get("arguments", {}))
                said = [{"type": "text", "text": "done"}]
                found = {"content": said, "structuredContent": content, "isError": "code" in content}
            case _:
                return {"error": {"code": -32601, "message": "unknown"}}
        return {"result": found}

    def call(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        """The structured content of a tool's answer."""
        if not _fits(tool, given):
            return {"contract": 1, "code": "invalid"}
        if tool == "role_list":
            found = [self.kept[place] for place in given["scope_ids"].items() if place in self.kept]
            return {"contract": 1, "roles": found}
        place = (given["tier"], given["scope_id"])
        if tool == "role_put":
            if len(given["content"].encode()) > LONGEST:
                return {"contract": 1, "code": "too_long"}
            self.kept[place] = {name: given[name] for name in ("name", "content", "tier")}
        if place not in self.kept:
            return {"contract": 1, "code": "not_found"}
        return {"contract": 1, "role": self.kept.pop(place) if tool == "role_delete" else self.kept[place]}

    def schema(self, tool: str) -> dict[str, Any]:
        """The input schema of a tool."""
        properties = _PLAIN_TOOLS[tool]
        if self.how == "copies into headers" and "content" in properties:
            properties = properties | {"content": _TEXT | {"x-mcp-header": "Content"}}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def break_(self, tool: str) -> None:
        """Do what is wrong before a call is answered."""
        match self.how:
            case "writes garbage":
                os.write(1, b"loading roles...\n")
            case "logs roles" if self.kept:
                told = {"level": "info", "data": list(self.kept.values())}
                notice = {"jsonrpc": "2.0", "method": "notifications/message", "params": told}
                os.write(1, (json.dumps(notice) + "\n").encode())
            case _:
                pass

    def serve(self) -> None:
        """Answer what comes, until the input ends."""
        for line in sys.stdin.buffer:
            asked = json.loads(line)
            if "id" in asked:
                answer = {"jsonrpc": "2.0", "id": asked["id"], **self.answer(asked)}
                os.write(1, (json.dumps(answer) + "\n").encode())
            elif self.how == "dies of a cancelled call" and asked["method"] == "notifications/cancelled":
                os._exit(3)


SECRET = "secret words of the host"
HUGE = 100 << 20
_CHUNK = b"x" * (1 << 16)


def _roles(content: str) -> dict[str, Any]:
    return _structured({"contract": 1, "roles": [{"tier": "workspace", "name": "house", "content": content}]})


def _structured(content: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": SECRET}], "structuredContent": content, "isError": False}


def _around(result: dict[str, Any], mark: str) -> tuple[bytes, bytes]:
    before, _, after = json.dumps({"jsonrpc": "2.0", "id": 0, "result": result}).encode().partition(mark.encode())
    return before, after


# What a host answers to `role_list`, by the way in which it is broken; the request's id takes the place of `"id": 0`.
ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "sound": lambda: _plain(_structured({"contract": 1, "roles": []})),
    "huge": lambda: _sized_role(HUGE),
    "deep": lambda: iter([_around(_structured({"contract": 1, "roles": ["@"]}), '"@"')[0] + b"[" * 100_000]),
    "a role over the limit": lambda: _plain(_roles("long words " * 3_000)),
    "a number for a name": lambda: _plain(
        _structured({"contract": 1, "roles": [{"tier": "workspace", "name": 7, "content": SECRET}]})
    ),
    "no json": lambda: iter([SECRET.encode()]),
    "an error of its own": lambda: iter([_error(-32050)]),
    "the library's code for a lost connection": lambda: iter([_error(-32000)]),
    "a result that is none": lambda: iter([b'{"jsonrpc": "2.0", "id": 0, "result": {"content": "secret words"}}']),
    "nothing": lambda: iter([]),
}


def _error(code: int) -> bytes:
    error = {"code": code, "message": SECRET, "data": {"role": SECRET}}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "error": error}).encode()


def _plain(result: dict[str, Any]) -> Iterator[bytes]:
    yield json.dumps({"jsonrpc": "2.0", "id": 0, "result": result}).encode()


def _sized_role(size: int) -> Iterator[bytes]:
    before, after = _around(_roles("@"), "@")
    yield before
    for _ in range(size // len(_CHUNK)):
        yield _CHUNK
    yield after


def _echo(sent: dict[str, Any], how: str) -> Iterator[bytes]:
    if how == "echoes as an error":
        error = {"code": -32050, "message": json.dumps(sent), "data": sent}
        yield json.dumps({"jsonrpc": "2.0", "id": 0, "error": error}).encode()
    elif how == "echoes as json":
        yield json.dumps({"jsonrpc": "2.0", "id": 0, "result": sent["arguments"]}).encode()
    else:
        yield sent["arguments"]["content"].encode()


def reply(request: dict[str, Any], how: str) -> Iterator[bytes]:
    """The answer to a request, in parts; none where the host keeps silent."""
    given = json.dumps(request["id"]).encode()
    match request["method"]:
        case "tools/call" if how.startswith("echoes"):
            made: Iterator[bytes] = _echo(request["params"], how)
        case "tools/call":
            made = ANSWERS.get(how, ANSWERS["sound"])()
        case _:
            made = iter([json.dumps({"jsonrpc": "2.0", "id": 0, **PlainHost(how).answer(request)}).encode()])
    for number, part in enumerate(made):
        yield part.replace(b'"id": 0', b'"id": ' + given, 1) if number == 0 else part


# --- over standard streams --------------------------------------------------------------------------------------------


def command(how: str) -> list[str]:
    """The argv of such a host as a program."""
    return [sys.executable, "-S", str(Path(__file__)), how]


def main(how: str) -> None:
    out = sys.stdout.buffer
    if how == "a banner":
        out.write(f"Welcome! {SECRET}\n\nListening.\n".encode())
    if how == "chatter":
        with contextlib.suppress(BrokenPipeError):
            while True:
                out.write(SECRET.encode() + b"\n")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        if how == "closes its output" and request["method"] == "tools/call":
            os.close(1)
            time.sleep(600)
        for part in reply(request, how):
            out.write(part)
        out.write(b"\n")
        out.flush()


# --- over HTTP --------------------------------------------------------------------------------------------------------


@dataclass
class RawHost:
    """A host over HTTP in the running loop.

    Attributes:
        how: How it answers `role_list`: a key of `ANSWERS`, or the head of an answer of HTTP, such as `503 Busy`.
        headers: Of every answer to `role_list`.
        kind: The content type of its answers; `text/event-stream` makes them events.
        url: Its address, once it listens.
        came: What was sent to it, as it came.
        sent: Bytes of answers that the caller took.
    """

    how: str = "sound"
    headers: list[str] = field(default_factory=list)
    kind: str = "application/json"
    url: str = ""
    came: bytearray = field(default_factory=bytearray)
    sent: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].partition(b":")[2])) if length else b""
                self.came += head + body
                await self._answer(json.loads(body or b"{}"), writer)

    async def _answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        called = request.get("method") == "tools/call"
        if "id" not in request:
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            return
        if called and self.how[:3].isdigit():
            writer.write(
                self._head(self.how, ["Content-Type: text/plain"]) + self._part(SECRET.encode()) + b"0\r\n\r\n"
            )
            return
        writer.write(self._head("200 OK", [f"Content-Type: {self.kind}"], called=called))
        events = self.kind == "text/event-stream"
        if events:
            writer.write(self._part(b"event: message\r\ndata: "))
        for part in reply(request, self.how):
            writer.write(self._part(part))
            await writer.drain()
            self.sent += len(part)
        if self.how == "drips" and called:
            while True:
                writer.write(self._part(b" "))
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.write((self._part(b"\r\n\r\n") if events else b"") + b"0\r\n\r\n")
        await writer.drain()

    def _head(self, status: str, more: list[str], *, called: bool = True) -> bytes:
        lines = [f"HTTP/1.1 {status}", *more, *(self.headers if called else []), "Transfer-Encoding: chunked", "", ""]
        return "\r\n".join(lines).encode()

    @staticmethod
    def _part(data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data)


@contextlib.asynccontextmanager
async def raw_host(
    how: str = "sound", *headers: str, kind: str = "application/json", tls: ssl.SSLContext | None = None
) -> AsyncGenerator[RawHost]:
    """Serve a raw host on a free port of this machine."""
    from support.serving import serving  # as a program over stdio it needs none, and has no such path

    made = RawHost(how, list(headers), kind)
    async with serving(made.serve, tls=tls) as port:
        made.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/mcp"
        yield made


@contextlib.contextmanager
def raw_process(how: str) -> Generator[str]:
    """Serve a raw host by a process of its own; give its address."""
    from support.processes import listening  # likewise

    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with listening([*command(how), "over HTTP"], env=env) as (url, _):
        yield url


async def _serve(how: str) -> None:
    async with raw_host(how) as raw:
        sys.stdout.write(raw.url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        match sys.argv[1:]:
            case ["plain", how]:
                PlainHost(how).serve()
            case [how, "over HTTP"]:
                asyncio.run(_serve(how))
            case [how]:
                main(how)
            case words:
                raise SystemExit(f"no such host: {words}")
