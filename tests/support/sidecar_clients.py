"""Clients of a sidecar on the bare wire, over HTTP and over standard streams.

Each can be left in the middle of a call, as a machine that loses its network would.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from support.sidecar_calls import LEGACY, MODERN, Asked, Calling, Refused, Revision, Served

BOUND = 60.0
"""Seconds until a test gives up waiting for something that must come."""
_LONGEST = 1 << 24  # bytes in a line


class Broken(Exception):
    """The connection ended before the answer did."""


@dataclass
class Reply:
    """The answer to a request, whose body is still to be read.

    Attributes:
        status: The number of HTTP.
        headers: By their names in small letters.
    """

    status: int
    headers: Mapping[str, str]
    wire: Wire

    @property
    def streams(self) -> bool:
        """Whether the body is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.wire.parts(self)])

    async def json(self) -> Any:
        """The whole body, which is JSON."""
        return json.loads(await self.read())

    async def messages(self) -> AsyncGenerator[dict[str, Any]]:
        """The messages of the body, as they come: one, or those of its events."""
        if not self.streams:
            body = await self.read()
            if body:
                yield json.loads(body)
            return
        rest = b""
        async with aclosing(self.wire.parts(self)) as parts:
            async for part in parts:
                *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
                for event in events:
                    data = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
                    if any(data):
                        yield json.loads(b"\n".join(data))


class Wire:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> Wire:
        """Connect to the machine and port of an address."""
        where = urlsplit(url)
        return cls(*await asyncio.open_connection(where.hostname, where.port, limit=_LONGEST))

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        host: str = "localhost",
    ) -> None:
        """Send a request."""
        fields = {"Host": host, "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await self.writer.drain()

    async def reply(self) -> Reply:
        """Read the head of the answer.

        Raises:
            Broken: The connection ended.
        """
        head = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return Reply(int(head[0].split()[1]), headers, self)

    async def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        """Send a request and read the head of the answer."""
        await self.send(method, path, headers, body)
        return await self.reply()

    async def parts(self, reply: Reply) -> AsyncGenerator[bytes]:
        """The body, as it comes."""
        if reply.headers.get("transfer-encoding") == "chunked":
            while size := int(await self._until(b"\r\n"), 16):
                yield await self._exactly(size)
                await self._exactly(2)
            await self._exactly(2)
        elif size := int(reply.headers.get("content-length", "0")):
            yield await self._exactly(size)

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """Break off, whatever is still to come."""
        self.writer.transport.abort()

    async def _until(self, end: bytes) -> bytes:
        try:
            return (await asyncio.wait_for(self.reader.readuntil(end), BOUND))[: -len(end)]
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken(type(error).__name__) from None

    async def _exactly(self, size: int) -> bytes:
        try:
            return await asyncio.wait_for(self.reader.readexactly(size), BOUND)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken(type(error).__name__) from None


async def get(url: str, path: str) -> tuple[int, Any]:
    """What stands at another path of the same server: the status, and the body where it is JSON."""
    wire = await Wire.open(url)
    try:
        reply = await wire.ask("GET", path)
        body = await reply.read()
    finally:
        wire.close()
    return reply.status, json.loads(body) if body[:1] in (b"{", b"[") else body


_CHUNK = 1 << 16


class HttpClient(Calling):
    """A client over HTTP.

    Args:
        url: The sidecar's address, `/mcp` included.
        token: Its bearer token.
        revision: Of the protocol. The earlier one has a session.
        elicit: Answers questions; without it, the client declares that it cannot.
    """

    def __init__(self, url: str, token: str = "", revision: Revision = MODERN, *, elicit: Asked | None = None) -> None:
        super().__init__(revision, elicit, None)
        self.url, self.token = url, token
        self.session: str | None = None
        self.wire: Wire | None = None
        """The connection of the newest exchange."""

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End its session, where it has one."""
        if self.session is not None:
            with contextlib.suppress(Broken, OSError):
                wire = await Wire.open(self.url)
                await (await wire.ask("DELETE", "/mcp", self.headers("", {}))).read()
                wire.close()

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a message."""
        found = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.token:
            found["Authorization"] = f"Bearer {self.token}"
        if self.revision == MODERN:
            found |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if "name" in params:
                found["Mcp-Name"] = str(params["name"])
        elif self.session is not None:
            found |= {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": self.session}
        return found

    async def exchange(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        message = self.message(method, params)
        wire = self.wire = await Wire.open(self.url)
        done = False
        try:
            reply = await wire.ask("POST", "/mcp", self.headers(method, params), json.dumps(message).encode())
            self.session = reply.headers.get("mcp-session-id", self.session)
            if reply.status >= 400:
                said = await reply.read()
                self.heard.append(said)
                raise Refused(_number(said) or reply.status, said)
            async with aclosing(reply.messages()) as messages:
                async for came in messages:
                    self.heard.append(came)
                    done = done or came.get("id") == message["id"]
                    yield came
            if not done:
                raise Broken("no answer")
        finally:
            wire.close()

    async def send(self, message: Mapping[str, Any]) -> None:
        wire = await Wire.open(self.url)
        headers = self.headers(str(message.get("method", "")), {})
        reply = await wire.ask("POST", "/mcp", headers, json.dumps(message).encode())
        said = await reply.read()
        wire.close()
        if reply.status >= 400:
            raise Refused(reply.status, said)


def _number(body: bytes) -> int | None:
    """The number of JSON-RPC in a body, where it has one."""
    try:
        said = json.loads(body)
        number = said["error"]["code"]
    except (ValueError, TypeError, KeyError):
        return None
    return number if isinstance(number, int) else None


class Piped(Calling):
    """A client over one pair of streams, which a subclass has."""

    def __init__(self, revision: Revision, elicit: Asked | None, roles: Served | None) -> None:
        super().__init__(revision, elicit, roles)
        self._waiting: dict[Any, asyncio.Queue[dict[str, Any] | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return await self.begin()

    async def __aexit__(self, *exc: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.wait([self._reading])

    @abstractmethod
    def come(self) -> AsyncGenerator[dict[str, Any]]:
        """The messages that come, to the end of the stream."""

    async def exchange(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        message = self.message(method, params)
        number = message["id"]
        came = self._waiting[number] = asyncio.Queue()
        done = False
        try:
            await self.send(message)
            while not done:
                found = await asyncio.wait_for(came.get(), BOUND)
                if found is None:
                    raise Broken("the sidecar has ended")
                done = "method" not in found
                yield found
        finally:
            del self._waiting[number]
            if not done and method != "initialize":
                with contextlib.suppress(ConnectionError):
                    await self.notify("notifications/cancelled", requestId=number)

    async def _read(self) -> None:
        try:
            async for message in self.come():
                self.heard.append(message)
                await self._take(message)
        finally:
            for waiting in self._waiting.values():
                waiting.put_nowait(None)

    async def _take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "notifications/progress":
            to = message["params"]["progressToken"]
        elif "method" in message:
            if "id" in message:
                await self.respond(message)
            return
        else:
            to = message["id"]
        if to in self._waiting:
            self._waiting[to].put_nowait(message)


class StdioClient(Piped):
    """A client over the standard streams of a process that it owns; its lines may be long.

    Args:
        process: The sidecar, with pipes for its standard input and output.
        revision: Of the protocol.
        elicit: Answers questions.
        roles: Answers calls of a role host, over this same connection.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        revision: Revision = MODERN,
        *,
        elicit: Asked | None = None,
        roles: Served | None = None,
    ) -> None:
        super().__init__(revision, elicit, roles)
        self.process = process

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.say(json.dumps(message).encode())

    async def say(self, line: bytes) -> None:
        """Send a line, which may be no message."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def come(self) -> AsyncGenerator[dict[str, Any]]:
        assert self.process.stdout is not None
        rest = b""
        while part := await self.process.stdout.read(_CHUNK):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                yield json.loads(line)
