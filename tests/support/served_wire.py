"""HTTP on raw sockets, for what no client library would send or leave unread."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.served import BOUND
from worldagent.hosts.serving import Address

MODERN, LEGACY = "2026-07-28", "2025-11-25"
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_META = "io.modelcontextprotocol/"


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
    rest: bytes = field(default=b"", init=False)

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
        return self.read()

    def read(self) -> Answer:
        """Read one answer whole, whose body is counted, chunked, or everything until the end."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, self._chunks())
        if "content-length" in headers:
            return Answer(status, headers, self._exactly(int(headers["content-length"])))
        while self._more():
            pass
        return Answer(status, headers, self.rest)

    def head(self) -> tuple[int, dict[str, str]]:
        """Read the head of an answer."""
        while b"\r\n\r\n" not in self.rest:
            assert self._more(), f"the connection ended within a head: {self.rest!r}"
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        first, *rows = head.decode("latin-1").split("\r\n")
        pairs = (row.split(":", 1) for row in rows)
        return int(first.split()[1]), {name.lower(): value.strip() for name, value in pairs}

    def _more(self) -> bool:
        data = self.socket.recv(1 << 16)
        self.rest += data
        return bool(data)

    def _exactly(self, count: int) -> bytes:
        while len(self.rest) < count:
            assert self._more(), "the connection ended within a body"
        body, self.rest = self.rest[:count], self.rest[count:]
        return body

    def _chunks(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self.rest:
                assert self._more(), "the connection ended within a chunked body"
            size, self.rest = self.rest.split(b"\r\n", 1)
            data = self._exactly(int(size, 16) + 2)
            if len(data) == 2:
                return body
            body += data[:-2]


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
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = wire.ask("POST", "/mcp", json.dumps(message).encode(), **JSON, **more)
    assert answer.status == 200, answer
    headers = {**JSON, **more, "MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": answer.headers["mcp-session-id"]}
    ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    assert wire.ask("POST", "/mcp", ready, **headers).status == 202
    return headers
